//! Masquerade: packets from a container to destinations outside of its subnet get the host's source address.

pub(super) mod conf;

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnetwork::IpNetwork;
use netlink::{Family, RequestError};

use crate::kind::{
    IptablesProperties, IptablesRules, Kind, KindProperties, NftablesProperties, NftablesRules,
    ReferenceProperties, ReferenceRules, Rules,
};
use crate::listing::Listing;
use crate::networks::{multicast, subnet};
use crate::owner::Owner;
use crate::reference::{chains, names};
use crate::ruleset::uapi::*;
use crate::ruleset::{
    Chain, Element, Expressions, Field, INET, Layout, Need, POSTROUTING, R0, Record, Rule, Set, Table, Type,
    octets,
};
use crate::script::{Script, comment};
use crate::selector::Selector;

/// nft(8) cannot load a chain with the name of a statement.
const CHAIN: Chain = Chain::regular("masquerading");

/// The reference's table.
const REFERENCE: Table = Table::new(NFPROTO_INET, "cni_plugins_masquerade");
const REFERENCE_CHAIN: &str = "masq_checks";
/// Prefix of the reference's iptables chains.
const PREFIX: &str = "CNI-";

static PROPERTIES: KindProperties = KindProperties {
    name: "masquerade",
    maps_host_ports: false,
    nftables: NftablesProperties {
        table: INET,
        chain: POSTROUTING.name,
        layout,
        comments: &["within the subnet, "],
        parse,
        needs: &[Need { module: "nft_masq", chain: POSTROUTING, rule: || Expressions::new().masquerade() }],
        opens: None,
    },
    iptables: Some(IptablesProperties {
        table: "nat",
        prefix: "FERRULE-MQ-",
        parents: &["POSTROUTING"],
        shared: None,
        waiting: None,
    }),
    reference: ReferenceProperties {
        table: "nat",
        prefixes: &[PREFIX],
        rules: &[(REFERENCE, REFERENCE_CHAIN)],
        has_rule: is_of_reference,
        ..ReferenceProperties::NONE
    },
};

/// Packets from the container to destinations outside of its subnet get the host's source address (the key `ipMasq`).
/// Multicast packets do not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Masquerade {
    /// The container's addresses, each with its subnet.
    pub addresses: Vec<IpNetwork>,
}

impl Masquerade {
    /// The kind of these rules.
    pub const KIND: Kind = Kind::new(&PROPERTIES);

    fn of_family(&self, family: Family) -> impl Iterator<Item = &IpNetwork> {
        self.addresses.iter().filter(move |address| Family::from(**address) == family)
    }
}

impl Rules for Masquerade {
    fn kind(&self) -> Kind {
        Self::KIND
    }

    fn nftables(&self) -> NftablesRules {
        let mut rules = NftablesRules::of(self.addresses.iter().copied().map(record).collect());
        for address in &self.addresses {
            let (family, prefix) = (Family::from(*address), address.prefix());
            let set = subnets(family, prefix);
            if rules.layout.sets.contains(&set) {
                continue;
            }
            let daddr = R0 + Field::saddr(family).registers();
            let rule = source(family)
                .load(Field::daddr(family), daddr)
                .prefix(daddr, address.mask())
                .in_set(R0, &set.name)
                .verdict(NFT_RETURN);
            let comment = format!("within the subnet, {family} /{prefix}");
            rules.layout.add(set, Rule { first: true, ..Rule::new(CHAIN, comment, rule) });
        }
        rules
    }

    fn iptables(&self) -> Option<&dyn IptablesRules> {
        Some(self)
    }

    fn reference(&self) -> Option<&dyn ReferenceRules> {
        Some(self)
    }
}

impl IptablesRules for Masquerade {
    fn write(&self, script: &mut Script, label: &str, family: Family) {
        for address in self.of_family(family) {
            let (ip, subnet) = (address.ip(), subnet(*address));
            // As with the reference, an administrator's later rules do not apply within the subnet.
            script.own(format!("-s {ip} -d {subnet} {} -j ACCEPT", comment(ip)));
        }
        // An address may have several subnets.
        let ips: BTreeSet<IpAddr> = self.of_family(family).map(IpNetwork::ip).collect();
        for ip in ips {
            script.own(format!("-s {ip} ! -d {} -j MASQUERADE", multicast(family)));
            let entry = format!("-s {ip} {} -j {}", comment(label), script.chain);
            script.append("POSTROUTING", entry);
        }
    }
}

impl ReferenceRules for Masquerade {
    /// If there are several addresses, some versions of the reference keep only the last one.
    fn are_in_nftables(&self, tables: &dyn Listing, owner: &Owner) -> Result<bool, RequestError> {
        let rules = tables.rules(REFERENCE, REFERENCE_CHAIN)?;
        Ok(rules.iter().any(|rule| is_of_reference(&Selector::Of(owner), &rule.comment))
            && tables.leads(REFERENCE, "postrouting", REFERENCE_CHAIN)?)
    }

    fn are_in_iptables(
        &self,
        tables: &dyn Listing,
        family: Family,
        owner: &Owner,
    ) -> Result<bool, RequestError> {
        let chain = names::chain(owner, PREFIX);
        let (table, count) = (Table::of_iptables(family, "nat"), self.of_family(family).count());
        chains::is_installed(tables, table, &chain, count, &[("POSTROUTING", &chain)])
    }
}

/// The masqueraded containers.
fn containers(family: Family) -> Set {
    Set::of_containers(family.choose("masquerade4", "masquerade6"), &[Type::ip_addr(family)])
}

/// Each masqueraded container with its own subnet, which is not masqueraded.
fn subnets(family: Family, prefix: u8) -> Set {
    Set::of_networks("subnet", family, prefix)
}

fn source(family: Family) -> Expressions {
    Expressions::new().family(family).load(Field::saddr(family), R0)
}

fn layout() -> Layout {
    let mut this = Layout { chains: vec![POSTROUTING, CHAIN], ..Layout::default() };
    for family in Family::ALL {
        let set = containers(family);
        let rule = source(family).in_set(R0, &set.name).jump(CHAIN.name);
        this.add(set, Rule::new(POSTROUTING, format!("containers, {family}"), rule));
        let to = Expressions::new().family(family);
        let outside = match family {
            Family::V4 => to.load(Field::daddr(family), R0).prefix(R0, multicast(family).mask()).compare(
                R0,
                NFT_CMP_NEQ,
                &octets(multicast(family).network()),
            ),
            // For a prefix length of 8, nft(8) compares only the first byte.
            Family::V6 => to.load(Field::daddr(family).first_byte(), R0).compare(R0, NFT_CMP_NEQ, &[0xff]),
        };
        this.rules.push(Rule::new(CHAIN, format!("to outside, {family}"), outside.masquerade()));
    }
    this
}

fn record(address: IpNetwork) -> Record {
    let (ip, prefix, family) = (octets(address.ip()), address.prefix(), Family::from(address));
    let pair = [&ip[..], &octets(address.network())].concat();
    let elements = [Element::in_set(containers(family), ip), Element::in_set(subnets(family, prefix), pair)];
    Record::of(format!("masquerade {address}"), elements)
}

fn parse(text: &str) -> Option<Record> {
    cni::addr::parse_cidr(text.strip_prefix("masquerade ")?).ok().map(record)
}

/// Whether a rule in the reference's table belongs to the selected attachments, by its comment: `NETWORK-INSTANCE, net:
/// cbr0, ...`.
fn is_of_reference(selector: &Selector<'_>, comment: &str) -> bool {
    let Some((network, rest)) = comment.split_once('-') else { return false };
    let found = rest.split(',').next().unwrap_or_default();
    network == names::network(selector.network())
        && match selector {
            Selector::Of(owner) => found == names::instance(owner),
            Selector::Own(_) => false,
            Selector::Stale(stale) => stale.has_instance(found),
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_determines_its_elements() {
        for text in ["masquerade 10.1.0.5/24", "masquerade fd00::5/64"] {
            let record = parse(text).unwrap();
            assert_eq!(record.text, text);
            assert_eq!(record.elements.len(), 2);
        }
        for other in ["", "masquerade", "masquerade cbr0/c1/eth0", "masquerade 10.1.0.5", "map 10.1.0.5/24"] {
            assert_eq!(parse(other), None, "{other}");
        }
    }
}
