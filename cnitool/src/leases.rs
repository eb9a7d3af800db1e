//! Leases of host-local.

use std::collections::BTreeSet;
use std::fs;
use std::net::IpAddr;
use std::path::PathBuf;

use runtime::Network;
use serde_json::Value;

/// The directory of host-local's leases, unless `dataDir` names another one.
const LEASES: &str = "/var/lib/cni/networks";

/// The addresses of the network that host-local has leased.
pub fn of(network: &Network) -> Vec<IpAddr> {
    let files = data_dirs(network).into_iter().flat_map(|dir| fs::read_dir(dir.join(&*network.name)));
    // An empty file is a truncated lease without an owner.
    let lease = |file: fs::DirEntry| {
        let address = file.file_name().to_str()?.parse().ok()?;
        file.metadata().is_ok_and(|data| data.is_file() && data.len() > 0).then_some(address)
    };
    let mut leased: Vec<IpAddr> = files.flatten().flatten().filter_map(lease).collect();
    leased.sort();
    leased
}

/// The default directory, and the value of each key `dataDir` anywhere in the configuration.
fn data_dirs(network: &Network) -> BTreeSet<PathBuf> {
    let mut dirs = BTreeSet::from([PathBuf::from(LEASES)]);
    let mut parts = vec![serde_json::from_slice::<Value>(network.bytes()).unwrap_or_default()];
    while let Some(part) = parts.pop() {
        match part {
            Value::Object(members) => {
                let dir = members.iter().find(|(key, _)| key.eq_ignore_ascii_case("dataDir"));
                dirs.extend(dir.and_then(|(_, dir)| dir.as_str()).map(PathBuf::from));
                parts.extend(members.into_iter().map(|(_, value)| value));
            }
            Value::Array(values) => parts.extend(values),
            _ => {}
        }
    }
    dirs
}
