//! Addresses of links.

use std::io::ErrorKind;
use std::net::IpAddr;

use ipnetwork::IpNetwork;
use nix::errno::Errno;

use crate::error::RequestError;
use crate::link::Link;
use crate::uapi::*;
use crate::wire::{Attributes, Message, read_ip, read_u32};
use crate::{Netlink, Result};

/// `struct ifaddrmsg`.
const HEADER: usize = 8;

/// An address of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// The link's index.
    pub index: u32,
    /// The address and its prefix length.
    pub net: IpNetwork,
    /// Scope, as in rtnetlink(7): 0 global, 253 link, 254 host.
    pub scope: u8,
    /// Not usable yet: it is being tested for duplicates.
    pub tentative: bool,
    /// Not usable: somebody else has it.
    pub duplicate: bool,
}

impl Address {
    /// Decodes the payload of an RTM_NEWADDR.
    pub fn parse(payload: &[u8]) -> Option<Self> {
        let &[_, prefix, flags, scope] = payload.first_chunk()?;
        let attributes = Attributes::after(HEADER, payload);
        // IFA_ADDRESS is the peer's on a point-to-point link; IFA_LOCAL, where there is one, is our own.
        let own = attributes.get(IFA_LOCAL).or_else(|| attributes.get(IFA_ADDRESS)).and_then(read_ip)?;
        let flags = attributes.get(IFA_FLAGS).and_then(read_u32).unwrap_or_else(|| u32::from(flags));
        Some(Self {
            index: read_u32(payload.get(4..)?)?,
            net: IpNetwork::new(own, prefix).ok()?,
            scope,
            tentative: flags & IFA_F_TENTATIVE != 0,
            duplicate: flags & IFA_F_DADFAILED != 0,
        })
    }
}

pub(crate) fn family(ip: IpAddr) -> u8 {
    if ip.is_ipv4() { AF_INET } else { AF_INET6 }
}

fn header(family: u8, prefix: u8, index: u32) -> [u8; HEADER] {
    let [a, b, c, d] = index.to_ne_bytes();
    [family, prefix, 0, 0, a, b, c, d]
}

fn request(kind: u16, flags: u16, link: &Link, net: IpNetwork) -> Message {
    let mut message = Message::new(kind, flags, &header(family(net.ip()), net.prefix(), link.index));
    message.put_ip(IFA_LOCAL, net.ip());
    message.put_ip(IFA_ADDRESS, net.ip());
    message
}

impl Netlink {
    /// The addresses of a link, or of all.
    ///
    /// # Errors
    /// If the kernel refuses to tell.
    pub fn addresses(&self, link: Option<&Link>) -> Result<Vec<Address>> {
        let index = link.map_or(0, |l| l.index);
        let message = Message::new(RTM_GETADDR, 0, &header(AF_UNSPEC, 0, index));
        let all = self.socket.dump(message, |_, payload| Address::parse(payload));
        let all = all.map_err(|r| r.during("list addresses of", link.map_or("all links", |l| &l.name)))?;
        Ok(all.into_iter().filter(|a| index == 0 || a.index == index).collect())
    }

    /// The addresses in another namespace, by the number that this one has for it ([`Link::peer_netns_id`]). None if that
    /// namespace is gone: a link may outlive it for a moment.
    ///
    /// # Errors
    /// If the kernel refuses to tell, or cannot (before 4.20).
    pub fn addresses_beyond(&self, netns_id: i32) -> Result<Option<Vec<Address>>> {
        let mut found = Vec::new();
        for family in [AF_INET, AF_INET6] {
            let mut message = Message::new(RTM_GETADDR, 0, &header(family, 0, 0));
            message.put(IFA_TARGET_NETNSID, &netns_id.to_ne_bytes());
            let listed = self.socket.dump(message, |_, payload| {
                let beyond = Attributes::after(HEADER, payload).get(IFA_TARGET_NETNSID).is_some();
                Some(beyond.then(|| Address::parse(payload)).flatten())
            });
            match listed {
                // The number is of nobody.
                Err(r) if r.errno() == Some(Errno::EINVAL) => return Ok(None),
                Err(r) => return Err(r.during("list addresses in namespace", netns_id)),
                Ok(addresses) => found.extend(addresses),
            }
        }
        // Old kernels pass the number over, and list this namespace's own.
        let found: Option<Vec<Address>> = found.into_iter().collect();
        let unknown =
            || RequestError::own(ErrorKind::Unsupported, "the kernel lists only those of its own namespace");
        found.map(Some).ok_or_else(|| unknown().during("list addresses in namespace", netns_id))
    }

    /// Gives a link an address. With `test_for_duplicates` an IPv6 address can be used only after a second or two,
    /// if no neighbour has it (RFC 4862, section 5.4).
    ///
    /// # Errors
    /// If the link has it already, or the kernel refuses.
    pub fn add_address(&self, link: &Link, net: IpNetwork, test_for_duplicates: bool) -> Result<()> {
        self.add_flagged_address(link, net, test_for_duplicates, 0)
    }

    /// As [`Netlink::add_address`], with flags such as [`uapi::IFA_F_NOPREFIXROUTE`](crate::uapi).
    ///
    /// # Errors
    /// As [`Netlink::add_address`].
    pub fn add_flagged_address(
        &self,
        link: &Link,
        net: IpNetwork,
        test_for_duplicates: bool,
        mut flags: u32,
    ) -> Result<()> {
        let mut message = request(RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, link, net);
        match net {
            IpNetwork::V4(v4) if v4.prefix() < 31 => message.put_ip(IFA_BROADCAST, v4.broadcast().into()),
            IpNetwork::V6(_) if !test_for_duplicates => flags |= IFA_F_NODAD,
            _ => {}
        }
        if flags != 0 {
            message.put_u32(IFA_FLAGS, flags);
        }
        self.order(message, "add address", format_args!("{net} to {}", link.name))
    }

    /// Takes an address from a link. That it is gone already is fine.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn delete_address(&self, link: &Link, net: IpNetwork) -> Result<()> {
        let message = request(RTM_DELADDR, 0, link, net);
        self.order_if_there(message, "delete address", format_args!("{net} from {}", link.name))
    }
}
