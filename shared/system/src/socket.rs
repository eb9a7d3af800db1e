//! Sockets: socket activation by systemd, their files, and unsent bytes.

#![allow(unsafe_code, reason = "no safe wrapper takes a descriptor by its number, or makes these ioctls")]

use std::env;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::process;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::libc;

/// `SD_LISTEN_FDS_START` of sd-daemon.h.
const FIRST: i32 = 3;

/// The socket passed by systemd socket activation (sd_listen_fds(3)), or the first of several. Returns `None` if there is none, it is for
/// another process, or it was already taken.
pub fn passed_on() -> Option<OwnedFd> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    let number = |name: &str| env::var(name).ok()?.parse::<u32>().ok();
    if number("LISTEN_PID")? != process::id()
        || number("LISTEN_FDS")? == 0
        || TAKEN.swap(true, Ordering::SeqCst)
    {
        return None;
    }
    // SAFETY: systemd opened the descriptor for this process, and it is taken only once.
    let socket = unsafe { OwnedFd::from_raw_fd(FIRST) };
    fcntl(&socket, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).ok()?;
    Some(socket)
}

/// `SIOCUNIXFILE` of linux/un.h: opens the file that a Unix socket is bound to (O_PATH).
const SIOCUNIXFILE: libc::Ioctl = 0x89e0;

/// Whether the file that a Unix socket is bound to was deleted, so that no process can connect to the socket any more. False if the
/// kernel does not say: it needs `CAP_NET_ADMIN`.
pub fn is_unlinked(socket: impl AsFd) -> bool {
    // SAFETY: the descriptor is open, and the ioctl has no argument.
    let opened = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), SIOCUNIXFILE) };
    let Ok(number) = Errno::result(opened) else { return false };
    // SAFETY: the kernel opened this descriptor for the caller.
    let file = File::from(unsafe { OwnedFd::from_raw_fd(number) });
    file.metadata().is_ok_and(|file| file.nlink() == 0)
}

/// Bytes of a UDP socket that have not left for the device, because the neighbour's address is not resolved yet (`SIOCOUTQ`).
///
/// # Errors
/// If the descriptor is not a socket.
pub fn unsent(socket: impl AsFd) -> io::Result<i32> {
    let mut bytes = 0;
    // SAFETY: the descriptor is open, and the kernel writes one int.
    let outcome = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    Errno::result(outcome)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    #[test]
    fn a_socket_that_sent_nothing_has_no_unsent_bytes() {
        assert_eq!(unsent(UdpSocket::bind("127.0.0.1:0").unwrap()).unwrap(), 0);
    }

    #[test]
    fn without_systemd_no_socket_is_passed() {
        assert!(env::var_os("LISTEN_PID").is_some() || passed_on().is_none());
    }
}
