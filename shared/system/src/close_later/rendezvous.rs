//! Where plugins meet the closer: a unix socket in the directory of the locks, which nobody but root can enter.

use std::fs;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags,
    SocketType, bind, connect, listen as listen_on, sendmsg, socket_with,
};
use rustix::process::geteuid;

use crate::lock;

/// Its path. It stays after the closer's end, and connections are refused then, until the next closer replaces it.
const PATH: &str = "/run/ferrule/close-later.sock";

/// How many connections may wait for the closer: the kernel's own limit (`net.core.somaxconn`) is 4096 since Linux 5.4.
const BACKLOG: i32 = 4096;

/// The most descriptors in one message (`SCM_MAX_FD` is 253): a plugin has a few.
const DESCRIPTORS_MAX: usize = 16;

/// Sends descriptors to the closer.
///
/// # Errors
/// If none is running, or it is not this user's.
pub(super) fn send(sockets: &[BorrowedFd<'_>]) -> io::Result<()> {
    let socket = stream()?;
    connect(&socket, &SocketAddrUnix::new(PATH)?)?;
    if socket_peercred(&socket)?.uid != geteuid() {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    for part in sockets.chunks(DESCRIPTORS_MAX) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut message = SendAncillaryBuffer::new(&mut space);
        message.push(SendAncillaryMessage::ScmRights(part));
        // Descriptors travel with at least one byte.
        sendmsg(&socket, &[IoSlice::new(b"c")], &mut message, SendFlags::NOSIGNAL)?;
    }
    Ok(())
}

/// Makes the socket that a closer accepts connections from, in place of an earlier closer's. Two plugins that do so concurrently
/// may replace each other's: then one of the closers receives nothing, and exits.
///
/// # Errors
/// If root has no directory of its own in `/run`, or the socket cannot be made there.
pub(super) fn listen() -> io::Result<OwnedFd> {
    let path = Path::new(PATH);
    lock::ensure_directory(path.parent().unwrap_or(path))?;
    fs::remove_file(path).or_else(|e| if e.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(e) })?;
    let socket = stream()?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    listen_on(&socket, BACKLOG)?;
    Ok(socket)
}

fn stream() -> io::Result<OwnedFd> {
    Ok(socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        None,
    )?)
}
