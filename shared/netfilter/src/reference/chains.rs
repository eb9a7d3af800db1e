//! The reference's chains of iptables, in whichever variant.

use netlink::RequestError;

use crate::listing::Listing;
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
