//! Bridges of networks: whether ADD can use them.

use cni::json;
use ipnetwork::IpNetwork;
use netlink::{Link, uapi};
use runtime::{Network, Result};
use serde_json::Value;
use validate::ranges;

use super::host::requests;
use super::{Finding, Host};
use crate::live::Live;

/// Links that have the name of a network's bridge but are not bridges, and bridges with an IPv4 address that contradicts the network's gateway.
pub fn check(host: &Host<'_>) -> Result<Vec<Finding>> {
    let live = host.live()?;
    let mut findings = Vec::new();
    for network in host.networks.iter().map(|one| &one.network) {
        for request in delegated(network) {
            let Some(link) = ranges::bridge(&request).and_then(|name| live.link(name)) else { continue };
            let problem =
                if link.is("bridge") { other_address(live, link, &request) } else { Some(no_bridge(link)) };
            findings.extend(problem.map(|(cause, remedy)| {
                let cause = format!("no container can be attached: {cause}");
                Finding::error(format!("network {}", network.name), cause, remedy)
            }));
        }
    }
    Ok(findings)
}

/// The configurations of the network's plugins. For flannel, that of the plugin which it calls.
fn delegated(network: &Network) -> impl Iterator<Item = Value> {
    requests(network).filter_map(move |(plugin, request)| match plugin.kind.as_str() {
        "flannel" => flannel::delegate(request.into(), &network.name, network.version).ok(),
        _ => Some(request),
    })
}

fn no_bridge(link: &Link) -> (String, String) {
    let name = &link.name;
    let cause = format!("the host's interface {name} is not a bridge");
    (cause, format!("set `bridge` to another name, or delete the interface: `ip link del {name}`"))
}

/// An address of the bridge that ADD neither uses nor replaces.
fn other_address(live: &Live, link: &Link, request: &Value) -> Option<(String, String)> {
    let conf = ranges::conf(request)?;
    let is_replaced = json::member(request, "forceAddress").and_then(Value::as_bool).unwrap_or_default();
    let gateways = ranges::bridge_gateways(request, &conf);
    let expected: Vec<IpNetwork> =
        gateways.into_iter().filter_map(|(ip, prefix)| IpNetwork::new(ip, prefix).ok()).collect();
    let present = live.addresses_of(link).filter(|address| address.scope == uapi::RT_SCOPE_UNIVERSE);
    let present: Vec<IpNetwork> = present.map(|address| address.net).filter(IpNetwork::is_ipv4).collect();
    if is_replaced || present.iter().any(|net| expected.contains(net)) {
        return None;
    }
    let (has, needs, name) = (present.first()?, expected.first()?, &link.name);
    let cause = format!("bridge {name} has the address {has}, but the network's gateway address is {needs}");
    let remedy = format!(
        "if {has} is of the network's old subnet, delete the network's containers and run `ip link del {name}`: the next \
         ADD creates the bridge again. Otherwise, choose another bridge"
    );
    Some((cause, remedy))
}
