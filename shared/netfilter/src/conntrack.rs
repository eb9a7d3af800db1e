//! Connection tracking: flushes UDP flows whose destination has changed.
//!
//! While a client sends, the kernel keeps the entry of its UDP flow forever. After the container was replaced, the
//! entry would lead nowhere.

mod pattern;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use netlink::wire::Attributes;
use netlink::{Family, Netlink, RequestError, Socket};
use nix::errno::Errno;

use crate::ruleset::UdpPort;
use pattern::{Flow, HEADER, IPCTNL_MSG_CT_DELETE, IPCTNL_MSG_CT_GET, Pattern, identity, message};

/// The scope of link-local addresses.
const RT_SCOPE_LINK: u8 = 253;

/// Maximum number of times that the kernel walks its table of connections. One walk takes 0.2 ms.
const WALKS_MAX: usize = 16;

/// UDP flows, according to removed rules.
#[derive(Clone, Debug, Default)]
pub(crate) struct Targets {
    /// The flows that the rules lead to containers.
    pub(crate) flows: BTreeSet<UdpTarget>,
    /// Whether rules of the reference were removed that contain no addresses.
    pub(crate) has_rules_without_addresses: bool,
}

/// The UDP flows through a host port to a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct UdpTarget {
    /// The host port. None: any.
    pub(crate) port: Option<u16>,
    /// The container's address. After the container has exited, another one may have it.
    pub(crate) to: IpAddr,
}

impl Targets {
    pub(crate) fn is_empty(&self) -> bool {
        self.flows.is_empty() && !self.has_rules_without_addresses
    }
}

impl From<UdpPort> for UdpTarget {
    fn from(UdpPort { port, to, .. }: UdpPort) -> Self {
        Self { port: Some(port), to: to.ip() }
    }
}

/// Flushes the UDP flows to targets.
pub(crate) type Flush<'a> = &'a dyn Fn(&Targets);

/// Flushes the UDP flows to newly mapped ports of this host: they may lead to an older container, or to the host
/// itself. Flows that are forwarded to the same port of other hosts are kept.
pub(crate) fn flush_mapped(socket: &Socket, ports: &[UdpPort]) -> Result<(), RequestError> {
    flush_all(socket, mapped(ports).into_keys().map(to_host).collect())
}

/// Like [`flush_mapped`], but keeps the flows that already lead to the mapped port of the container. If several
/// attachments map a host port, the last one has it. Takes longer, because the kernel has to list the flows.
pub(crate) fn flush_misdirected(socket: &Socket, ports: &[UdpPort]) -> Result<(), RequestError> {
    let misdirected = |(host, to)| Pattern { except: Some(to), ..to_host(host) };
    flush_all(socket, mapped(ports).into_iter().map(misdirected).collect())
}

/// The mapped addresses and ports of this host, each with its destination. A mapping of one address takes precedence.
fn mapped(ports: &[UdpPort]) -> BTreeMap<SocketAddr, SocketAddr> {
    let (mut own, mut mapped) = (None, BTreeMap::new());
    for &UdpPort { port, to, .. } in ports.iter().filter(|port| port.host_ip.is_none()) {
        let own = own.get_or_insert_with(own_addresses).iter();
        let of_family = own.filter(|ip| ip.is_ipv4() == to.is_ipv4());
        mapped.extend(of_family.map(|ip| (SocketAddr::new(*ip, port), to)));
    }
    let of_one = |one: &UdpPort| Some((SocketAddr::new(one.host_ip?, one.port), one.to));
    mapped.extend(ports.iter().filter_map(of_one));
    mapped
}

/// The flows to a port of this host.
fn to_host(host: SocketAddr) -> Pattern {
    Pattern { to: Some(host.ip()), port: Some(host.port()), ..Pattern::all(Family::from(host.ip())) }
}

/// Flushes the UDP flows to containers.
pub(crate) fn flush_containers(
    socket: &Socket,
    flows: impl IntoIterator<Item = UdpTarget>,
) -> Result<(), RequestError> {
    let answering =
        |UdpTarget { port, to }| Pattern { port, answers_from: Some(to), ..Pattern::all(Family::from(to)) };
    flush_all(socket, flows.into_iter().map(answering).collect())
}

/// This host's addresses with global scope, and its loopback addresses.
fn own_addresses() -> Vec<IpAddr> {
    let addresses = Netlink::open().and_then(|netlink| netlink.addresses(None)).unwrap_or_default();
    addresses
        .iter()
        .filter(|address| address.scope != RT_SCOPE_LINK)
        .map(|address| address.net.ip())
        .collect()
}

/// The kernel's filter cannot match an IPv6 address: it matches all others instead (at least up to Linux 6.18;
/// `ctnetlink_filter_match_tuple` in nf_conntrack_netlink.c).
fn flush_all(socket: &Socket, patterns: Vec<Pattern>) -> Result<(), RequestError> {
    let (v4, mut listed): (Vec<Pattern>, Vec<Pattern>) =
        patterns.into_iter().partition(|pattern| pattern.family == Family::V4 && pattern.except.is_none());
    if v4.len() > WALKS_MAX {
        listed.extend(v4);
    } else {
        v4.iter().try_for_each(|pattern| flush(socket, pattern))?;
    }
    flush_one_by_one(socket, &listed)
}

/// Lets the kernel find and flush them (Linux 6.8). Older kernels list them, and each is flushed separately. That takes
/// much longer, because the kernel locks each of its thousands of buckets, most of which are empty.
fn flush(socket: &Socket, pattern: &Pattern) -> Result<(), RequestError> {
    let mut delete = message(IPCTNL_MSG_CT_DELETE, pattern.family);
    pattern.write(&mut delete);
    match socket.request(delete, |_, _| {}) {
        // An older kernel treats the pattern as one connection, and its tuple as incomplete.
        Err(refusal) if refusal.errno() == Some(Errno::EINVAL) => {
            flush_one_by_one(socket, std::slice::from_ref(pattern))
        }
        other => other,
    }
}

/// Continues after a failure: the other flows need not wait for a repetition.
fn flush_one_by_one(socket: &Socket, patterns: &[Pattern]) -> Result<(), RequestError> {
    let mut flushed = Ok(());
    for family in Family::ALL {
        let of_family: Vec<&Pattern> = patterns.iter().filter(|pattern| pattern.family == family).collect();
        let mut get = message(IPCTNL_MSG_CT_GET, family);
        match &of_family[..] {
            [] => continue,
            [pattern] => pattern.write(&mut get),
            // One walk for all patterns. Otherwise each would need one.
            _ => Pattern::all(family).write(&mut get),
        }
        let found = socket.dump(get, |_, payload| {
            let connection = Attributes::after(HEADER, payload);
            let flow = Flow::read(connection)?;
            of_family.iter().any(|pattern| pattern.fits(&flow)).then(|| identity(connection))
        });
        let found = match found {
            // The kernel has no connection tracking.
            Err(refusal) if refusal.errno() == Some(Errno::EINVAL) => return Ok(()),
            other => other?,
        };
        for identity in found {
            let mut delete = message(IPCTNL_MSG_CT_DELETE, family);
            identity.iter().for_each(|(kind, value)| delete.put(*kind, value));
            match socket.request(delete, |_, _| {}) {
                Err(refusal) if refusal.errno() != Some(Errno::ENOENT) => flushed = flushed.and(Err(refusal)),
                _ => {}
            }
        }
    }
    flushed
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use netlink::wire::read_ip;
    use nix::sched::{CloneFlags, unshare};

    use super::pattern::{CTA_IP_V6_DST, CTA_TUPLE_IP, CTA_TUPLE_ORIG};
    use super::*;

    /// In a new namespace: the tests never touch the host's. Addresses outside of loopback are other hosts'.
    fn tracked_flows(to: &[&str]) -> Socket {
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        let run = |words: &[&str]| {
            assert!(std::process::Command::new(words[0]).args(&words[1..]).status().unwrap().success());
        };
        run(&["ip", "link", "set", "lo", "up"]);
        run(&["ip", "route", "add", "local", "fd00::/64", "dev", "lo"]);
        let rules = "table inet t { chain c { type filter hook output priority 0; ct state new counter; }; }";
        run(&["nft", rules]);
        // Long enough on a busy machine.
        std::fs::write("/proc/sys/net/netfilter/nf_conntrack_udp_timeout", "86400").unwrap();
        for to in to {
            let from = if to.starts_with('[') { "[::1]:0" } else { "127.0.0.1:0" };
            UdpSocket::bind(from).unwrap().send_to(b"?", to).unwrap();
        }
        Socket::open(netlink::Protocol::Netfilter).unwrap()
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
        flush_mapped(&socket, &[UdpPort { to: "[::1]:7".parse().unwrap(), ..mapped(None) }]).unwrap();
        assert_eq!(left_to(&socket), ips(&["fd00::1"]));
    }

    fn target(port: Option<u16>, to: &str) -> UdpTarget {
        UdpTarget { port, to: to.parse().unwrap() }
    }

    fn mapped(host_ip: Option<&str>) -> UdpPort {
        let host_ip = host_ip.map(|ip| ip.parse().unwrap());
        UdpPort { host_ip, port: 53, to: "127.0.0.1:53".parse().unwrap() }
    }

    #[test]
    fn only_flows_to_the_mapped_port_of_this_host_are_flushed() {
        let socket = tracked_flows(&["127.0.0.1:53", "127.0.0.1:54", "127.0.0.2:53"]);
        assert_eq!(left(&socket), 3);
        flush_mapped(&socket, &[mapped(None)]).unwrap();
        assert_eq!(left(&socket), 2, "127.0.0.2 stands for somebody else: it is no address of the host");
        flush_mapped(&socket, &[mapped(Some("127.0.0.2"))]).unwrap();
        assert_eq!(left(&socket), 1);
    }

    #[test]
    fn an_older_kernels_connections_are_flushed_one_by_one() {
        let socket = tracked_flows(&["127.0.0.1:53", "127.0.0.1:54", "127.0.0.2:53"]);
        let pattern =
            |to: &str, port| Pattern { to: to.parse().ok(), port: Some(port), ..Pattern::all(Family::V4) };
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
        let to = |to: &str| UdpPort { to: to.parse().unwrap(), ..mapped(None) };
        flush_misdirected(&socket, &[to("127.0.0.1:54"), to("127.0.0.1:53"), to("[::1]:53")]).unwrap();
        assert_eq!(count(), (1, 1), "the last mapping has the port");
        flush_misdirected(&socket, &[to("127.0.0.1:54"), to("[::2]:53")]).unwrap();
        assert_eq!(count(), (0, 0));
    }
}
