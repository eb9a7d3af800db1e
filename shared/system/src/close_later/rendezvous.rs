//! Socket of the closer, in the directory of the locks, which only root can enter.

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

/// Path of the socket. It stays after the closer exits and refuses connections until the next closer replaces it.
const PATH: &str = "/run/ferrule/close-later.sock";

/// Maximum number of waiting connections. The kernel's own limit (`net.core.somaxconn`) is 4096 since Linux 5.4.
const BACKLOG: i32 = 4096;

/// Maximum number of descriptors in one message (`SCM_MAX_FD` is 253). A plugin has a few.
const DESCRIPTORS_MAX: usize = 16;

/// Sends descriptors to the closer.
///
/// # Errors
/// If no closer runs, or the socket belongs to another user.
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
        // A message with descriptors needs at least one byte.
        sendmsg(&socket, &[IoSlice::new(b"c")], &mut message, SendFlags::NOSIGNAL)?;
    }
    Ok(())
}

/// Creates the closer's listening socket, and replaces an older one. Two concurrent plugins may replace each other's; one of the closers
/// then receives nothing and exits.
///
/// # Errors
/// If root has no directory of its own in `/run`, or the socket cannot be created there.
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
