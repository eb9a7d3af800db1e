//! Routes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnetwork::IpNetwork;
use nix::errno::Errno;

use crate::address::family;
use crate::uapi::*;
use crate::wire::{Attributes, Message, read_ip, read_u8, read_u16, read_u32};
use crate::{Link, Netlink, Result};

/// `struct rtmsg`.
const HEADER: usize = 12;

/// `struct rtnexthop`.
const NEXT_HOP: usize = 8;

/// Metric of a route with the lowest priority.
const LAST_RESORT: u32 = 4096;

/// Route attributes that are restored unchanged: realms and encapsulation.
const KEPT: [u16; 3] = [RTA_FLOW, RTA_ENCAP_TYPE, RTA_ENCAP];

/// Undecoded attributes with their types.
pub type RawAttributes = Vec<(u16, Vec<u8>)>;

/// A route with all attributes needed to create it again. If it names a nexthop object (ip-nexthop(8)), it has that object's next hops
/// instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Destination.
    pub dst: IpNetwork,
    /// Route type, as in rtnetlink(7): 1 unicast, 7 unreachable.
    pub kind: u8,
    /// Next hop; an IPv4 route may have an IPv6 one. `None`: the destination is on the link. The first of several.
    pub gateway: Option<IpAddr>,
    /// Index of the outgoing link. The first of several.
    pub link: Option<u32>,
    /// All next hops, if there are several.
    pub hops: Vec<NextHop>,
    /// Routing table. `None`: main.
    pub table: Option<u32>,
    /// Scope, as in rtnetlink(7). `None`: link without a gateway, global with one.
    pub scope: Option<u8>,
    /// Origin of the route, as in rtnetlink(7): 2 kernel, 3 boot, 4 static. `None`: boot.
    pub protocol: Option<u8>,
    /// Metric; the lowest wins. `None`: the kernel's default, 0 for IPv4 and 1024 for IPv6.
    pub priority: Option<u32>,
    /// Path MTU in bytes. `None`: the link's.
    pub mtu: Option<u32>,
    /// MSS to advertise in bytes. `None`: derived from the MTU.
    pub advmss: Option<u32>,
    /// Preferred source address.
    pub source: Option<IpAddr>,
    /// Router preference (RFC 4191, section 2.1): 0 medium, 1 high, 3 low. IPv6 only.
    pub preference: Option<u8>,
    /// Seconds until it expires. `None`: never. IPv6 only.
    pub expires: Option<u32>,
    /// Type of service; 0 for all packets. IPv4 only.
    pub tos: u8,
    /// Whether the gateway may be outside of the link's subnets.
    pub on_link: bool,
    /// Other attributes, undecoded.
    pub kept: RawAttributes,
    /// Other metrics, undecoded.
    pub metrics: RawAttributes,
}

/// A next hop of a multipath route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextHop {
    /// Gateway. `None`: the destination is on the link.
    pub gateway: Option<IpAddr>,
    /// The index of the link.
    pub link: u32,
    /// Weight minus one.
    pub weight: u8,
    /// Whether the gateway may be outside of the link's subnets.
    pub on_link: bool,
    /// Other attributes, undecoded.
    pub kept: RawAttributes,
}

impl Route {
    /// Whether it is a default route, of any table.
    pub fn is_default(&self) -> bool {
        self.dst.prefix() == 0
    }

    /// Whether it is in the main table.
    pub fn is_main(&self) -> bool {
        self.table.is_none_or(|table| table == RT_TABLE_MAIN)
    }

    /// The default route of the main table with the lowest metric, IPv4 before IPv6.
    pub fn default_of(routes: &[Self]) -> Option<&Self> {
        routes
            .iter()
            .filter(|route| route.is_default() && route.is_main())
            .min_by_key(|r| (r.dst.is_ipv6(), r.priority))
    }

    /// A unicast route to a destination without other attributes.
    pub fn to(dst: IpNetwork) -> Self {
        Self {
            dst,
            kind: RTN_UNICAST,
            gateway: None,
            link: None,
            hops: Vec::new(),
            table: None,
            scope: None,
            protocol: None,
            priority: None,
            mtu: None,
            advmss: None,
            source: None,
            preference: None,
            expires: None,
            tos: 0,
            on_link: false,
            kept: RawAttributes::new(),
            metrics: RawAttributes::new(),
        }
    }

    /// Decodes the payload of an RTM_NEWROUTE, or of [`Route::payload`]. `None` for cached path information, which the kernel also lists
    /// without strict checks.
    pub fn parse(payload: &[u8]) -> Option<Self> {
        let &[family, prefix, _, tos, table, protocol, scope, kind, flags @ ..] =
            payload.first_chunk::<HEADER>()?;
        let flags = u32::from_ne_bytes(flags);
        if flags & RTM_F_CLONED != 0 {
            return None;
        }
        let attributes = Attributes::after(HEADER, payload);
        let anything = match family {
            AF_INET => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            AF_INET6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
            _ => return None,
        };
        let number = |kind| attributes.get(kind).and_then(read_u32);
        let mut hops: Vec<NextHop> = attributes.get(RTA_MULTIPATH).map(next_hops).unwrap_or_default();
        let first = hops.first().cloned();
        if hops.len() == 1 {
            hops.clear();
        }
        let metrics = attributes.get(RTA_METRICS).map(Attributes::of);
        let metric = |kind| metrics.and_then(|m| m.get(kind)).and_then(read_u32);
        let dst = attributes.get(RTA_DST).and_then(read_ip).unwrap_or(anything);
        Some(Self {
            dst: IpNetwork::new(dst, prefix).ok()?,
            kind,
            gateway: gateway(attributes).or_else(|| first.as_ref()?.gateway),
            link: number(RTA_OIF).or_else(|| Some(first.as_ref()?.link)),
            table: number(RTA_TABLE).or(Some(u32::from(table))),
            scope: Some(scope),
            protocol: Some(protocol),
            priority: number(RTA_PRIORITY),
            mtu: metric(RTAX_MTU),
            advmss: metric(RTAX_ADVMSS),
            source: attributes.get(RTA_PREFSRC).and_then(read_ip),
            preference: attributes.get(RTA_PREF).and_then(read_u8),
            expires: number(RTA_EXPIRES).or_else(|| expiry(attributes.get(RTA_CACHEINFO)?)),
            tos,
            on_link: flags & RTNH_F_ONLINK != 0 || first.as_ref().is_some_and(|hop| hop.on_link),
            kept: match first {
                Some(first) if hops.is_empty() => first.kept,
                _ => keep(attributes, |kind| KEPT.contains(&kind)),
            },
            metrics: metrics
                .map(|all| keep(all, |kind| kind != RTAX_MTU && kind != RTAX_ADVMSS))
                .unwrap_or_default(),
            hops,
        })
    }

    /// Encodes the route as the part of a request after its header, for [`Route::parse`].
    pub fn payload(&self) -> Vec<u8> {
        self.message(RTM_NEWROUTE, 0).payload().to_vec()
    }

    /// Whether a next hop uses the link.
    pub fn uses(&self, link: u32) -> bool {
        self.link == Some(link) || self.hops.iter().any(|hop| hop.link == link)
    }

    /// The route with only the next hops through the link. `None` if there are none.
    pub fn only_by(&self, link: u32) -> Option<Self> {
        self.with_hops(|hop| hop.link == link)
    }

    /// The route with only the next hops through other links. `None` if there are none.
    pub fn without(&self, link: u32) -> Option<Self> {
        self.with_hops(|hop| hop.link != link)
    }

    fn with_hops(&self, expected: impl Fn(&NextHop) -> bool) -> Option<Self> {
        if self.hops.is_empty() {
            let only = NextHop {
                gateway: self.gateway,
                link: self.link?,
                weight: 0,
                on_link: self.on_link,
                kept: RawAttributes::new(),
            };
            return expected(&only).then(|| self.clone());
        }
        let hops: Vec<NextHop> = self.hops.iter().filter(|hop| expected(hop)).cloned().collect();
        let first = hops.first()?.clone();
        let (gateway, link, on_link) = (first.gateway, Some(first.link), first.on_link);
        let (hops, kept) = match hops.len() {
            1 => (Vec::new(), first.kept),
            _ => (hops, self.kept.clone()),
        };
        Some(Self { gateway, link, on_link, hops, kept, ..self.clone() })
    }

    fn message(&self, kind: u16, flags: u16) -> Message {
        let scope = match (self.scope, self.gateway, self.dst) {
            (Some(scope), ..) => scope,
            (None, None, IpNetwork::V4(_)) if self.kind == RTN_UNICAST => RT_SCOPE_LINK,
            _ => RT_SCOPE_UNIVERSE,
        };
        let mut message = Message::new(kind, flags, &self.header(scope));
        if self.dst.prefix() > 0 {
            message.put_ip(RTA_DST, self.dst.network());
        }
        message.put_u32(RTA_TABLE, self.table.unwrap_or(RT_TABLE_MAIN));
        if let Some(source) = self.source {
            message.put_ip(RTA_PREFSRC, source);
        }
        message.put_optional(RTA_PRIORITY, self.priority);
        if let Some(preference) = self.preference {
            message.put_u8(RTA_PREF, preference);
        }
        message.put_optional(RTA_EXPIRES, self.expires);
        self.put_next_hops(&mut message);
        self.kept.iter().for_each(|(kind, value)| message.put(*kind, value));
        if self.mtu.or(self.advmss).is_some() || !self.metrics.is_empty() {
            message.nest(RTA_METRICS, |m| {
                m.put_optional(RTAX_MTU, self.mtu);
                m.put_optional(RTAX_ADVMSS, self.advmss);
                self.metrics.iter().for_each(|(kind, value)| m.put(*kind, value));
            });
        }
        message
    }

    fn put_next_hops(&self, message: &mut Message) {
        if self.hops.is_empty() {
            if let Some(gateway) = self.gateway {
                put_gateway(message, gateway, self.dst);
            }
            message.put_optional(RTA_OIF, self.link);
            return;
        }
        message.nest(RTA_MULTIPATH, |m| {
            for hop in &self.hops {
                m.raw_with_length(&hop.header(), |m| {
                    if let Some(gateway) = hop.gateway {
                        put_gateway(m, gateway, self.dst);
                    }
                    hop.kept.iter().for_each(|(kind, value)| m.put(*kind, value));
                });
            }
        });
    }

    fn header(&self, scope: u8) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..2].copy_from_slice(&[family(self.dst.ip()), self.dst.prefix()]);
        bytes[3] = self.tos;
        let protocol = self.protocol.unwrap_or(RTPROT_BOOT);
        bytes[4..8].copy_from_slice(&[RT_TABLE_UNSPEC, protocol, scope, self.kind]);
        let flags = if self.on_link && self.hops.is_empty() { RTNH_F_ONLINK } else { 0 };
        bytes[8..].copy_from_slice(&flags.to_ne_bytes());
        bytes
    }
}

impl NextHop {
    /// `struct rtnexthop`, without its final length.
    fn header(&self) -> [u8; NEXT_HOP] {
        let [a, b, c, d] = self.link.to_ne_bytes();
        let [on_link, ..] = RTNH_F_ONLINK.to_le_bytes();
        [0, 0, if self.on_link { on_link } else { 0 }, self.weight, a, b, c, d]
    }

    /// Decodes a `struct rtnexthop` with its attributes.
    fn read(bytes: &[u8]) -> Option<Self> {
        let attributes = Attributes::after(NEXT_HOP, bytes);
        Some(Self {
            gateway: gateway(attributes),
            link: read_u32(bytes.get(4..)?)?,
            weight: *bytes.get(3)?,
            on_link: u32::from(*bytes.get(2)?) & RTNH_F_ONLINK != 0,
            kept: keep(attributes, |kind| KEPT.contains(&kind)),
        })
    }
}

fn keep(attributes: Attributes<'_>, expected: impl Fn(u16) -> bool) -> RawAttributes {
    attributes.filter(|(kind, _)| expected(*kind)).map(|(kind, value)| (kind, value.to_vec())).collect()
}

/// Seconds until expiry in a `struct rta_cacheinfo`. `None`: never.
fn expiry(cache_info: &[u8]) -> Option<u32> {
    let ticks = read_u32(cache_info.get(8..)?).filter(|ticks| *ticks != 0)?;
    // The kernel is about to delete an expired route.
    let ticks = u32::try_from(ticks.cast_signed()).unwrap_or_default();
    Some((ticks / USER_HZ).max(1))
}

/// Length of an address in bits.
fn bits(ip: IpAddr) -> u8 {
    if ip.is_ipv4() { 32 } else { 128 }
}

/// A gateway of the other family has its own attribute (`struct rtvia`).
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

/// Decodes next hops, each a `struct rtnexthop` with its attributes. Stops at the first one that does not fit.
fn next_hops(mut bytes: &[u8]) -> Vec<NextHop> {
    let mut hops = Vec::new();
    while let Some(one) = read_u16(bytes).and_then(|length| bytes.get(..usize::from(length))) {
        let Some(hop) = NextHop::read(one).filter(|_| one.len() >= NEXT_HOP) else { break };
        hops.push(hop);
        bytes = bytes.get(one.len().next_multiple_of(4)..).unwrap_or_default();
    }
    hops
}

/// Filter for listing routes. `None`: any.
#[derive(Clone, Copy, Debug, Default)]
pub struct RouteFilter {
    /// Routes with a next hop through this link.
    pub link: Option<u32>,
    /// Routes in this table.
    pub table: Option<u32>,
}

impl Netlink {
    /// Lists unicast routes of both families.
    ///
    /// # Errors
    /// If the kernel refuses the request.
    pub fn routes(&self, filter: RouteFilter) -> Result<Vec<Route>> {
        let all = self.all_routes(filter)?;
        Ok(all.into_iter().filter(|route| route.kind == RTN_UNICAST).collect())
    }

    /// Lists routes of both families and all types.
    ///
    /// # Errors
    /// If the kernel refuses the request.
    pub fn all_routes(&self, filter: RouteFilter) -> Result<Vec<Route>> {
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
            // The table does not exist yet.
            Err(r) if r.errno() == Some(Errno::ENOENT) => return Ok(Vec::new()),
            other => other.map_err(|r| r.during("list", "routes"))?,
        };
        // If the kernel runs without IPv6, it answers with the routes of all other families.
        let expected = |r: &Route| {
            r.dst.is_ipv4() == (family == AF_INET)
                && filter.link.is_none_or(|link| r.uses(link))
                && filter.table.is_none_or(|t| r.table == Some(t))
        };
        Ok(routes.into_iter().filter(expected).collect())
    }

    /// The default route, as [`Route::default_of`] chooses it.
    ///
    /// # Errors
    /// If the kernel refuses the request.
    pub fn default_route(&self) -> Result<Option<Route>> {
        let routes = self.routes(RouteFilter { table: Some(RT_TABLE_MAIN), ..RouteFilter::default() })?;
        Ok(Route::default_of(&routes).cloned())
    }

    /// The outgoing link for a packet of this host to an address. `None` without a route.
    ///
    /// # Errors
    /// If the kernel refuses the request.
    pub fn route_get(&self, destination: IpAddr) -> Result<Option<Link>> {
        let link = |payload: &[u8]| Attributes::after(HEADER, payload).get(RTA_OIF).and_then(read_u32);
        self.link_named_by(self.look_up(destination, link)?)
    }

    /// Whether packets to an address are for this host: the address is one of its interfaces', or local by a route.
    ///
    /// # Errors
    /// If the kernel refuses the request.
    pub fn is_local(&self, address: IpAddr) -> Result<bool> {
        const TYPE_AT: usize = 7;
        Ok(self.look_up(address, |payload| payload.get(TYPE_AT).copied())? == Some(RTN_LOCAL))
    }

    /// Reads the route of a packet of this host to an address. `None` without a route.
    fn look_up<T>(&self, destination: IpAddr, read: impl Fn(&[u8]) -> Option<T>) -> Result<Option<T>> {
        let mut header = [0; HEADER];
        header[..2].copy_from_slice(&[family(destination), bits(destination)]);
        let mut message = Message::new(RTM_GETROUTE, 0, &header);
        message.put_ip(RTA_DST, destination);
        let mut found = None;
        match self.socket.request(message, |_, payload| found = read(payload)) {
            Err(r) if matches!(r.errno(), Some(Errno::ENETUNREACH | Errno::EHOSTUNREACH)) => Ok(None),
            other => other.map(|()| found).map_err(|r| r.during("look up the route to", destination)),
        }
    }

    /// The destinations of the table of local routes: this host's addresses, and addresses and subnets that are local by a route.
    ///
    /// # Errors
    /// If the kernel refuses the request.
    pub fn local_destinations(&self) -> Result<Vec<IpNetwork>> {
        let routes =
            self.all_routes(RouteFilter { table: Some(RT_TABLE_LOCAL), ..RouteFilter::default() })?;
        Ok(routes.into_iter().filter(|route| route.kind == RTN_LOCAL).map(|route| route.dst).collect())
    }

    /// Accepts packets that arrive on a link for an address of this host on another link. The host's own route to the address does not
    /// change. Succeeds if the route already exists.
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

    /// Adds a route. Another route to the same destination stays: IPv4 prefers the newer one, IPv6 uses both.
    ///
    /// # Errors
    /// If the same route exists, the gateway is unreachable, or the kernel refuses.
    pub fn add_route(&self, route: &Route) -> Result<()> {
        self.order(route.message(RTM_NEWROUTE, NLM_F_CREATE), "add route", Named(route))
    }

    /// Like [`Netlink::add_route`], but IPv4 prefers the other routes.
    ///
    /// # Errors
    /// If the same route exists, the gateway is unreachable, or the kernel refuses.
    pub fn append_route(&self, route: &Route) -> Result<()> {
        let last = if route.dst.is_ipv4() { NLM_F_APPEND } else { 0 };
        self.order(route.message(RTM_NEWROUTE, NLM_F_CREATE | last), "add route", Named(route))
    }

    /// Deletes exactly this route, or, of an IPv6 multipath route, the given next hops. Succeeds if it does not exist.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn delete_route(&self, route: &Route) -> Result<()> {
        let message = Route { expires: None, ..route.clone() }.message(RTM_DELROUTE, 0);
        self.order_if_it_exists(message, "delete route", Named(route))
    }
}

/// Sorts listed routes for restoring. Routes to the link's neighbours come first, because gateways are among these. Of several IPv4 routes
/// to one destination, the last listed comes first, because the kernel puts a new route before older ones.
pub fn in_order_of_restoring(routes: &mut [Route]) {
    routes.sort_by_key(|route| route.dst.is_ipv6());
    let v4 = routes.partition_point(|route| route.dst.is_ipv4());
    routes[..v4].reverse();
    in_order_of_appending(routes);
}

/// Sorts listed routes for [`Netlink::append_route`]: routes to the link's neighbours come first.
pub fn in_order_of_appending(routes: &mut [Route]) {
    routes.sort_by_key(|route| route.gateway.is_some() || !route.hops.is_empty());
}

/// Formats a route for messages.
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
