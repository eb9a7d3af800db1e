//! Checks that the interfaces in a configuration exist on this host.

use netlink::{Link, Netlink};
use runtime::text::{Node, Tree};

use super::Report;
use super::own::blamed;
use crate::schema::{self, Plugin};

/// The kernel's ETH_MIN_MTU: the minimum for IPv4 (RFC 791).
const ETHERNET_MTU_MIN: u32 = 68;

impl Report<'_> {
    /// Warns of a link that ADD would not find on this host. This is not an error, because the file may be for
    /// another host.
    pub(super) fn of_host(&mut self, node: &Node, index: usize, known: &Plugin) {
        let has = |key: &str| schema::find(known.keys, key).is_some();
        let text = |key: &str| node.get(key).and_then(Node::as_str).filter(|text| !text.is_empty());
        if self.network.is_none() {
            return;
        }
        // A sandboxed process may not be allowed to list the links.
        let Ok(host) = Netlink::open() else { return };
        let in_container = node.get("linkInContainer").is_some_and(|it| it.value == Tree::Bool(true));
        for key in ["master", "device"].into_iter().filter(|key| has(key) && !in_container) {
            if let Some(name) = text(key).filter(|name| matches!(host.link(name), Ok(None))) {
                let text = format!("{key} {name}: this interface does not exist on this host");
                self.warning(blamed(node, &text), text);
            }
        }
        self.mtu(node, text("master").and_then(|name| host.link(name).ok()?));
        if !has("master") || in_container || text("master").is_some() || index != 0 {
            return;
        }
        // The plugin's own key. The key `type` of `ipam` may come first.
        let kind = node.get("type").map_or(node.at, |kind| kind.at);
        if known.name == "vlan" {
            self.error(kind, "master is missing: no earlier plugin creates the parent interface of the VLAN");
        } else if matches!(host.default_route(), Ok(None)) {
            let text = "master is missing, and this host has no default route to select it";
            self.warning(kind, text);
        }
    }

    /// Warns of an MTU that exceeds the master's, or that is too small for most interfaces.
    fn mtu(&mut self, node: &Node, master: Option<Link>) {
        let Some((at, mtu)) = node.get("mtu").and_then(|mtu| Some((mtu.at, number(mtu)?))) else { return };
        if (1..ETHERNET_MTU_MIN).contains(&mtu) {
            self.warning(at, format!("mtu {mtu}: Ethernet interfaces have at least {ETHERNET_MTU_MIN}"));
        }
        if let Some(master) = master.filter(|master| mtu > master.mtu) {
            let (name, most) = (master.name, master.mtu);
            self.warning(at, format!("mtu {mtu} is more than {most}, the MTU of master {name} on this host"));
        }
    }
}

fn number(node: &Node) -> Option<u32> {
    let Tree::Number(text) = &node.value else { return None };
    text.parse().ok()
}
