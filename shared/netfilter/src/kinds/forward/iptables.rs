//! Forwarding in iptables: the reference's chains, and one more chain for each container, which identifies it.

use netlink::Family;

use super::Forward;
use crate::chain_name::ChainName;
use crate::kind::{IptablesProperties, IptablesRules, Shared};
use crate::opening::{CHAIN, HOOK, TABLE, TO_ADMIN, TO_CHAIN};
use crate::script::{Place, SHARED, Script, comment};

/// The chain that jumps to the containers' chains.
const CONTAINERS: &str = "FERRULE-FORWARD";
const TO_CONTAINERS: &str = "ferrule: iptables";

pub(super) const PROPERTIES: IptablesProperties = IptablesProperties {
    table: TABLE,
    prefix: "FERRULE-FW-",
    parents: &[CONTAINERS],
    shared: Some(Shared {
        rules: |script, _| share(script, None),
        comments: &[TO_CONTAINERS],
        entry: CONTAINERS,
        chains: &[CONTAINERS],
        hooks: &[],
        in_forward: Some(TO_CONTAINERS),
    }),
    waiting: None,
};

impl IptablesRules for Forward {
    /// Allows the container's connections, answers to it, and connections through a host port.
    fn write(&self, script: &mut Script, label: &str, family: Family) {
        let addresses: Vec<_> = self.of_family(family).collect();
        if addresses.is_empty() {
            return;
        }
        share(script, self.opening.admin.as_ref().map(ChainName::as_str));
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
}

fn share(script: &mut Script, admin: Option<&str>) {
    let chains = [Some(CHAIN), admin, Some(CONTAINERS)];
    script.shared_chains.extend(chains.into_iter().flatten().map(String::from));
    script.share_at(Place::First, (TABLE, HOOK), name(TO_CHAIN), "", CHAIN);
    // The administrator's rules are first.
    if let Some(admin) = admin {
        script.share_at(Place::First, (TABLE, CHAIN), name(TO_ADMIN), "", admin);
    }
    script.share((TABLE, CHAIN), name(TO_CONTAINERS), "", CONTAINERS);
}

/// The part of a shared rule's comment that is passed to a script.
fn name(comment: &'static str) -> &'static str {
    comment.strip_prefix(SHARED).unwrap_or(comment)
}
