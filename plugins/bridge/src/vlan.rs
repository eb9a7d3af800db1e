//! The host's gateway interface in a VLAN of the bridge.
//!
//! It is a veth pair, as in the reference: `BRIDGE.VLAN` with the gateway address, and a port of the bridge in the VLAN. The first
//! attachment that needs it creates it, and the DEL of the VLAN's last container deletes it.

use std::collections::BTreeSet;
use std::time::Duration;

use cni::{AddResult, Del, Error, Failures, Gc, IfName, Result, Undo};
use iface::{Namespace, ownership, verify, veth};
use netlink::{BridgeVlan, Link, LinkKind, Mac, NewLink, Peer, VlanProtocol};
use system::lock::Lock;

use crate::conf::{self, Conf, Vlans};
use crate::port;

/// Timeout for the lock. Work under it takes milliseconds.
const LOCK_TIMEOUT: Duration = Duration::from_secs(60);

/// Prevents other plugins from creating and deleting gateway interfaces. `None` if the host has no place for a lock.
///
/// # Errors
/// Code 11 if another plugin holds the lock until the timeout.
pub fn lock() -> Result<Option<Lock>> {
    Ok(Lock::acquire("vlan-gateways", LOCK_TIMEOUT)?)
}

/// Finds the gateway interface. None if it does not exist.
pub fn gateway_interface(host: &Namespace, bridge: &Link, id: u16) -> Result<Option<Link>> {
    match gateway_name(&bridge.name, id) {
        Ok(name) => Ok(host.nl.link(&name)?),
        Err(_) => Ok(None),
    }
}

/// Finds or creates the interface. An administrator may have created a VLAN device instead, which is used unchanged. The caller holds the
/// [`lock`].
pub fn ensure_gateway(host: &Namespace, bridge: &Link, id: u16) -> Result<Link> {
    let name = gateway_name(&bridge.name, id)?;
    let gateway = match host.nl.link(&name)? {
        Some(link) => link,
        None => {
            let peer = Peer { name: &name, mac: Some(Mac::random()), netns: None };
            let port = port_name(&name);
            host.nl.create_link(&NewLink {
                mac: Some(Mac::random()),
                mtu: Some(bridge.mtu),
                master: Some(bridge.index),
                up: true,
                peer: Some(peer),
                ..NewLink::new(&port, LinkKind::Veth)
            })?;
            let gateway = host.link(&name)?;
            host.ignore_router_advertisements(&gateway)?;
            Link { accept_ra: Some(0), ..gateway }
        }
    };
    // Its tag puts its packets into the VLAN. The administrator must have added the bridge itself to the VLAN.
    if is_vlan_device(&gateway, bridge, id) {
        host.nl.set_up(&gateway)?;
        return Ok(gateway);
    }
    // Also for an existing interface, whose creator may have been killed before this step.
    let port = port_of(host, bridge, &gateway)?.ok_or_else(|| {
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

/// Checks that the interface exists and is up, and that its port is in the VLAN. An administrator's VLAN device has no port.
pub fn verify_gateway(host: &Namespace, bridge: &Link, id: u16) -> Result<Link> {
    let gateway = host.link(&gateway_name(&bridge.name, id)?)?;
    verify::up_on_host(&gateway)?;
    if gateway.is("veth") {
        let missing = || verify::differs(&gateway, "bridge", &bridge.name, "missing or different");
        let port = port_of(host, bridge, &gateway)?.ok_or_else(missing)?;
        port::verify_native_vlan(&port, &host.nl.vlans_of(&port)?, id)?;
    }
    Ok(gateway)
}

/// The port at the other end of the interface.
fn port_of(host: &Namespace, bridge: &Link, gateway: &Link) -> Result<Option<Link>> {
    let port = host.nl.link_named_by(gateway.peer.filter(|_| is_within_host(gateway)))?;
    Ok(port.filter(|port| port.master == Some(bridge.index)))
}

/// ADD: deletes the gateway interface after a failure, if unused. To be called before this ADD creates its port, so that the port is removed
/// first.
pub fn undo_gateway(host: &Namespace, conf: &Conf, undo: &mut Undo) {
    let Some(vlan) = conf.gateway_vlan().filter(|_| conf.is_gateway) else { return };
    let (host, bridge, ids) = (host.clone(), conf.bridge.clone(), BTreeSet::from([vlan]));
    undo.push(move || remove_unused(&host, &bridge, ids));
}

/// DEL: deletes the gateway interfaces of the configured VLAN and of those in the result of ADD, if unused. The configuration may have
/// another VLAN since ADD.
pub fn remove_unused_gateways(host: &Namespace, call: &Del) -> Result<()> {
    let Some(bridge) = conf::bridge(&call.conf) else { return Ok(()) };
    let listed = call.prev_result.iter().flat_map(AddResult::host_interfaces);
    let listed = listed.filter_map(|interface| vlan_of(&bridge, &interface.name));
    remove_unused(host, &bridge, conf::vlan(&call.conf).into_iter().chain(listed).collect())
}

/// GC: deletes all unused gateway interfaces of the bridge.
pub fn collect_gateways(host: &Namespace, call: &Gc) -> Result<()> {
    let Some(name) = conf::bridge(&call.conf) else { return Ok(()) };
    // The configured name may be an alternative one.
    let Some(bridge) = host.nl.link(&name)? else { return Ok(()) };
    let links = host.nl.links()?;
    remove_unused(host, &name, links.iter().filter_map(|link| vlan_of(&bridge.name, &link.name)).collect())
}

fn remove_unused(host: &Namespace, bridge: &IfName, ids: BTreeSet<u16>) -> Result<()> {
    if ids.is_empty() {
        return Ok(());
    }
    let _lock = lock()?;
    let Some(bridge) = host.nl.link(bridge)? else { return Ok(()) };
    let mut failures = Failures::new();
    for id in ids {
        failures.note(remove_if_unused(host, &bridge, id));
    }
    failures.into_result()
}

/// Deletes the interface if Ferrule or the reference created it and no container is in the VLAN. An administrator may have created one.
fn remove_if_unused(host: &Namespace, bridge: &Link, id: u16) -> Result<()> {
    let Some(gateway) = gateway_interface(host, bridge, id)? else { return Ok(()) };
    let own_port = port_of(host, bridge, &gateway)?;
    let is_made_here =
        |port: &Link| port.name == port_name(&gateway.name) || veth::is_name_of_the_reference(&port.name);
    if !gateway.is("veth") || !own_port.as_ref().is_some_and(is_made_here) {
        return Ok(());
    }
    let (ports, vlans) = (host.nl.ports(bridge.index)?, host.nl.vlans()?);
    let is_user = |port: &Link| {
        let mut vlans = vlans.iter().filter(|(index, _)| *index == port.index).flat_map(|(_, vlans)| vlans);
        vlans.any(|vlan| {
            *vlan == BridgeVlan::native(id) || may_lead_to_container(port) && vlan.ids.contains(&id)
        })
    };
    if !ports.iter().any(|port| gateway.peer != Some(port.index) && is_user(port)) {
        host.nl.delete_link(&gateway)?;
    }
    Ok(())
}

/// Whether a port may be a container's or a virtual machine's. Of others, only one whose untagged frames are in the VLAN counts, as ADD sets it
/// for a card's representor: the host's uplink is in a VLAN, with tags, without using its gateway.
fn may_lead_to_container(port: &Link) -> bool {
    port.is("veth") || port.is("tun")
}

/// The VLAN of a gateway interface of the bridge, by the interface's name.
fn vlan_of(bridge: &str, interface: &str) -> Option<u16> {
    interface.strip_prefix(bridge)?.strip_prefix('.')?.parse().ok()
}

/// Whether a link is an administrator's VLAN device on the bridge.
fn is_vlan_device(link: &Link, bridge: &Link, id: u16) -> bool {
    link.kind == Some(LinkKind::Vlan { id, protocol: VlanProtocol::Customer })
        && link.peer == Some(bridge.index)
        && is_within_host(link)
}

/// Whether the other end of a veth is on the host too. If not, its index belongs to another namespace.
fn is_within_host(veth: &Link) -> bool {
    veth.peer_netns_id.is_none()
}

/// Name of the port at the other end. Must never change: DEL recognizes the interface by it.
fn port_name(gateway: &str) -> String {
    ownership::hashed_name("veth", [gateway])
}

fn gateway_name(bridge: &str, id: u16) -> Result<IfName> {
    IfName::parse(&format!("{bridge}.{id}")).map_err(|e| {
        Error::config(format!("bridge {bridge}: the gateway interface of VLAN {id} {e}"))
            .detail("choose a shorter name for the bridge")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_vlan_device_of_this_vlan_on_this_bridge_is_the_gateway() {
        let bridge = Link { index: 7, ..Link::default() };
        let of = |id| Some(LinkKind::Vlan { id, protocol: VlanProtocol::Customer });
        for (kind, peer, peer_netns_id, expected) in [
            (of(10), Some(7), None, true),
            (of(11), Some(7), None, false),
            (of(10), Some(8), None, false),
            (of(10), Some(7), Some(1), false),
            (Some(LinkKind::Veth), Some(7), None, false),
        ] {
            let link = Link { kind, peer, peer_netns_id, ..Link::default() };
            assert_eq!(is_vlan_device(&link, &bridge, 10), expected, "{link:?}");
        }
    }
}
