//! Raw frames on one link (packet(7)).

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, send, socket};

/// Sends Ethernet frames out of one link. It receives nothing.
#[derive(Debug)]
pub struct PacketSocket(OwnedFd);

impl PacketSocket {
    /// Opens a socket in the calling thread's namespace, bound to the link of an index there.
    ///
    /// # Errors
    /// Without CAP_NET_RAW in the namespace, or without such a link.
    pub fn open(index: u32) -> io::Result<Self> {
        // Protocol 0: no frame is ever delivered.
        let fd = socket(AddressFamily::Packet, SockType::Raw, SockFlag::SOCK_CLOEXEC, None)?;
        bind(&fd, index)?;
        Ok(Self(fd))
    }

    /// Sends a frame, its Ethernet header included.
    ///
    /// # Errors
    /// ENETDOWN if the link is down; ENOBUFS if its queue is full.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        send(self.0.as_raw_fd(), frame, MsgFlags::empty())?;
        Ok(())
    }
}

#[allow(unsafe_code)]
fn bind(fd: &OwnedFd, index: u32) -> io::Result<()> {
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: 0,
        sll_ifindex: index.cast_signed(),
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the descriptor is open, and the address is a whole sockaddr_ll that outlives the call.
    let outcome = unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), length) };
    Ok(Errno::result(outcome).map(drop)?)
}
