//! Firewalls of other programs that drop packets that the host forwards for containers.

use netfilter::Firewall;
use runtime::Result;

use super::{Finding, Host};
use crate::programs::{legacy_saves, output};

/// The plugin that opens firewalls.
const PLUGIN: &str = "firewall";

/// Base chains of nf_tables that drop forwarded packets: of iptables-nft, firewalld, ufw, or the administrator.
pub fn nftables(host: &Host<'_>) -> Result<Vec<Finding>> {
    if concerned(host).is_empty() {
        return Ok(Vec::new());
    }
    let chains = Firewall::open(None)?.dropping_chains()?;
    Ok(chains.iter().flat_map(|chain| finding(host, chain, owner(chain))).collect())
}

/// The chain FORWARD in the legacy variant of iptables.
pub fn legacy(host: &Host<'_>) -> Result<Vec<Finding>> {
    let mut found = Vec::new();
    for tool in legacy_saves(|table| table == "filter") {
        let Some(saved) = output(tool, &["-t", "filter"]) else {
            found.extend(unread(host, tool));
            continue;
        };
        if saved.lines().any(drops_all) {
            found.extend(finding(host, "FORWARD of table filter", tool.trim_end_matches("-save")));
        }
    }
    Ok(found)
}

/// Whether a line of `iptables-save` is a policy, or a rule without matches, that drops all forwarded packets.
fn drops_all(line: &str) -> bool {
    let verdicts = [":FORWARD DROP ", "-A FORWARD -j DROP", "-A FORWARD -j REJECT"];
    verdicts.iter().any(|verdict| line.starts_with(verdict))
}

/// Rules of iptables-legacy that cannot be listed.
fn unread(host: &Host<'_>, tool: &str) -> Option<Finding> {
    let networks = concerned(host);
    (!networks.is_empty()).then(|| {
        Finding::warning(
            format!("network {}", networks.join(", ")),
            format!("the kernel has rules of iptables-legacy, but {tool} is not installed or fails"),
            format!("run `{tool}`: install it if it is missing, or correct the error that it prints"),
        )
    })
}

/// Routed networks without a plugin that opens firewalls. If a network has one, its STATUS and CHECK report such
/// chains.
fn concerned<'a>(host: &'a Host<'_>) -> Vec<&'a str> {
    let is_concerned = |one: &&super::host::Configured| {
        let kinds = || one.network.plugins.iter().map(|plugin| plugin.kind.as_str());
        kinds().any(|kind| ["bridge", "ptp", "flannel"].contains(&kind))
            && !kinds().any(|kind| kind == PLUGIN)
    };
    host.networks.iter().filter(is_concerned).map(|one| one.network.name.as_str()).collect()
}

fn finding(host: &Host<'_>, chain: &str, owner: &str) -> Option<Finding> {
    let networks = concerned(host);
    let remedy = match owner {
        "firewalld" => {
            "add the plugin `firewall` to the network, or put the bridge into firewalld's zone trusted"
        }
        _ => {
            "add the plugin `firewall` to the network; `cnitool test-connectivity NETWORK` shows whether rules of your own accept the packets"
        }
    };
    (!networks.is_empty()).then(|| {
        let cause =
            format!("the chain {chain} ({owner}) drops forwarded packets that none of its rules accepts");
        Finding::warning(format!("network {}", networks.join(", ")), cause, remedy)
    })
}

/// The owner of a chain, by the names that each program uses.
fn owner(chain: &str) -> &'static str {
    let table = chain.split(' ').nth(1).unwrap_or_default();
    match table {
        "firewalld" => "firewalld",
        "filter" if chain.ends_with(" FORWARD") => "iptables: Docker, ufw or the administrator",
        _ => "nftables: the administrator",
    }
}
