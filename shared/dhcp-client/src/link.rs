//! A socket in a container's namespace, for one exchange.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use cni::{Code, Error, Result};
use netns::NetNs;

use crate::To;

/// A socket to send messages by and to receive their answers. It keeps the container's namespace alive, so it is closed when
/// [`crate::Client::awaits_packets`] says so. To close one for broadcasts takes a grace period of the kernel, some 15 ms: a loop that
/// serves others should have another thread drop it.
#[derive(Debug)]
pub struct Link {
    socket: OwnedFd,
}

impl Link {
    /// Opens what a message needs: a packet socket (packet(7)) for broadcasts, whose filter lets through what is for a client's port; else a
    /// UDP socket that has the source address.
    ///
    /// # Errors
    /// If the namespace cannot be entered, or has no such interface or address.
    pub fn open(namespace: &NetNs, interface: &str, to: To) -> Result<Self> {
        let _ = (namespace, to);
        Err(Error::new(Code::Internal, format!("open a socket on {interface}: not supported yet")))
    }

    /// Whether a message of that way can be sent by this socket.
    pub fn fits(&self, to: To) -> bool {
        let _ = to;
        false
    }

    /// Sends a message. Does not block.
    ///
    /// # Errors
    /// If the kernel refuses: the interface is down, or has gone.
    pub fn send(&self, to: To, message: &[u8]) -> Result<()> {
        let _ = (to, message);
        Ok(())
    }

    /// What has arrived, if anything: the payload of a datagram to port 68. Does not block. Call it until there is nothing.
    ///
    /// # Errors
    /// If the interface is down, or has gone.
    pub fn receive(&self) -> Result<Option<Vec<u8>>> {
        Ok(None)
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
