//! Checks that containers can reach the server of the plugin dnsname.

use cni::addr;
use netlink::Netlink;
use runtime::text::{Node, Tree};

use super::Report;
use crate::schema::{self, Role};

/// The interface plugins of the suite whose containers reach addresses of their host.
const CONNECTED: [&str; 2] = ["bridge", "ptp"];

/// The name of a bridge without the key `bridge`.
const DEFAULT_BRIDGE: &str = "cni0";

impl Report<'_> {
    /// Reports a chain with dnsname if the host has no address in the containers' network: ADD of dnsname fails then.
    pub(super) fn names(&mut self, plugins: &[Node]) {
        let kinds = plugins.iter().filter_map(|plugin| plugin.get("type"));
        let Some(dnsname) = kinds.into_iter().find(|kind| kind.as_str() == Some("dnsname")) else { return };
        // Plugins of other vendors may create any interface.
        let is_main = |plugin: &&Node| {
            kind_of(plugin).and_then(schema::plugin).is_none_or(|known| known.role != Role::Chained)
        };
        let mut mains = plugins.iter().filter(is_main);
        let Some(main) = mains.next() else { return };
        let kind = kind_of(main).unwrap_or_default();
        let are_all_apart = mains.all(|main| kind_of(main).is_some_and(is_apart));
        if are_all_apart && is_apart(kind) {
            let text = format!("dnsname: containers of {kind} reach no address of their host");
            self.error(dnsname.at, text).help =
                Some("remove dnsname, or use bridge with isGateway, or ptp".to_owned());
        } else if are_all_apart && kind == "bridge" && !has_gateway(main) {
            let text = "dnsname: the bridge has no address, so ADD fails unless you add one to the bridge";
            self.warning(dnsname.at, text).help = Some("set isGateway of the plugin bridge".to_owned());
        }
    }
}

/// Whether containers of a plugin reach no address of their host. Plugins of other vendors may create any interface.
fn is_apart(kind: &str) -> bool {
    schema::plugin(kind).is_some_and(|known| known.role == Role::Interface && !CONNECTED.contains(&kind))
}

fn kind_of(plugin: &Node) -> Option<&str> {
    plugin.get("type")?.as_str()
}

/// Whether the plugin bridge adds an address to the bridge, or the administrator has added one on this host.
fn has_gateway(bridge: &Node) -> bool {
    let is_set = |key: &str| bridge.get(key).is_some_and(|value| matches!(value.value, Tree::Bool(true)));
    let name = bridge.get("bridge").and_then(Node::as_str).filter(|name| !name.is_empty());
    let has_address = || {
        let host = Netlink::open().ok()?;
        let link = host.link(name.unwrap_or(DEFAULT_BRIDGE)).ok()??;
        let addresses = host.addresses(Some(&link)).ok()?;
        Some(addresses.iter().any(|address| addr::can_be_reached(address.net.ip())))
    };
    is_set("isGateway") || is_set("isDefaultGateway") || has_address().unwrap_or_default()
}
