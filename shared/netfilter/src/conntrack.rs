//! Connection tracking: flushes UDP and SCTP flows whose destination has changed.
//!
//! While a client sends from one port, the kernel keeps the entry of its flow forever. A UDP client may never change its
//! port, and an SCTP peer has a fixed one. After the container was replaced, the entry would lead nowhere, or to
//! another container with the same address.

mod pattern;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnetwork::IpNetwork;
use netlink::wire::{Attributes, read_be32};
use netlink::{Family, Netlink, RequestError, Socket};
use nix::errno::Errno;

use crate::ruleset::TrackedPort;
use crate::ruleset::uapi::TRACKED_PROTOCOLS;
use pattern::{
    CTA_STATS_GLOBAL_ENTRIES, Flow, HEADER, IPCTNL_MSG_CT_DELETE, IPCTNL_MSG_CT_GET, IPCTNL_MSG_CT_GET_STATS,
    Pattern, identity, message,
};

/// Maximum number of times that the kernel walks its table of connections. One walk takes 0.2 ms.
const WALKS_MAX: usize = 16;

/// Flows, according to removed rules.
#[derive(Clone, Debug, Default)]
pub(crate) struct Targets {
    /// The flows that the rules lead to containers.
    pub(crate) flows: BTreeSet<FlowTarget>,
    /// Whether rules of the reference were removed that contain no addresses.
    pub(crate) has_rules_without_addresses: bool,
}

/// The flows through a host port to a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FlowTarget {
    /// The number of the protocol, and the host port. None: any.
    pub(crate) port: Option<(u8, u16)>,
    /// The container's address. After the container has exited, another one may have it.
    pub(crate) to: IpAddr,
}

impl Targets {
    pub(crate) fn is_empty(&self) -> bool {
        self.flows.is_empty() && !self.has_rules_without_addresses
    }
}

impl From<TrackedPort> for FlowTarget {
    fn from(TrackedPort { protocol, port, to, .. }: TrackedPort) -> Self {
        Self { port: Some((protocol, port)), to: to.ip() }
    }
}

/// Flushes the flows to targets.
pub(crate) type Flush<'a> = &'a dyn Fn(&Targets);

/// Whether another attachment maps a port at one of the host's addresses, and so precedes a mapping of all addresses.
pub(crate) type IsPreceded<'a> = &'a dyn Fn(&TrackedPort, IpAddr) -> bool;

/// Flushes the flows to newly mapped ports of this host: they may lead to an older container, or to the host itself.
/// Flows that are forwarded to the same port of other hosts are kept.
pub(crate) fn flush_mapped(
    socket: &Socket,
    ports: &[TrackedPort],
    is_preceded: IsPreceded<'_>,
) -> Result<(), RequestError> {
    let mapped = Mapped::new(ports, is_preceded);
    let Some(few) = mapped.few_addresses() else { return mapped.flush(socket, all_patterns(), |_, _| true) };
    // The kernel finds the flows to a few addresses in less time than it lists all flows.
    flush_all(socket, few)?;
    mapped.flush(socket, all_patterns().filter(|pattern| pattern.family == Family::V6), |_, _| true)
}

/// Like [`flush_mapped`], but keeps the flows that already lead to the mapped port of the container. If several
/// attachments map a host port, the last one has it.
pub(crate) fn flush_misdirected(
    socket: &Socket,
    ports: &[TrackedPort],
    is_preceded: IsPreceded<'_>,
) -> Result<(), RequestError> {
    let mapped = Mapped::new(ports, is_preceded);
    mapped.flush(socket, all_patterns(), |flow, port| flow.answers_from != port.to)
}

/// Mapped ports of this host. Each flow is looked up in them, because a host may have thousands of addresses.
struct Mapped<'a> {
    /// By protocol and port.
    ports: BTreeMap<(u8, u16), Vec<&'a TrackedPort>>,
    netlink: Option<Netlink>,
    /// Whether packets to an address are for this host, as far as it is known.
    is_local: RefCell<BTreeMap<IpAddr, bool>>,
    is_preceded: IsPreceded<'a>,
}

impl<'a> Mapped<'a> {
    fn new(all: &'a [TrackedPort], is_preceded: IsPreceded<'a>) -> Self {
        let mut ports: BTreeMap<_, Vec<_>> = BTreeMap::new();
        all.iter().for_each(|port| ports.entry((port.protocol, port.port)).or_default().push(port));
        let netlink = Netlink::open().ok();
        let own = netlink.as_ref().and_then(|netlink| netlink.addresses(None).ok()).unwrap_or_default();
        let is_local = own.iter().map(|address| (address.net.ip(), true)).collect();
        Self { ports, netlink, is_local: RefCell::new(is_local), is_preceded }
    }

    /// The IPv4 flows to these ports of this host, for each address. `None` if there are many addresses, or if a whole subnet is local by a
    /// route. The exception is 127.0.0.0/8, of which only addresses of an interface count.
    fn few_addresses(&self) -> Option<Vec<Pattern>> {
        let local = self.netlink.as_ref()?.local_destinations().ok()?.into_iter().filter(IpNetwork::is_ipv4);
        let (hosts, subnets): (Vec<_>, Vec<_>) = local.partition(|dst| dst.prefix() == 32);
        subnets.iter().all(|dst| dst.ip().is_loopback()).then_some(())?;
        let known = self.is_local.borrow();
        let own: BTreeSet<IpAddr> = known.keys().copied().chain(hosts.iter().map(IpNetwork::ip)).collect();
        let own: Vec<IpAddr> = own.into_iter().filter(IpAddr::is_ipv4).collect();
        let of_port = |port: &'a TrackedPort| {
            let addresses = port.host_ip.map_or_else(|| own.clone(), |ip| vec![ip]);
            addresses.into_iter().map(move |to| (port, to))
        };
        let v4 = self.ports.values().flatten().filter(|port| port.to.is_ipv4());
        let mut flows: Vec<(&TrackedPort, IpAddr)> = v4.flat_map(|port| of_port(port)).collect();
        (flows.len() <= WALKS_MAX).then_some(())?;
        flows.retain(|(port, to)| port.host_ip.is_some() || !(self.is_preceded)(port, *to));
        let pattern = |(port, to): (&TrackedPort, IpAddr)| Pattern {
            to: Some(to),
            port: Some(port.port),
            ..Pattern::all(Family::V4, port.protocol)
        };
        Some(flows.into_iter().map(pattern).collect())
    }

    /// Deletes the flows to these ports that `is_meant` selects, with one listing for each of the patterns.
    fn flush(
        &self,
        socket: &Socket,
        patterns: impl IntoIterator<Item = Pattern>,
        is_meant: impl Fn(&Flow, &TrackedPort) -> bool,
    ) -> Result<(), RequestError> {
        let mut flushed = Ok(());
        for pattern in patterns {
            let of_pattern = self.ports.iter().filter(|((protocol, _), _)| *protocol == pattern.protocol);
            let of_pattern =
                of_pattern.filter(|(_, ports)| ports.iter().any(|port| pattern.is_of(port.to.ip())));
            let numbers: Vec<u16> = of_pattern.map(|((_, number), _)| *number).collect();
            let filter = match numbers[..] {
                [] => continue,
                [number] => Pattern { port: Some(number), ..pattern },
                _ => pattern,
            };
            let is_meant = |flow: &Flow| self.mapping(flow).is_some_and(|port| is_meant(flow, port));
            let deleted = list(socket, &filter, is_meant).and_then(|mut listed| {
                listed.retain(|(flow, _)| !self.is_of_another(flow));
                delete(socket, &filter, &listed)
            });
            flushed = flushed.and(deleted);
        }
        flushed
    }

    /// Whether another attachment's mapping of one address has the flow. Not known until all flows are listed, because this asks the kernel
    /// through the same socket.
    fn is_of_another(&self, flow: &Flow) -> bool {
        let of_all = self.mapping(flow).filter(|port| port.host_ip.is_none());
        of_all.is_some_and(|port| (self.is_preceded)(port, flow.to.ip()))
    }

    /// The mapping of a flow's first packet. A mapping of one address takes precedence.
    fn mapping(&self, flow: &Flow) -> Option<&TrackedPort> {
        let ports = self.ports.get(&(flow.protocol, flow.to.port()))?;
        let last = |host_ip| {
            let is_it =
                |port: &&&TrackedPort| port.host_ip == host_ip && port.to.is_ipv4() == flow.to.is_ipv4();
            ports.iter().rev().find(is_it).copied()
        };
        last(Some(flow.to.ip())).or_else(|| last(None).filter(|_| self.is_local(flow.to.ip())))
    }

    /// Whether an address is this host's: one of an interface, or local by a route, as those of a load balancer.
    fn is_local(&self, ip: IpAddr) -> bool {
        let look_up = || self.netlink.as_ref().is_some_and(|nl| nl.is_local(ip).unwrap_or(false));
        *self.is_local.borrow_mut().entry(ip).or_insert_with(look_up)
    }
}

/// A pattern for each family and protocol.
fn all_patterns() -> impl Iterator<Item = Pattern> {
    let of_family =
        |family| TRACKED_PROTOCOLS.into_iter().map(move |protocol| Pattern::all(family, protocol));
    Family::ALL.into_iter().flat_map(of_family)
}

/// Flushes the flows to containers.
pub(crate) fn flush_containers(
    socket: &Socket,
    flows: impl IntoIterator<Item = FlowTarget>,
) -> Result<(), RequestError> {
    let answering = |FlowTarget { port, to }: FlowTarget| {
        let of_target = all_patterns().filter(move |pattern| {
            pattern.is_of(to) && port.is_none_or(|(protocol, _)| protocol == pattern.protocol)
        });
        let port = port.map(|(_, number)| number);
        of_target.map(move |pattern| Pattern { port, answers_from: Some(to), ..pattern })
    };
    flush_all(socket, flows.into_iter().flat_map(answering).collect())
}

/// The kernel's filter cannot match an IPv6 address: it matches all others instead (at least up to Linux 6.18;
/// `ctnetlink_filter_match_tuple` in nf_conntrack_netlink.c).
fn flush_all(socket: &Socket, patterns: Vec<Pattern>) -> Result<(), RequestError> {
    let (v4, mut listed): (Vec<Pattern>, Vec<Pattern>) =
        patterns.into_iter().partition(|pattern| pattern.family == Family::V4);
    if v4.len() > WALKS_MAX || !flush_by_kernel(socket, &v4)? {
        listed.extend(v4);
    }
    flush_one_by_one(socket, &listed)
}

/// Lets the kernel find and flush them (Linux 6.8). Returns false if it is older. A listing takes much longer, because the kernel then locks
/// each of its thousands of buckets, most of which are empty.
fn flush_by_kernel(socket: &Socket, patterns: &[Pattern]) -> Result<bool, RequestError> {
    for pattern in patterns {
        let mut delete = message(IPCTNL_MSG_CT_DELETE, pattern.family);
        pattern.write(&mut delete);
        match socket.request(delete, |_, _| {}) {
            // It treats the pattern as one connection, and its tuple as incomplete.
            Err(refusal) if refusal.errno() == Some(Errno::EINVAL) => return Ok(false),
            other => other?,
        }
    }
    Ok(true)
}

/// One walk for all patterns of a protocol and family. Otherwise each would need one.
fn flush_one_by_one(socket: &Socket, patterns: &[Pattern]) -> Result<(), RequestError> {
    let mut flushed = Ok(());
    for all in all_patterns() {
        let is_of = |pattern: &&Pattern| (pattern.family, pattern.protocol) == (all.family, all.protocol);
        let of_kind: Vec<&Pattern> = patterns.iter().filter(is_of).collect();
        let filter = match of_kind[..] {
            [] => continue,
            [pattern] => *pattern,
            _ => all,
        };
        let is_meant = |flow: &Flow| of_kind.iter().any(|pattern| pattern.fits(flow));
        flushed =
            flushed.and(list(socket, &filter, is_meant).and_then(|listed| delete(socket, &filter, &listed)));
    }
    flushed
}

/// A listed flow, with the attributes that identify its connection.
type ListedFlow = (Flow, Vec<(u16, Vec<u8>)>);

/// Lists flows, and returns those that `is_meant` selects.
fn list(
    socket: &Socket,
    filter: &Pattern,
    is_meant: impl Fn(&Flow) -> bool,
) -> Result<Vec<ListedFlow>, RequestError> {
    if tracks_nothing(socket) {
        return Ok(Vec::new());
    }
    let mut get = message(IPCTNL_MSG_CT_GET, filter.family);
    filter.write(&mut get);
    let found = socket.dump(get, |_, payload| {
        let connection = Attributes::after(HEADER, payload);
        let flow = Flow::read(connection)?;
        is_meant(&flow).then(|| (flow, identity(connection)))
    });
    match found {
        // The kernel has no connection tracking.
        Err(refusal) if refusal.errno() == Some(Errno::EINVAL) => Ok(Vec::new()),
        other => other,
    }
}

/// Deletes listed flows. Continues after a failure: the other flows need not wait for a repetition.
fn delete(socket: &Socket, filter: &Pattern, listed: &[ListedFlow]) -> Result<(), RequestError> {
    let mut flushed = Ok(());
    for (_, identity) in listed {
        let mut delete = message(IPCTNL_MSG_CT_DELETE, filter.family);
        identity.iter().for_each(|(kind, value)| delete.put(*kind, value));
        match socket.request(delete, |_, _| {}) {
            Err(refusal) if refusal.errno() != Some(Errno::ENOENT) => flushed = flushed.and(Err(refusal)),
            _ => {}
        }
    }
    flushed
}

/// Whether the kernel tracks no connection of this network namespace. A listing takes milliseconds also then.
fn tracks_nothing(socket: &Socket) -> bool {
    let mut entries = None;
    let counted = socket.request(message(IPCTNL_MSG_CT_GET_STATS, Family::V4), |_, payload| {
        entries = Attributes::after(HEADER, payload).get(CTA_STATS_GLOBAL_ENTRIES).and_then(read_be32);
    });
    counted.is_ok() && entries == Some(0)
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use netlink::wire::read_ip;
    use nix::sched::{CloneFlags, unshare};

    use super::pattern::{CTA_IP_V6_DST, CTA_TUPLE_IP, CTA_TUPLE_ORIG};
    use super::*;
    use crate::ruleset::uapi::UDP;

    /// In a new namespace: the tests never touch the host's. Addresses outside of loopback are other hosts'.
    fn tracked_flows(to: &[&str]) -> Socket {
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        run(&["ip", "link", "set", "lo", "up"]);
        run(&["ip", "route", "add", "local", "fd00::/64", "dev", "lo"]);
        run(&["ip", "route", "add", "192.0.2.1", "dev", "lo"]);
        run(&["ip", "route", "add", "local", "198.51.100.7", "dev", "lo"]);
        let rules = "table inet t { chain c { type filter hook output priority 0; ct state new counter; }; }";
        run(&["nft", rules]);
        // Long enough on a busy machine.
        std::fs::write("/proc/sys/net/netfilter/nf_conntrack_udp_timeout", "86400").unwrap();
        to.iter().for_each(|to| send(to));
        Socket::open(netlink::Protocol::Netfilter).unwrap()
    }

    fn run(words: &[&str]) {
        assert!(std::process::Command::new(words[0]).args(&words[1..]).status().unwrap().success());
    }

    fn send(to: &str) {
        let from = if to.starts_with('[') { "[::1]:0" } else { "127.0.0.1:0" };
        UdpSocket::bind(from).unwrap().send_to(b"?", to).unwrap();
    }

    fn left(socket: &Socket) -> usize {
        socket.dump(message(IPCTNL_MSG_CT_GET, Family::V4), |_, _| Some(())).unwrap().len()
    }

    /// The destinations of all IPv6 connections.
    fn left_to(socket: &Socket) -> Vec<IpAddr> {
        let to = |payload: &[u8]| {
            let tuple = Attributes::of(Attributes::after(HEADER, payload).get(CTA_TUPLE_ORIG)?);
            Attributes::of(tuple.get(CTA_TUPLE_IP)?).get(CTA_IP_V6_DST).and_then(read_ip)
        };
        let mut left = socket.dump(message(IPCTNL_MSG_CT_GET, Family::V6), |_, payload| to(payload)).unwrap();
        left.sort();
        left
    }

    /// The kernel's own filter matches every IPv6 address but the requested one.
    #[test]
    fn connections_of_another_container_are_kept_with_ipv6_too() {
        let servers = ["[fd00::1]:53", "[fd00::2]:53", "[fd00::3]:53", "[fd00::4]:53", "[::1]:53"];
        let socket = tracked_flows(&servers);
        let ips = |texts: &[&str]| texts.iter().map(|ip| ip.parse().unwrap()).collect::<Vec<IpAddr>>();
        flush_containers(&socket, [target(None, "fd00::2"), target(Some(53), "fd00::3")]).unwrap();
        flush_containers(&socket, [target(None, "fd00::4")]).unwrap();
        assert_eq!(left_to(&socket), ips(&["::1", "fd00::1"]));
        flush_mapped(
            &socket,
            &[TrackedPort { to: "[::1]:7".parse().unwrap(), ..mapped(Some("::1")) }],
            NOTHING,
        )
        .unwrap();
        assert_eq!(left_to(&socket), ips(&["fd00::1"]));
    }

    #[test]
    fn a_listing_is_left_out_only_if_the_namespace_has_no_connections() {
        assert!(tracks_nothing(&tracked_flows(&[])));
        assert!(!tracks_nothing(&tracked_flows(&["127.0.0.1:53"])));
    }

    /// No other attachment maps a port.
    const NOTHING: IsPreceded<'_> = &|_, _| false;

    #[test]
    fn flows_to_an_address_whose_port_another_attachment_maps_are_kept() {
        let socket = tracked_flows(&["127.0.0.1:53", "127.0.0.2:53", "[::1]:53", "[fd00::1]:53"]);
        run(&["ip", "addr", "add", "127.0.0.2", "dev", "lo"]);
        let of = |to: &str| TrackedPort { to: to.parse().unwrap(), ..mapped(None) };
        let is_preceded = |_: &TrackedPort, ip: IpAddr| ["127.0.0.2", "fd00::1"].contains(&&*ip.to_string());
        flush_mapped(&socket, &[of("127.0.0.1:7"), of("[::1]:7")], &is_preceded).unwrap();
        assert_eq!((left(&socket), left_to(&socket)), (1, vec!["fd00::1".parse().unwrap()]));
        flush_misdirected(&socket, &[of("127.0.0.1:7"), of("[::1]:7")], &is_preceded).unwrap();
        assert_eq!((left(&socket), left_to(&socket).len()), (1, 1));
        flush_mapped(&socket, &[mapped(Some("127.0.0.2"))], &is_preceded).unwrap();
        assert_eq!(left(&socket), 0);
    }

    fn target(port: Option<u16>, to: &str) -> FlowTarget {
        FlowTarget { port: port.map(|port| (UDP, port)), to: to.parse().unwrap() }
    }

    fn mapped(host_ip: Option<&str>) -> TrackedPort {
        let host_ip = host_ip.map(|ip| ip.parse().unwrap());
        TrackedPort { protocol: UDP, host_ip, port: 53, to: "127.0.0.1:53".parse().unwrap() }
    }

    #[test]
    fn only_flows_to_the_mapped_port_of_this_host_are_flushed() {
        let socket = tracked_flows(&["127.0.0.1:53", "127.0.0.1:54", "192.0.2.1:53"]);
        assert_eq!(left(&socket), 3);
        flush_mapped(&socket, &[mapped(None)], NOTHING).unwrap();
        assert_eq!(left(&socket), 2, "192.0.2.1 is somebody else's");
        flush_mapped(&socket, &[mapped(Some("192.0.2.1"))], NOTHING).unwrap();
        assert_eq!(left(&socket), 1);
    }

    /// With the subnet 198.51.100.0/24, the kernel must list the flows; with the one address of a load balancer, it finds them itself.
    #[test]
    fn flows_to_addresses_that_are_local_by_a_route_or_link_local_are_flushed() {
        let socket = tracked_flows(&[
            "127.0.0.1:53",
            "198.51.100.7:53",
            "192.0.2.1:53",
            "[fd00::1]:53",
            "[fd00::1]:54",
        ]);
        let both = [mapped(None), TrackedPort { port: 54, ..mapped(None) }];
        assert!(Mapped::new(&both, NOTHING).few_addresses().is_some());
        flush_mapped(&socket, &both, NOTHING).unwrap();
        assert_eq!((left(&socket), left_to(&socket).len()), (1, 2));
        let route = ["route", "add", "local", "198.51.100.0/24", "dev", "lo"];
        assert!(std::process::Command::new("ip").args(route).status().unwrap().success());
        send("198.51.100.9:53");
        assert!(Mapped::new(&both, NOTHING).few_addresses().is_none());
        flush_mapped(&socket, &both, NOTHING).unwrap();
        assert_eq!(left(&socket), 1, "192.0.2.1 is somebody else's");
        let v6 = TrackedPort { to: "[::1]:7".parse().unwrap(), ..mapped(None) };
        flush_misdirected(&socket, &[v6], NOTHING).unwrap();
        assert_eq!(left_to(&socket).len(), 1);
    }

    #[test]
    fn an_older_kernels_connections_are_flushed_one_by_one() {
        let socket = tracked_flows(&["127.0.0.1:53", "127.0.0.1:54", "127.0.0.2:53"]);
        let pattern = |from: &str, port| Pattern {
            answers_from: from.parse().ok(),
            port: Some(port),
            ..Pattern::all(Family::V4, UDP)
        };
        flush_one_by_one(&socket, &[pattern("127.0.0.1", 53)]).unwrap();
        assert_eq!(left(&socket), 2);
        flush_one_by_one(&socket, &[pattern("127.0.0.1", 54), pattern("127.0.0.2", 53)]).unwrap();
        assert_eq!(left(&socket), 0);
    }

    #[test]
    fn all_of_a_containers_flows_are_flushed_or_those_through_a_port() {
        let socket = tracked_flows(&["127.0.0.1:53", "127.0.0.3:53", "127.0.0.3:54", "127.0.0.3:55"]);
        flush_containers(&socket, [target(Some(54), "127.0.0.3"), target(Some(54), "127.0.0.1")]).unwrap();
        assert_eq!(left(&socket), 3);
        flush_containers(&socket, [target(None, "127.0.0.3")]).unwrap();
        assert_eq!(left(&socket), 1);
    }

    /// Without NAT, the answers come from the address and port to which the client sends.
    #[test]
    fn flows_that_lead_to_the_container_are_not_misdirected() {
        let socket = tracked_flows(&["127.0.0.1:53", "[::1]:53"]);
        let count = || (left(&socket), left_to(&socket).len());
        let to = |to: &str| TrackedPort { to: to.parse().unwrap(), ..mapped(None) };
        flush_misdirected(&socket, &[to("127.0.0.1:54"), to("127.0.0.1:53"), to("[::1]:53")], NOTHING)
            .unwrap();
        assert_eq!(count(), (1, 1), "the last mapping has the port");
        flush_misdirected(&socket, &[to("127.0.0.1:54"), to("[::2]:53")], NOTHING).unwrap();
        assert_eq!(count(), (0, 0));
    }
}
