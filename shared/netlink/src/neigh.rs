//! Neighbours: the ARP and NDP caches.

use std::net::IpAddr;

use crate::address::family;
use crate::link::Link;
use crate::uapi::*;
use crate::wire::{Attributes, Message, read_u32};
use crate::{Netlink, Result};

/// `struct ndmsg`.
const HEADER: usize = 12;

/// States of an entry that somebody has configured (`ndm_state`).
const CONFIGURED_STATES: u16 = NUD_PERMANENT | NUD_NOARP;

impl Netlink {
    /// Deletes an entry that the kernel has learned itself. Keeps one that an administrator or a routing daemon has configured. Succeeds if
    /// none exists.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn forget_neighbour(&self, link: &Link, ip: IpAddr) -> Result<()> {
        let mut header = [0; HEADER];
        header[0] = family(ip);
        header[4..8].copy_from_slice(&link.index.to_ne_bytes());
        let message = |kind| {
            let mut message = Message::new(kind, 0, &header);
            message.put_ip(NDA_DST, ip);
            message
        };
        let subject = format_args!("{ip} on {}", link.name);
        let found = self.socket.query(message(RTM_GETNEIGH), is_configured);
        match found.map_err(|r| r.during("look up neighbour", subject)) {
            Ok(true) => return Ok(()),
            Err(e) if e.is_missing() => return Ok(()),
            // Before Linux 5.0, no single entry can be looked up.
            Err(e) if !e.is_unsupported() => return Err(e),
            Ok(false) | Err(_) => {}
        }
        self.order_if_it_exists(message(RTM_DELNEIGH), "delete neighbour", subject)
    }
}

/// Whether an entry was configured, from the payload of an RTM_NEWNEIGH. A routing daemon's may have the state of a learned one.
fn is_configured(payload: &[u8]) -> Option<bool> {
    let &[.., low, high, flags, _] = payload.first_chunk::<HEADER>()?;
    let state = u16::from_ne_bytes([low, high]);
    let more = Attributes::after(HEADER, payload).get(NDA_FLAGS_EXT).and_then(read_u32).unwrap_or_default();
    let is_flagged = flags & NTF_EXT_LEARNED != 0 || more & NTF_EXT_MANAGED != 0;
    Some(state & CONFIGURED_STATES != 0 || is_flagged)
}
