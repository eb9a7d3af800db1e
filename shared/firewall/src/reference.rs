//! Whether the reference's rules of an attachment are as it left them: its containers run on when ours take its place, and
//! CHECK asks for them, too. The names are in [`crate::leftovers`].

use cni::Result;

use crate::iptables;
use crate::leftovers::Whose;
use crate::nft::Nft;
use crate::owner::Owner;
use crate::rules::{Kind, Rules};

/// The chain from which the reference's host ports of all attachments go on.
const HOSTPORT_DNAT: &str = "CNI-HOSTPORT-DNAT";

/// Whether they are there, by whichever of its backends, and in whichever variant of iptables.
///
/// # Errors
/// If that cannot be found out.
pub(crate) fn has(owner: &Owner, rules: &Rules) -> Result<bool> {
    let whose = Whose::Of(owner);
    if let Ok(nft) = Nft::open()
        && nft.has_reference(&whose, rules).map_err(|r| r.during("look for", "rules of the reference"))?
    {
        return Ok(true);
    }
    iptables::has_reference(&whose, rules)
}

/// Whether its chains of iptables are filled and reached. `targets` says where the rules of a chain of the table nat jump to,
/// in IPv4 (true) or IPv6.
pub(crate) fn in_iptables<E>(
    whose: &Whose<'_>,
    rules: &Rules,
    targets: impl Fn(bool, &str) -> Result<Vec<String>, E>,
) -> Result<bool, E> {
    let [_, own, ..] = &whose.chains(rules.kind())[..] else { return Ok(false) };
    let ways: &[(&str, &str)] = match rules.kind() {
        Kind::HostPorts => &[("PREROUTING", HOSTPORT_DNAT), ("OUTPUT", HOSTPORT_DNAT), (HOSTPORT_DNAT, own)],
        _ => &[("POSTROUTING", own)],
    };
    for v4 in [true, false] {
        let wanted = count(rules, v4);
        if wanted == 0 {
            continue;
        }
        if targets(v4, own)?.len() < wanted {
            return Ok(false);
        }
        for (from, to) in ways {
            if !targets(v4, from)?.iter().any(|target| target == to) {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// How many rules an attachment has at least in a family.
pub(crate) fn count(rules: &Rules, v4: bool) -> usize {
    match rules {
        Rules::Masquerade(rules) => rules.addresses.iter().filter(|a| a.is_ipv4() == v4).count(),
        Rules::HostPorts(rules) => rules.forwards().filter(|forward| forward.to.is_ipv4() == v4).count(),
        Rules::SpoofCheck(_) => 0,
    }
}
