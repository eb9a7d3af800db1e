//! Numbers of namespaces: ids, which links use to name their peer's namespace, and cookies.

use std::os::fd::{AsRawFd, BorrowedFd};

use crate::uapi::*;
use crate::wire::{Attributes, Message, read_i32};
use crate::{Netlink, Result};

/// `struct rtgenmsg`, padded.
const HEADER: usize = 4;

impl Netlink {
    /// The cookie of this socket's namespace (`SO_NETNS_COOKIE`). The kernel never gives it to another namespace until the next boot,
    /// while it reuses inode numbers. `None` before Linux 5.14.
    pub fn netns_cookie(&self) -> Option<u64> {
        self.socket.netns_cookie()
    }

    /// This namespace's number for another one, as in [`crate::Link::peer_netns_id`]. `None` if no link leads there, or it is this
    /// namespace.
    ///
    /// # Errors
    /// If the kernel refuses the request.
    pub fn netns_id(&self, other: BorrowedFd<'_>) -> Result<Option<i32>> {
        let mut message = Message::new(RTM_GETNSID, 0, &[AF_UNSPEC, 0, 0, 0]);
        message.put_u32(NETNSA_FD, other.as_raw_fd().cast_unsigned());
        let mut id = None;
        let outcome = self.socket.request(message, |_, payload| {
            id = Attributes::after(HEADER, payload).get(NETNSA_NSID).and_then(read_i32);
        });
        outcome.map_err(|r| r.during("look up", "the number of a network namespace"))?;
        // NETNSA_NSID_NOT_ASSIGNED is -1.
        Ok(id.filter(|id| *id >= 0))
    }
}
