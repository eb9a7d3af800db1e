//! Forwarding in iptables: the chains are the reference's, with one more for each container, which says whose it is.

use netlink::Family;

use super::Forward;
use crate::iptables::script::{SHARED, Script, comment};
use crate::kind::{InIptables, Shared};
use crate::opening::{CHAIN, HOOK, TABLE, TO_ADMIN, TO_CHAIN};

/// The chain that leads to the containers' own.
const CONTAINERS: &str = "FERRULE-FORWARD";
const TO_CONTAINERS: &str = "ferrule: iptables";

pub(super) const FACTS: InIptables = InIptables {
    table: TABLE,
    prefix: "FERRULE-FW-",
    parents: &[CONTAINERS],
    shared: Some(Shared {
        comments: &[TO_CONTAINERS],
        entry: CONTAINERS,
        chains: &[CONTAINERS],
        hooks: &[],
        in_forward: Some(TO_CONTAINERS),
    }),
};

/// The rules of a family: the container opens connections, and answers to those that come by a host port.
pub(super) fn write(forward: &Forward, script: &mut Script, label: &str, family: Family) {
    let addresses: Vec<_> = forward.addresses.iter().filter(|ip| Family::from(**ip) == family).collect();
    if addresses.is_empty() {
        return;
    }
    let admin = forward.opening.admin.as_str();
    script.shared_chains.extend([CHAIN, admin, CONTAINERS].map(String::from));
    script.share_first((TABLE, HOOK), name(TO_CHAIN), "", CHAIN);
    // The administrator has the first word.
    script.share_first((TABLE, CHAIN), name(TO_ADMIN), "", admin);
    script.share((TABLE, CHAIN), name(TO_CONTAINERS), "", CONTAINERS);
    for ip in addresses {
        script.own(format!("-s {ip} -j ACCEPT"));
        script.own(format!("-d {ip} -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT"));
        script.own(format!("-d {ip} -m conntrack --ctstate DNAT -j ACCEPT"));
        for direction in ["-s", "-d"] {
            let own = script.chain.clone();
            script.append(CONTAINERS, format!("{direction} {ip} {} -j {own}", comment(label)));
        }
    }
}

/// A shared rule's comment as a script is told it.
fn name(comment: &'static str) -> &'static str {
    comment.strip_prefix(SHARED).unwrap_or(comment)
}
