//! Range sets of a network with host-local, and the gateway addresses of its bridge.

use std::net::IpAddr;

use cni::{AsWritten, json};
use host_local::{Conf, RangeSet};
use runtime::{Network, PluginConf};
use serde_json::Value;

/// The plugins of a network whose addresses host-local allocates: each plugin's request, and the configuration of
/// host-local in it.
pub fn by_host_local(network: &Network) -> Vec<(Value, Conf)> {
    network.plugins.iter().filter_map(|plugin| of(network, plugin)).collect()
}

/// A plugin's request, and the configuration of host-local in it.
pub fn of(network: &Network, plugin: &PluginConf) -> Option<(Value, Conf)> {
    let request = json::parse(&network.request(plugin).ok()?, "the request").ok()?;
    let conf = conf(&request)?;
    Some((request, conf))
}

/// The configuration of host-local in a request.
pub fn conf(request: &Value) -> Option<Conf> {
    json::member(json::member(request, "ipam")?, "type").filter(|kind| *kind == "host-local")?;
    Conf::try_from(AsWritten::from(request.clone())).ok()
}

/// All range sets of a network. An attachment has an address of each set.
pub fn sets(network: &Network) -> Vec<RangeSet> {
    by_host_local(network).into_iter().flat_map(|(_, conf)| conf.sets).collect()
}

/// The bridge's name in a request of the plugin `bridge`. None: the request is for another plugin.
pub fn bridge(request: &Value) -> Option<&str> {
    let text = |key: &str| json::member(request, key).and_then(Value::as_str).unwrap_or_default();
    (text("type") == "bridge").then(|| Some(text("bridge")).filter(|name| !name.is_empty()).unwrap_or("cni0"))
}

/// The bridge's name in such a request if ADD gives gateway addresses to the bridge. None: the host is not the gateway, or another
/// interface has the addresses, as in a VLAN.
pub fn gateway_bridge(request: &Value) -> Option<&str> {
    let is_true = |key: &str| json::member(request, key).and_then(Value::as_bool).unwrap_or_default();
    let is_in_vlan = json::member(request, "vlan").and_then(Value::as_u64).unwrap_or_default() != 0;
    let is_gateway = is_true("isGateway") || is_true("isDefaultGateway");
    bridge(request).filter(|_| is_gateway && !is_in_vlan)
}

/// The IPv4 gateway addresses, with the prefix length, that ADD gives to the bridge of such a request: one for each range.
pub fn bridge_gateways(request: &Value, conf: &Conf) -> Vec<(IpAddr, u8)> {
    if gateway_bridge(request).is_none() {
        return Vec::new();
    }
    let ranges = conf.sets.iter().flat_map(RangeSet::ranges);
    ranges
        .filter(|range| range.gateway.is_ipv4())
        .map(|range| (range.gateway, range.subnet.prefix()))
        .collect()
}
