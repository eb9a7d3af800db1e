//! Addresses of links.

use std::io::ErrorKind;
use std::net::IpAddr;

use ipnetwork::IpNetwork;
use nix::errno::Errno;

use crate::error::RequestError;
use crate::link::Link;
use crate::uapi::*;
use crate::wire::{Attributes, Message, read_ip, read_str, read_u8, read_u32};
use crate::{Netlink, Result};

/// `struct ifaddrmsg`.
const HEADER: usize = 8;

/// The longest label, in bytes (IFNAMSIZ).
const LABEL: usize = 16;

/// Lifetime of an address that does not expire.
const FOR_GOOD: u32 = u32::MAX;

/// Flags that a request sets. The kernel determines the others.
const SAID: u32 = IFA_F_HOMEADDRESS | IFA_F_MANAGETEMPADDR | IFA_F_NOPREFIXROUTE | IFA_F_MCAUTOJOIN;

/// An address of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// The link's index.
    pub index: u32,
    /// The address and its prefix length.
    pub net: IpNetwork,
    /// Scope, as in rtnetlink(7): 0 global, 253 link, 254 host.
    pub scope: u8,
    /// Whether it is being tested for duplicates, and not usable yet.
    pub tentative: bool,
    /// Whether another host has it, and it is not usable.
    pub duplicate: bool,
    /// All flags, as in rtnetlink(7).
    pub flags: u32,
    /// Seconds for which new connections may use it. `None`: unlimited.
    pub preferred: Option<u32>,
    /// Seconds until it expires. `None`: never.
    pub valid: Option<u32>,
    /// Address of the other end of a point-to-point link.
    pub peer: Option<IpAddr>,
    /// Broadcast address of the subnet. IPv4 only.
    pub broadcast: Option<IpAddr>,
    /// Metric of its subnet's route. `None`: the kernel's default.
    pub priority: Option<u32>,
    /// Origin of the address (Linux 5.18).
    pub protocol: Option<u8>,
    /// Name for old programs, such as `eth0:1`.
    label: Option<[u8; LABEL]>,
}

impl Address {
    /// Decodes the payload of an RTM_NEWADDR.
    pub fn parse(payload: &[u8]) -> Option<Self> {
        let &[_, prefix, flags, scope] = payload.first_chunk()?;
        let attributes = Attributes::after(HEADER, payload);
        // On a point-to-point link, IFA_ADDRESS is the peer's address and IFA_LOCAL our own.
        let own = attributes.get(IFA_LOCAL).or_else(|| attributes.get(IFA_ADDRESS)).and_then(read_ip)?;
        let flags = attributes.get(IFA_FLAGS).and_then(read_u32).unwrap_or_else(|| u32::from(flags));
        let lifetime = |at| read_u32(attributes.get(IFA_CACHEINFO)?.get(at..)?).filter(|t| *t != FOR_GOOD);
        let ip = |kind| attributes.get(kind).and_then(read_ip);
        Some(Self {
            index: read_u32(payload.get(4..)?)?,
            net: IpNetwork::new(own, prefix).ok()?,
            scope,
            tentative: flags & IFA_F_TENTATIVE != 0,
            duplicate: flags & IFA_F_DADFAILED != 0,
            flags,
            preferred: lifetime(0),
            valid: lifetime(4),
            peer: ip(IFA_ADDRESS).filter(|peer| *peer != own),
            broadcast: ip(IFA_BROADCAST),
            priority: attributes.get(IFA_RT_PRIORITY).and_then(read_u32),
            protocol: attributes.get(IFA_PROTO).and_then(read_u8),
            label: attributes.get(IFA_LABEL).and_then(label),
        })
    }

    /// Encodes the address as the part of a request after its header, for [`Address::parse`].
    pub fn payload(&self) -> Vec<u8> {
        self.message(&Link::default()).payload().to_vec()
    }

    /// The request that creates the address again on a link. It is usable immediately, because it was tested for duplicates before.
    fn message(&self, link: &Link) -> Message {
        self.message_with(link, NLM_F_EXCL)
    }

    fn message_with(&self, link: &Link, flags: u16) -> Message {
        let ip = self.net.ip();
        let mut head = header(family(ip), self.net.prefix(), link.index);
        head[3] = self.scope;
        let mut message = Message::new(RTM_NEWADDR, NLM_F_CREATE | flags, &head);
        message.put_ip(IFA_LOCAL, ip);
        message.put_ip(IFA_ADDRESS, self.peer.unwrap_or(ip));
        if let Some(broadcast) = self.broadcast {
            message.put_ip(IFA_BROADCAST, broadcast);
        }
        if let Some(label) = self.label {
            message.put(IFA_LABEL, &label);
        }
        let untested = if ip.is_ipv6() { IFA_F_NODAD } else { 0 };
        message.put_u32(IFA_FLAGS, self.flags & SAID | untested);
        message.put_optional(IFA_RT_PRIORITY, self.priority);
        if let Some(protocol) = self.protocol {
            message.put_u8(IFA_PROTO, protocol);
        }
        let times = [self.preferred, self.valid].map(|time| time.unwrap_or(FOR_GOOD));
        // The kernel refuses an expired address.
        let [preferred, valid] = [times[0].min(times[1]), times[1].max(1)].map(u32::to_ne_bytes);
        message.put(IFA_CACHEINFO, &[preferred, valid, [0; 4], [0; 4]].concat());
        message
    }
}

/// A label that the kernel accepts.
fn label(value: &[u8]) -> Option<[u8; LABEL]> {
    let text = read_str(value).filter(|text| text.len() < LABEL)?.as_bytes();
    let mut label = [0; LABEL];
    label[..text.len()].copy_from_slice(text);
    Some(label)
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
    /// Lists the addresses of a link, or of all links.
    ///
    /// # Errors
    /// If the kernel refuses the request.
    pub fn addresses(&self, link: Option<&Link>) -> Result<Vec<Address>> {
        let index = link.map_or(0, |l| l.index);
        let message = Message::new(RTM_GETADDR, 0, &header(AF_UNSPEC, 0, index));
        let all = self.socket.dump(message, |_, payload| Address::parse(payload));
        let all = all.map_err(|r| r.during("list addresses of", link.map_or("all links", |l| &l.name)))?;
        Ok(all.into_iter().filter(|a| index == 0 || a.index == index).collect())
    }

    /// Lists the addresses in another namespace, given this namespace's number for it ([`Link::peer_netns_id`]). `None` if that namespace
    /// no longer exists; a link may outlive it for a moment.
    ///
    /// # Errors
    /// If the kernel refuses the request or does not support it (before 4.20).
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
                // No namespace has the number.
                Err(r) if r.errno() == Some(Errno::EINVAL) => return Ok(None),
                Err(r) => return Err(r.during("list addresses in namespace", netns_id)),
                Ok(addresses) => found.extend(addresses),
            }
        }
        // Old kernels ignore the number and list this namespace's addresses.
        let found: Option<Vec<Address>> = found.into_iter().collect();
        let unknown =
            || RequestError::own(ErrorKind::Unsupported, "the kernel lists only those of its own namespace");
        found.map(Some).ok_or_else(|| unknown().during("list addresses in namespace", netns_id))
    }

    /// Adds an address to a link. With `test_for_duplicates`, an IPv6 address is usable only after one or two seconds, if no neighbour has
    /// it (RFC 4862, section 5.4).
    ///
    /// # Errors
    /// If the link already has the address, or the kernel refuses.
    pub fn add_address(&self, link: &Link, net: IpNetwork, test_for_duplicates: bool) -> Result<()> {
        self.add_flagged_address(link, net, test_for_duplicates, 0)
    }

    /// Like [`Netlink::add_address`], with flags such as [`uapi::IFA_F_NOPREFIXROUTE`](crate::uapi).
    ///
    /// # Errors
    /// If the link already has the address, or the kernel refuses.
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

    /// Adds an address as it was read, with lifetimes and flags, to its former link or another. An IPv6 address is usable immediately.
    ///
    /// # Errors
    /// If the link already has the address, or the kernel refuses.
    pub fn restore_address(&self, link: &Link, address: &Address) -> Result<()> {
        self.order(address.message(link), "add address", format_args!("{} to {}", address.net, link.name))
    }

    /// Sets the lifetimes of an existing address to `preferred` and `valid`, and its other flags. The address is not tested for duplicates
    /// again.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn set_lifetimes(&self, link: &Link, address: &Address) -> Result<()> {
        let message = address.message_with(link, NLM_F_REPLACE);
        self.order(message, "set the lifetimes of address", format_args!("{} on {}", address.net, link.name))
    }

    /// Deletes an address from a link. Succeeds if it does not exist.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn delete_address(&self, link: &Link, net: IpNetwork) -> Result<()> {
        let message = request(RTM_DELADDR, 0, link, net);
        match self.order(message, "delete address", format_args!("{net} from {}", link.name)) {
            // For an IPv4 address with a peer, the request must contain the peer.
            Err(e) if e.is_missing() && net.is_ipv4() => self.delete_with_peers(link, net),
            Err(e) if e.is_missing() => Ok(()),
            other => other,
        }
    }

    fn delete_with_peers(&self, link: &Link, net: IpNetwork) -> Result<()> {
        let listed = match self.addresses(Some(link)) {
            // The link no longer exists.
            Err(e) if e.is_missing() => return Ok(()),
            listed => listed?,
        };
        for peer in listed.iter().filter(|address| address.net == net).filter_map(|address| address.peer) {
            let mut message = Message::new(RTM_DELADDR, 0, &header(AF_INET, net.prefix(), link.index));
            message.put_ip(IFA_LOCAL, net.ip());
            message.put_ip(IFA_ADDRESS, peer);
            let subject = format_args!("{net} peer {peer} from {}", link.name);
            self.order_if_it_exists(message, "delete address", subject)?;
        }
        Ok(())
    }
}
