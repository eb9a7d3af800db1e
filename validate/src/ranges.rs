//! Range sets of a network with host-local.

use cni::{AsWritten, json};
use host_local::{Conf, RangeSet};
use runtime::Network;
use serde_json::Value;

/// The plugins of a network whose addresses host-local allocates: each plugin's request, and the configuration of
/// host-local in it.
pub fn by_host_local(network: &Network) -> Vec<(Value, Conf)> {
    let requests = network.plugins.iter().filter_map(|plugin| network.request(plugin).ok());
    let requests = requests.filter_map(|request| json::parse(&request, "the request").ok());
    requests.filter_map(|request| of(&request).map(|conf| (request, conf))).collect()
}

/// The configuration of host-local in a plugin's request.
pub fn of(request: &Value) -> Option<Conf> {
    let kind = json::member(json::member(request, "ipam")?, "type")?;
    Conf::try_from(AsWritten::from(request.clone())).ok().filter(|_| kind == "host-local")
}

/// All range sets of a network. An attachment has an address of each set.
pub fn sets(network: &Network) -> Vec<RangeSet> {
    by_host_local(network).into_iter().flat_map(|(_, conf)| conf.sets).collect()
}
