//! Leases of host-local.

use std::collections::BTreeSet;
use std::fs;
use std::net::IpAddr;
use std::path::PathBuf;

use cni::{AsWritten, json};
use runtime::{Network, PluginConf};

/// The addresses of the network that host-local has leased.
pub fn of(network: &Network) -> BTreeSet<IpAddr> {
    let files = data_dirs(network).into_iter().flat_map(|dir| fs::read_dir(dir.join(&*network.name)));
    // An empty file is a truncated lease without an owner.
    let lease = |file: fs::DirEntry| {
        let address = file.file_name().to_str()?.parse().ok()?;
        file.metadata().is_ok_and(|data| data.is_file() && data.len() > 0).then_some(address)
    };
    files.flatten().flatten().filter_map(lease).collect()
}

/// The directories in which the next ADD looks for leases. Leases from before a change of `dataDir` do not count.
fn data_dirs(network: &Network) -> BTreeSet<PathBuf> {
    let by_host_local = network.plugins.iter().filter(|plugin| is_by_host_local(plugin));
    let requests = by_host_local.filter_map(|plugin| network.request(plugin).ok());
    let requests = requests.filter_map(|request| json::parse(&request, "the request").ok());
    requests.filter_map(|request| host_local::data_dir(&AsWritten::from(request)).ok()).collect()
}

/// Whether host-local allocates the plugin's addresses. It is the default of flannel's delegates.
fn is_by_host_local(plugin: &PluginConf) -> bool {
    plugin.ipam().map_or(plugin.kind.as_str() == "flannel", |ipam| ipam.as_str() == "host-local")
}
