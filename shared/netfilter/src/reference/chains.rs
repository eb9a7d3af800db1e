//! The reference's chains of iptables, in whichever variant.

use crate::iptables::plan::Listing;
use crate::kind::Rules;
use crate::reference::names;
use crate::selector::Selector;

/// Whether its chain of an attachment is filled and reached, in IPv4 and in IPv6.
pub(crate) fn are_there<L: Listing>(
    selector: &Selector<'_>,
    rules: &dyn Rules,
    listings: [L; 2],
) -> Result<bool, L::Error> {
    let reference = &rules.kind().facts.reference;
    let (Selector::Of(owner), Some(prefix)) = (selector, reference.prefixes.first()) else {
        return Ok(false);
    };
    let Some(facts) = rules.kind().iptables() else { return Ok(false) };
    let own = names::chain(owner, prefix);
    for (v4, listing) in [true, false].into_iter().zip(listings) {
        let wanted = rules.reference_count(v4);
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
