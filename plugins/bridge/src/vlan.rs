//! The host's own interface in a VLAN of the bridge: it has the gateway's address there.
//!
//! It is a veth pair, as the reference makes it: `BRIDGE.VLAN` with the address, and a port of the bridge that belongs
//! to the VLAN. It is made by the first attachment that needs it, and goes with the VLAN's last one.

use std::time::Duration;

use cni::{AsWritten, Error, IfName, Result};
use iface::{Namespace, ownership};
use netlink::{Link, LinkKind, NewLink, Peer};
use system::lock::Lock;

use crate::conf::{self, Vlans};
use crate::port;

/// How long to wait for those that look at gateways and change them, which takes each of them milliseconds.
const LOCK_TIMEOUT: Duration = Duration::from_secs(60);

/// Keeps other plugins from making and deleting gateways. None: this host has no place for a lock.
///
/// # Errors
/// Code 11 if they do not end in time.
pub fn lock() -> Result<Option<Lock>> {
    Ok(Lock::acquire("vlan-gateways", LOCK_TIMEOUT)?)
}

/// The interface, if it is there.
pub fn gateway(host: &Namespace, bridge: &Link, id: u16) -> Result<Option<Link>> {
    match gateway_name(&bridge.name, id) {
        Ok(name) => Ok(host.nl.link(&name)?),
        Err(_) => Ok(None),
    }
}

/// Finds the interface or makes it. The caller holds the [`lock`].
pub fn ensure_gateway(host: &Namespace, bridge: &Link, id: u16) -> Result<Link> {
    let name = gateway_name(&bridge.name, id)?;
    let gateway = match host.nl.link(&name)? {
        Some(link) => link,
        None => {
            let peer = Peer { name: &name, mac: None, netns: None };
            let port = ownership::hashed_name("veth", [name.as_str()]);
            host.nl.create_link(&NewLink {
                mtu: Some(bridge.mtu),
                master: Some(bridge.index),
                up: true,
                peer: Some(peer),
                ..NewLink::new(&port, LinkKind::Veth)
            })?;
            host.link(&name)?
        }
    };
    // Also for a gateway that exists already: the plugin that made it may have been killed before this step.
    let port = host.nl.link_named_by(gateway.peer)?;
    let port = port.filter(|port| port.master == Some(bridge.index)).ok_or_else(|| {
        Error::config(format!(
            "link {name} exists already, but it is not the gateway's interface on bridge {}",
            bridge.name
        ))
        .detail("the gateway of the VLAN needs this name; rename or delete the link")
    })?;
    port::set_vlans(
        host,
        &port,
        &Vlans { native: id, access: true, tagged: Vec::new(), keep_default: false },
    )?;
    host.nl.set_up(&gateway)?;
    Ok(gateway)
}

/// Deletes the interface if no other port of the bridge belongs to the VLAN any more.
pub fn remove_unused_gateway(host: &Namespace, conf: &AsWritten) -> Result<()> {
    let (Some(name), Some(id)) = (conf::bridge(conf), conf::vlan(conf)) else { return Ok(()) };
    let Ok(gateway_name) = gateway_name(&name, id) else { return Ok(()) };
    let _lock = lock()?;
    let (Some(bridge), Some(gateway)) = (host.nl.link(&name)?, host.nl.link(&gateway_name)?) else {
        return Ok(());
    };
    let ports = host.nl.ports(bridge.index)?;
    let own_port = ports.iter().find(|port| gateway.peer == Some(port.index));
    let vlans = host.nl.vlans()?;
    let used = ports.iter().filter(|port| gateway.peer != Some(port.index)).any(|port| {
        vlans.iter().any(|(index, vlans)| *index == port.index && vlans.iter().any(|v| v.ids.contains(&id)))
    });
    if own_port.is_some() && gateway.is("veth") && !used {
        host.nl.delete_link(&gateway)?;
    }
    Ok(())
}

fn gateway_name(bridge: &str, id: u16) -> Result<IfName> {
    IfName::parse(&format!("{bridge}.{id}")).map_err(|e| {
        Error::config(format!("bridge {bridge}: the gateway interface of VLAN {id} {e}"))
            .detail("choose a shorter name for the bridge")
    })
}
