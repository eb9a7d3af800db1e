//! Checks a network's configuration against the schema.

mod host;
mod names;
mod networks;
mod object;
mod own;
mod report;
mod value;

use cni::NetworkName;
use runtime::Network;
use runtime::text::{Node, Problem, Tree};

pub use self::networks::Ranges;
pub use self::report::{Finding, Level, Report};
use self::value::is_version;
use crate::schema::{self, Key, LIST, PLUGIN, Plugin, Role};

impl Report<'_> {
    /// Checks a document on its own: the parsed text, and the network as the runtime library has loaded it.
    pub fn document(&mut self, root: Option<&Node>, problems: Vec<Problem>, read: &runtime::Result<Network>) {
        self.problems(problems);
        if let Some(root) = root {
            self.check(root);
            self.network(root, read);
        }
    }

    /// Checks a file of a network's directory: the configuration of the last plugin of the network. `read` is the outcome of
    /// appending the plugin to the network.
    pub fn directory_plugin(
        &mut self,
        root: Option<&Node>,
        problems: Vec<Problem>,
        read: &runtime::Result<()>,
    ) {
        self.problems(problems);
        let Some(root) = root else { return };
        match root.value {
            Tree::Object(_) => {
                let last = self.network.and_then(|network| network.plugins.len().checked_sub(1));
                self.plugin(root, last.unwrap_or(usize::MAX));
            }
            _ => drop(self.error(root.at, format!("expected an object, found {}", root.value.kind()))),
        }
        if let Err(error) = read
            && self.errors() == 0
        {
            self.error(root.at, error.to_string());
        }
    }

    fn problems(&mut self, problems: Vec<Problem>) {
        for Problem { at, text } in problems {
            self.error(at, text);
        }
    }

    /// Checks a whole document.
    pub(crate) fn check(&mut self, root: &Node) {
        let Tree::Object(_) = root.value else {
            self.error(root.at, format!("expected an object, found {}", root.value.kind()));
            return;
        };
        let single = root.get("plugins").is_none() && root.get("type").is_some();
        if single && !self.is_list && root.get("name").is_none() {
            let text = "name is missing: the plugin can only be part of the network that has the name of \
             its directory";
            self.warning(root.at, text);
            return self.plugin(root, usize::MAX);
        }
        self.name(root);
        self.versions(root);
        if !single {
            self.keys(root, LIST.iter(), "a network's configuration");
            self.plugins(root);
        } else {
            if self.is_list {
                self.error(root.at, "a .conflist needs a list of plugins").help =
                    Some("move the plugin into \"plugins\": [ ]".to_owned());
            }
            self.plugin(root, 0);
        }
    }

    fn name(&mut self, root: &Node) {
        if let Some((node, Err(e))) =
            root.get("name").and_then(|node| Some((node, NetworkName::parse(node.as_str()?))))
        {
            self.error(node.at, format!("the network's name {e}"));
        } else if root.get("name").is_none() {
            self.error(root.at, "name is missing: the network's name");
        }
    }

    /// The runtime uses the highest version that it supports. It ignores the others, which may be for another runtime.
    fn versions(&mut self, root: &Node) {
        let (one, many) = (root.get("cniVersion"), root.get("cniVersions"));
        if one.is_none() && many.is_none() {
            let help = format!("say \"cniVersion\": \"{}\"", cni::Version::LATEST);
            let default = cni::Version::WHEN_ABSENT;
            let text = format!("no cniVersion: the default {default} has no chains, CHECK, GC and STATUS");
            self.warning(root.at, text).help = Some(help);
        }
        let many = many.map(Node::items).unwrap_or_default().iter().map(|node| ("cniVersions", node));
        let mut unsupported = None;
        for (key, node) in many.chain(one.map(|node| ("cniVersion", node))) {
            let Some(text) = node.as_str().filter(|text| !text.is_empty()) else { continue };
            match cni::Version::parse(text) {
                Ok(_) => return,
                Err(e) if is_version(text) => {
                    unsupported.get_or_insert((key, node.at, e));
                }
                // The check of the value reports it.
                Err(_) => {}
            }
        }
        if let Some((key, at, e)) = unsupported {
            let text = e.msg().trim_start_matches("cniVersion ");
            self.error(at, format!("{key}: {text} ({})", e.details()));
        }
    }

    fn plugins(&mut self, root: &Node) {
        let Some(plugins) = root.get("plugins") else { return };
        let items = plugins.items();
        if items.is_empty() && matches!(plugins.value, Tree::Array(_)) {
            self.error(plugins.at, "the list of plugins is empty");
        }
        for (index, plugin) in items.iter().enumerate() {
            match plugin.value {
                Tree::Object(_) => self.plugin(plugin, index),
                _ => drop(self.error(
                    plugin.at,
                    format!("expected a plugin's configuration, found {}", plugin.value.kind()),
                )),
            }
        }
        self.names(items);
    }

    /// Checks the plugin at a position of its list.
    fn plugin(&mut self, node: &Node, index: usize) {
        let before = self.errors();
        let known = self.described(node, index);
        if let Some(known) = known.filter(|_| self.errors() == before) {
            self.own(node, index, known);
            self.of_host(node, index, known);
        }
    }

    /// Checks a plugin against the schema. Returns the plugin if it belongs to the suite.
    fn described(&mut self, node: &Node, index: usize) -> Option<&'static Plugin> {
        let Some(known) = self.kind(node, "type", |plugin| plugin.role != Role::Ipam) else {
            // For a plugin of another vendor, check only the keys that all plugins have, without `ipam`: the plugin
            // may extend it, as Calico does with "usePodCidr".
            self.values(node, PLUGIN.iter().filter(|key| key.name != "ipam"));
            return None;
        };
        if known.role == Role::Chained && index == 0 {
            let at = node.get("type").map_or(node.at, |node| node.at);
            self.error(at, format!("{} needs an earlier plugin, and is the first of its list", known.name));
        }
        let inlined = node
            .get("plugins")
            .is_none()
            .then_some(LIST)
            .into_iter()
            .flatten()
            .filter(|_| index == 0 && node.get("name").is_some());
        // flannel's own key `ipam` replaces the common one.
        let common = PLUGIN.iter().filter(|key| schema::find(known.keys, key.name).is_none());
        let keys: Vec<&Key> = known.keys.iter().chain(common).chain(inlined).collect();
        self.keys(node, keys.iter().copied(), &format!("plugin {}", known.name));
        self.capabilities(node, known);
        if known.name == "portmap" && index != 0 && node.get("capabilities").is_none() {
            let at = node.get("type").map_or(node.at, |node| node.at);
            let text = "portmap receives no ports: it does not declare the capability portMappings";
            self.warning(at, text).help = Some("add \"capabilities\": {\"portMappings\": true}".to_owned());
        }
        self.reserved(node);
        Some(known)
    }

    fn reserved(&mut self, node: &Node) {
        let Tree::Object(members) = &node.value else { return };
        let own = ["runtimeConfig", "prevResult"];
        let is_reserved =
            |name: &str| name.starts_with("cni.dev/") || own.iter().any(|own| own.eq_ignore_ascii_case(name));
        for (at, name, _) in members.iter().filter(|(_, name, _)| is_reserved(name)) {
            self.warning(*at, format!("{name} is set by the runtime: remove it"));
        }
    }

    fn capabilities(&mut self, node: &Node, plugin: &Plugin) {
        let Some(declared) = node.get("capabilities") else { return };
        // The capabilities of a delegating plugin depend on its delegate, which is not known here.
        if plugin.role == Role::Delegating {
            return;
        }
        let ipam = node.get("ipam").and_then(|ipam| ipam.get("type")).and_then(Node::as_str);
        // The capabilities of another vendor's IPAM plugin are not known.
        let Some(ipam) = ipam.map_or(Some(None), |name| schema::plugin(name).map(Some)) else { return };
        let delegate = ipam.map(|ipam| ipam.capabilities).unwrap_or_default();
        let Tree::Object(members) = &declared.value else { return };
        let known = || plugin.capabilities.iter().chain(delegate).copied();
        for (at, name, _) in members.iter().filter(|(_, name, _)| !known().any(|k| k == name)) {
            let help = schema::nearest(name, known()).map(|near| format!("did you mean {near:?}?"));
            self.warning(*at, format!("plugin {} does not use the capability {name:?}", plugin.name)).help =
                help;
        }
    }
}

#[cfg(test)]
mod tests;
