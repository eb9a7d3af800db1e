//! A container's interface that is a single link: a macvlan on its parent, a dummy without one.

use cni::{Add, Attachment, Code, Error, NetworkName, Result, Scope, Undo};
use netlink::{IpvlanMode, Link, LinkChange, LinkKind, Mac, NewLink};
use nix::errno::Errno;

use crate::parent::Parent;
use crate::{Namespace, creation, ownership};

/// Prefix of the names of unfinished links.
const TEMPORARY: &str = "tmp-";

/// A plugin's parameters of the link.
#[derive(Clone, Debug)]
pub struct Spec<'a> {
    /// Kind.
    pub kind: LinkKind,
    /// Parent.
    pub parent: Option<&'a Parent>,
    /// Hardware address. `None`: random, or the parent's.
    pub mac: Option<Mac>,
    /// MTU in bytes. `None`: the parent's, or the kernel's default.
    pub mtu: Option<u32>,
}

/// Creates the link, down, with the attachment's alias ([`ownership`]). This is the first effect of an ADD.
///
/// # Errors
/// Code 4 if the container has an interface of that name; other errors if the kernel refuses.
pub fn create<C>(sandbox: &Namespace, call: &Add<C>, spec: &Spec<'_>, undo: &mut Undo) -> Result<Link> {
    let (network, at) = (&call.net.name, &call.attachment);
    creation::refuse_taken_name(sandbox, at)?;
    let names = [at.ifname.to_string(), temporary_name(network, at)];
    let group = ownership::group(network);
    let made = match make(sandbox, &names[0], spec, group) {
        Err(e) if e.is_exists() => make_elsewhere(sandbox, &names[1], spec, group),
        other => other,
    };
    let link = made.map_err(|e| match e.is_unanswered() {
        true => creation::withdraw(sandbox, &names, &spec.kind, e.into()),
        false => explained(spec, e),
    })?;
    let (nl, made) = (sandbox.nl.clone(), link.clone());
    undo.push(move || nl.delete_link(&made));
    let alias = ownership::alias(network, at);
    let name = Some(names[0].as_str()).filter(|name| *name != link.name);
    let group = alias.is_some().then_some(0);
    let named = LinkChange { name, alias: alias.as_deref(), group, ..LinkChange::default() };
    sandbox.nl.change_link(&link, &named).map_err(|e| match e.is_exists() {
        true => creation::taken_name(sandbox, at, e.into()),
        false => e.into(),
    })?;
    let group = group.unwrap_or(link.group);
    Ok(Link { name: at.ifname.to_string(), alias: alias.unwrap_or_default(), group, ..link })
}

/// Name of an attachment's link until it is renamed to `CNI_IFNAME`.
pub(crate) fn temporary_name(network: &NetworkName, at: &Attachment) -> String {
    ownership::name(TEMPORARY, network, at)
}

/// Whether GC of a network deletes a link in the host's namespace.
pub(crate) fn is_taken(link: &Link, network: &NetworkName, scope: &Scope) -> bool {
    ownership::is_own_interface_taken(link, network, scope, |at| {
        [at.ifname.as_str(), &temporary_name(network, at)].contains(&link.name.as_str())
    })
}

/// Creates the link under a temporary name. Before Linux 6.15, the kernel looks for the name in the parent's namespace too, where `eth0`
/// usually exists.
fn make_elsewhere(
    sandbox: &Namespace,
    temporary: &str,
    spec: &Spec<'_>,
    group: u32,
) -> netlink::Result<Link> {
    // Left by an ADD that was killed before it renamed the link.
    if let Some(left) = sandbox.nl.link(temporary)? {
        sandbox.nl.delete_link(&left)?;
    }
    make(sandbox, temporary, spec, group)
}

/// Creates the link in the network's group, which identifies the owner until the link has its alias.
fn make(sandbox: &Namespace, name: &str, spec: &Spec<'_>, group: u32) -> netlink::Result<Link> {
    // The kernel looks for the parent in the socket's namespace.
    let home = spec.parent.map_or(sandbox, |parent| &parent.namespace);
    home.nl.create_link(&NewLink {
        parent: spec.parent.map(|parent| parent.link.index),
        mac: spec.mac.or_else(|| has_own_mac(&spec.kind).then(Mac::random)),
        mtu: spec.mtu,
        group: Some(group),
        target: spec.parent.filter(|parent| !parent.in_container).map(|_| sandbox.target()),
        ..NewLink::new(name, spec.kind.clone())
    })
}

/// Whether links of a kind have another hardware address than their parent.
fn has_own_mac(kind: &LinkKind) -> bool {
    matches!(kind, LinkKind::Dummy | LinkKind::Macvlan { .. })
}

fn explained(spec: &Spec<'_>, cause: netlink::Error) -> Error {
    let kind = spec.kind.name();
    let (module, or_so) = match &spec.kind {
        LinkKind::Vlan { .. } => ("8021q", "; or the master does not support VLANs, such as lo"),
        LinkKind::Ipvlan { mode: IpvlanMode::L3s, .. } => {
            (kind, "; or it was built without the mode l3s (CONFIG_IPVLAN_L3S)")
        }
        _ => (kind, ""),
    };
    match (cause.errno(), spec.parent.map(|parent| &parent.link.name)) {
        (Some(Errno::EOPNOTSUPP), _) => {
            Error::from(cause).detail(creation::missing_module(kind, module) + or_so)
        }
        (Some(Errno::EEXIST), Some(master)) => taken_id(&spec.kind, master, cause),
        (Some(Errno::EBUSY), Some(master)) => Error::from(cause).with_code(Code::InvalidConfig).detail(format!(
            "its master {master} is a port of a bridge or a bond, or has interfaces of another kind on it"
        )),
        (Some(Errno::EINVAL), Some(master)) => Error::from(cause).with_code(Code::InvalidConfig).detail(format!(
            "its master {master} is not an Ethernet link, or it has an interface in mode passthru already, which must be the only one"
        )),
        _ => cause.into(),
    }
}

/// Explains EEXIST if the name was free: the VLAN id is in use.
fn taken_id(kind: &LinkKind, master: &str, cause: netlink::Error) -> Error {
    let LinkKind::Vlan { id, .. } = kind else { return cause.into() };
    Error::config(format!("VLAN {id} of master {master} has an interface already, on the host or in a container"))
        .detail(format!(
            "{cause}; a VLAN of a master can have only one interface; for several containers, use bridge with the key vlan, or macvlan on {master}.{id}"
        ))
}

#[cfg(test)]
mod tests {
    use netlink::{IpvlanFlag, VlanProtocol};

    use super::*;

    #[test]
    fn a_vlan_and_an_ipvlan_keep_the_hardware_address_of_their_parent() {
        let vlan = LinkKind::Vlan { id: 5, protocol: VlanProtocol::Customer };
        let ipvlan = LinkKind::Ipvlan { mode: IpvlanMode::L2, flag: IpvlanFlag::Bridge };
        assert!(!has_own_mac(&vlan) && !has_own_mac(&ipvlan) && has_own_mac(&LinkKind::Dummy));
    }
}
