//! Trunks: the bridges, masters and other objects to which interfaces of containers are connected.

use cni::{AddResult, Interface as Reported};
use iface::ownership;
use netlink::{Link, LinkKind};

use crate::live::{Live, kind, state};

/// A bridge of the host, or another object that several attachments share.
#[derive(Debug, PartialEq)]
pub struct Trunk {
    pub name: String,
    pub kind: String,
    pub state: &'static str,
    pub addresses: Vec<String>,
}

/// The trunk of an attachment, and the name of its veth end on the host, if it has one. `inside` is the container's namespace and the
/// interface in it, if both exist.
pub fn of(
    result: &AddResult,
    host: &Live,
    inside: Option<(&Live, &Link)>,
    container: &str,
) -> (Trunk, Option<String>) {
    if let Some(trunk) = inside.and_then(|(live, link)| by_link_kind(link, live, host, container)) {
        return (trunk, None);
    }
    let (shared, end) = sort(result, host);
    match (shared, inside.filter(|(_, link)| end.is_none() && is_moved(link))) {
        (None, Some((_, link))) => (moved(link, container), None),
        (shared, _) => {
            let trunk = shared.map_or_else(host_itself, |link| of_link(&link, host));
            (trunk, end.map(|interface| interface.name.clone()))
        }
    }
}

/// The trunk of a container's link, if the link's kind shows it.
fn by_link_kind(link: &Link, inside: &Live, host: &Live, container: &str) -> Option<Trunk> {
    if let Some(parent) = inside.parent(link, host) {
        let is_inside = link.peer_netns_id.is_none();
        return Some(if is_inside { of_container(parent, inside, container) } else { of_link(parent, host) });
    }
    match link.kind {
        Some(LinkKind::Tun(_)) => {
            let bridge = inside.master(link);
            Some(bridge.map_or_else(programs, |bridge| of_container(bridge, inside, container)))
        }
        Some(LinkKind::Dummy) => Some(unconnected("nowhere", "")),
        _ if link.name == "lo" => Some(unconnected("nowhere", "")),
        _ => None,
    }
}

/// Whether host-device has moved a link into the container: it is physical, or its alias is its name on the host.
fn is_moved(link: &Link) -> bool {
    link.kind.is_none() || !(link.alias.is_empty() || ownership::is_owned(link))
}

/// A device that was moved into the container, by its name on the host.
fn moved(link: &Link, container: &str) -> Trunk {
    let name = if link.alias.is_empty() { &link.name } else { &link.alias };
    Trunk { name: format!("{name} of {container}"), state: state(link), ..unconnected("", "moved device") }
}

fn of_link(link: &Link, live: &Live) -> Trunk {
    let addresses = live.addresses_of(link).filter(|address| address.scope == 0);
    Trunk {
        name: link.name.clone(),
        kind: kind(link).unwrap_or_else(|| "device".to_owned()),
        state: if link.index == 0 { "gone" } else { state(link) },
        addresses: addresses.map(|address| address.net.to_string()).collect(),
    }
}

/// A master that is in the container itself (`linkInContainer`), or a tap's bridge in the container.
fn of_container(link: &Link, inside: &Live, container: &str) -> Trunk {
    Trunk { name: format!("{} of {container}", link.name), ..of_link(link, inside) }
}

/// The trunk of a veth whose host end is not a port, as ptp creates it.
fn host_itself() -> Trunk {
    Trunk { state: "up", ..unconnected("host", "without a bridge") }
}

/// The trunk of taps that are not ports of a bridge: the programs that open them.
fn programs() -> Trunk {
    unconnected("programs", "behind taps")
}

/// The trunk of an attachment without a link.
fn unconnected(name: &str, kind: &str) -> Trunk {
    Trunk { name: name.to_owned(), kind: kind.to_owned(), state: "", addresses: Vec::new() }
}

/// Finds the shared bridge and the host end that is its port, among a result's interfaces on the host. If the kernel
/// has deleted the links, their order in the result decides: plugins report the bridge first.
fn sort<'a>(result: &'a AddResult, host: &Live) -> (Option<Link>, Option<&'a Reported>) {
    let on_host: Vec<&Reported> = result.host_interfaces().collect();
    let is_bridge = |name: &str| host.link(name).is_some_and(|link| link.is("bridge"));
    let end = on_host.iter().rfind(|i| !is_bridge(&i.name)).copied();
    let master = end.and_then(|end| host.master(host.link(&end.name)?));
    let reported = on_host.iter().find_map(|i| host.link(&i.name).filter(|link| link.is("bridge")));
    if let Some(link) = master.or(reported) {
        return (Some(link.clone()), end);
    }
    match on_host[..] {
        [shared, .., end] => {
            let kind = Some(LinkKind::Bridge { vlan_filtering: false });
            let gone = Link { name: shared.name.clone(), kind, ..Link::default() };
            (Some(gone), Some(end))
        }
        _ => (None, end),
    }
}
