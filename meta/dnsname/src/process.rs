//! The process of a network's server. A file contains its process id, but any program may have written the file, and
//! the id may be reused. So a process receives a signal only after a check that it is the server, and through a
//! process descriptor, which never refers to another process, unless the kernel has none.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use cni::{Code, Error, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};
use rustix::thread::{CapabilitySet, capabilities};
use system::file;

use crate::server;

/// The name of the executable.
pub const PROGRAM: &str = "dnsmasq";

/// Maximum size of the file with the process id: a number and a line end.
const LONGEST_PID: u64 = 100;

/// Timeout for the server's exit after SIGTERM, and again after SIGKILL.
const EXIT_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a process may take to exit that the kernel refuses to show.
const REFUSED_TIMEOUT: Duration = Duration::from_secs(1);

/// Maximum number of searches in all processes while processes exit.
const LOOKS: usize = 3;

/// Polling interval for a process without a pidfd.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A running server.
#[derive(Debug)]
pub struct Server {
    pid: Pid,
    /// None: the kernel has no pidfd_open(2), as before Linux 5.3, or a seccomp filter refuses it.
    fd: Option<OwnedFd>,
}

impl Server {
    /// Finds the server that was started with a configuration file in this network namespace. If the file with the
    /// process id is missing or wrong, searches all processes.
    ///
    /// # Errors
    /// If processes cannot be examined.
    pub fn find(conf: &Path, pid_file: &Path) -> Result<Option<Self>> {
        let named = file::read_own(pid_file, LONGEST_PID).ok();
        let named =
            named.and_then(|text| String::from_utf8(text).ok()?.trim().parse::<u32>().ok()?.try_into().ok());
        if let Some(server) = named.map(|pid| Self::open(pid, conf)).transpose()?.flatten() {
            return Ok(Some(server));
        }
        Self::among(&processes()?, conf)
    }

    /// Like a search of [`Server::find`], also for a server that goes into the background meanwhile: of its two processes, the list contains
    /// only the first, which exits before it is examined.
    ///
    /// # Errors
    /// If processes cannot be examined.
    pub fn find_starting(conf: &Path) -> Result<Option<Self>> {
        for _ in 0..LOOKS {
            let pids = processes()?;
            if let Some(server) = Self::among(&pids, conf)? {
                return Ok(Some(server));
            }
            let has_exited = |pid: &i32| !Path::new("/proc").join(pid.to_string()).exists();
            if !pids.iter().any(has_exited) {
                break;
            }
        }
        Ok(None)
    }

    /// The server among these processes.
    fn among(pids: &[i32], conf: &Path) -> Result<Option<Self>> {
        for pid in pids.iter().copied().filter(|pid| may_be_dnsmasq(*pid)) {
            // For queries over TCP, dnsmasq starts child processes, which have its arguments.
            if let Some(server) = Self::open(pid, conf)?
                && parent(pid).map(|parent| Self::open(parent, conf)).transpose()?.flatten().is_none()
            {
                return Ok(Some(server));
            }
        }
        Ok(None)
    }

    /// Opens a process if it is the server.
    fn open(number: i32, conf: &Path) -> Result<Option<Self>> {
        let failed = |e: &io::Error| {
            Error::io(format!("examine process {number}"), e)
                .detail("this requires CAP_SYS_PTRACE for processes of other users")
        };
        let Some(pid) = Pid::from_raw(number) else { return Ok(None) };
        let fd = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(fd) => Some(fd),
            Err(Errno::NOSYS | Errno::PERM) => None,
            // The process has exited, or the id belongs to a thread.
            Err(Errno::SRCH | Errno::INVAL) => return Ok(None),
            Err(e) => return Err(failed(&e.into())),
        };
        let this = Self { pid, fd };
        // Check after the process was opened: until then, its id may be reused.
        match is_server(number, conf) {
            Ok(is_server) => Ok(is_server.then_some(this)),
            // The kernel does not show details of an exiting process, even to root.
            Err(_) if this.exits_within(REFUSED_TIMEOUT)? => Ok(None),
            Err(e) => Err(failed(&e)),
        }
    }

    /// Makes the server read its hosts files again. Succeeds if the server has exited.
    ///
    /// # Errors
    /// If the signal cannot be sent.
    pub fn reload(&self) -> Result<()> {
        self.signal(Signal::HUP).map(drop)
    }

    /// Stops the server, and waits until it has exited.
    ///
    /// # Errors
    /// Code 11 if it does not exit. Otherwise the kernel's error.
    pub fn stop(&self) -> Result<()> {
        for signal in [Signal::TERM, Signal::KILL] {
            if !self.signal(signal)? || self.exits_within(EXIT_TIMEOUT)? {
                return Ok(());
            }
        }
        let text = format!("dnsmasq (process {}) still runs though it was killed", self.pid.as_raw_nonzero());
        Err(Error::new(Code::TryAgainLater, text))
    }

    /// Sends a signal. False if the process has exited.
    fn signal(&self, signal: Signal) -> Result<bool> {
        let sent = match self.fd.as_ref().map(|fd| pidfd_send_signal(fd, signal)) {
            // Without a pidfd, by its number, which was looked at just now.
            None | Some(Err(Errno::NOSYS | Errno::PERM)) => kill_process(self.pid, signal),
            Some(sent) => sent,
        };
        match sent {
            Ok(()) => Ok(true),
            Err(Errno::SRCH) => Ok(false),
            Err(e) => {
                let what =
                    format!("send {} to dnsmasq (process {})", name(signal), self.pid.as_raw_nonzero());
                Err(Error::io(what, &e.into()).detail("signals to other users' processes require CAP_KILL"))
            }
        }
    }

    /// Waits until the server exits or the timeout ends. Returns whether it has exited.
    ///
    /// # Errors
    /// If the kernel refuses to wait.
    pub fn exits_within(&self, time: Duration) -> Result<bool> {
        let deadline = Instant::now() + time;
        let Some(fd) = &self.fd else {
            while !has_exited(self.pid.as_raw_nonzero().get()) {
                if Instant::now() >= deadline {
                    return Ok(false);
                }
                thread::sleep(POLL_INTERVAL);
            }
            return Ok(true);
        };
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let left =
                Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: i64::from(left.subsec_nanos()) };
            match poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&left)) {
                Ok(ready) => return Ok(ready > 0),
                Err(Errno::INTR) => {}
                Err(e) => return Err(Error::io("wait for dnsmasq to exit", &e.into())),
            }
        }
    }
}

/// The ids of all processes. Collected, so that the directory is closed: fewer descriptors are needed then.
fn processes() -> Result<Vec<i32>> {
    let entries = fs::read_dir("/proc").map_err(|e| Error::io("list the processes in /proc", &e))?;
    Ok(entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
}

/// The name of a signal that [`Server`] sends.
fn name(signal: Signal) -> &'static str {
    match signal {
        Signal::HUP => "SIGHUP",
        Signal::KILL => "SIGKILL",
        _ => "SIGTERM",
    }
}

/// Whether a process no longer exists, or waits for its parent (proc_pid_stat(5)).
fn has_exited(pid: i32) -> bool {
    let stat = fs::read_to_string(of(pid, "stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['Z', 'X']))
}

/// Whether a process was started with a configuration file at this path. The original plugin uses the same argument.
fn has_argument(pid: i32, conf: &Path) -> io::Result<bool> {
    let expected = [b"--conf-file=", conf.as_os_str().as_bytes()].concat();
    let line = match unless_exited(fs::read(of(pid, "cmdline"))) {
        // Only with the mount option `hidepid` does the kernel refuse the arguments (proc(5)). To CAP_SYS_PTRACE, it
        // refuses only processes of outer user namespaces. The server runs in the plugin's own user namespace.
        Err(e) if e.kind() == ErrorKind::PermissionDenied && sees_own_processes() => return Ok(false),
        line => line?.unwrap_or_default(),
    };
    Ok(line.split(|byte| *byte == 0).any(|argument| argument == expected))
}

/// Whether the kernel shows all processes of the plugin's user namespace, also those of other users.
fn sees_own_processes() -> bool {
    capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_PTRACE))
}

/// Whether a process is the server with this configuration file. A process can delay a reader of its arguments, so those of other users and
/// of containers are not read.
fn is_server(pid: i32, conf: &Path) -> io::Result<bool> {
    let may_be = is_in_this_namespace(pid).unwrap_or(true) && is_trusted(pid)?;
    Ok(may_be && has_argument(pid, conf)? && is_dnsmasq(pid)? && is_in_this_namespace(pid)?)
}

/// Whether a process belongs to root or to a user of servers: any user can start a process with the server's
/// arguments. If a process has dropped its privileges, the files about it in /proc belong to root.
fn is_trusted(pid: i32) -> io::Result<bool> {
    let owner = unless_exited(fs::metadata(Path::new("/proc").join(pid.to_string())))?;
    Ok(match owner.map(|owner| owner.uid()) {
        None => false,
        Some(0) => true,
        Some(uid) => server::uids()?.contains(&uid),
    })
}

/// Whether the process's executable is dnsmasq. A package upgrade replaces the file of a running server.
fn is_dnsmasq(pid: i32) -> io::Result<bool> {
    let exe = unless_exited(fs::read_link(of(pid, "exe")))?;
    let name = exe.as_deref().and_then(Path::file_name).and_then(|name| name.to_str());
    Ok(name.is_some_and(|name| name.strip_suffix(" (deleted)").unwrap_or(name) == PROGRAM))
}

/// Whether a search must look at the process's arguments. To read a link takes one system call, and to read a file
/// takes five. If the kernel refuses to read the link, the arguments decide.
fn may_be_dnsmasq(pid: i32) -> bool {
    is_dnsmasq(pid).unwrap_or(true)
}

fn is_in_this_namespace(pid: i32) -> io::Result<bool> {
    let own = fs::metadata("/proc/thread-self/ns/net")?;
    let other = unless_exited(fs::metadata(of(pid, "ns/net")))?;
    Ok(other.is_some_and(|other| (other.dev(), other.ino()) == (own.dev(), own.ino())))
}

fn unless_exited<T>(outcome: io::Result<T>) -> io::Result<Option<T>> {
    match outcome {
        Err(e) if e.kind() == ErrorKind::NotFound || e.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => {
            Ok(None)
        }
        outcome => outcome.map(Some),
    }
}

fn parent(pid: i32) -> Option<i32> {
    let status = fs::read_to_string(of(pid, "status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:")?.trim().parse().ok())
}

fn of(pid: i32, file: &str) -> PathBuf {
    Path::new("/proc").join(pid.to_string()).join(file)
}
