//! Host ports in nftables: elements of maps.

use std::net::IpAddr;

use ipnetwork::IpNetwork;
use netlink::Family;

use super::conditional;
use super::forward::Forward;
use super::mapping::HostPorts;
use super::mark::Mark;
use crate::kind::{NftablesProperties, NftablesRules};
use crate::kinds::loopback_guard;
use crate::networks::subnet;
use crate::ruleset::uapi::*;
use crate::ruleset::{
    Chain, Element, Expressions, Field, INET, Layout, NAT_IN, Need, POSTROUTING, R0, Record, Redirected,
    Rule, Set, TrackedPort, Type, concatenated, octets,
};

const PREROUTING: Chain = Chain::nat("prerouting", NAT_IN);
const OUTPUT: Chain = Chain::nat("output", NF_INET_LOCAL_OUT);
const HAIRPIN: Chain = Chain::regular("hairpin");
/// The chain also contains the rules with conditions.
pub(super) const HOSTPORTS: Chain = Chain::regular("hostports").ordered();

/// Start of the comment of the last rule for a mark bit.
const CLEAR: &str = "clear mark bit";

pub(super) const PROPERTIES: NftablesProperties = NftablesProperties {
    table: INET,
    chain: HOSTPORTS.name,
    layout,
    comments: &["IPv4 /", "IPv6 /", CLEAR],
    parse,
    needs: &[
        Need { module: "nft_masq", chain: POSTROUTING, rule: || Expressions::new().masquerade() },
        Need { module: "nft_fib_inet", chain: PREROUTING, rule: || Expressions::new().addressed_here() },
        Need { module: "nft_nat", chain: PREROUTING, rule: redirection },
    ],
    opens: None,
};

fn redirection() -> Expressions {
    let to = Expressions::new().family(Family::V4).immediate(R0, &[127, 0, 0, 1]).immediate(R0 + 1, &[0, 1]);
    to.dnat(Family::V4, R0, R0 + 1)
}

fn layout() -> Layout {
    let mut this = loopback_guard::layout();
    this.chains.extend([PREROUTING, OUTPUT, HOSTPORTS, POSTROUTING, HAIRPIN]);
    for chain in [PREROUTING, OUTPUT] {
        let rule = Expressions::new().addressed_here().jump(HOSTPORTS.name);
        this.rules.push(Rule::new(chain, "to this host", rule));
    }
    // The mark is set before the look-up in the maps, and restored if no map has the port. nft(8) has no statement that
    // does two things after one look-up. The bit is inverted twice, because another program may have set it.
    let invert =
        |comment| Rule::new(HOSTPORTS, comment, Expressions::new().invert_mark(Mark::DEFAULT_BIT, R0));
    this.rules.push(invert("mark"));
    for family in Family::ALL {
        add_map(&mut this, ports_of_one_address(family), family, Some(Field::daddr(family)));
    }
    for family in Family::ALL {
        add_map(&mut this, ports(family), family, None);
    }
    this.rules.push(invert("no host port"));
    // A masquerade ends the chain, and the mark must be cleared before.
    let rule = Expressions::new().was_dnatted().jump(HAIRPIN.name);
    this.rules.push(Rule { first: true, ..Rule::new(POSTROUTING, "host ports", rule) });
    this
}

/// A map, and the rule that marks and rewrites packets to the ports in it.
fn add_map(layout: &mut Layout, map: Set, family: Family, address: Option<Field>) {
    let mut key = Expressions::new().family(family);
    let mut register = R0;
    if let Some(address) = address {
        key = key.load(address, register);
        register += address.registers();
    }
    let target_port = R0 + Field::daddr(family).registers();
    let rule = key
        .load_meta(NFT_META_L4PROTO, register)
        .load(Field::TH_DPORT, register + 1)
        .map(R0, &map.name)
        .dnat(family, R0, target_port);
    let comment = if address.is_some() { "one address" } else { "any address" };
    layout.add(map, Rule::new(HOSTPORTS, format!("{comment}, {family}"), rule));
}

pub(super) fn rules(ports: &HostPorts) -> NftablesRules {
    let rules = if ports.are_conditional() { conditional::rules(ports) } else { Vec::new() };
    let mut this = NftablesRules { rules, ..NftablesRules::of(records(ports)) };
    extend_layout(ports, &mut this.layout);
    this
}

/// Rules and sets for source NAT of connections from certain networks. The connections have the mark, which these rules
/// clear: hosts with several uplinks select the route of each packet by the exact value of the connection's mark.
fn extend_layout(ports: &HostPorts, layout: &mut Layout) {
    let Mark::Bit(bit) = ports.mark else { return };
    for (_, from) in ports.sources() {
        let (family, prefix) = (Family::from(from), from.prefix());
        let set = sources(family, prefix);
        if layout.sets.contains(&set) {
            continue;
        }
        let saddr = R0 + Field::daddr(family).registers();
        let needs_nat = Expressions::new()
            .marked(bit)
            .family(family)
            .load(Field::daddr(family), R0)
            .load(Field::saddr(family), saddr)
            .prefix(saddr, from.mask())
            .in_set(R0, &set.name);
        let comment = format!("{family} /{prefix}, mark bit {bit}");
        let rule = Rule::new(HAIRPIN, comment, needs_nat.unmark(bit, R0).masquerade());
        layout.add(set, Rule { first: true, ..rule });
    }
    layout.rules.push(Rule::new(HAIRPIN, format!("{CLEAR} {bit}"), Expressions::new().unmark(bit, R0)));
}

/// Ports of all addresses of the host.
fn ports(family: Family) -> Set {
    let name = family.choose("hostport4", "hostport6");
    map(name, &[Type::INET_PROTO, Type::INET_SERVICE], family)
}

/// Ports of one address of the host.
fn ports_of_one_address(family: Family) -> Set {
    let name = family.choose("hostip4", "hostip6");
    map(name, &[Type::ip_addr(family), Type::INET_PROTO, Type::INET_SERVICE], family)
}

fn map(name: &'static str, key: &[Type], family: Family) -> Set {
    Set { data: vec![Type::ip_addr(family), Type::INET_SERVICE], is_claimed: true, ..Set::new(name, key) }
}

/// Each container with a network whose connections to it through a host port get the host's source address.
fn sources(family: Family, prefix: u8) -> Set {
    Set::of_networks("hairpin", family, prefix)
}

fn records(ports: &HostPorts) -> Vec<Record> {
    let of_forward = if ports.are_conditional() { conditional } else { mapped };
    let forwards = ports.forwards().map(of_forward);
    forwards.chain(ports.sources().map(|(to, from)| hairpin(to, from))).collect()
}

/// A host port in a map.
fn mapped(forward: Forward) -> Record {
    let family = Family::from(forward.to);
    let (protocol, port) = ([forward.protocol.number()], forward.host_port.to_be_bytes());
    let (set, key) = match forward.host_ip {
        None => (ports(family), concatenated(&[&protocol, &port])),
        Some(ip) => (ports_of_one_address(family), concatenated(&[&octets(ip), &protocol, &port])),
    };
    let data = concatenated(&[&octets(forward.to.ip()), &forward.to.port().to_be_bytes()]);
    let record = Record::of(format!("map {forward}"), [Element { set, key, data }]);
    redirecting(&forward, record)
}

/// The key of a port in the map of the ports of one address.
pub(super) fn port_of_address(port: &TrackedPort, host_ip: IpAddr) -> Element {
    let key = concatenated(&[&octets(host_ip), &[port.protocol], &port.port.to_be_bytes()]);
    Element::in_set(ports_of_one_address(Family::from(host_ip)), key)
}

/// A host port in a rule with conditions.
fn conditional(forward: Forward) -> Record {
    let record = Record::of(format!("rule {forward}"), []);
    Record { chain: Some(HOSTPORTS.name), ..redirecting(&forward, record) }
}

fn redirecting(forward: &Forward, record: Record) -> Record {
    let (tracked, redirects) = (tracked(forward), Some(redirected(forward)));
    Record { tracked, redirects, to: Some(forward.to.ip()), ..record }
}

fn redirected(forward: &Forward) -> Redirected {
    let Forward { protocol, host_ip, host_port, to } = *forward;
    Redirected { family: Family::from(to), protocol: protocol.number(), host_ip, port: host_port }
}

pub(super) fn tracked(forward: &Forward) -> Option<TrackedPort> {
    let Forward { protocol, host_ip, host_port, to } = *forward;
    let protocol = protocol.number();
    TRACKED_PROTOCOLS.contains(&protocol).then_some(TrackedPort { protocol, host_ip, port: host_port, to })
}

/// Source NAT of connections to the container from a network.
fn hairpin(to: IpAddr, from: IpNetwork) -> Record {
    let pair = [octets(to), octets(from.ip())].concat();
    let element = Element::in_set(sources(Family::from(from), from.prefix()), pair);
    Record::of(format!("hairpin {to} from {from}"), [element])
}

fn parse(text: &str) -> Option<Record> {
    let (word, rest) = text.split_once(' ')?;
    match word {
        "map" => rest.parse().ok().map(mapped),
        "rule" => rest.parse().ok().map(conditional),
        "hairpin" => {
            let (to, from) = rest.split_once(" from ")?;
            Some(hairpin(to.parse().ok()?, subnet(cni::addr::parse_cidr(from).ok()?)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_determines_its_elements() {
        for text in [
            "map tcp 8080 to 10.1.0.5:80",
            "map udp 192.0.2.1:53 to 10.1.0.5:53",
            "map sctp [fd00:2::1]:7 to [fd00::5]:7",
            "rule tcp 8080 to 10.1.0.5:80",
            "hairpin 10.1.0.5 from 127.0.0.0/8",
        ] {
            let record = parse(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!(record.text, text);
            assert_eq!(record.elements.is_empty(), text.starts_with("rule"), "{text}");
        }
    }

    #[test]
    fn other_texts_are_not_records() {
        for text in [
            "",
            "hostports cbr0/c1/eth0",
            "masquerade 10.1.0.5/24",
            "map tcp 8080",
            "map icmp 1 to 10.1.0.5:80",
            "map tcp 70000 to 10.1.0.5:80",
            "map tcp 192.0.2.1:1 to [fd00::5]:1",
            "map tcp 1 to 10.1.0.5:80 and more",
            "hairpin 10.1.0.5",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn keys_are_as_the_kernel_concatenates_them() {
        let element = |text: &str| parse(text).unwrap().elements.remove(0);
        let map = element("map udp 192.0.2.1:53 to 10.1.0.5:5353");
        assert_eq!(map.key, [192, 0, 2, 1, 17, 0, 0, 0, 0, 53, 0, 0]);
        assert_eq!(map.data, [10, 1, 0, 5, 0x14, 0xe9, 0, 0]);
        assert_eq!(element("hairpin 10.1.0.5 from 10.1.0.0/24").key, [10, 1, 0, 5, 10, 1, 0, 0]);
    }
}
