//! The reference's iptables chains, in either variant of iptables.

use std::net::IpAddr;

use netlink::{Family, RequestError};

use crate::listing::{Content, Listed, Listing, RuleLocation, TableChain};
use crate::ruleset::Table;

/// Whether a chain has at least this number of rules, and is reached by each of these jumps from one chain to another.
/// A chain that needs no rules may be missing.
pub(crate) fn is_installed(
    tables: &dyn Listing,
    table: Table,
    chain: &str,
    count: usize,
    ways: &[(&str, &str)],
) -> Result<bool, RequestError> {
    if count == 0 {
        return Ok(true);
    }
    if tables.rules(table, chain)?.len() < count {
        return Ok(false);
    }
    for (from, to) in ways {
        if !tables.leads(table, from, to)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The rules by which the reference accepts packets of addresses. They contain nothing else that identifies the
/// container. A rule with a comment is another program's.
pub(crate) fn accepts(
    listing: &dyn Listing,
    family: Family,
    (table, chain): TableChain,
    addresses: &[IpAddr],
) -> Result<Vec<RuleLocation>, RequestError> {
    if addresses.is_empty() {
        return Ok(Vec::new());
    }
    let rules = listing.rules(Table::of_iptables(family, table), chain)?.into_iter();
    let is_theirs = |rule: &Listed| {
        rule.comment.is_empty()
            && matches!(rule.content, Content::AcceptAddress(ip) if addresses.contains(&ip))
    };
    let accepting = rules.filter(is_theirs);
    Ok(accepting.map(|rule| rule.location).collect())
}
