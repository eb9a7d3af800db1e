//! DNS server on the host: allows requests from containers to it through a chain that would drop them.
//!
//! As with [`super::Forward`], the rules set a bit of the packet's mark, and one rule in INPUT accepts packets with the
//! bit.

use cni::IfName;
use netlink::Family;

use crate::kind::{Kind, KindProperties, NftablesProperties, NftablesRules, ReferenceProperties, Rules};
use crate::opening::{OpenedHook, Opening};
use crate::ruleset::uapi::*;
use crate::ruleset::{Chain, Element, Expressions, Field, INET, Layout, R0, Record, Rule, Set, Type, padded};

/// Before other programs' filters, so that they see the mark.
const INPUT: Chain = Chain::filter("input", NF_INET_LOCAL_IN, -10);

const DNS: [u8; 2] = 53_u16.to_be_bytes();

const BIT: u8 = Opening::DEFAULT_BIT;

static PROPERTIES: KindProperties = KindProperties {
    name: "dns",
    maps_host_ports: false,
    nftables: NftablesProperties {
        table: INET,
        chain: INPUT.name,
        layout,
        comments: &[],
        parse,
        needs: &[],
        opens: Some(OpenedHook::INPUT),
    },
    iptables: None,
    reference: ReferenceProperties::NONE,
};

/// Allows DNS requests over UDP and TCP from the containers behind an interface of the host, and from the host itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsServer {
    /// The interface: a bridge, or the host's end of a container's veth.
    pub interface: IfName,
}

impl DnsServer {
    /// The kind of these rules.
    pub const KIND: Kind = Kind::new(&PROPERTIES);
}

impl Rules for DnsServer {
    fn kind(&self) -> Kind {
        Self::KIND
    }

    fn nftables(&self) -> NftablesRules {
        let mut rules = NftablesRules::of(vec![record(&self.interface)]);
        rules.openings = Family::ALL.map(|family| (family, Opening::of_input(BIT))).into();
        rules
    }
}

/// The interfaces of containers.
fn interfaces() -> Set {
    Set::shared("dns", &[Type::IFNAME])
}

fn layout() -> Layout {
    let from_containers =
        || Expressions::new().load_meta(NFT_META_IIFNAME, R0).in_set(R0, &interfaces().name);
    let from_here = || {
        let lo = LOOPBACK_IFINDEX.to_ne_bytes();
        Expressions::new().load_meta(NFT_META_IIF, R0).compare(R0, NFT_CMP_EQ, &lo)
    };
    let rule = |comment: &str, from: Expressions, protocol, port| {
        let of_dns = from.protocol(NFT_CMP_EQ, protocol).load(port, R0).compare(R0, NFT_CMP_EQ, &DNS);
        Rule::new(INPUT, comment, of_dns.mark_packet(BIT, R0))
    };
    Layout {
        chains: vec![INPUT],
        sets: vec![interfaces()],
        rules: vec![
            rule("questions over UDP", from_containers(), UDP, Field::TH_DPORT),
            rule("questions over TCP", from_containers(), TCP, Field::TH_DPORT),
            // The plugin sends requests to check whether the server knows a name.
            rule("questions of the host", from_here(), UDP, Field::TH_DPORT),
            rule("answers to the host", from_here(), UDP, Field::TH_SPORT),
        ],
    }
}

fn record(interface: &IfName) -> Record {
    let element = Element::in_set(interfaces(), padded(interface));
    Record { bit: Some(BIT), ..Record::of(format!("dns on {interface}"), [element]) }
}

fn parse(text: &str) -> Option<Record> {
    Some(record(&IfName::parse(text.strip_prefix("dns on ")?).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_determines_its_elements() {
        let written = record(&IfName::parse("cni-podman0").unwrap());
        assert_eq!(parse(&written.text), Some(written));
        for other in ["", "dns on ", "dns on a b", "forward 10.1.0.5 by mark bit 12"] {
            assert_eq!(parse(other), None, "{other}");
        }
    }
}
