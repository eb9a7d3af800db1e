//! Range sets of a network with host-local.

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
    plugin.ipam().filter(|ipam| ipam.as_str() == "host-local")?;
    let request = json::parse(&network.request(plugin).ok()?, "the request").ok()?;
    let conf = Conf::try_from(AsWritten::from(request.clone())).ok()?;
    Some((request, conf))
}

/// All range sets of a network. An attachment has an address of each set.
pub fn sets(network: &Network) -> Vec<RangeSet> {
    by_host_local(network).into_iter().flat_map(|(_, conf)| conf.sets).collect()
}
