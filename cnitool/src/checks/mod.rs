//! What can be wrong with a configuration, held against the schema.

mod value;

use std::path::PathBuf;

use cni::{NetworkName, PluginType};
use runtime::text::{Node, Place, Tree};
use serde_json::{Value, json};

use crate::schema::{self, Key, LIST, PLUGIN, Plugin, Role, Type};

/// Something that was found.
#[derive(Debug, PartialEq, Eq)]
pub struct Finding {
    pub at: Place,
    pub level: Level,
    pub text: String,
    /// What to do about it.
    pub help: Option<String>,
}

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// It does not work.
    Error,
    /// It works, but probably not as meant.
    Warning,
}

impl Level {
    pub fn name(self) -> &'static str {
        match self {
            Self::Error => "error:",
            Self::Warning => "warning:",
        }
    }
}

impl Finding {
    pub fn json(&self) -> Value {
        json!({
            "line": self.at.line,
            "column": self.at.column,
            "level": self.level.name().trim_end_matches(':'),
            "msg": self.text,
            "help": self.help,
        })
    }
}

/// Collects findings.
#[derive(Debug)]
pub struct Report<'a> {
    findings: Vec<Finding>,
    path: &'a [PathBuf],
    is_list: bool,
}

impl<'a> Report<'a> {
    /// Plugins are looked for in these directories. `is_list`: the file's name promises a list.
    pub fn new(path: &'a [PathBuf], is_list: bool) -> Self {
        Self { findings: Vec::new(), path, is_list }
    }

    pub fn error(&mut self, at: Place, text: impl Into<String>) -> &mut Finding {
        self.add(at, Level::Error, text.into())
    }

    pub fn warning(&mut self, at: Place, text: impl Into<String>) -> &mut Finding {
        self.add(at, Level::Warning, text.into())
    }

    /// Everything, in the order of the text.
    pub fn finish(mut self) -> Vec<Finding> {
        self.findings.sort_by_key(|finding| finding.at);
        self.findings
    }

    /// Checks a whole document.
    pub fn check(&mut self, root: &Node) {
        let Tree::Object(_) = root.value else {
            self.error(root.at, format!("expected an object, found {}", root.value.kind()));
            return;
        };
        let single = root.get("plugins").is_none() && root.get("type").is_some();
        if single && !self.is_list && root.get("name").is_none() {
            let text = "no name: the plugin can only be a part of the network whose name its folder has";
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

    fn add(&mut self, at: Place, level: Level, text: String) -> &mut Finding {
        self.findings.push(Finding { at, level, text, help: None });
        let last = self.findings.len() - 1;
        &mut self.findings[last]
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

    fn versions(&mut self, root: &Node) {
        if root.get("cniVersion").is_none() && root.get("cniVersions").is_none() {
            let help = format!("say \"cniVersion\": \"{}\"", cni::Version::LATEST);
            self.warning(
                root.at,
                "no cniVersion: 0.2.0 is spoken, which has no chains, CHECK, GC and STATUS",
            )
            .help = Some(help);
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
    }

    /// A plugin at a position of its list.
    fn plugin(&mut self, node: &Node, index: usize) {
        let Some(known) = self.kind(node, "type", |plugin| plugin.role != Role::Ipam) else {
            // Somebody else's plugin: only what all have in common is looked at.
            return self.values(node, PLUGIN.iter());
        };
        if known.role == Role::Chained && index == 0 {
            let at = node.get("type").map_or(node.at, |node| node.at);
            self.warning(
                at,
                format!("{} works on what an earlier plugin made, and is the first of its list", known.name),
            );
        }
        let inlined = node
            .get("plugins")
            .is_none()
            .then_some(LIST)
            .into_iter()
            .flatten()
            .filter(|_| index == 0 && node.get("name").is_some());
        let keys: Vec<&Key> = known.keys.iter().chain(PLUGIN).chain(inlined).collect();
        self.keys(node, keys.iter().copied(), &format!("plugin {}", known.name));
        self.capabilities(node, known);
        self.reserved(node);
    }

    fn reserved(&mut self, node: &Node) {
        let Tree::Object(members) = &node.value else { return };
        let is_reserved =
            |name: &str| name.starts_with("cni.dev/") || ["runtimeConfig", "prevResult"].contains(&name);
        for (at, name, _) in members.iter().filter(|(_, name, _)| is_reserved(name)) {
            self.warning(*at, format!("{name} is for the runtime to fill in"));
        }
    }

    fn capabilities(&mut self, node: &Node, plugin: &Plugin) {
        let Some(declared) = node.get("capabilities") else { return };
        let ipam = node
            .get("ipam")
            .and_then(|ipam| ipam.get("type"))
            .and_then(Node::as_str)
            .and_then(schema::plugin);
        let delegate = ipam.map(|ipam| ipam.capabilities).unwrap_or_default();
        let Tree::Object(members) = &declared.value else { return };
        let known = || plugin.capabilities.iter().chain(delegate).copied();
        for (at, name, _) in members.iter().filter(|(_, name, _)| !known().any(|k| k == name)) {
            let help = schema::nearest(name, known()).map(|near| format!("did you mean {near:?}?"));
            self.warning(*at, format!("plugin {} has no use for the capability {name:?}", plugin.name))
                .help = help;
        }
    }

    /// The plugin that a key names, if it is one of the suite.
    fn kind(&mut self, node: &Node, key: &str, fits: impl Fn(&Plugin) -> bool) -> Option<&'static Plugin> {
        let Some(kind) = node.get(key) else {
            self.error(node.at, "type is missing: the name of a plugin");
            return None;
        };
        let name = kind.as_str()?;
        let parsed = PluginType::parse(name);
        let known = schema::plugin(name);
        match parsed {
            Err(e) => drop(self.error(kind.at, format!("type {e}"))),
            Ok(parsed) => {
                if let Err(missing) = cni::exec::find(&parsed, self.path) {
                    let near = schema::nearest(name, schema::plugins().map(|plugin| plugin.name));
                    let near = near.filter(|_| known.is_none()).map(|near| format!("did you mean {near:?}?"));
                    self.error(kind.at, missing.msg()).help =
                        near.or_else(|| Some(missing.details().to_owned()));
                }
            }
        }
        if let Some(other) = known.filter(|plugin| !fits(plugin)) {
            self.error(kind.at, format!("{} is {}", other.name, other.role.name()));
        }
        known.filter(|plugin| fits(plugin))
    }

    /// All keys must be known ones, and have the values that they take.
    fn keys<'k>(&mut self, node: &Node, keys: impl Iterator<Item = &'k Key> + Clone, of: &str) {
        let Tree::Object(members) = &node.value else { return };
        for (at, name, _) in members.iter().filter(|(_, name, _)| schema::find(keys.clone(), name).is_none())
        {
            // A convention for comments, and keys that belong to runtimes.
            if name.starts_with('_') || name.starts_with("cni.dev/") {
                continue;
            }
            let near = schema::nearest(name, keys.clone().map(|key| key.name));
            self.warning(*at, format!("{of} has no key {name:?}")).help =
                near.map(|near| format!("did you mean {near:?}?"));
        }
        self.values(node, keys);
    }

    fn values<'k>(&mut self, node: &Node, keys: impl Iterator<Item = &'k Key>) {
        for key in keys {
            match node.get(key.name) {
                Some(value) if matches!(value.value, Tree::Null) => {}
                Some(value) => self.value(value, key.takes, key.name),
                // Their own messages say more.
                None if key.is_required() && !["name", "type"].contains(&key.name) => {
                    self.error(node.at, format!("{} is missing: {}", key.name, key.takes.describe()));
                }
                None => {}
            }
        }
    }

    fn ipam(&mut self, node: &Node) {
        let Tree::Object(members) = &node.value else {
            self.error(node.at, format!("ipam: expected an object, found {}", node.value.kind()));
            return;
        };
        // `"ipam": {}` is a way to say that there is none.
        if members.is_empty() {
            return;
        }
        let Some(known) = self.kind(node, "type", |plugin| plugin.role == Role::Ipam) else { return };
        let own = [&Key { name: "type", takes: Type::Text, default: "none", about: "" }];
        let keys: Vec<&Key> = known.keys.iter().chain(own).collect();
        self.keys(node, keys.iter().copied(), &format!("address plugin {}", known.name));
        if known.name == "host-local" && node.get("ranges").is_none() && node.get("subnet").is_none() {
            self.warning(
                node.at,
                "neither ranges nor subnet: all addresses must come from the runtime (ipRanges)",
            );
        }
    }
}

#[cfg(test)]
mod tests;
