//! The reference's chains of iptables, in whichever variant.

use std::net::IpAddr;

use netlink::Family;

use crate::iptables::plan;
use crate::kind::Rules;
use crate::listing::{Hook, Listing};
use crate::reference::names;
use crate::selector::Selector;

/// Whether its chain of an attachment is filled and reached, in IPv4 and in IPv6.
pub(crate) fn are_there<L: Listing>(
    selector: &Selector<'_>,
    rules: &dyn Rules,
    listings: [L; 2],
) -> Result<bool, L::Error> {
    let reference = &rules.kind().facts.reference;
    if let Some(hook) = reference.accepts {
        return are_accepted(hook, rules, &listings);
    }
    let (Selector::Of(owner), Some(prefix)) = (selector, reference.prefixes.first()) else {
        return Ok(false);
    };
    let Some(facts) = rules.kind().iptables() else { return Ok(false) };
    let own = names::chain(owner, prefix);
    for (family, listing) in Family::ALL.into_iter().zip(listings) {
        let wanted = rules.reference_count(family);
        if wanted == 0 {
            continue;
        }
        if listing.rules(facts.table, &own)?.len() < wanted {
            return Ok(false);
        }
        for (from, to) in reference.ways {
            let (from, to) = (from, to.unwrap_or(&own));
            if !listing.rules(facts.table, from)?.iter().any(|rule| rule.target == to) {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// Whether packets of all addresses are accepted, by rules that come first in FORWARD: two for each address.
fn are_accepted<L: Listing>(hook: Hook, rules: &dyn Rules, listings: &[L; 2]) -> Result<bool, L::Error> {
    let all = rules.accepted();
    for (family, listing) in Family::ALL.into_iter().zip(listings) {
        let addresses: Vec<IpAddr> = all.iter().copied().filter(|ip| Family::from(*ip) == family).collect();
        if addresses.is_empty() {
            continue;
        }
        let leads = listing.rules(hook.0, "FORWARD")?.iter().any(|rule| rule.target == hook.1);
        if !leads {
            return Ok(false);
        }
        for ip in addresses {
            if plan::accepts(listing, hook, &[ip])?.len() < 2 {
                return Ok(false);
            }
        }
    }
    Ok(!all.is_empty())
}
