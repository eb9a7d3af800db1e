//! Addresses that another network has leased as well.

use std::fs;
use std::net::IpAddr;
use std::path::Path;

use cni::NetworkName;

use super::directory::{Content, Directory};
use super::lease::{Lease, Owner};

/// Leases of these addresses in other networks' directories, each with its network. Takes no lock, because the result
/// is only used for a warning.
pub fn leases(data_dir: &Path, network: &NetworkName, ips: &[IpAddr]) -> Vec<(String, Lease)> {
    let names = Directory::open(data_dir).ok().flatten().and_then(|dir| dir.names().ok()).unwrap_or_default();
    let others =
        names.into_iter().filter(|name| name != network.as_str() && NetworkName::parse(name).is_ok());
    let of = |name: String| {
        let lease =
            |ip: &IpAddr| Some((name.clone(), Lease { ip: *ip, owner: owner(&data_dir.join(&name), *ip)? }));
        ips.iter().filter_map(lease).collect::<Vec<_>>()
    };
    others.flat_map(of).collect()
}

fn owner(dir: &Path, ip: IpAddr) -> Option<Owner> {
    // It hardly ever exists.
    fs::symlink_metadata(dir.join(ip.to_string())).ok()?;
    match Directory::open(dir).ok()??.read(ip) {
        Ok(Content::Lease(owner)) => Some(owner),
        _ => None,
    }
}
