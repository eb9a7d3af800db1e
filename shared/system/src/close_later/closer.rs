//! The closer: a copy of a plugin's executable that receives sockets, and closes them when the host is quiet again.

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

/// How long nothing may arrive before all is closed. The kernel's grace periods last 10 to 55 ms.
const QUIET: Duration = Duration::from_millis(100);

/// How long sockets are held at most while more arrive: they keep their network namespace.
const LONGEST: Duration = Duration::from_secs(2);

/// How many sockets are held at most. A storm of a thousand containers has some 6 000.
const SOCKETS_MAX: usize = 4096;

/// Holds the process identifier of the last closer.
const PID_FILE: &str = "/run/ferrule/close-later.pid";

/// Starts the process, with the socket that it accepts connections from. It has neither the environment nor other descriptors of
/// this process.
///
/// # Errors
/// If no process can be started.
pub(super) fn spawn(listener: OwnedFd) -> io::Result<()> {
    let mut process = Command::new("/proc/self/exe");
    // An executable of many plugins finds by this name which one it is.
    process.arg0(env::args_os().next().unwrap_or_default());
    process.arg(ARGUMENT).env_clear().stdin(listener).stdout(Stdio::null()).stderr(Stdio::null());
    // It outlives this process: its parent is the host's init or a subreaper then.
    process.spawn().map(drop)
}

/// Whether the last closer has exited and nobody has reaped it: process 1 of this host does not reap orphans, so starting another
/// closer would add a zombie each time.
pub(super) fn is_not_reaped() -> bool {
    let mut stat = String::new();
    let read = fs::read_to_string(PID_FILE)
        .and_then(|pid| {
            fs::File::open(format!("/proc/{}/stat", pid.trim().parse::<u32>().map_err(io::Error::other)?))
        })
        .and_then(|mut file| file.read_to_string(&mut stat));
    // proc_pid_stat(5): the state follows the name, which is in parentheses.
    read.is_ok() && stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('Z'))
}

/// Whether this process is a closer; then it has done its work when this returns.
pub fn serve() -> bool {
    let mut arguments = env::args_os().skip(1);
    let is_closer = arguments.next().as_deref() == Some(OsStr::new(ARGUMENT)) && arguments.next().is_none();
    if is_closer {
        close_inherited();
        raise_limit();
        fs::write(PID_FILE, std::process::id().to_string()).ok();
        // Keep no directory from being unmounted.
        env::set_current_dir("/").ok();
        receive(io::stdin());
    }
    is_closer
}

/// Receives sockets until none has arrived for [`QUIET`].
fn receive(listener: impl AsFd) {
    let (mut held, mut since) = (Vec::new(), Instant::now());
    while is_readable(&listener) {
        let Ok(connection) = accept_with(&listener, SocketFlags::CLOEXEC) else { continue };
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

/// Receives one message of a connection, with its descriptors. 0: the sender has closed it.
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

/// A plugin's soft limit on descriptors is 1024 as a rule.
fn raise_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).ok();
}

/// Closes what the runtime let its plugin inherit.
fn close_inherited() {
    let all = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let numbers: Vec<RawFd> = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    for number in numbers.into_iter().filter(|number| *number > STDERR_FILENO) {
        // The list's own is closed already.
        close(number).ok();
    }
}
