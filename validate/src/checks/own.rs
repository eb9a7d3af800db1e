//! Checks a plugin's configuration with the plugin's own code.

use cni::json;
use host_local::Conf;
use runtime::Network;
use runtime::text::{Node, Position, Tree};
use serde_json::{Value, json};

use super::Report;
use crate::ranges;
use crate::schema::{self, Plugin, Role};

impl Report<'_> {
    /// Reports the errors with which ADD of the plugin, or of its IPAM plugin, would refuse the configuration.
    pub(super) fn own(&mut self, node: &Node, index: usize, known: &Plugin) {
        let Some(network) = self.network else { return };
        let Some(plugin) = network.plugins.get(index) else { return };
        let Ok(request) = network.request(plugin) else { return };
        let ipam = node.get("ipam").and_then(|ipam| ipam.get("type")).and_then(Node::as_str);
        let ipam = ipam.filter(|_| known.role == Role::Interface);
        if ipam == Some("static") {
            self.addresses(node, plugin.capabilities.contains("ips"));
        }
        if known.name == "host-device" && !plugin.capabilities.contains("deviceID") {
            self.device(node);
        }
        if let Some((_, conf)) = ranges::of(network, plugin).filter(|_| known.role == Role::Interface) {
            self.gateways(node, &conf);
        }
        for part in [Some(known), ipam.and_then(schema::plugin)].into_iter().flatten() {
            let Err(e) = part.accepts(&request) else { continue };
            if part.accepts(&with_arguments(&request, plugin.capabilities.iter())).is_ok() {
                continue;
            }
            let help = Some(e.details().to_owned()).filter(|details| !details.is_empty());
            self.error(blamed(node, e.msg()), e.msg()).help = help;
        }
    }

    /// Warns of a configuration of static without an address: then each ADD request must contain one.
    fn addresses(&mut self, node: &Node, from_runtime: bool) {
        let Some(ipam) = node.get("ipam").filter(|_| !from_runtime) else { return };
        let listed = ipam.get("addresses").map(Node::items).unwrap_or_default();
        if !listed.iter().any(|entry| entry.get("address").is_some()) {
            let text = "no address: each request must contain one, in CNI_ARGS or args.cni.ips";
            self.warning(ipam.at, text).help =
                Some("add addresses, or \"capabilities\": {\"ips\": true}".to_owned());
        }
    }

    /// Warns of gateways that containers cannot reach. ADD logs the same warning.
    fn gateways(&mut self, node: &Node, conf: &Conf) {
        for range in conf.without_gateway() {
            let text = format!(
                "gateway {} is not in subnet {}, so containers cannot reach it",
                range.gateway, range.subnet
            );
            self.warning(blamed(node, &text), text).help = Some("choose an address of the subnet".to_owned());
        }
    }

    /// Reports a configuration of host-device without a key that selects the device.
    fn device(&mut self, node: &Node) {
        let keys = ["device", "hwaddr", "kernelpath", "pciBusID"];
        let is_given = |key: &str| node.get(key).and_then(Node::as_str).is_some_and(|text| !text.is_empty());
        if !keys.into_iter().any(is_given) {
            let text = "no device: set one of device, hwaddr, kernelpath and pciBusID";
            self.error(blamed(node, "type"), text).help = Some(
                "or add \"capabilities\": {\"deviceID\": true}, if the runtime selects the device".to_owned(),
            );
        }
    }

    /// Reports a file that no runtime can load although each of its parts is valid.
    pub(super) fn network(&mut self, root: &Node, read: &runtime::Result<Network>) {
        let Err(error) = read else { return };
        // A file without a name is a part of a network.
        if self.errors() == 0 && root.get("name").is_some() {
            self.error(root.at, error.to_string());
        }
    }
}

/// A request with an example of each capability argument that the runtime may fill in.
fn with_arguments<'a>(request: &[u8], capabilities: impl Iterator<Item = &'a String>) -> Vec<u8> {
    let Ok(mut request) = json::parse(request, "the request") else { return Vec::new() };
    let examples = capabilities.filter_map(|name| Some((name.clone(), example(name)?)));
    request["runtimeConfig"] = Value::Object(examples.collect());
    request.to_string().into_bytes()
}

/// An example of a capability argument that replaces a key, with addresses for documentation (RFC 5737). None for
/// other capabilities.
fn example(capability: &str) -> Option<Value> {
    match capability {
        "ipRanges" => Some(json!([[{"subnet": "192.0.2.0/24"}]])),
        "ips" => Some(json!(["192.0.2.2/24"])),
        "deviceID" => Some(json!("0000:00:00.0")),
        _ => None,
    }
}

/// The position of the key or value that a message names. Otherwise the position of the plugin.
pub(super) fn blamed(node: &Node, message: &str) -> Position {
    let words: Vec<&str> = message.split(|c: char| !c.is_alphanumeric() && !".:/-_".contains(c)).collect();
    let mut best = (0, node.get("type").map_or(node.at, |node| node.at));
    weigh(node, &words, &mut best);
    best.1
}

/// Finds the best match. A value that the message quotes has more weight than a key that it names.
fn weigh(node: &Node, words: &[&str], best: &mut (u32, Position)) {
    let named =
        |text: &str| words.iter().any(|word| word.trim_end_matches([':', '.']).eq_ignore_ascii_case(text));
    match &node.value {
        Tree::Object(members) => {
            for (at, key, value) in members {
                let quoted = match &value.value {
                    Tree::String(text) | Tree::Number(text) => named(text),
                    _ => false,
                };
                let weight = u32::from(named(key)) + 2 * u32::from(quoted);
                if weight > best.0 {
                    *best = (weight, if quoted { value.at } else { *at });
                }
                weigh(value, words, best);
            }
        }
        Tree::Array(items) => items.iter().for_each(|item| weigh(item, words, best)),
        _ => {}
    }
}
