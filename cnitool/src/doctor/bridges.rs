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

/// Links that have the name of a network's bridge but are not bridges, and bridges with an IPv4 address that contradicts the network's gateway.
pub fn check(host: &Host<'_>) -> Result<Vec<Finding>> {
    let live = host.live()?;
    let networks = host.networks.iter().map(|one| &one.network);
    let all: Vec<Configured<'_>> =
        networks.flat_map(|network| delegated(network).map(move |request| (network, request))).collect();
    let problem = |(network, request): &Configured<'_>| {
        let link = live.link(ranges::bridge(request)?)?;
        if !link.is("bridge") {
            return Some(no_bridge(network, link));
        }
        let present = live.addresses_of(link).filter(|address| address.scope == uapi::RT_SCOPE_UNIVERSE);
        let present: Vec<IpNetwork> = present.map(|address| address.net).filter(IpNetwork::is_ipv4).collect();
        let (cause, has) = other_address(link, &present, request)?;
        let cause = not_attached(&cause);
        let name = &link.name;
        let others = others(host, &all, network, name, &present);
        Some(if others.is_empty() {
            let remedy = format!(
                "if {has} is of the network's old subnet, delete the network's containers and run `ip link del {name}`: the \
                 next ADD creates the bridge again. Otherwise, choose another bridge"
            );
            Finding::error(object(network), cause, remedy)
        } else {
            let others: Vec<&str> = others.into_iter().collect();
            let cause = format!("{cause}. The bridge is used by network {}", others.join(", "));
            let remedy =
                "set `bridge` to another name, or delete the configuration if no container uses the network";
            Finding::warning(object(network), cause, remedy)
        })
    };
    Ok(all.iter().filter_map(problem).collect())
}

/// A network, and the configuration of one of its plugins.
type Configured<'a> = (&'a Network, Value);

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

/// An address of the bridge that ADD neither uses nor replaces, after the cause.
fn other_address(link: &Link, present: &[IpNetwork], request: &Value) -> Option<(String, IpNetwork)> {
    let is_replaced = json::member(request, "forceAddress").and_then(Value::as_bool).unwrap_or_default();
    let expected = gateways(request);
    if is_replaced || present.iter().any(|net| expected.contains(net)) {
        return None;
    }
    let (has, needs, name) = (present.first()?, expected.first()?, &link.name);
    let cause = format!("bridge {name} has the address {has}, but the network's gateway address is {needs}");
    Some((cause, *has))
}

/// The IPv4 addresses that ADD gives to the bridge.
fn gateways(request: &Value) -> Vec<IpNetwork> {
    let gateways = ranges::conf(request).map(|conf| ranges::bridge_gateways(request, &conf));
    gateways.into_iter().flatten().filter_map(|(ip, prefix)| IpNetwork::new(ip, prefix).ok()).collect()
}

/// Other networks that use the bridge: a present address is their gateway, or they have containers on it.
fn others<'a>(
    host: &'a Host<'_>,
    all: &'a [Configured<'a>],
    network: &Network,
    bridge: &str,
    present: &[IpNetwork],
) -> BTreeSet<&'a str> {
    let configured = all.iter().filter(|(_, request)| {
        ranges::bridge(request) == Some(bridge) && gateways(request).iter().any(|net| present.contains(net))
    });
    let is_on_bridge = |entry: &&Entry| {
        let result = entry.result();
        result.is_ok_and(|result| {
            result.interfaces.iter().any(|one| one.sandbox.is_none() && one.name == bridge)
        })
    };
    let attached = host.alive().filter(is_on_bridge).map(|entry| entry.network.as_str());
    let mut names: BTreeSet<&str> =
        configured.map(|(network, _)| network.name.as_str()).chain(attached).collect();
    names.remove(network.name.as_str());
    names
}
