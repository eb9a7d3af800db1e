//! Rules for `ingressPolicy` of the plugin firewall. [`Isolation`] drops routed packets between two bridges that both
//! have a policy. [`PortIsolation`] drops frames between ports of one bridge, with the policy `isolated`. Such frames
//! traverse no chain of the family inet, except with br_netfilter.
//!
//! An accept is not final in nf_tables: a base chain that is evaluated later can still drop. A drop is final. So these
//! rules work in Ferrule's own tables, with any backend.
//!
//! The names of sets and records in the ruleset:
//!
//! | name | table | contents |
//! |---|---|---|
//! | set `fenced` | inet | bridges with the policy `same-bridge` or `isolated` |
//! | set `together` | inet | for each bridge with the policy `same-bridge`: the pair of the bridge with itself |
//! | set `apart` | inet | for each bridge with the policy `isolated`: the pair of the bridge with itself |
//! | set `separated` | bridge | isolated bridge ports |
//! | set `gateways` | bridge | bridge ports that lead to the host's interface in a VLAN |
//! | record `bridge NAME POLICY` | inet | an [`Isolation`]. NAME is a bridge, or its interface in a VLAN |
//! | record `apart PORT [GATEWAY]` | bridge | a [`PortIsolation`] |

use cni::IfName;
use netlink::{Family, RequestError};

use super::forward::FORWARDED;
use crate::kind::{
    Kind, KindProperties, NftablesProperties, NftablesRules, ReferenceProperties, ReferenceRules, Rules,
};
use crate::listing::{Content, Listed, Listing};
use crate::opening;
use crate::owner::Owner;
use crate::ruleset::uapi::*;
use crate::ruleset::{
    BRIDGE, Chain, Element, Expressions, INET, Layout, Need, R0, Record, Rule, Set, Table, Type,
    concatenated, padded,
};

/// Before the filter chains of other programs, whose priority is usually 0.
const ISOLATION: Chain = Chain::forward("isolation", -10).ordered();
/// After destination NAT, whose priority is -100.
const REDIRECTED: Chain = Chain::filter("redirected", NF_INET_PRE_ROUTING, -90);
/// Before the filter chains of other programs in the bridge family, whose priority is usually -200.
const PORT_ISOLATION: Chain = Chain::forward("separation", -300);

/// The reference's iptables chains. The first one jumps to the second one for packets that arrive on an isolated bridge
/// and leave on another interface. The second one drops packets that leave on an isolated bridge.
const REFERENCE_CHAINS: [&str; 2] = ["CNI-ISOLATION-STAGE-1", "CNI-ISOLATION-STAGE-2"];

static ISOLATION_PROPERTIES: KindProperties = KindProperties {
    name: "isolation",
    maps_host_ports: false,
    nftables: NftablesProperties {
        table: INET,
        chain: ISOLATION.name,
        layout: isolation_layout,
        comments: &["mark bit ", "redirected, mark bit "],
        parse: parse_isolation,
        needs: &[Need { module: "nft_ct", chain: ISOLATION, rule: || Expressions::new().was_dnatted() }],
        opens: None,
    },
    iptables: None,
    // The table is needed to find out whether the reference has any chain in it. Its isolation rules belong to bridges,
    // not to attachments, so no DEL removes them.
    reference: ReferenceProperties { table: opening::TABLE, ..ReferenceProperties::NONE },
};

static PORT_ISOLATION_PROPERTIES: KindProperties = KindProperties {
    name: "separation",
    maps_host_ports: false,
    nftables: NftablesProperties {
        table: BRIDGE,
        chain: PORT_ISOLATION.name,
        layout: port_isolation_layout,
        comments: &["redirected, mark bit ", FROM_GATEWAY, TO_GATEWAY],
        parse: parse_port_isolation,
        needs: &[],
        opens: None,
    },
    iptables: None,
    // As for `Isolation`.
    reference: ReferenceProperties { table: opening::TABLE, ..ReferenceProperties::NONE },
};

/// Comments of the rules for bridge ports that lead to a gateway.
const FROM_GATEWAY: &str = "from a gateway";
const TO_GATEWAY: &str = "to a gateway";

/// Isolates the containers of a bridge from routed traffic (the key `ingressPolicy`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Isolation {
    /// The bridge. Only the reference's rules contain it. Ferrule's rules contain `interface`.
    pub bridge: IfName,
    /// The host's interface that routes for these containers: the bridge, or its interface in their VLAN.
    pub interface: IfName,
    /// Whether containers on this bridge are also isolated from each other.
    pub isolates_containers: bool,
    /// The bit of the packet's mark that the chain `redirected` sets if a host port has rewritten the packet's
    /// destination (DNAT). [`PortIsolation`] accepts frames with this bit. The chain `forwarded` clears it.
    pub bit: u8,
    /// Whether the reference may have attached the container. CHECK then accepts the reference's rules, which do not say
    /// for which attachment they are.
    pub may_be_of_reference: bool,
}

/// Isolates a bridge port from all other ports. It can still reach the host, and networks that the host routes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortIsolation {
    /// The bridge.
    pub bridge: IfName,
    /// The host's end of the container's link.
    pub port: IfName,
    /// The bridge port whose veth peer is the host's interface in the containers' VLAN. None: the host routes through
    /// the bridge itself, or through a VLAN interface of the bridge.
    pub gateway_port: Option<IfName>,
    /// The bit of the packet's mark for frames that a host port has redirected. With br_netfilter, such a frame can
    /// be bridged to its container, so the bridge's table must accept it.
    pub bit: u8,
    /// Whether the reference may have attached the container. CHECK then accepts the reference's rules, which do not say
    /// for which attachment they are.
    pub may_be_of_reference: bool,
}

impl Isolation {
    /// The kind of these rules.
    pub const KIND: Kind = Kind::new(&ISOLATION_PROPERTIES);
}

impl PortIsolation {
    /// The kind of these rules.
    pub const KIND: Kind = Kind::new(&PORT_ISOLATION_PROPERTIES);
}

impl Rules for Isolation {
    fn kind(&self) -> Kind {
        Self::KIND
    }

    fn nftables(&self) -> NftablesRules {
        let bit = self.bit;
        let from_bridge = || Expressions::new().load_meta(NFT_META_IIFNAME, R0).in_set(R0, &fenced().name);
        let mark = from_bridge().was_dnatted().mark_packet(bit, R0);
        // Frames have passed `PORT_ISOLATION` before.
        let clear = Expressions::new().packet_marked(bit).and(from_bridge().was_dnatted());
        let clear = Rule::new(FORWARDED, format!("redirected, mark bit {bit}"), clear.unmark_packet(bit, R0));
        let mut rules = NftablesRules::of(vec![isolation_record(&self.interface, self.isolates_containers)]);
        rules.layout.rules.extend([Rule::new(REDIRECTED, format!("mark bit {bit}"), mark), clear]);
        rules
    }

    fn reference(&self) -> Option<&dyn ReferenceRules> {
        if self.may_be_of_reference { Some(self) } else { None }
    }
}

impl ReferenceRules for Isolation {
    /// The reference drops packets that leave the bridge for another one with a policy. These rules are in iptables
    /// with any of its backends.
    fn are_in_iptables(&self, tables: &dyn Listing, family: Family, _: &Owner) -> Result<bool, RequestError> {
        let bridge = &self.bridge;
        let leaves = (REFERENCE_CHAINS[0], format!("-i {bridge} ! -o {bridge} -j {}", REFERENCE_CHAINS[1]));
        let enters = (REFERENCE_CHAINS[1], format!("-o {bridge} -j DROP"));
        let between_containers = (REFERENCE_CHAINS[0], format!("-i {bridge} -o {bridge} -j DROP"));
        has_reference_rules(
            tables,
            family,
            &if self.isolates_containers {
                vec![leaves, enters, between_containers]
            } else {
                vec![leaves, enters]
            },
        )
    }
}

impl ReferenceRules for PortIsolation {
    /// The reference isolates ports with the rules that isolate routed traffic.
    fn are_in_iptables(&self, tables: &dyn Listing, family: Family, _: &Owner) -> Result<bool, RequestError> {
        let bridge = &self.bridge;
        has_reference_rules(
            tables,
            family,
            &[(REFERENCE_CHAINS[0], format!("-i {bridge} -o {bridge} -j DROP"))],
        )
    }
}

/// Whether the reference's chains of a family contain these rules. The reference creates no chains for a family without
/// addresses. The caller requires both families and asks for IPv4 first. So IPv4 may lack the chains only if IPv6 has
/// them, and IPv6 may always lack them.
fn has_reference_rules(
    tables: &dyn Listing,
    family: Family,
    rules: &[(&str, String)],
) -> Result<bool, RequestError> {
    let table = |family| Table::of_iptables(family, opening::TABLE);
    if !tables.has_chain(table(family), REFERENCE_CHAINS[0])? {
        return Ok(family == Family::V6 || tables.has_chain(table(Family::V6), REFERENCE_CHAINS[0])?);
    }
    for (chain, rule) in rules {
        let is_expected =
            |found: &Listed| matches!(&found.content, Content::Interfaces(text) if text == rule);
        if !tables.rules(table(family), chain)?.iter().any(is_expected) {
            return Ok(false);
        }
    }
    tables.leads(table(family), opening::HOOK, REFERENCE_CHAINS[0])
}

impl Rules for PortIsolation {
    fn kind(&self) -> Kind {
        Self::KIND
    }

    fn nftables(&self) -> NftablesRules {
        let accept = Expressions::new().packet_marked(self.bit).verdict(NF_ACCEPT);
        let comment = format!("redirected, mark bit {}", self.bit);
        let mut rules =
            NftablesRules::of(vec![port_isolation_record(&self.port, self.gateway_port.as_ref())]);
        rules.layout.rules.push(Rule { first: true, ..Rule::new(PORT_ISOLATION, comment, accept) });
        if self.gateway_port.is_some() {
            rules.layout.extend(gateway_layout());
        }
        rules
    }

    fn reference(&self) -> Option<&dyn ReferenceRules> {
        if self.may_be_of_reference { Some(self) } else { None }
    }
}

/// Bridges with the policy `same-bridge` or `isolated`.
fn fenced() -> Set {
    Set::shared("fenced", &[Type::IFNAME])
}

/// For each bridge with the policy `same-bridge`: the pair of the bridge with itself.
fn together() -> Set {
    Set::shared("together", &[Type::IFNAME, Type::IFNAME])
}

/// For each bridge with the policy `isolated`: the pair of the bridge with itself. Needed if networks on one bridge
/// have different policies: the pair is then in `together` too, and the stricter policy applies.
fn apart() -> Set {
    Set::shared("apart", &[Type::IFNAME, Type::IFNAME])
}

/// Isolated bridge ports.
fn separated() -> Set {
    Set::new("separated", &[Type::IFNAME])
}

/// Bridge ports that lead to the host's interface in a VLAN. All containers in a VLAN have the same one.
fn gateway_ports() -> Set {
    Set::shared("gateways", &[Type::IFNAME])
}

fn isolation_layout() -> Layout {
    let (from, to) = (R0, R0 + 4);
    let pair = || Expressions::new().load_meta(NFT_META_IIFNAME, from).load_meta(NFT_META_OIFNAME, to);
    let rule = |comment: &str, expressions| Rule::new(ISOLATION, comment, expressions);
    // Each load is directly before its use, as nft(8) writes the rule.
    let is_fenced = |this: Expressions, key| this.load_meta(key, from).in_set(from, &fenced().name);
    let between = is_fenced(is_fenced(Expressions::new(), NFT_META_IIFNAME), NFT_META_OIFNAME)
        .and(pair())
        .not_in_set(from, &together().name);
    Layout {
        chains: vec![ISOLATION, REDIRECTED, FORWARDED],
        sets: vec![fenced(), together(), apart()],
        rules: vec![
            // Packets through host ports, and their answers.
            rule("redirected", Expressions::new().was_dnatted().verdict(NF_ACCEPT)),
            rule("within a bridge", pair().in_set(from, &apart().name).verdict(NF_DROP)),
            rule("between bridges", between.verdict(NF_DROP)),
        ],
    }
}

fn port_isolation_layout() -> Layout {
    let rule = |comment: &str, key| {
        let port = Expressions::new().load_meta(key, R0).in_set(R0, &separated().name);
        Rule::new(PORT_ISOLATION, comment, port.verdict(NF_DROP))
    };
    Layout {
        chains: vec![PORT_ISOLATION],
        sets: vec![separated()],
        rules: vec![rule("from a container", NFT_META_IIFNAME), rule("to a container", NFT_META_OIFNAME)],
    }
}

/// The layout for attachments whose gateway is a bridge port.
fn gateway_layout() -> Layout {
    let rule = |comment: &str, key| {
        let port = Expressions::new().load_meta(key, R0).in_set(R0, &gateway_ports().name);
        Rule { first: true, ..Rule::new(PORT_ISOLATION, comment, port.verdict(NF_ACCEPT)) }
    };
    Layout {
        chains: Vec::new(),
        sets: vec![gateway_ports()],
        rules: vec![rule(FROM_GATEWAY, NFT_META_IIFNAME), rule(TO_GATEWAY, NFT_META_OIFNAME)],
    }
}

fn isolation_record(interface: &IfName, isolates_containers: bool) -> Record {
    let (name, set) = (padded(interface), if isolates_containers { apart() } else { together() });
    let pair = concatenated(&[&name, &name]);
    let text = format!("bridge {interface} {}", if isolates_containers { "isolated" } else { "same-bridge" });
    Record::of(text, [Element::in_set(fenced(), name), Element::in_set(set, pair)])
}

fn port_isolation_record(port: &IfName, gateway_port: Option<&IfName>) -> Record {
    let separated = Element::in_set(separated(), padded(port));
    match gateway_port {
        None => Record::of(format!("apart {port}"), [separated]),
        Some(gateway) => {
            let elements = [separated, Element::in_set(gateway_ports(), padded(gateway))];
            Record::of(format!("apart {port} {gateway}"), elements)
        }
    }
}

fn parse_isolation(text: &str) -> Option<Record> {
    let (bridge, policy) = text.strip_prefix("bridge ")?.split_once(' ')?;
    let isolates_containers = match policy {
        "isolated" => true,
        "same-bridge" => false,
        _ => return None,
    };
    Some(isolation_record(&IfName::parse(bridge).ok()?, isolates_containers))
}

fn parse_port_isolation(text: &str) -> Option<Record> {
    let names =
        text.strip_prefix("apart ")?.split(' ').map(IfName::parse).collect::<Result<Vec<_>, _>>().ok()?;
    match names.as_slice() {
        [port] => Some(port_isolation_record(port, None)),
        [port, gateway] => Some(port_isolation_record(port, Some(gateway))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use cni::Undo;
    use nix::sched::{CloneFlags, unshare};

    use super::*;
    use crate::owner::tests::owner;
    use crate::{Backend, Firewall, Removal};

    fn rules(interface: &str, gateway: Option<&str>) -> (Isolation, PortIsolation) {
        let [bridge, port, interface] = ["br0", "veth1", interface].map(|name| IfName::parse(name).unwrap());
        let gateway_port = gateway.map(|name| IfName::parse(name).unwrap());
        let isolation = Isolation {
            bridge: bridge.clone(),
            interface,
            isolates_containers: true,
            bit: 12,
            may_be_of_reference: false,
        };
        (isolation, PortIsolation { bridge, port, gateway_port, bit: 12, may_be_of_reference: false })
    }

    fn add(firewall: &Firewall, owner: &Owner, rules: &dyn Rules) {
        let mut undo = Undo::new();
        firewall.install(owner, rules, &mut undo).unwrap();
        undo.commit();
    }

    fn replaces_rules_for_another_interface(install: fn(&Firewall, &Owner, &dyn Rules)) {
        let firewall = Firewall::open(Some(Backend::Nftables)).unwrap();
        let (owner, earlier, newer) =
            (owner("net", "c", "eth0"), rules("br0", None), rules("br0.2", Some("veth2")));
        for rules in [&earlier.0 as &dyn Rules, &earlier.1] {
            add(&firewall, &owner, rules);
        }
        assert_eq!(firewall.describe(&owner).unwrap(), ["bridge br0 isolated", "apart veth1"]);
        let newer: [&dyn Rules; 2] = [&newer.0, &newer.1];
        assert_eq!(firewall.are_installed(&newer.map(|rules| (&owner, rules))), [false, false]);
        newer.into_iter().for_each(|rules| install(&firewall, &owner, rules));
        newer.into_iter().for_each(|rules| firewall.check(&owner, rules).unwrap());
        assert_eq!(firewall.describe(&owner).unwrap(), ["bridge br0.2 isolated", "apart veth1 veth2"]);
        let table = nft(&["list", "table", "inet", "ferrule"]);
        assert!(table.contains("\"br0.2\"") && !table.contains("\"br0\""), "{table}");
        Removal::start().remove(&owner, &[Isolation::KIND, PortIsolation::KIND]).unwrap();
    }

    #[test]
    fn add_and_repair_replace_rules_for_a_bridge_by_rules_for_an_interface_in_a_vlan() {
        let test = || {
            unshare(CloneFlags::CLONE_NEWNET).expect("the tests need root");
            replaces_rules_for_another_interface(add);
            replaces_rules_for_another_interface(|firewall, owner, rules| {
                assert!(firewall.install_all(&[(owner, rules)]).into_iter().all(Result::unwrap));
            });
        };
        std::thread::spawn(test).join().unwrap();
    }

    fn nft(words: &[&str]) -> String {
        String::from_utf8(std::process::Command::new("nft").args(words).output().unwrap().stdout).unwrap()
    }

    #[test]
    fn a_record_determines_its_elements() {
        for text in ["bridge cni0 isolated", "bridge cni0 same-bridge"] {
            let record = parse_isolation(text).unwrap();
            assert_eq!(record.text, text);
            assert_eq!(record.elements.len(), 2);
            assert!(record.elements.iter().all(|element| element.set.is_shared));
        }
        for (text, count) in [("apart veth1", 1), ("apart veth1 veth2", 2)] {
            let record = parse_port_isolation(text).unwrap();
            assert_eq!((record.text.as_str(), record.elements.len()), (text, count));
        }
        for other in [
            "",
            "bridge",
            "bridge cni0",
            "bridge cni0 open",
            "bridge a/b isolated",
            "apart",
            "apart a b c",
            "apart a ",
        ] {
            assert_eq!(parse_isolation(other), None, "{other}");
            assert_eq!(parse_port_isolation(other), None, "{other}");
        }
    }
}
