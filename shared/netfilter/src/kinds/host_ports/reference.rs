//! Host ports as the reference has them.

use netlink::{Family, RequestError};

use super::mapping::HostPorts;
use crate::kind::{InReference, Rules};
use crate::nft::reader::Reader;
use crate::ruleset::Table;
use crate::ruleset::uapi::{NFPROTO_IPV4, NFPROTO_IPV6};
use crate::selector::Selector;

/// The chain of iptables from which the host ports of all attachments go on.
pub(super) const DNAT: &str = "CNI-HOSTPORT-DNAT";

/// The tables of the nftables backend.
const V4: Table = Table::new(NFPROTO_IPV4, "cni_hostport");
const V6: Table = Table::new(NFPROTO_IPV6, "cni_hostport");

/// Their chains with rules for host ports.
const CHAINS: [&str; 2] = ["hostports", "hostip_hostports"];
/// The chain that jumps to both, since release 1.9.0.
const ALL: &str = "hostports_all";
/// That with rules for the source addresses of connections through these.
const SOURCES: &str = "masquerading";

pub(super) const FACTS: InReference = InReference {
    prefixes: &["CNI-DN-", "CNI-SN-"],
    ways: &[("PREROUTING", Some(DNAT)), ("OUTPUT", Some(DNAT)), (DNAT, None)],
    accepts: None,
    rules: &[
        (V4, CHAINS[0]),
        (V4, CHAINS[1]),
        (V4, SOURCES),
        (V6, CHAINS[0]),
        (V6, CHAINS[1]),
        (V6, SOURCES),
    ],
    has_rule: is_of,
    chains: |_| Vec::new(),
};

/// Whether a rule is somebody's, by its comment. It names the container alone, not the network: GC must leave it.
fn is_of(selector: &Selector<'_>, comment: &str) -> bool {
    matches!(selector, Selector::Of(owner) if comment == owner.container())
}

/// Whether its nftables backend has the host ports, and packets come to them.
pub(super) fn has(
    ports: &HostPorts,
    reader: &Reader<'_>,
    selector: &Selector<'_>,
) -> Result<bool, RequestError> {
    for (table, family) in [(V4, Family::V4), (V6, Family::V6)] {
        let mut found = 0;
        for chain in CHAINS {
            let comments = reader.comments(table, chain)?;
            let own = comments.iter().filter(|comment| is_of(selector, comment)).count();
            if own > 0
                && !(is_reached(reader, table, "prerouting", chain)?
                    && is_reached(reader, table, "output", chain)?)
            {
                return Ok(false);
            }
            found += own;
        }
        if found < ports.reference_count(family) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether packets come from a base chain to another chain, directly or by way of [`ALL`].
fn is_reached(reader: &Reader<'_>, table: Table, from: &str, to: &str) -> Result<bool, RequestError> {
    Ok(reader.leads(table, from, to)? || reader.leads(table, from, ALL)? && reader.leads(table, ALL, to)?)
}
