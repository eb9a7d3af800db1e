//! Routes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnetwork::IpNetwork;
use nix::errno::Errno;

use crate::address::family;
use crate::uapi::*;
use crate::wire::{Attributes, Message, read_ip, read_u16, read_u32};
use crate::{Link, Netlink, Result};

/// `struct rtmsg`.
const HEADER: usize = 12;

/// `struct rtnexthop`.
const NEXT_HOP: usize = 8;

/// The metric of a route that no other route's traffic is to take.
const LAST_RESORT: u32 = 4096;

/// A unicast route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The destination.
    pub dst: IpNetwork,
    /// The next hop, which may be an IPv6 one for IPv4, too. None: the destination is on the link.
    pub gateway: Option<IpAddr>,
    /// The index of the link that it leaves by. When read, the first of several.
    pub link: Option<u32>,
    /// The routing table. None: main.
    pub table: Option<u32>,
    /// As in rtnetlink(7). None: link without a gateway, global with one.
    pub scope: Option<u8>,
    /// The metric; the lowest wins. None: the kernel's, 0 for IPv4 and 1024 for IPv6.
    pub priority: Option<u32>,
    /// The path's MTU in bytes. None: the link's.
    pub mtu: Option<u32>,
    /// The MSS to advertise, in bytes. None: what the MTU allows.
    pub advmss: Option<u32>,
    /// The source address to prefer.
    pub source: Option<IpAddr>,
}

impl Route {
    /// A route to a destination, and nothing else said.
    pub fn to(dst: IpNetwork) -> Self {
        Self {
            dst,
            gateway: None,
            link: None,
            table: None,
            scope: None,
            priority: None,
            mtu: None,
            advmss: None,
            source: None,
        }
    }

    /// Decodes the payload of an RTM_NEWROUTE. None for one that is not unicast, and for what the kernel has learnt of a
    /// path: without strict checks it lists that, too.
    pub fn parse(payload: &[u8]) -> Option<Self> {
        let &[family, prefix, _, _, table, _, scope, kind, flags @ ..] = payload.first_chunk::<HEADER>()?;
        let flags = u32::from_ne_bytes(flags);
        if kind != RTN_UNICAST || flags & RTM_F_CLONED != 0 {
            return None;
        }
        let attributes = Attributes::after(HEADER, payload);
        let anything = match family {
            AF_INET => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            AF_INET6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
            _ => return None,
        };
        let number = |kind| attributes.get(kind).and_then(read_u32);
        let first_hop = attributes.get(RTA_MULTIPATH).and_then(first_hop);
        let metrics = attributes.get(RTA_METRICS).map(Attributes::of);
        let metric = |kind| metrics.and_then(|m| m.get(kind)).and_then(read_u32);
        let dst = attributes.get(RTA_DST).and_then(read_ip).unwrap_or(anything);
        Some(Self {
            dst: IpNetwork::new(dst, prefix).ok()?,
            gateway: gateway(attributes).or_else(|| gateway(first_hop?.1)),
            link: number(RTA_OIF).or_else(|| Some(first_hop?.0)),
            table: number(RTA_TABLE).or(Some(u32::from(table))),
            scope: Some(scope),
            priority: number(RTA_PRIORITY),
            mtu: metric(RTAX_MTU),
            advmss: metric(RTAX_ADVMSS),
            source: attributes.get(RTA_PREFSRC).and_then(read_ip),
        })
    }

    fn message(&self) -> Message {
        let scope = match (self.scope, self.gateway, self.dst) {
            (Some(scope), ..) => scope,
            (None, None, IpNetwork::V4(_)) => RT_SCOPE_LINK,
            _ => RT_SCOPE_UNIVERSE,
        };
        let mut message = Message::new(RTM_NEWROUTE, NLM_F_CREATE, &self.header(scope));
        if self.dst.prefix() > 0 {
            message.put_ip(RTA_DST, self.dst.network());
        }
        message.put_u32(RTA_TABLE, self.table.unwrap_or(RT_TABLE_MAIN));
        if let Some(gateway) = self.gateway {
            put_gateway(&mut message, gateway, self.dst);
        }
        if let Some(source) = self.source {
            message.put_ip(RTA_PREFSRC, source);
        }
        message.put_optional(RTA_OIF, self.link);
        message.put_optional(RTA_PRIORITY, self.priority);
        if self.mtu.or(self.advmss).is_some() {
            message.nest(RTA_METRICS, |m| {
                m.put_optional(RTAX_MTU, self.mtu);
                m.put_optional(RTAX_ADVMSS, self.advmss);
            });
        }
        message
    }

    fn header(&self, scope: u8) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..2].copy_from_slice(&[family(self.dst.ip()), self.dst.prefix()]);
        bytes[4..8].copy_from_slice(&[RT_TABLE_UNSPEC, RTPROT_BOOT, scope, RTN_UNICAST]);
        bytes
    }
}

/// How long an address is.
fn bits(ip: IpAddr) -> u8 {
    if ip.is_ipv4() { 32 } else { 128 }
}

/// A next hop of the other family than the destination's has an attribute of its own (`struct rtvia`).
fn put_gateway(message: &mut Message, gateway: IpAddr, dst: IpNetwork) {
    match gateway {
        IpAddr::V6(v6) if dst.is_ipv4() => {
            message.put(RTA_VIA, &[&u16::from(AF_INET6).to_ne_bytes()[..], &v6.octets()].concat());
        }
        _ => message.put_ip(RTA_GATEWAY, gateway),
    }
}

fn gateway(attributes: Attributes<'_>) -> Option<IpAddr> {
    let via = || read_ip(attributes.get(RTA_VIA)?.get(2..)?);
    attributes.get(RTA_GATEWAY).and_then(read_ip).or_else(via)
}

/// The link and the attributes of the first of several ways (`struct rtnexthop`).
fn first_hop(ways: &[u8]) -> Option<(u32, Attributes<'_>)> {
    let first = ways.get(..usize::from(read_u16(ways)?))?;
    Some((read_u32(first.get(4..)?)?, Attributes::after(NEXT_HOP, first)))
}

/// Which routes to list. What is none is not asked for.
#[derive(Clone, Copy, Debug, Default)]
pub struct RouteFilter {
    /// Those that leave by this link.
    pub link: Option<u32>,
    /// Those of this table.
    pub table: Option<u32>,
}

impl Netlink {
    /// The unicast routes of both families that a filter lets through.
    ///
    /// # Errors
    /// If the kernel refuses to tell.
    pub fn routes(&self, filter: RouteFilter) -> Result<Vec<Route>> {
        let mut routes = self.routes_of(AF_INET, filter)?;
        match self.routes_of(AF_INET6, filter) {
            Ok(v6) => routes.extend(v6),
            Err(e) if e.is_unsupported() => {}
            Err(e) => return Err(e),
        }
        Ok(routes)
    }

    fn routes_of(&self, family: u8, filter: RouteFilter) -> Result<Vec<Route>> {
        let mut header = [0; HEADER];
        header[0] = family;
        let mut message = Message::new(RTM_GETROUTE, 0, &header);
        message.put_optional(RTA_TABLE, filter.table);
        message.put_optional(RTA_OIF, filter.link);
        let routes = self.socket.dump(message, |_, payload| Route::parse(payload));
        let routes = match routes {
            // A table that does not exist yet has no routes.
            Err(r) if r.errno() == Some(Errno::ENOENT) => return Ok(Vec::new()),
            other => other.map_err(|r| r.during("list", "routes"))?,
        };
        let wanted = |r: &Route| {
            filter.link.is_none_or(|link| r.link == Some(link))
                && filter.table.is_none_or(|t| r.table == Some(t))
        };
        Ok(routes.into_iter().filter(wanted).collect())
    }

    /// The default route of the main table with the lowest metric, IPv4 before IPv6.
    ///
    /// # Errors
    /// If the kernel refuses to tell.
    pub fn default_route(&self) -> Result<Option<Route>> {
        let routes = self.routes(RouteFilter { table: Some(RT_TABLE_MAIN), ..RouteFilter::default() })?;
        let defaults = routes.into_iter().filter(|r| r.dst.prefix() == 0);
        Ok(defaults.min_by_key(|r| (r.dst.is_ipv6(), r.priority)))
    }

    /// The link that a packet of this host to an address leaves by: none if there is no way.
    ///
    /// # Errors
    /// If the kernel refuses to tell.
    pub fn route_get(&self, destination: IpAddr) -> Result<Option<Link>> {
        let mut header = [0; HEADER];
        header[..2].copy_from_slice(&[family(destination), bits(destination)]);
        let mut message = Message::new(RTM_GETROUTE, 0, &header);
        message.put_ip(RTA_DST, destination);
        let mut index = None;
        let outcome = self.socket.request(message, |_, payload| {
            index = Attributes::after(HEADER, payload).get(RTA_OIF).and_then(read_u32);
        });
        match outcome {
            Err(r) if matches!(r.errno(), Some(Errno::ENETUNREACH | Errno::EHOSTUNREACH)) => return Ok(None),
            other => other.map_err(|r| r.during("look up the route to", destination))?,
        }
        self.link_named_by(index)
    }

    /// Takes what comes in by a link for an address of this host that is at home on another link. How this host itself
    /// reaches the address stays as it is. That it is so already is fine.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn add_local_route(&self, link: &Link, own: IpAddr) -> Result<()> {
        let mut header = [0; HEADER];
        header[..2].copy_from_slice(&[family(own), bits(own)]);
        header[4..8].copy_from_slice(&[RT_TABLE_UNSPEC, RTPROT_BOOT, RT_SCOPE_UNIVERSE, RTN_LOCAL]);
        let mut message = Message::new(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL, &header);
        message.put_ip(RTA_DST, own);
        message.put_u32(RTA_TABLE, RT_TABLE_LOCAL);
        message.put_u32(RTA_OIF, link.index);
        message.put_u32(RTA_PRIORITY, LAST_RESORT);
        match self.order(message, "add local route", format_args!("{own} dev {}", link.name)) {
            Err(e) if e.is_exists() => Ok(()),
            other => other,
        }
    }

    /// Adds a route. One to the same destination by another way stays: IPv4 prefers the newer one, IPv6 uses both.
    ///
    /// # Errors
    /// If exactly this one is there, its gateway cannot be reached, or the kernel refuses.
    pub fn add_route(&self, route: &Route) -> Result<()> {
        self.order(route.message(), "add route", Named(route))
    }
}

/// A route as people write it.
struct Named<'a>(&'a Route);

impl std::fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0.dst)?;
        match self.0.gateway {
            Some(gateway) => write!(f, " via {gateway}"),
            None => Ok(()),
        }
    }
}
