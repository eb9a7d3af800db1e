//! Host ports that cannot be in a map, because they have conditions or another mark than usual. Each is a rule before
//! the maps, the newest first.

use netlink::Family;

use super::forward::Forward;
use super::mapping::HostPorts;
use super::mark::Mark;
use super::nftables::HOSTPORTS;
use crate::ruleset::uapi::*;
use crate::ruleset::{Expressions, Field, R0, Rule, octets};

/// A rule for each mapping, and for each alternative of its conditions.
pub(super) fn rules(rules: &HostPorts) -> Vec<Rule> {
    let rule = |expressions| Rule { first: true, ..Rule::new(HOSTPORTS, "", expressions) };
    let mut forwards: Vec<Forward> = rules.forwards().collect();
    // Each rule is inserted before the earlier ones. A mapping of one address must be before those of all addresses.
    forwards.sort_by_key(|forward| forward.host_ip.is_some());
    forwards
        .into_iter()
        .flat_map(|forward| {
            let ways = rules.conditions.nftables(Family::from(forward.to));
            ways.into_iter().map(move |way| expressions(&forward, way, &rules.mark))
        })
        .map(rule)
        .collect()
}

fn expressions(forward: &Forward, conditions: Expressions, mark: &Mark) -> Expressions {
    let family = Family::from(forward.to);
    let mut this = Expressions::new().family(family).and(conditions);
    if let Some(ip) = forward.host_ip {
        this = this.load(Field::daddr(family), R0).compare(R0, NFT_CMP_EQ, &octets(ip));
    }
    this = this.protocol(NFT_CMP_EQ, forward.protocol.number()).load(Field::TH_DPORT, R0).compare(
        R0,
        NFT_CMP_EQ,
        &forward.host_port.to_be_bytes(),
    );
    if let Mark::Bit(bit) = mark {
        this = this.mark(*bit, R0);
    }
    let port = R0 + 4;
    this.immediate(R0, &octets(forward.to.ip()))
        .immediate(port, &forward.to.port().to_be_bytes())
        .dnat(family, R0, port)
}
