//! Forwarding: allows packets from and to a container through chains that would drop them.
//!
//! An `accept` applies only to the packet's current base chain. So these rules accept nothing. They set a bit of the
//! packet's mark, and one rule in the chain that drops packets accepts those with the bit. After all filters, other rules
//! clear the bit: hosts with several uplinks save the packet's mark, or select source NAT by its exact value.

mod iptables;

use std::net::IpAddr;

use netlink::{Family, RequestError};

use crate::kind::{
    IptablesRules, Kind, KindProperties, NftablesProperties, NftablesRules, ReferenceProperties,
    ReferenceRules, Rules,
};
use crate::listing::Listing;
use crate::opening::{self, OpenedHook, Opening};
use crate::owner::Owner;
use crate::reference::chains;
use crate::ruleset::uapi::*;
use crate::ruleset::{
    Chain, Element, Expressions, Field, INET, Layout, Need, R0, Record, Rule, Set, Table, Type, octets,
};

/// Sets the mark.
const FORWARD: Chain = Chain::forward("forward", opening::MARKING_PRIORITY);

/// After other programs' filters, and before POSTROUTING. [`super::Isolation`] clears its bit here, too.
pub(super) const FORWARDED: Chain = Chain::forward("forwarded", 1000);

static PROPERTIES: KindProperties = KindProperties {
    name: "forward",
    maps_host_ports: false,
    nftables: NftablesProperties {
        table: INET,
        chain: FORWARD.name,
        layout,
        comments: &["from containers, ", "to containers, ", "answers to containers, ", "host ports, "],
        parse,
        needs: &[Need { module: "nft_ct", chain: FORWARD, rule: || Expressions::new().was_dnatted() }],
        opens: Some(OpenedHook::FORWARD),
    },
    iptables: Some(iptables::PROPERTIES),
    reference: ReferenceProperties {
        table: opening::TABLE,
        accepts: Some((opening::TABLE, opening::CHAIN)),
        ..ReferenceProperties::NONE
    },
};

/// Allows packets from the container, answers to it, and connections to it through a host port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forward {
    /// The container's addresses.
    pub addresses: Vec<IpAddr>,
    /// The mark, and the administrator's chain.
    pub opening: Opening,
    /// Whether the reference may have attached the container. CHECK then accepts the reference's rules, which do not say
    /// for which attachment they are.
    pub may_be_of_reference: bool,
}

impl Forward {
    /// The kind of these rules.
    pub const KIND: Kind = Kind::new(&PROPERTIES);

    fn of_family(&self, family: Family) -> impl Iterator<Item = IpAddr> {
        self.addresses.iter().copied().filter(move |ip| Family::from(*ip) == family)
    }
}

impl Rules for Forward {
    fn kind(&self) -> Kind {
        Self::KIND
    }

    fn nftables(&self) -> NftablesRules {
        let bit = self.opening.bit;
        let mut rules = NftablesRules::of(self.addresses.iter().map(|ip| record(*ip, bit)).collect());
        for family in Family::ALL.into_iter().filter(|family| self.of_family(*family).next().is_some()) {
            extend_layout(&mut rules.layout, family, bit);
            rules.openings.push((family, self.opening.clone()));
        }
        rules.accepted.clone_from(&self.addresses);
        rules
    }

    fn iptables(&self) -> Option<&dyn IptablesRules> {
        Some(self)
    }

    fn reference(&self) -> Option<&dyn ReferenceRules> {
        if self.may_be_of_reference { Some(self) } else { None }
    }
}

impl ReferenceRules for Forward {
    /// FORWARD starts with rules that accept the packets of all addresses: two for each address.
    fn are_in_iptables(&self, tables: &dyn Listing, family: Family, _: &Owner) -> Result<bool, RequestError> {
        for (index, ip) in self.of_family(family).enumerate() {
            let hook = (opening::TABLE, opening::CHAIN);
            let is_led_to = || tables.leads(Table::of_iptables(family, hook.0), opening::HOOK, hook.1);
            if index == 0 && !is_led_to()? || chains::accepts(tables, family, hook, &[ip])?.len() < 2 {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// The containers' addresses: a set for each family and bit.
fn addresses(family: Family, bit: u8) -> Set {
    Set::of_containers(format!("forward{}/{bit}", family.version()), &[Type::ip_addr(family)])
}

fn layout() -> Layout {
    Layout { chains: vec![FORWARD, FORWARDED], ..Layout::default() }
}

fn extend_layout(layout: &mut Layout, family: Family, bit: u8) {
    let set = addresses(family, bit);
    let has = |field| Expressions::new().family(family).load(field, R0).in_set(R0, &set.name);
    let comment = |text: &str| format!("{text}, {family}, mark bit {bit}");
    let rule = |text: &str, conditions: Expressions| {
        Rule::new(FORWARD, comment(text), conditions.mark_packet(bit, R0))
    };
    // The mark is compared first, because most packets of other programs do not have it.
    let clear = |text: &str, conditions: Expressions| {
        let clear = Expressions::new().packet_marked(bit).and(conditions).unmark_packet(bit, R0);
        Rule::new(FORWARDED, comment(text), clear)
    };
    let (from, to) = (|| has(Field::saddr(family)), || has(Field::daddr(family)));
    layout.rules.extend([
        rule("from containers", from()),
        rule("answers to containers", to().state(ANSWERS, false)),
        rule("host ports", to().was_dnatted()),
        clear("from containers", from()),
        clear("to containers", to()),
    ]);
    layout.sets.push(set);
}

/// `ct state established,related`
const ANSWERS: u32 = IP_CT_ESTABLISHED_BIT | IP_CT_RELATED_BIT;

fn record(ip: IpAddr, bit: u8) -> Record {
    let element = Element::in_set(addresses(Family::from(ip), bit), octets(ip));
    let record = Record::of(format!("forward {ip} by mark bit {bit}"), [element]);
    Record { bit: Some(bit), ..record }
}

fn parse(text: &str) -> Option<Record> {
    let (ip, bit) = text.strip_prefix("forward ")?.split_once(" by mark bit ")?;
    let bit = bit.parse().ok().filter(|bit| *bit < 32)?;
    Some(record(ip.parse().ok()?, bit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_determines_its_elements() {
        for text in ["forward 10.1.0.5 by mark bit 12", "forward fd00::5 by mark bit 31"] {
            let record = parse(text).unwrap();
            assert_eq!(record.text, text);
            assert_eq!(record.elements.len(), 1);
        }
        for other in [
            "",
            "forward",
            "forward net/c1/eth0",
            "forward 10.1.0.5",
            "forward 10.1.0.5 by mark bit 32",
            "forward 10.1.0.5/24 by mark bit 12",
        ] {
            assert_eq!(parse(other), None, "{other}");
        }
    }
}
