//! The container's bridge, its port there, and the interface that routes for the port.

use std::path::Path;

use cni::{AddResult, Error, IfName, Result};
use iface::{Namespace, host_end};
use netlink::{Link, LinkKind};

/// A bridge, and a port of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// The bridge's name.
    pub bridge: IfName,
    /// The port's name.
    pub name: IfName,
    /// The interface that routes for the port. None: the bridge itself.
    pub gateway: Option<Gateway>,
}

/// The host's interface in a VLAN of a bridge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gateway {
    /// The interface.
    pub name: IfName,
    /// The port of the bridge that leads to it. None: it is a VLAN interface of the bridge itself.
    pub port: Option<IfName>,
}

impl Port {
    /// The host's interface that routes for the port.
    pub fn routed_by(&self) -> &IfName {
        self.gateway.as_ref().map_or(&self.bridge, |gateway| &gateway.name)
    }

    /// The host's end of the container's link, and its bridge. Opens the container's namespace if the result does not
    /// list the port.
    ///
    /// # Errors
    /// Code 7 if the container is on no bridge.
    pub fn find_in_namespace(result: &AddResult, netns: &Path, ifname: &IfName) -> Result<Self> {
        let host = Namespace::host()?;
        let port = match listed(&host, result)? {
            Some(port) => Some(port),
            None => behind(&host, netns, ifname)?,
        };
        let port = port.ok_or_else(|| on_no_bridge(ifname))?;
        let bridge = host.nl.link_named_by(port.master)?.filter(|link| link.is("bridge"));
        let bridge = bridge.ok_or_else(|| on_no_bridge(ifname))?;
        let gateway = gateway(&host, result, &bridge, &port)?;
        Ok(Self { bridge: name_of(&bridge)?, name: name_of(&port)?, gateway })
    }
}

/// The interface that the plugin bridge or an administrator has created for a VLAN. Its name is `BRIDGE.VLAN`. None:
/// the bridge itself routes, or nothing does.
fn gateway(host: &Namespace, result: &AddResult, bridge: &Link, port: &Link) -> Result<Option<Gateway>> {
    if bridge.kind != Some(LinkKind::Bridge { vlan_filtering: true }) {
        return Ok(None);
    }
    let Some(id) = native_vlan(host, port)? else { return Ok(None) };
    let Ok(name) = IfName::parse(&format!("{}.{id}", bridge.name)) else { return Ok(None) };
    // The bridge itself is in VLAN 1, and so is each port of a network without the key `vlan`.
    let is_listed = result.host_interfaces().any(|interface| interface.name == *name);
    if !is_listed && native_vlan(host, bridge)? == Some(id) {
        return Ok(None);
    }
    let Some(link) = host.nl.link(&name)?.filter(|link| link.peer_netns_id.is_none()) else {
        return Ok(None);
    };
    match link.kind {
        Some(LinkKind::Veth) => {
            let own = host.nl.link_named_by(link.peer)?.filter(|own| own.master == Some(bridge.index));
            own.map(|own| Ok(Gateway { name, port: Some(name_of(&own)?) })).transpose()
        }
        Some(LinkKind::Vlan { id: tag, .. }) if tag == id && link.peer == Some(bridge.index) => {
            Ok(Some(Gateway { name, port: None }))
        }
        _ => Ok(None),
    }
}

/// The VLAN of a port's untagged frames, or of the bridge itself.
fn native_vlan(host: &Namespace, link: &Link) -> Result<Option<u16>> {
    let vlans = host.nl.vlans_of(link)?;
    Ok(vlans.iter().find(|vlan| vlan.pvid).map(|vlan| *vlan.ids.start()))
}

fn name_of(link: &Link) -> Result<IfName> {
    IfName::parse(&link.name).map_err(Error::config)
}

/// The bridge port in a result. If a chain has created several, the last one is the container's.
fn listed(host: &Namespace, result: &AddResult) -> Result<Option<Link>> {
    for interface in result.host_interfaces().rev() {
        if let Some(link) = host.nl.link(&interface.name)?
            && host.nl.link_named_by(link.master)?.is_some_and(|master| master.is("bridge"))
        {
            return Ok(Some(link));
        }
    }
    Ok(None)
}

/// The other end of the container's veth. Results of older versions do not list it.
fn behind(host: &Namespace, netns: &Path, ifname: &IfName) -> Result<Option<Link>> {
    let sandbox = Namespace::open(netns)?;
    let link = sandbox.chained_interface(ifname)?;
    host_end::find(host, &sandbox, &link)
}

fn on_no_bridge(ifname: &IfName) -> Error {
    Error::config(format!("ingressPolicy: {ifname} is on no bridge"))
        .detail("same-bridge and isolated are for networks of the plugin bridge; set ingressPolicy to open, or remove it")
}
