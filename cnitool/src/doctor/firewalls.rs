//! Firewalls of other programs that drop packets that the host forwards for containers.

use std::collections::{BTreeMap, BTreeSet};

use cni::AsWritten;
use netfilter::{Family, Firewall};
use runtime::{Entry, Network, Result};
use validate::ranges;

use super::finding::EXAMINE_AGAIN;
use super::host::{label, requests};
use super::{Finding, Host, RECREATE};

/// Base chains of nf_tables that drop forwarded packets: of iptables-nft, firewalld, ufw, or the administrator.
pub fn nftables(host: &Host<'_>) -> Result<Vec<Finding>> {
    let all = Routed::all(host);
    let mut findings = Vec::new();
    if all.iter().any(|one| one.firewall.is_none()) {
        for (chain, families) in Firewall::open(None)?.dropping_chains()? {
            findings.extend(not_opened(&all, families, &chain, owner(&chain)));
        }
    }
    findings.extend(warnings(&all, |conf, families| {
        let chains = firewall::blocking_chains(conf, families)?;
        Ok(chains.iter().map(|chain| (chain.cause(), chain.remedy())).collect())
    }));
    Ok(findings)
}

/// The chain FORWARD in the legacy variant of iptables.
pub fn legacy(host: &Host<'_>) -> Result<Vec<Finding>> {
    let all = Routed::all(host);
    let mut findings = Vec::new();
    if all.iter().any(|one| one.firewall.is_none()) {
        for family in Family::ALL {
            if Firewall::legacy_drops(family)? {
                let variant = family.choose("iptables-legacy", "ip6tables-legacy");
                findings.extend(not_opened(&all, &[family], "FORWARD of table filter", variant));
            }
        }
    }
    findings.extend(warnings(&all, |conf, families| {
        let errors = firewall::closed_legacy(conf, families)?;
        Ok(errors.iter().map(|error| (error.msg().to_owned(), error.details().to_owned())).collect())
    }));
    Ok(findings)
}

/// A network as it is configured, or as it was when a container was attached, if the host routes for it.
struct Routed {
    network: String,
    /// None: the network as it is configured.
    attachment: Option<String>,
    /// The configuration of the plugin that opens firewalls.
    firewall: Option<AsWritten>,
    families: Vec<Family>,
}

impl Routed {
    /// The configured networks and all attachments. An attachment keeps the plugins that it had at its ADD.
    fn all(host: &Host<'_>) -> Vec<Self> {
        let networks = host.networks.iter().filter_map(|one| Self::of_network(&one.network));
        networks.chain(host.alive().filter_map(Self::of_attachment)).collect()
    }

    fn of_network(network: &Network) -> Option<Self> {
        let sets = ranges::sets(network);
        let mut families: Vec<Family> = Family::ALL.into();
        families.retain(|family| {
            let is_of = |range: &host_local::Range| Family::from(range.gateway) == *family;
            sets.is_empty() || sets.iter().flat_map(|set| set.ranges()).any(is_of)
        });
        Self::new(network, None, families)
    }

    fn of_attachment(entry: &Entry) -> Option<Self> {
        // `attachments.check` and `attachments.results` report caches that cannot be read.
        let (network, result) = (entry.network().ok()?, entry.result().ok()?);
        let families = result.ips.iter().map(|ip| Family::from(ip.address.ip())).collect();
        Self::new(&network, Some(label(entry)), families)
    }

    fn new(network: &Network, attachment: Option<String>, families: Vec<Family>) -> Option<Self> {
        let routing = ["bridge", "ptp", "flannel"];
        network.plugins.iter().find(|plugin| routing.contains(&plugin.kind.as_str()))?;
        let firewall = requests(network).find(|(plugin, _)| plugin.kind.as_str() == "firewall");
        let firewall = firewall.map(|(_, request)| request.into());
        Some(Self { network: network.name.to_string(), attachment, firewall, families })
    }
}

/// Warns of a chain that drops the packets of networks and attachments without the plugin `firewall`.
fn not_opened(all: &[Routed], families: &[Family], chain: &str, owner: &str) -> Vec<Finding> {
    let cause = format!("the chain {chain} ({owner}) drops forwarded packets that none of its rules accepts");
    let has_packets = |one: &&Routed| one.families.iter().any(|family| families.contains(family));
    let without = || all.iter().filter(|one| one.firewall.is_none()).filter(has_packets);
    let networks: Vec<&str> =
        without().filter(|one| one.attachment.is_none()).map(|one| &*one.network).collect();
    let of_network = (!networks.is_empty()).then(|| {
        let zone = ", or put the bridge into firewalld's zone trusted";
        let remedy = format!(
            "add the plugin `firewall` to the network, and create its containers again{}; \
             `cnitool test-connectivity NETWORK` shows whether rules of your own accept the packets",
            if owner == "firewalld" { zone } else { "" }
        );
        Finding::warning(format!("network {}", networks.join(", ")), &cause, remedy)
    });
    let mut older: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for one in without().filter(|one| !networks.contains(&&*one.network)) {
        older.entry(&one.network).or_default().extend(one.attachment.as_deref());
    }
    let of_attachments = older.into_values().map(|attachments| {
        let cause = format!("{cause}, and ADD attached the container without the plugin `firewall`");
        let remedy = format!("{RECREATE}, when the network has the plugin");
        Finding::warning(attachments.join(", "), cause, remedy)
    });
    of_network.into_iter().chain(of_attachments).collect()
}

/// The problems that `find` finds, each with its remedy, for networks with the plugin `firewall`: a warning for each network, because STATUS or
/// CHECK may report the problem of one of them as an error. A network that cannot be examined hides no problem of another.
fn warnings(
    all: &[Routed],
    find: impl Fn(AsWritten, &[Family]) -> cni::Result<Vec<(String, String)>>,
) -> impl Iterator<Item = Finding> {
    let mut problems = BTreeSet::new();
    for one in all {
        let Some(conf) = one.firewall.clone() else { continue };
        let found = find(conf, &one.families).unwrap_or_else(|unread| vec![not_read(&unread)]);
        problems.extend(found.into_iter().map(|(cause, remedy)| (&*one.network, cause, remedy)));
    }
    let warning = |(network, cause, remedy)| Finding::warning(format!("network {network}"), cause, remedy);
    problems.into_iter().map(warning)
}

/// The problem that a network's firewall cannot be examined, with its remedy.
fn not_read(error: &cni::Error) -> (String, String) {
    let cause = format!("whether the firewall drops its packets is not known: {}", error.msg());
    let remedy = Some(error.details()).filter(|details| !details.is_empty());
    (cause, remedy.unwrap_or(EXAMINE_AGAIN).to_owned())
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
