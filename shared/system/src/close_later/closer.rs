//! The closer: a copy of a plugin's executable that receives sockets and closes them when no more arrive.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::libc::STDERR_FILENO;
use nix::unistd::close;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, accept_with, recvmsg};
use rustix::process::{Resource, getrlimit, setrlimit};

/// The only argument of the process.
const ARGUMENT: &str = "close-later";

/// Time without new sockets before all are closed. The kernel's grace periods last 10 to 55 ms.
const QUIET: Duration = Duration::from_millis(100);

/// Maximum time that sockets are held while more arrive, because they keep their network namespaces alive.
const LONGEST: Duration = Duration::from_secs(2);

/// Maximum number of sockets. A thousand concurrent containers cause some 6 000.
const SOCKETS_MAX: usize = 4096;

/// File with the process id of the last closer.
const PID_FILE: &str = "/run/ferrule/close-later.pid";

/// Starts the process with the listening socket. It inherits neither the environment nor other descriptors.
///
/// # Errors
/// If no process can be started.
pub(super) fn spawn(listener: OwnedFd) -> io::Result<()> {
    let mut process = Command::new("/proc/self/exe");
    // A multi-call executable selects its plugin by this name.
    process.arg0(env::args_os().next().unwrap_or_default());
    process.arg(ARGUMENT).env_clear().stdin(listener).stdout(Stdio::null()).stderr(Stdio::null());
    // It outlives this process; its parent is then init or a subreaper.
    process.spawn().map(drop)
}

/// Whether the last closer is a zombie: process 1 does not reap orphans, so each new closer would add a zombie.
pub(super) fn is_not_reaped() -> bool {
    let mut stat = String::new();
    let read = fs::read_to_string(PID_FILE)
        .and_then(|pid| {
            fs::File::open(format!("/proc/{}/stat", pid.trim().parse::<u32>().map_err(io::Error::other)?))
        })
        .and_then(|mut file| file.read_to_string(&mut stat));
    // proc_pid_stat(5): the state follows the name in parentheses.
    read.is_ok() && stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('Z'))
}

/// Whether this process is a closer. If so, its work is done when this returns.
pub fn serve() -> bool {
    let mut arguments = env::args_os().skip(1);
    let is_closer = arguments.next().as_deref() == Some(OsStr::new(ARGUMENT)) && arguments.next().is_none();
    if is_closer {
        close_inherited();
        raise_limit();
        fs::write(PID_FILE, std::process::id().to_string()).ok();
        // Do not keep a file system from being unmounted.
        env::set_current_dir("/").ok();
        receive(io::stdin());
    }
    is_closer
}

/// Receives sockets until none has arrived for [`QUIET`].
fn receive(listener: impl AsFd) {
    let (mut held, mut since) = (Vec::new(), Instant::now());
    while is_readable(&listener) {
        // No descriptor is free, in this process or on the host. To exit closes all sockets, also those that are waiting.
        let Ok(connection) = accept_with(&listener, SocketFlags::CLOEXEC) else { return };
        while take(&connection, &mut held).is_ok_and(|received| received > 0) {}
        if since.elapsed() >= LONGEST || held.len() >= SOCKETS_MAX {
            held.clear();
            since = Instant::now();
        }
    }
}

fn is_readable(listener: impl AsFd) -> bool {
    let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(QUIET.subsec_nanos()) };
    poll(&mut [PollFd::new(&listener, PollFlags::IN)], Some(&timeout)).is_ok_and(|ready| ready > 0)
}

/// Receives one message with its descriptors. Returns 0 if the sender has closed the connection.
fn take(connection: impl AsFd, held: &mut Vec<OwnedFd>) -> rustix::io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(16))];
    let mut message = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let received = recvmsg(connection, &mut [IoSliceMut::new(&mut byte)], &mut message, flags)?;
    for part in message.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = part {
            held.extend(descriptors);
        }
    }
    Ok(received.bytes)
}

/// Raises the soft limit on descriptors, usually 1024.
fn raise_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).ok();
}

/// Closes the descriptors inherited from the runtime.
fn close_inherited() {
    let all = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let numbers: Vec<RawFd> = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    for number in numbers.into_iter().filter(|number| *number > STDERR_FILENO) {
        // The descriptor of the listing itself is already closed.
        close(number).ok();
    }
}
