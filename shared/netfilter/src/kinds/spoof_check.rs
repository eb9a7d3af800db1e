//! The spoof check: drops frames from a bridge port with another source address than the container's.

use cni::IfName;
use netlink::{Mac, RequestError};

use crate::kind::{
    Kind, KindProperties, NftablesProperties, NftablesRules, ReferenceProperties, ReferenceRules, Rules,
};
use crate::listing::Listing;
use crate::owner::Owner;
use crate::ruleset::uapi::*;
use crate::ruleset::{
    BRIDGE, Chain, Element, Expressions, Field, Layout, R0, Record, Rule, Set, Table, Type, concatenated,
    padded,
};
use crate::selector::Selector;

const PREROUTING: Chain = Chain::first_filter("prerouting");

/// A table that the reference shares with other programs.
const REFERENCE: Table = Table::new(NFPROTO_BRIDGE, "nat");

static PROPERTIES: KindProperties = KindProperties {
    name: "spoofcheck",
    maps_host_ports: false,
    nftables: NftablesProperties {
        table: BRIDGE,
        chain: PREROUTING.name,
        layout,
        comments: &[],
        parse,
        needs: &[],
        opens: None,
    },
    iptables: None,
    reference: ReferenceProperties {
        rules: &[(REFERENCE, "PREROUTING")],
        has_rule: |selector, comment| {
            id(selector).is_some_and(|id| comment.strip_prefix("macspoofchk-") == Some(&id))
        },
        chains: |selector| {
            reference_chains(selector).into_iter().flatten().map(|chain| (REFERENCE, chain)).collect()
        },
        ..ReferenceProperties::NONE
    },
};

/// Drops frames from a bridge port with another source address than the container's (the key `macspoofchk`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpoofCheck {
    /// The bridge port: the host's end of the container's veth.
    pub port: IfName,
    /// The container's hardware address.
    pub mac: Mac,
}

impl SpoofCheck {
    /// The kind of these rules.
    pub const KIND: Kind = Kind::new(&PROPERTIES);
}

impl Rules for SpoofCheck {
    fn kind(&self) -> Kind {
        Self::KIND
    }

    fn nftables(&self) -> NftablesRules {
        NftablesRules::of(vec![record(&self.port, self.mac)])
    }

    fn reference(&self) -> Option<&dyn ReferenceRules> {
        Some(self)
    }
}

impl ReferenceRules for SpoofCheck {
    fn are_in_nftables(&self, tables: &dyn Listing, owner: &Owner) -> Result<bool, RequestError> {
        let Some([interface, mac]) = reference_chains(&Selector::Of(owner)) else { return Ok(false) };
        Ok(tables.leads(REFERENCE, "PREROUTING", &interface)?
            && tables.leads(REFERENCE, &interface, &mac)?
            && !tables.rules(REFERENCE, &mac)?.is_empty())
    }
}

/// The checked bridge ports.
fn ports() -> Set {
    Set::new("ports", &[Type::IFNAME])
}

/// The allowed source address of each port.
fn macs() -> Set {
    Set::new("macs", &[Type::IFNAME, Type::ETHER_ADDR])
}

fn layout() -> Layout {
    let rule = Expressions::new()
        .load_meta(NFT_META_IIFNAME, R0)
        .in_set(R0, &ports().name)
        .load_meta(NFT_META_IIFNAME, R0)
        .load(Field::ETHER_SADDR, R0 + 4)
        .not_in_set(R0, &macs().name)
        .verdict(NF_DROP);
    Layout {
        chains: vec![PREROUTING],
        sets: vec![ports(), macs()],
        rules: vec![Rule::new(PREROUTING, "spoofed source", rule)],
    }
}

fn record(port: &IfName, mac: Mac) -> Record {
    let pair = concatenated(&[&padded(port), &mac.bytes()]);
    let elements = [Element::in_set(ports(), padded(port)), Element::in_set(macs(), pair)];
    Record::of(format!("port {port} {mac}"), elements)
}

fn parse(text: &str) -> Option<Record> {
    let (port, mac) = text.strip_prefix("port ")?.split_once(' ')?;
    Some(record(&IfName::parse(port).ok()?, mac.parse().ok()?))
}

/// The reference's id of an attachment. It does not contain the network, so GC keeps these rules.
fn id(selector: &Selector<'_>) -> Option<String> {
    let Selector::Of(owner) = selector else { return None };
    Some(format!("{}-{}", owner.container(), owner.ifname()))
}

/// The reference's chains for an interface, and for its address. None for an id with which their names would be too
/// long: the kernel refuses such a name, also in a lookup.
fn reference_chains(selector: &Selector<'_>) -> Option<[String; 2]> {
    let chain = format!("cni-br-iface-{}", id(selector)?);
    let longest = format!("{chain}-mac");
    (longest.len() < NFT_NAME_MAXLEN).then_some([chain, longest])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_whose_id_is_too_long_for_a_chain_has_none_of_the_references_chains() {
        let chains = |length: usize| {
            reference_chains(&Selector::Of(&crate::owner::tests::owner("net", &"x".repeat(length), "eth0")))
        };
        assert_eq!(chains(233).unwrap()[1].len(), 255);
        assert_eq!(chains(234), None);
    }

    #[test]
    fn a_record_determines_its_elements() {
        let text = "port eth0 02:00:00:00:00:05";
        let record = parse(text).unwrap();
        assert_eq!(record.text, text);
        assert_eq!(record.elements[0].key, *b"eth0\0\0\0\0\0\0\0\0\0\0\0\0");
        for other in [
            "",
            "port",
            "port eth0",
            "port a/b 02:00:00:00:00:05",
            "port eth0 02",
            "map eth0 02:00:00:00:00:05",
        ] {
            assert_eq!(parse(other), None, "{other}");
        }
    }
}
