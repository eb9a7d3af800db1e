//! Neighbours: the ARP and NDP caches.

use std::net::IpAddr;

use crate::address::family;
use crate::link::Link;
use crate::uapi::*;
use crate::wire::Message;
use crate::{Netlink, Result};

/// `struct ndmsg`.
const HEADER: usize = 12;

impl Netlink {
    /// Deletes an entry. Succeeds if it does not exist.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn delete_neighbour(&self, link: &Link, ip: IpAddr) -> Result<()> {
        let mut header = [0; HEADER];
        header[0] = family(ip);
        header[4..8].copy_from_slice(&link.index.to_ne_bytes());
        let mut message = Message::new(RTM_DELNEIGH, 0, &header);
        message.put_ip(NDA_DST, ip);
        self.order_if_it_exists(message, "delete neighbour", format_args!("{ip} on {}", link.name))
    }
}
