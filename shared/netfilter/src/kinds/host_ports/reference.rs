//! Host ports of the reference.

use netlink::{Family, RequestError};

use super::mapping::HostPorts;
use crate::kind::{ReferenceProperties, ReferenceRules};
use crate::listing::Listing;
use crate::owner::Owner;
use crate::reference::{chains, names};
use crate::ruleset::Table;
use crate::ruleset::uapi::{NFPROTO_IPV4, NFPROTO_IPV6};
use crate::selector::Selector;

/// The iptables chain that jumps to the chains of all attachments.
pub(super) const DNAT: &str = "CNI-HOSTPORT-DNAT";

/// Prefixes of the names of an attachment's chains: for mappings, and for source NAT.
const PREFIXES: [&str; 2] = ["CNI-DN-", "CNI-SN-"];

/// The tables of the nftables backend.
const V4: Table = Table::new(NFPROTO_IPV4, "cni_hostport");
const V6: Table = Table::new(NFPROTO_IPV6, "cni_hostport");

/// Its chains with mappings.
const CHAINS: [&str; 2] = ["hostports", "hostip_hostports"];
/// The chain that jumps to both, since release 1.9.0.
const ALL: &str = "hostports_all";
/// Its chain with source NAT.
const SOURCES: &str = "masquerading";

pub(super) const PROPERTIES: ReferenceProperties = ReferenceProperties {
    table: "nat",
    prefixes: &PREFIXES,
    rules: &[
        (V4, CHAINS[0]),
        (V4, CHAINS[1]),
        (V4, SOURCES),
        (V6, CHAINS[0]),
        (V6, CHAINS[1]),
        (V6, SOURCES),
    ],
    has_rule: is_of,
    ..ReferenceProperties::NONE
};

/// Whether a rule belongs to the selected attachments, by its comment. The comment contains the container but not the
/// network, so GC keeps the rule.
fn is_of(selector: &Selector<'_>, comment: &str) -> bool {
    matches!(selector, Selector::Of(owner) if comment == owner.container())
}

impl ReferenceRules for HostPorts {
    fn are_in_nftables(&self, tables: &dyn Listing, owner: &Owner) -> Result<bool, RequestError> {
        for (table, family) in [(V4, Family::V4), (V6, Family::V6)] {
            let mut found = 0;
            for chain in CHAINS {
                let rules = tables.rules(table, chain)?;
                let own = rules.iter().filter(|rule| is_of(&Selector::Of(owner), &rule.comment)).count();
                let is_reached = |base| is_reached(tables, table, base, chain);
                if own > 0 && !(is_reached("prerouting")? && is_reached("output")?) {
                    return Ok(false);
                }
                found += own;
            }
            if found < self.count(family) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn are_in_iptables(
        &self,
        tables: &dyn Listing,
        family: Family,
        owner: &Owner,
    ) -> Result<bool, RequestError> {
        let chain = names::chain(owner, PREFIXES[0]);
        let ways = [("PREROUTING", DNAT), ("OUTPUT", DNAT), (DNAT, chain.as_str())];
        chains::is_installed(tables, Table::of_iptables(family, "nat"), &chain, self.count(family), &ways)
    }
}

impl HostPorts {
    fn count(&self, family: Family) -> usize {
        self.forwards().filter(|forward| Family::from(forward.to) == family).count()
    }
}

/// Whether packets reach a chain from a base chain, directly or through [`ALL`].
fn is_reached(tables: &dyn Listing, table: Table, from: &str, to: &str) -> Result<bool, RequestError> {
    Ok(tables.leads(table, from, to)? || tables.leads(table, from, ALL)? && tables.leads(table, ALL, to)?)
}
