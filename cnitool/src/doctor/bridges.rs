//! Bridges of networks: whether ADD can use them.

use std::collections::BTreeSet;

use cni::json;
use ipnetwork::IpNetwork;
use netlink::{Link, uapi};
use runtime::{Entry, Network, Result};
use serde_json::Value;
use validate::ranges;

use super::host::requests;
use super::{Finding, Host};
use crate::live::Live;

/// Links that have the name of a network's bridge but are not bridges, and bridges with an IPv4 address that contradicts the network's gateway.
pub fn check(host: &Host<'_>) -> Result<Vec<Finding>> {
    let live = host.live()?;
    let problem = |network: &Network, request: &Value| {
        let link = live.link(ranges::bridge(request)?)?;
        if !link.is("bridge") {
            return Some(no_bridge(network, link));
        }
        let cause = not_attached(&other_address(live, link, request)?);
        let mut others = attached(host, &link.name);
        others.remove(network.name.as_str());
        Some(if others.is_empty() {
            Finding::error(object(network), cause, bridge::conflict_remedy(&link.name))
        } else {
            let others: Vec<&str> = others.into_iter().collect();
            let cause = format!("{cause}. The bridge is used by network {}", others.join(", "));
            let remedy =
                "set `bridge` to another name, or delete the configuration if no container uses the network";
            Finding::error(object(network), cause, remedy)
        })
    };
    let networks = host.networks.iter().map(|one| &one.network);
    Ok(networks
        .flat_map(|network| delegated(network).filter_map(move |request| problem(network, &request)))
        .collect())
}

/// The configurations of the network's plugins. For flannel, that of the plugin which it calls.
fn delegated(network: &Network) -> impl Iterator<Item = Value> {
    requests(network).filter_map(move |(plugin, request)| match plugin.kind.as_str() {
        "flannel" => flannel::delegate(request.into(), &network.name, network.version).ok(),
        _ => Some(request),
    })
}

fn object(network: &Network) -> String {
    format!("network {}", network.name)
}

fn not_attached(cause: &str) -> String {
    format!("no container can be attached: {cause}")
}

fn no_bridge(network: &Network, link: &Link) -> Finding {
    let name = &link.name;
    let cause = not_attached(&format!("the host's interface {name} is not a bridge"));
    let remedy = format!("set `bridge` to another name, or delete the interface: `ip link del {name}`");
    Finding::error(object(network), cause, remedy)
}

/// The cause if the bridge has an address that ADD neither uses nor replaces.
fn other_address(live: &Live, link: &Link, request: &Value) -> Option<String> {
    let is_replaced = json::member(request, "forceAddress").and_then(Value::as_bool).unwrap_or_default();
    let gateways = ranges::bridge_gateways(request, &ranges::conf(request)?);
    let expected: Vec<IpNetwork> =
        gateways.into_iter().filter_map(|(ip, prefix)| IpNetwork::new(ip, prefix).ok()).collect();
    let present = live.addresses_of(link).filter(|address| address.scope == uapi::RT_SCOPE_UNIVERSE);
    let present: Vec<IpNetwork> = present.map(|address| address.net).filter(IpNetwork::is_ipv4).collect();
    if is_replaced || present.iter().any(|net| expected.contains(net)) {
        return None;
    }
    let (has, needs, name) = (present.first()?, expected.first()?, &link.name);
    Some(format!("bridge {name} has the address {has}, but the network's gateway address is {needs}"))
}

/// The networks that have containers on the bridge.
fn attached<'a>(host: &'a Host<'_>, bridge: &str) -> BTreeSet<&'a str> {
    let is_on_bridge = |entry: &&Entry| {
        let result = entry.result();
        result.is_ok_and(|result| {
            result.interfaces.iter().any(|one| one.sandbox.is_none() && one.name == bridge)
        })
    };
    host.alive().filter(is_on_bridge).map(|entry| entry.network.as_str()).collect()
}
