//! `-adopt`: attachments of a daemon that kept its leases in memory only, such as the reference's. libcni's cache knows their addresses.

use std::path::Path;

use cni::{AsWritten, Result};
use dhcp_client::options::INTERFACE_MTU;
use iface::Namespace;
use ipnetwork::{IpNetwork, Ipv4Network};
use runtime::{Cache, Entry};
use serde_json::Value;

use super::{Host, log, say};
use crate::Dhcp;
use crate::conf::Conf;
use crate::place::Found;
use crate::record::{Asks, Key, Place, Record, below};

/// The attachments of libcni's cache that got their address from a daemon on this one's socket, have it still, and are not known.
pub fn unknown(host: &Host, is_known: &dyn Fn(&Key) -> bool) -> Vec<Record> {
    let cache = Cache::new(below(&host.args.host_prefix, Path::new(Cache::DEFAULT)));
    let entries = cache.list().unwrap_or_else(|e| {
        say(&format!("dhcp daemon: -adopt: {e}"));
        Vec::new()
    });
    let mut records = Vec::new();
    for entry in entries {
        let key = Key::new(&entry.network, &entry.attach.attachment);
        let Some(config) = configuration(&entry).filter(|_| !is_known(&key)) else { continue };
        match record(host, &key, &entry, config) {
            Ok(record) => records.extend(record),
            Err(e) => log(&key, &format!("not adopted: {e}")),
        }
    }
    records
}

/// The configuration of the network's plugin that has its addresses from here.
fn configuration(entry: &Entry) -> Option<Value> {
    let network: Value = serde_json::from_slice(&entry.config).ok()?;
    let plugins = network["plugins"].as_array().cloned().unwrap_or_else(|| vec![network.clone()]);
    plugins.into_iter().find(|plugin| plugin["ipam"]["type"] == <Dhcp as cni::Plugin>::NAME)
}

/// None: it is another daemon's or none of IPv4, or its container does not have the address any more.
fn record(host: &Host, key: &Key, entry: &Entry, config: Value) -> Result<Option<Record>> {
    let conf = Conf::try_from(AsWritten::from(config))?;
    let (at, result) = (&entry.attach.attachment, entry.result()?);
    let is_ours = conf.socket == host.args.socket && conf.family.has_v4();
    let Some(netns) = entry.attach.netns.as_deref().filter(|_| is_ours) else {
        return Ok(None);
    };
    let namespace = Namespace::open(&below(&host.args.host_prefix, netns))?;
    let link = namespace.link(&at.ifname)?;
    let there = namespace.nl.addresses(Some(&link))?;
    let v4 = |net: IpNetwork| if let IpNetwork::V4(v4) = net { Some(v4) } else { None };
    let is_there = |net: &Ipv4Network| there.iter().any(|address| address.net == IpNetwork::V4(*net));
    let Some(address) = result.ips_of(&at.ifname).filter_map(|ip| v4(ip.address)).find(is_there) else {
        return Ok(None);
    };
    let found = Found { namespace, link };
    let place = Place { netns: netns.to_owned(), ..found.place()? };
    let asks = Asks {
        client_id: key.client_id(),
        broadcast: host.args.broadcast || found.link.is("ipvlan"),
        provide: conf.provided(&entry.attach.args)?,
        request: conf.request.clone(),
        required: conf.request.clone(),
    };
    let mut record = Record::new(&entry.network, &at.container, &at.ifname, place, asks);
    (record.priority, record.on_link) = (conf.priority, Some(address));
    record.sets_mtu = conf.request.contains(&INTERFACE_MTU);
    log(key, &format!("adopted, with {address}"));
    Ok(Some(record))
}
