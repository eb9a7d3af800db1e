//! The reference's chains of iptables, in whichever variant.

use crate::kind::Rules;
use crate::reference::names;
use crate::selector::Selector;

/// Whether its chain of an attachment is filled and reached. `targets` says where the rules of a chain jump to, in IPv4 (true)
/// or IPv6.
pub(crate) fn are_there<E>(
    selector: &Selector<'_>,
    rules: &dyn Rules,
    targets: impl Fn(bool, &str) -> Result<Vec<String>, E>,
) -> Result<bool, E> {
    let reference = &rules.kind().facts.reference;
    let (Selector::Of(owner), Some(prefix)) = (selector, reference.prefixes.first()) else {
        return Ok(false);
    };
    let own = names::chain(owner, prefix);
    for v4 in [true, false] {
        let wanted = rules.reference_count(v4);
        if wanted == 0 {
            continue;
        }
        if targets(v4, &own)?.len() < wanted {
            return Ok(false);
        }
        for (from, to) in reference.ways {
            let (from, to) = (from, to.unwrap_or(&own));
            if !targets(v4, from)?.iter().any(|target| target == to) {
                return Ok(false);
            }
        }
    }
    Ok(true)
}
