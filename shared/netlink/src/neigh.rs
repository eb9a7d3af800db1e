//! Neighbours: which hardware address an IP address was last seen at (ARP and NDP caches).

use std::net::IpAddr;

use crate::address::family;
use crate::link::Link;
use crate::uapi::{
    AF_UNSPEC, NDA_DST, NDA_IFINDEX, NDA_LLADDR, NLM_F_CREATE, NLM_F_REPLACE, NUD_PERMANENT, RTM_DELNEIGH,
    RTM_GETNEIGH, RTM_NEWNEIGH,
};
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

fn header(family: u8, index: u32, state: u16) -> [u8; HEADER] {
    let mut bytes = [0; HEADER];
    bytes[0] = family;
    bytes[4..8].copy_from_slice(&index.to_ne_bytes());
    bytes[8..10].copy_from_slice(&state.to_ne_bytes());
    bytes
}

impl Netlink {
    /// The neighbours of a link.
    ///
    /// # Errors
    /// If the kernel refuses to tell.
    pub fn neighbours(&self, link: &Link) -> Result<Vec<Neighbour>> {
        let mut message = Message::new(RTM_GETNEIGH, 0, &header(AF_UNSPEC, 0, 0));
        message.put_u32(NDA_IFINDEX, link.index);
        let all = self.socket.dump(message, |_, payload| Neighbour::parse(payload));
        let all = all.map_err(|r| r.during("list neighbours of", &link.name))?;
        Ok(all.into_iter().filter(|n| n.index == link.index).collect())
    }

    /// Sets for good where an address is to be found on a link, whatever was known of it before.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn set_neighbour(&self, link: &Link, ip: IpAddr, mac: Mac) -> Result<()> {
        let header = header(family(ip), link.index, NUD_PERMANENT);
        let mut message = Message::new(RTM_NEWNEIGH, NLM_F_CREATE | NLM_F_REPLACE, &header);
        message.put_ip(NDA_DST, ip);
        message.put(NDA_LLADDR, &mac.bytes());
        let outcome = self.socket.request(message, |_, _| {});
        outcome.map_err(|r| r.during("set neighbour", format_args!("{ip} on {}", link.name)))
    }

    /// Forgets where an address was last seen on a link. That it is forgotten already is fine.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn forget_neighbour(&self, link: &Link, ip: IpAddr) -> Result<()> {
        let mut message = Message::new(RTM_DELNEIGH, 0, &header(family(ip), link.index, 0));
        message.put_ip(NDA_DST, ip);
        let outcome = self.socket.request(message, |_, _| {});
        error::missing_is_fine(
            outcome.map_err(|r| r.during("forget neighbour", format_args!("{ip} on {}", link.name))),
        )
    }
}
