//! Firewalls of others that drop packets which the host forwards for containers.

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use netfilter::Firewall;
use runtime::Result;
use system::child::{self, Limits};

use super::{Finding, Host};

/// The plugin that opens firewalls.
const PLUGIN: &str = "firewall";

/// How long iptables-legacy-save may take, and how much it may print.
const TIMEOUT: Duration = Duration::from_secs(10);
const BYTES: u64 = 1 << 24;

/// Base chains of nf_tables that drop what is forwarded: iptables-nft, firewalld, ufw, and rules of the administrator.
pub fn nftables(host: &Host<'_>) -> Result<Vec<Finding>> {
    if concerned(host).is_empty() {
        return Ok(Vec::new());
    }
    let chains = Firewall::open(None)?.dropping_chains()?;
    Ok(chains.iter().flat_map(|chain| finding(host, chain, maker(chain))).collect())
}

/// The policy of the chain FORWARD in the legacy variant of iptables.
pub fn legacy(host: &Host<'_>) -> Result<Vec<Finding>> {
    let mut found = Vec::new();
    for (tool, tables) in [
        ("iptables-legacy-save", "/proc/net/ip_tables_names"),
        ("ip6tables-legacy-save", "/proc/net/ip6_tables_names"),
    ] {
        // The tool would make a table that does not exist.
        let has_filter =
            fs::read_to_string(tables).is_ok_and(|names| names.lines().any(|name| name == "filter"));
        if !has_filter {
            continue;
        }
        let limits = Limits { bytes: BYTES, time: Some(TIMEOUT), group: true };
        let mut command = Command::new(tool);
        command.args(["-t", "filter"]).stderr(Stdio::null());
        let Ok(saved) = child::run(&mut command, b"", limits) else { continue };
        if String::from_utf8_lossy(&saved.out).lines().any(|line| line.starts_with(":FORWARD DROP")) {
            found.extend(finding(host, &format!("{tool} filter FORWARD"), "iptables-legacy"));
        }
    }
    Ok(found)
}

/// Networks that are routed and have no plugin to open firewalls. If they have it, its STATUS and CHECK report such chains.
fn concerned<'a>(host: &'a Host<'_>) -> Vec<&'a str> {
    let is_concerned = |one: &&super::host::Configured| {
        let kinds = || one.network.plugins.iter().map(|plugin| plugin.kind.as_str());
        kinds().any(|kind| ["bridge", "ptp", "flannel"].contains(&kind))
            && !kinds().any(|kind| kind == PLUGIN)
    };
    host.networks.iter().filter(is_concerned).map(|one| one.network.name.as_str()).collect()
}

fn finding(host: &Host<'_>, chain: &str, maker: &str) -> Option<Finding> {
    let networks = concerned(host);
    let remedy = match maker {
        "firewalld" => {
            "add the plugin `firewall` to the network, or put the bridge into firewalld's zone trusted"
        }
        _ => {
            "add the plugin `firewall` to the network; `cnitool test-connectivity NETWORK` shows whether rules of your own accept the packets"
        }
    };
    (!networks.is_empty()).then(|| {
        let cause =
            format!("the chain {chain} ({maker}) drops forwarded packets that none of its rules accepts");
        Finding::warning(format!("network {}", networks.join(", ")), cause, remedy)
    })
}

/// Whose a chain is, by the names that each program uses.
fn maker(chain: &str) -> &'static str {
    let table = chain.split(' ').nth(1).unwrap_or_default();
    match table {
        "firewalld" => "firewalld",
        "filter" if chain.ends_with(" FORWARD") => "iptables: Docker, ufw or the administrator",
        _ => "nftables: the administrator",
    }
}
