//! The reference's chains of iptables, in whichever variant.

use std::net::IpAddr;

use netlink::{Family, RequestError};

use crate::listing::{Content, Hook, Listing, Place};
use crate::ruleset::Table;

/// Whether a chain has so many rules, at least, and is reached: from a chain to another, for each of the ways. One that needs none
/// may be absent.
pub(crate) fn is_there(
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

/// The rules by which the reference accepts packets of addresses: they tell nothing else of whose they are.
pub(crate) fn accepts(
    listing: &dyn Listing,
    family: Family,
    (table, chain): Hook,
    addresses: &[IpAddr],
) -> Result<Vec<Place>, RequestError> {
    if addresses.is_empty() {
        return Ok(Vec::new());
    }
    let rules = listing.rules(Table::of_iptables(family, table), chain)?.into_iter();
    let accepting =
        rules.filter(|rule| matches!(rule.content, Content::AcceptAddress(ip) if addresses.contains(&ip)));
    Ok(accepting.map(|rule| rule.place).collect())
}
