//! `-adopt`: takes over the attachments of a daemon that kept its leases only in memory, such as the reference's.
//! libcni's cache contains their addresses.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use cni::{AsWritten, Code, Error, Result};
use ipnetwork::{IpNetwork, Ipv4Network};
use netns::NetNs;
use runtime::{Cache, Entry};
use serde_json::Value;
use system::host_path::below;

use crate::conf::Conf;
use crate::host::Host;
use crate::key::{Family, Key};
use crate::location::{self, OpenInterface};
use crate::log::{log, log_line};
use crate::parameters::{LeaseParameters, V4};
use crate::record::{LeasedAttachment, Location, Record};

/// The attachments in the host's caches to adopt: those without a lease here that got their address through this
/// daemon's socket and still have it. Each other attachment of a network with dhcp is logged.
pub fn unknown(host: &Host, is_known: &dyn Fn(&Key) -> bool) -> Vec<Record> {
    let mut records = Vec::new();
    let log_error = |e| log_line(&format!("dhcp daemon: -adopt: {e}"));
    let caches = Cache::all_in(below(&host.args.host_prefix, Path::new(Cache::DEFAULT_DIR)));
    for cache in caches.map_err(log_error).unwrap_or_default() {
        for entry in cache.list().map_err(log_error).unwrap_or_default() {
            let key = Key::new(&entry.network, &entry.attach.attachment, Family::V4);
            let Some(config) = configuration(&entry) else { continue };
            let adopted = match is_known(&key) {
                true => Err(Error::new(Code::Internal, "its lease is known")),
                false => record(host, &key, &entry, config),
            };
            match adopted {
                Ok(record) => records.push(record),
                Err(e) => log(&key, &format!("not adopted: {e}")),
            }
        }
    }
    records
}

/// The configuration of the network's plugin that uses this daemon.
fn configuration(entry: &Entry) -> Option<Value> {
    let network: Value = serde_json::from_slice(&entry.config).ok()?;
    let plugins = network["plugins"].as_array().cloned().unwrap_or_else(|| vec![network.clone()]);
    plugins.into_iter().find(|plugin| plugin["ipam"]["type"] == "dhcp")
}

/// The record for a cached attachment.
///
/// # Errors
/// The reason why the attachment is not adopted.
fn record(host: &Host, key: &Key, entry: &Entry, config: Value) -> Result<Record> {
    let conf = Conf::try_from(AsWritten::from(config))?;
    let (at, result) = (&entry.attach.attachment, entry.result()?);
    let refuse = |why: String| Err(Error::new(Code::Internal, why));
    if !is_own_socket(host, &conf.socket) {
        return refuse(format!("its network uses another daemon socket, {}", conf.socket.display()));
    }
    if !conf.family.list().contains(&Family::V4) {
        return refuse("ipam.family is ipv6: a new ADD asks for its address".to_owned());
    }
    let Some(netns) = entry.attach.netns.as_deref() else {
        return refuse("the cache does not contain its network namespace".to_owned());
    };
    let namespace = location::open(NetNs::open(&below(&host.args.host_prefix, netns))?)?;
    let link = namespace.link(&at.ifname)?;
    // KubeVirt's bridge binding puts a pod's address on a dummy of the interface's name, and renames the interface.
    if link.is("dummy") {
        return refuse(format!(
            "link {} is a dummy, which no DHCP server reaches: a virtual machine may use its address",
            link.name
        ));
    }
    let addresses = namespace.nl.addresses(Some(&link))?;
    let v4 = |net: IpNetwork| if let IpNetwork::V4(v4) = net { Some(v4) } else { None };
    let is_on_link = |net: &Ipv4Network| addresses.iter().any(|address| address.net == IpNetwork::V4(*net));
    let Some(address) = result.ips_of(&at.ifname).filter_map(|ip| v4(ip.address)).find(is_on_link) else {
        return refuse(format!("link {} has none of the IPv4 addresses in its result", at.ifname));
    };
    let found = OpenInterface { namespace, link };
    let location = Location { netns: netns.to_owned(), ..found.location()? };
    let mut attachment = LeasedAttachment::new(&entry.network, &at.container, &at.ifname, location);
    (attachment.on_link, attachment.seen) = (Some(IpNetwork::V4(address)), true);
    let parameters = V4::new(key, &conf, &entry.attach.args, host.args.broadcast || found.link.is("ipvlan"))?;
    log(key, &format!("adopted, with {address}"));
    Ok(Record::new(attachment, LeaseParameters::V4(parameters)))
}

/// Whether a path leads to the daemon's socket, also through symbolic links such as /var/run.
fn is_own_socket(host: &Host, path: &Path) -> bool {
    let file = |path: &Path| fs::metadata(below(&host.args.host_prefix, path)).ok();
    let number = |path: &Path| file(path).map(|file| (file.dev(), file.ino()));
    path == host.args.socket || number(path).is_some_and(|one| Some(one) == number(&host.args.socket))
}
