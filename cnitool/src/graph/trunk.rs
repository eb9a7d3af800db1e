//! What a container's interface hangs on.

use cni::{AddResult, Interface as Reported};
use netlink::{Link, LinkKind};

use crate::live::{Live, kind, state};

/// A bridge of the host, or another thing that several attachments share.
#[derive(Debug, PartialEq)]
pub struct Trunk {
    pub name: String,
    pub kind: String,
    pub state: &'static str,
    pub addresses: Vec<String>,
}

/// The trunk of an attachment, and the name of its end on the host if it has one. `inside` is the container's namespace
/// with the interface, as far as they are there.
pub fn of(
    result: &AddResult,
    host: &Live,
    inside: Option<(&Live, &Link)>,
    container: &str,
) -> (Trunk, Option<String>) {
    if let Some((live, link)) = inside {
        if let Some(parent) = live.parent(link, host) {
            let is_inside = link.peer_netns_id.is_none();
            return (
                if is_inside { of_container(parent, live, container) } else { of_link(parent, host) },
                None,
            );
        }
        if link.is("dummy") || link.name == "lo" {
            let nowhere =
                Trunk { name: "nowhere".to_owned(), kind: String::new(), state: "", addresses: Vec::new() };
            return (nowhere, None);
        }
    }
    let (shared, end) = sort(result, host);
    let trunk = shared.map_or_else(host_itself, |link| of_link(&link, host));
    (trunk, end.map(|interface| interface.name.clone()))
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

/// A master that is itself in the container (`linkInContainer`).
fn of_container(link: &Link, inside: &Live, container: &str) -> Trunk {
    Trunk { name: format!("{} of {container}", link.name), ..of_link(link, inside) }
}

/// Where the host's end of a veth is a port of nothing, as ptp makes it.
fn host_itself() -> Trunk {
    Trunk { name: "host".to_owned(), kind: "without a bridge".to_owned(), state: "up", addresses: Vec::new() }
}

/// Of a result's interfaces on the host: the bridge that is shared, and the host end that is a port of it. What the
/// kernel does not know any more is told by the order that plugins report them in: the bridge first.
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
