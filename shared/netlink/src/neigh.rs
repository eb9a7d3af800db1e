//! Neighbours: which hardware address an IP address was last seen at (ARP and NDP caches).

use std::net::IpAddr;

use crate::address::family;
use crate::link::Link;
use crate::uapi::{AF_UNSPEC, NDA_DST, NDA_LLADDR, RTM_DELNEIGH, RTM_GETNEIGH};
use crate::wire::{Attributes, Message, read_ip, read_u16, read_u32};
use crate::{Mac, Netlink, Result, error};

/// `struct ndmsg`.
const HEADER: usize = 12;

/// An entry of a link's cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// The link's index.
    pub index: u32,
    /// The neighbour's address.
    pub ip: IpAddr,
    /// Its hardware address, if it is known.
    pub mac: Option<Mac>,
    /// NUD_* of linux/neighbour.h.
    pub state: u16,
}

impl Neighbour {
    /// Decodes the payload of an RTM_NEWNEIGH.
    pub fn parse(payload: &[u8]) -> Option<Self> {
        let attributes = Attributes::after(HEADER, payload);
        Some(Self {
            index: read_u32(payload.get(4..)?)?,
            ip: attributes.get(NDA_DST).and_then(read_ip)?,
            mac: attributes.get(NDA_LLADDR).and_then(Mac::read),
            state: read_u16(payload.get(8..)?)?,
        })
    }
}

fn header(family: u8, index: u32) -> [u8; HEADER] {
    let mut bytes = [0; HEADER];
    bytes[0] = family;
    bytes[4..8].copy_from_slice(&index.to_ne_bytes());
    bytes
}

impl Netlink {
    /// The neighbours of a link.
    ///
    /// # Errors
    /// If the kernel refuses to tell.
    pub fn neighbours(&self, link: &Link) -> Result<Vec<Neighbour>> {
        let message = Message::new(RTM_GETNEIGH, 0, &header(AF_UNSPEC, 0));
        let all = self.socket.dump(message, |_, payload| Neighbour::parse(payload));
        let all = all.map_err(|r| r.during("list neighbours of", &link.name))?;
        Ok(all.into_iter().filter(|n| n.index == link.index).collect())
    }

    /// Forgets where an address was last seen on a link. That it is forgotten already is fine.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn forget_neighbour(&self, link: &Link, ip: IpAddr) -> Result<()> {
        let mut message = Message::new(RTM_DELNEIGH, 0, &header(family(ip), link.index));
        message.put_ip(NDA_DST, ip);
        let outcome = self.socket.request(message, |_, _| {});
        error::missing_is_fine(
            outcome.map_err(|r| r.during("forget neighbour", format_args!("{ip} on {}", link.name))),
        )
    }
}
