//! The bridge's port: the host's end of a new veth pair, or a link of an earlier plugin of the chain.

use std::collections::BTreeMap;
use std::path::PathBuf;

use cni::{Add, AddResult, AsWritten, Check, Code, Del, Error, Failures, Interface, Result, Undo};
use iface::{Namespace, attach, ownership, verify as shared, veth};
use netlink::{BridgeVlan, Link, LinkChange, LinkKind, PortChange, RouteFilter};

use crate::conf::{self, Conf, Vlans};

/// A port and the container's interface behind it.
pub struct Port {
    /// The port, on the host.
    pub host: Link,
    /// The interface in the container. Behind an adopted port there may be none, for example a virtual machine.
    pub container: Option<Link>,
    /// Whether an earlier plugin of the chain created it.
    pub adopted: bool,
    /// Whether it is the host's uplink, which only `allowUplinkPort` permits.
    pub is_uplink: bool,
}

/// A link on the host that an earlier plugin of the chain created.
pub struct EarlierLink {
    link: Link,
    is_uplink: bool,
}

impl Port {
    /// Interfaces that the result does not list yet.
    pub fn new_interfaces(
        &self,
        host: &Namespace,
        sandbox: &Namespace,
        call: &Add<Conf>,
    ) -> Result<Vec<Interface>> {
        let ifname = &call.attachment.ifname;
        let listed = call.prev_result.container_interface(ifname).is_some();
        let end = (!self.adopted).then(|| host.to_interface(&self.host));
        let container = self.container.as_ref().filter(|_| !(self.adopted && listed));
        let container = container.map(|link| attach::interface(&call.net, sandbox, link)).transpose()?;
        Ok(end.into_iter().chain(container).collect())
    }

    /// The port, if it is neither the host's uplink nor new.
    pub fn adopted_of_chain(&self) -> Option<&Link> {
        Some(&self.host).filter(|_| self.adopted && !self.is_uplink)
    }

    /// Waits for the kernel's events that both ends can carry packets. With STP, the bridge forwards them later.
    pub fn wait_until_up(&self, host: &Namespace, sandbox: &Namespace) -> Result<()> {
        match &self.container {
            // A link to a virtual machine carries nothing before the machine starts.
            Some(container) if !self.adopted => veth::wait_until_up((host, &self.host), (sandbox, container)),
            _ => Ok(()),
        }
    }
}

/// Finds the interface on the host that an earlier plugin of the chain created (CONVENTIONS.md, "Chained Plugins").
///
/// # Errors
/// Code 7 if the link does not exist, or is the host's uplink, which would cut off the host as a port.
pub fn find_link_of_earlier_plugin(host: &Namespace, call: &Add<Conf>) -> Result<Option<EarlierLink>> {
    let Some(interface) = in_host(host, &call.prev_result, &call.conf.bridge, Some(&call.netns)).pop() else {
        return Ok(None);
    };
    let link = host.nl.link(&interface.name)?.ok_or_else(|| {
        Error::config(format!("prevResult: the host has no interface {}", interface.name))
            .detail("an earlier plugin made that interface, which should become the bridge's port")
    })?;
    match uplink(host, &link)? {
        None => Ok(Some(EarlierLink { link, is_uplink: false })),
        Some(_) if call.conf.allow_uplink => Ok(Some(EarlierLink { link, is_uplink: true })),
        Some(why) => {
            let bridge = &call.conf.bridge;
            let text = format!(
                "prevResult: interface {} {why}, so it is not made a port of bridge {bridge}",
                link.name
            );
            Err(Error::config(text)
                .detail("the host could lose its own network; set allowUplinkPort to allow this"))
        }
    }
}

/// Interfaces of a result on the host, except the bridge. Without any, and if the container is the host itself (CNI_NETNS_OVERRIDE), the
/// container's interfaces.
fn in_host<'a>(
    host: &Namespace,
    result: &'a AddResult,
    bridge: &str,
    netns: Option<&PathBuf>,
) -> Vec<&'a Interface> {
    let outside: Vec<_> = result.host_interfaces().filter(|i| i.name != bridge).collect();
    if outside.is_empty() && !result.interfaces.is_empty() && netns.is_some_and(|path| host.is_at(path)) {
        return result.interfaces.iter().filter(|i| i.name != bridge).collect();
    }
    outside
}

/// Why a link is the host's uplink. Plugins create links of a kind; physical links have none.
fn uplink(host: &Namespace, link: &Link) -> Result<Option<&'static str>> {
    if link.kind.is_none() {
        return Ok(Some("is a physical device"));
    }
    let routes = host.nl.routes(RouteFilter { link: Some(link.index), table: None })?;
    Ok(routes.iter().any(|route| route.dst.prefix() == 0).then_some("has a default route"))
}

/// Makes a link of an earlier plugin a port of the bridge.
pub fn adopt(
    host: &Namespace,
    bridge: &Link,
    EarlierLink { link, is_uplink }: EarlierLink,
    call: &Add<Conf>,
    sandbox: &Namespace,
    undo: &mut Undo,
) -> Result<Port> {
    if let Some(other) = link.master.filter(|master| *master != bridge.index) {
        return Err(Error::new(
            Code::Internal,
            format!("link {} already has another master, interface index {other}", link.name),
        )
        .detail(format!(
            "`ip link` shows the master; run `ip link set {} nomaster` to remove the link from it",
            link.name
        )));
    }
    let before = LinkChange {
        master: Some(0).filter(|_| link.master.is_none()),
        up: Some(false).filter(|_| !link.up),
        ..LinkChange::default()
    };
    let (nl, changed) = (host.nl.clone(), link.clone());
    undo.push(move || nl.change_link(&changed, &before));
    let join = LinkChange { master: Some(bridge.index), up: Some(true), ..LinkChange::default() };
    host.nl.change_link(&link, &join)?;
    let container = sandbox.nl.link(&call.attachment.ifname)?;
    Ok(Port { host: Link { master: Some(bridge.index), ..link }, container, adopted: true, is_uplink })
}

/// The change that takes a port out of its bridge.
fn no_master() -> LinkChange<'static> {
    LinkChange { master: Some(0), ..LinkChange::default() }
}

/// Creates a veth pair.
pub fn create(
    host: &Namespace,
    sandbox: &Namespace,
    call: &Add<Conf>,
    spec: veth::Spec<'_>,
    undo: &mut Undo,
) -> Result<Port> {
    let pair = veth::create(host, sandbox, &call.net.name, &call.attachment, spec, undo)?;
    // The host receives the container's router advertisements if the port leaves the bridge, for example because the bridge is deleted.
    host.ignore_router_advertisements(&pair.host)?;
    Ok(Port { host: pair.host, container: Some(pair.container), adopted: false, is_uplink: false })
}

/// Sets the port's modes and VLANs. The container's end of a new veth pair is still down, so it forwards no frame
/// before. An adopted link may already forward frames.
pub fn configure(host: &Namespace, port: &Link, conf: &Conf) -> Result<()> {
    // Both are off for a new port.
    if conf.hairpin || conf.isolated {
        host.nl
            .change_port(port, PortChange { hairpin: Some(conf.hairpin), isolated: Some(conf.isolated) })?;
    }
    match &conf.vlans {
        Some(vlans) => set_vlans(host, port, vlans),
        None => Ok(()),
    }
}

/// Adds a port to these VLANs and removes it from all others.
pub fn set_vlans(host: &Namespace, port: &Link, vlans: &Vlans) -> Result<()> {
    let requested = memberships(vlans);
    if !vlans.keep_default {
        for other in host.nl.vlans_of(port)?.iter().filter(|vlan| !requested.contains(vlan)) {
            host.nl.delete_vlan(port, other)?;
        }
    }
    for vlan in &requested {
        host.nl.add_vlan(port, vlan)?;
    }
    Ok(())
}

fn memberships(vlans: &Vlans) -> Vec<BridgeVlan> {
    let tagged = vlans.tagged.iter().map(|ids| BridgeVlan::tagged(ids.clone()));
    // Last, so that a trunk that contains the native VLAN does not tag its frames.
    tagged.chain([BridgeVlan::native(vlans.native)]).collect()
}

/// Checks the port's state, bridge, modes and VLANs, and returns the container's interface behind it.
pub fn verify(
    host: &Namespace,
    bridge: &Link,
    sandbox: &Namespace,
    call: &Check<Conf>,
) -> Result<Option<Link>> {
    let listed = call.prev_result.container_interface(&call.attachment.ifname);
    let container = listed.map(|listed| shared::interface(sandbox, listed)).transpose()?;
    if let (Some(link), Some(listed)) = (&container, listed) {
        shared::mtu(link, call.conf.mtu.expected(listed))?;
        if !call.conf.container_down {
            shared::up(link)?;
        }
    }
    let port = find(host, bridge, call, container.as_ref())?;
    if port.master != Some(bridge.index) {
        return Err(shared::differs(&port, "bridge", &bridge.name, "missing or different"));
    }
    shared::up_on_host(&port)?;
    for (mode, requested, is) in
        [("hairpin mode", call.conf.hairpin, port.hairpin), ("isolation", call.conf.isolated, port.isolated)]
    {
        if requested && is == Some(false) {
            return Err(shared::differs(&port, mode, "on", "off"));
        }
    }
    call.conf.vlans.as_ref().map_or(Ok(()), |vlans| verify_vlans(host, bridge, &port, vlans))?;
    Ok(container)
}

/// Checks that the bridge separates VLANs, and the port's VLANs. Of a port that the reference created, only the native VLAN: the reference
/// does not turn on filtering on an existing bridge, and some releases keep VLAN 1.
fn verify_vlans(host: &Namespace, bridge: &Link, port: &Link, vlans: &Vlans) -> Result<()> {
    let found = host.nl.vlans_of(port)?;
    verify_native_vlan(port, &found, vlans.native)?;
    if port.is("veth") && !ownership::is_owned(port) {
        return Ok(());
    }
    if bridge.kind != Some(LinkKind::Bridge { vlan_filtering: true }) {
        return Err(shared::differs(bridge, "VLAN filtering", "on", "off"));
    }
    let (expected, found) = (by_id(&memberships(vlans)), by_id(&found));
    if let Some((id, _)) = expected.iter().find(|(id, vlan)| found.get(id) != Some(vlan)) {
        return Err(shared::differs(port, &format!("VLAN {id}"), "set", "missing or different"));
    }
    match found.keys().find(|id| !vlans.keep_default && !expected.contains_key(id)) {
        Some(id) => Err(shared::differs(port, &format!("VLAN {id}"), "unset", "set")),
        None => Ok(()),
    }
}

/// Checks the VLAN of a port's untagged frames.
pub fn verify_native_vlan(port: &Link, found: &[BridgeVlan], id: u16) -> Result<()> {
    if found.contains(&BridgeVlan::native(id)) {
        return Ok(());
    }
    Err(shared::differs(port, "native VLAN", &id.to_string(), "missing or different"))
}

/// The VLANs one by one, each with its attributes: the kernel reports adjacent ones as a range. The last of several with one id counts.
fn by_id(vlans: &[BridgeVlan]) -> BTreeMap<u16, (bool, bool)> {
    vlans.iter().flat_map(|vlan| vlan.ids.clone().map(|id| (id, (vlan.pvid, vlan.untagged)))).collect()
}

/// The interface on the host, among those in the result, that leads to the container. It must have the result's hardware address. The others
/// are of later plugins, and may have changed or no longer exist.
fn find(host: &Namespace, bridge: &Link, call: &Check<Conf>, container: Option<&Link>) -> Result<Link> {
    let (mut ports, mut names) = (Vec::new(), Vec::new());
    for listed in in_host(host, &call.prev_result, &bridge.name, Some(&call.netns)) {
        ports.extend(host.nl.link(&listed.name)?.map(|port| (port, listed)));
        names.push(&*listed.name);
    }
    let leads_to =
        |(port, _): &&(Link, _)| container.is_none_or(|c| !port.is("veth") || c.peer == Some(port.index));
    let is_on_bridge = |(port, _): &&(Link, _)| port.master == Some(bridge.index);
    let found = ports.iter().filter(leads_to).find(is_on_bridge).or_else(|| ports.iter().find(leads_to));
    let (port, listed) = found.ok_or_else(|| {
        let text = format!("no port of bridge {} leads to {}", bridge.name, call.attachment.ifname);
        Error::new(Code::Internal, text).detail(format!("the result of ADD names {}", names.join(", ")))
    })?;
    shared::mac(port, listed)?;
    Ok(port.clone())
}

/// Whether a link is a port of the bridge of a DEL's configuration.
pub fn is_of_bridge(host: &Namespace, link: &Link, conf: &AsWritten) -> Result<bool> {
    let (Some(master), Some(name)) = (link.master, conf::bridge(conf)) else { return Ok(false) };
    Ok(host.nl.link(&name)?.is_some_and(|bridge| bridge.index == master))
}

/// Removes ports that ADD adopted from the bridge. ADD's result lists them. The host's uplink stays: other containers may use it, and an
/// administrator may have made it a port.
pub fn release_adopted(host: &Namespace, call: &Del) -> Result<()> {
    let (Some(prev), Some(name)) = (&call.prev_result, conf::bridge(&call.conf)) else { return Ok(()) };
    let Some(bridge) = host.nl.link(&name)? else { return Ok(()) };
    let mut failures = Failures::new();
    for interface in in_host(host, prev, &name, call.netns.as_ref()) {
        let link = failures.note(host.nl.link(&interface.name)).flatten();
        // A veth is not taken out of the bridge, because it is deleted: the pair of this attachment next, and a pair of an
        // earlier plugin by the DEL of that plugin.
        let port = link.filter(|link| !link.is("veth") && link.master == Some(bridge.index));
        let Some(port) = port else { continue };
        if shared::mac(&port, interface).is_err() {
            cni::warn(&format!(
                "{} stays a port of bridge {}, because its MAC is not the result's: another container's interface may have got the name. To \
                 remove it, run `ip link set {} nomaster`",
                port.name, bridge.name, port.name
            ));
            continue;
        }
        if failures.note(uplink(host, &port)) == Some(None) {
            failures.note(host.nl.change_link(&port, &no_master()));
        }
    }
    failures.into_result()
}
