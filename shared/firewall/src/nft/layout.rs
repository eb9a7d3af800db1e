//! What stands in the ruleset around the elements: tables, chains, sets and the rules that look into them.
//!
//! A packet meets the same few rules however many attachments there are: what belongs to an attachment are
//! elements of sets and maps. Nothing here jumps by way of a map, because the kernel walks all of such a map,
//! chain by chain, on every change.

use ipnetwork::IpNetwork;

use super::element::Record;
use super::expr::{Expressions, Field, R0, octets};
use super::set::Set;
use super::uapi::*;
use crate::rules::{Kind, MULTICAST_V4, MULTICAST_V6, Mark};

/// A table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Table {
    pub(super) family: u8,
    pub(super) name: &'static str,
}

/// Masquerade and host ports, of both families.
pub(super) const INET: Table = Table { family: NFPROTO_INET, name: "ferrule" };
/// Spoof check.
pub(super) const BRIDGE: Table = Table { family: NFPROTO_BRIDGE, name: "ferrule" };

impl Kind {
    /// A chain that is there if rules of the kind were ever installed.
    pub(super) fn chain(self) -> &'static str {
        match self {
            Self::Masquerade => MASQUERADE.name,
            Self::HostPorts => HOSTPORTS.name,
            Self::SpoofCheck => BRIDGE_PREROUTING.name,
        }
    }

    pub(super) fn table(self) -> Table {
        match self {
            Self::Masquerade | Self::HostPorts => INET,
            Self::SpoofCheck => BRIDGE,
        }
    }
}

/// A chain; a base chain if it has a hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chain {
    pub(super) name: &'static str,
    pub(super) hook: Option<Hook>,
}

/// Where a base chain is met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hook {
    pub(super) kind: &'static str,
    pub(super) number: u32,
    pub(super) priority: i32,
}

const fn base(name: &'static str, kind: &'static str, number: u32, priority: i32) -> Chain {
    Chain { name, hook: Some(Hook { kind, number, priority }) }
}

/// Hooks that addresses are translated at: destinations, and sources.
pub(super) const NAT_IN: u32 = NF_INET_PRE_ROUTING;
pub(super) const NAT_OUT: u32 = NF_INET_POST_ROUTING;

/// A chain in which addresses are translated.
pub(super) const fn base_nat(name: &'static str, number: u32) -> Chain {
    base(name, "nat", number, if number == NAT_OUT { 100 } else { -100 })
}

// Priorities: raw is before conntrack (enum nf_ip_hook_priorities); the bridge family's lowest common one is
// -300.
const GUARD: Chain = base("guard", "filter", NF_INET_PRE_ROUTING, -300);
const PREROUTING: Chain = base_nat("prerouting", NAT_IN);
const OUTPUT: Chain = base_nat("output", NF_INET_LOCAL_OUT);
const POSTROUTING: Chain = base_nat("postrouting", NAT_OUT);
const BRIDGE_PREROUTING: Chain = base("prerouting", "filter", NF_INET_PRE_ROUTING, -300);
const MASQUERADE: Chain = Chain { name: "masquerade", hook: None };
const HAIRPIN: Chain = Chain { name: "hairpin", hook: None };
/// Where rules that are an attachment's own stand too, see [`super::own`].
pub(super) const HOSTPORTS: Chain = Chain { name: "hostports", hook: None };

/// A rule that every packet may meet. It is known by its comment.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    pub(super) chain: &'static str,
    pub(super) comment: String,
    /// Whether it comes before the rules that the chain begins with.
    pub(super) first: bool,
    pub(super) expressions: Expressions,
}

impl Rule {
    pub(super) fn new(chain: Chain, comment: impl Into<String>, expressions: Expressions) -> Self {
        Self { chain: chain.name, comment: comment.into(), first: false, expressions }
    }
}

/// All that must be there before elements of a kind can be added.
#[derive(Clone, Debug, Default)]
pub(super) struct Layout {
    pub(super) chains: Vec<Chain>,
    pub(super) sets: Vec<Set>,
    pub(super) rules: Vec<Rule>,
}

impl Layout {
    /// What records of a kind need. `mark` is how their host ports are marked.
    pub(super) fn of(kind: Kind, records: &[Record], mark: &Mark) -> Self {
        let mut this = match kind {
            Kind::Masquerade => Self::masquerade(),
            Kind::HostPorts => Self::host_ports(),
            Kind::SpoofCheck => Self::spoof_check(),
        };
        this.sets.push(Set::attachments());
        for record in records {
            match record {
                Record::Masquerade(address) => this.subnet(*address),
                Record::Hairpin { from, .. } => this.hairpin(*from, mark),
                _ => {}
            }
        }
        this
    }

    fn masquerade() -> Self {
        let mut this = Self { chains: vec![POSTROUTING, MASQUERADE], ..Self::default() };
        for v4 in [true, false] {
            let set = Set::masquerade(v4);
            let rule = source(v4).in_set(R0, &set.name).jump(MASQUERADE.name);
            this.rules.push(Rule::new(POSTROUTING, format!("containers, IPv{}", number(v4)), rule));
            let multicast = if v4 { MULTICAST_V4 } else { MULTICAST_V6 };
            let rule = Expressions::new()
                .family(v4)
                .load(Field::daddr(v4), R0)
                .prefix(R0, multicast.mask())
                .compare(R0, NFT_CMP_NEQ, &octets(multicast.network()))
                .masquerade();
            this.rules.push(Rule::new(MASQUERADE, format!("to outside, IPv{}", number(v4)), rule));
            this.sets.push(set);
        }
        this
    }

    /// Rule and set for the subnets with a prefix length.
    fn subnet(&mut self, subnet: IpNetwork) {
        let (v4, prefix) = (subnet.is_ipv4(), subnet.prefix());
        let set = Set::subnets(v4, prefix);
        if self.sets.contains(&set) {
            return;
        }
        let daddr = R0 + Field::saddr(v4).registers();
        let rule = source(v4)
            .load(Field::daddr(v4), daddr)
            .prefix(daddr, subnet.mask())
            .in_set(R0, &set.name)
            .verdict(NFT_RETURN);
        let comment = format!("within the subnet, IPv{} /{prefix}", number(v4));
        self.rules.push(Rule { first: true, ..Rule::new(MASQUERADE, comment, rule) });
        self.sets.push(set);
    }

    fn host_ports() -> Self {
        let chains = vec![GUARD, PREROUTING, OUTPUT, HOSTPORTS, POSTROUTING, HAIRPIN];
        let mut this = Self { chains, ..Self::default() };
        for (name, field) in [("from", Field::saddr(true)), ("to", Field::daddr(true))] {
            let martian = Expressions::new()
                .family(true)
                .load(field.first_byte(), R0)
                .compare(R0, NFT_CMP_EQ, &[127])
                .load_meta(NFT_META_IIF, R0)
                .compare(R0, NFT_CMP_NEQ, &LOOPBACK_IFINDEX.to_ne_bytes())
                .verdict(NF_DROP);
            this.rules.push(Rule::new(GUARD, format!("martians {name} loopback"), martian));
        }
        for chain in [PREROUTING, OUTPUT] {
            let rule = Expressions::new().addressed_here().jump(HOSTPORTS.name);
            this.rules.push(Rule::new(chain, "to this host", rule));
        }
        for v4 in [true, false] {
            this.map(Set::host_ip_ports(v4), v4, Some(Field::daddr(v4)));
        }
        for v4 in [true, false] {
            this.map(Set::host_ports(v4), v4, None);
        }
        let rule = Expressions::new().was_dnatted().jump(HAIRPIN.name);
        this.rules.push(Rule::new(POSTROUTING, "host ports", rule));
        this
    }

    /// Rule and map for host ports: what the map has is marked and rewritten.
    fn map(&mut self, map: Set, v4: bool, address: Option<Field>) {
        let mut key = Expressions::new().family(v4);
        let mut register = R0;
        if let Some(address) = address {
            key = key.load(address, register);
            register += address.registers();
        }
        let target_port = R0 + Field::daddr(v4).registers();
        let rule = key
            .load_meta(NFT_META_L4PROTO, register)
            .load(Field::TH_DPORT, register + 1)
            .map(R0, &map.name)
            .mark(Mark::DEFAULT_BIT, target_port + 1)
            .dnat(v4, R0, target_port);
        let comment = if address.is_some() { "one address" } else { "any address" };
        self.rules.push(Rule::new(HOSTPORTS, format!("{comment}, IPv{}", number(v4)), rule));
        self.sets.push(map);
    }

    /// Rule and set for the sources with a prefix length, of connections with a mark.
    fn hairpin(&mut self, from: IpNetwork, mark: &Mark) {
        let (v4, prefix) = (from.is_ipv4(), from.prefix());
        let Mark::Bit(bit) = *mark else { return };
        let set = Set::hairpin(v4, prefix);
        if self.sets.contains(&set) {
            return;
        }
        let saddr = R0 + Field::daddr(v4).registers();
        let rule = Expressions::new()
            .marked(bit)
            .family(v4)
            .load(Field::daddr(v4), R0)
            .load(Field::saddr(v4), saddr)
            .prefix(saddr, from.mask())
            .in_set(R0, &set.name)
            .masquerade();
        self.rules.push(Rule::new(HAIRPIN, format!("IPv{} /{prefix}, mark bit {bit}", number(v4)), rule));
        self.sets.push(set);
    }

    fn spoof_check() -> Self {
        let rule = Expressions::new()
            .load_meta(NFT_META_IIFNAME, R0)
            .in_set(R0, &Set::ports().name)
            .load_meta(NFT_META_IIFNAME, R0)
            .load(Field::ETHER_SADDR, R0 + 4)
            .not_in_set(R0, &Set::macs().name)
            .verdict(NF_DROP);
        Self {
            chains: vec![BRIDGE_PREROUTING],
            sets: vec![Set::ports(), Set::macs()],
            rules: vec![Rule::new(BRIDGE_PREROUTING, "spoofed source", rule)],
        }
    }
}

fn source(v4: bool) -> Expressions {
    Expressions::new().family(v4).load(Field::saddr(v4), R0)
}

fn number(v4: bool) -> u8 {
    if v4 { 4 } else { 6 }
}
