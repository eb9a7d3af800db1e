//! Checks objects against the keys in their schema: a plugin's configuration, its `ipam`, and nested objects.

use cni::PluginType;
use runtime::text::{Node, Tree};

use super::report::Report;
use super::value::{read, takes_text};
use crate::schema::{self, Key, PLUGIN, Plugin, Role, Type};

impl Report<'_> {
    /// The plugin that a key names, if it belongs to the suite and `fits` accepts it.
    pub(super) fn kind(
        &mut self,
        node: &Node,
        key: &str,
        fits: impl Fn(&Plugin) -> bool,
    ) -> Option<&'static Plugin> {
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
            self.error(kind.at, format!("{} is {}", other.name, other.role_name()));
        }
        known.filter(|plugin| fits(plugin))
    }

    /// Checks that all keys are known, and that their values have the right type.
    pub(super) fn keys<'k>(&mut self, node: &Node, keys: impl Iterator<Item = &'k Key> + Clone, of: &str) {
        let Tree::Object(members) = &node.value else { return };
        for (at, name, _) in members.iter().filter(|(_, name, _)| schema::find(keys.clone(), name).is_none())
        {
            // Names with `_` are a convention for comments. The other names belong to runtimes.
            if name.starts_with('_') || name.starts_with("cni.dev/") || is_runtimes(name) {
                continue;
            }
            let known = || keys.clone().map(|key| key.name);
            let near = schema::synonym(name).filter(|same| known().any(|key| key == *same));
            let near = near.or_else(|| schema::nearest(name, known()));
            self.warning(*at, format!("{of} has no key {name:?}")).help =
                near.map(|near| format!("did you mean {near:?}?"));
        }
        self.values(node, keys);
    }

    pub(super) fn values<'k>(&mut self, node: &Node, keys: impl Iterator<Item = &'k Key>) {
        for key in keys {
            match node.get(key.name) {
                Some(value) if matches!(value.value, Tree::Null) => {}
                Some(value) => self.value(value, key.takes, key.name),
                // Other checks report a missing name or type with more details.
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
        // `"ipam": {}` means that the network has no IPAM plugin.
        if members.is_empty() {
            return;
        }
        let Some(known) = self.kind(node, "type", |plugin| plugin.role == Role::Ipam) else { return };
        let own = [&Key { name: "type", takes: Type::Text, default: "none", about: "" }];
        let keys: Vec<&Key> = known.keys.iter().chain(own).collect();
        self.keys(node, keys.iter().copied(), &format!("IPAM plugin {}", known.name));
    }

    /// Checks the configuration of a delegate. The delegating plugin sets some of its keys, and `type` if it is
    /// missing.
    fn part(&mut self, node: &Node, name: &str, (default, role): (&str, Role), set: &[&str]) {
        let Tree::Object(members) = &node.value else {
            self.error(node.at, format!("{name}: expected an object, found {}", node.value.kind()));
            return;
        };
        for (at, key, _) in
            members.iter().filter(|(_, key, _)| set.iter().any(|set| key.eq_ignore_ascii_case(set)))
        {
            let remedy = match key.eq_ignore_ascii_case("ipam") {
                true => "put keys of the IPAM plugin under ipam, next to delegate",
                false => "remove it",
            };
            self.error(*at, format!("{name}.{key} must not be set: flannel sets it")).help =
                Some(remedy.to_owned());
        }
        if let Some(kind) = node.get("type").filter(|kind| kind.as_str() == Some("flannel")) {
            self.error(kind.at, format!("{name}.type: flannel cannot delegate to itself"));
            return;
        }
        let named = node.get("type").is_some();
        let known = if named {
            self.kind(node, "type", |plugin| plugin.role == role)
        } else {
            schema::plugin(default)
        };
        let Some(known) = known else { return };
        let common = PLUGIN.iter().filter(|key| role == Role::Interface || key.name == "type");
        let keys: Vec<&Key> = known.keys.iter().chain(common).collect();
        self.keys(node, keys.iter().copied(), &format!("plugin {}", known.name));
    }

    /// Checks that a value has its key's type. Checks the elements of lists and objects, too.
    fn value(&mut self, node: &Node, takes: Type, name: &str) {
        match (takes, &node.value) {
            (Type::Any | Type::Plugin, _) | (Type::Bool | Type::BoolOrText, Tree::Bool(_)) => {}
            (Type::Ipam, _) => self.ipam(node),
            (Type::IpamPart, _) => self.part(node, name, ("host-local", Role::Ipam), &[]),
            (Type::Delegate, _) => self.part(node, name, ("bridge", Role::Interface), &["name", "ipam"]),
            (Type::List(inner), Tree::Array(items)) => {
                for (i, item) in items.iter().enumerate() {
                    self.value(item, *inner, &format!("{name}[{i}]"));
                }
            }
            (Type::Object(keys), Tree::Object(_)) => self.keys(node, keys.iter(), name),
            (Type::Map(inner), Tree::Object(members)) => {
                for (_, key, value) in members {
                    self.value(value, *inner, &format!("{name}.{key}"));
                }
            }
            (Type::Number(low, high), Tree::Number(text)) => {
                if !text.parse::<i64>().is_ok_and(|n| (low..=high).contains(&n)) {
                    self.error(node.at, format!("{name}: {text} is not {}", takes.describe()));
                }
            }
            (Type::Path, Tree::String(text)) => {
                if let Some(warning) = schema::relative_path(text) {
                    self.warning(node.at, format!("{name}: {warning}"));
                }
            }
            (takes, Tree::String(text)) if takes_text(takes) => {
                if let Err(wrong) = read(takes, text) {
                    let finding = self.error(node.at, format!("{name}: {wrong}"));
                    if let Type::OneOf(words) = takes {
                        finding.help = schema::nearest(text, words.iter().copied())
                            .map(|near| format!("did you mean {near:?}?"));
                    }
                }
            }
            (_, other) => {
                let text = format!("{name}: expected {}, found {}", takes.describe(), other.kind());
                self.error(node.at, text).help = punctuation(takes, other).map(str::to_owned);
            }
        }
    }
}

/// The remedy for a value that is right but for its brackets or quotes.
fn punctuation(takes: Type, found: &Tree) -> Option<&'static str> {
    match (takes, found) {
        (Type::List(Type::Object(_) | Type::Plugin), Tree::Object(_)) => Some("put it into [ ]"),
        (Type::List(inner), Tree::String(_)) if takes_text(*inner) => Some("put it into [ ]"),
        (Type::Number(..), Tree::String(text)) if text.parse::<i64>().is_ok() => Some("remove the quotes"),
        (Type::Bool, Tree::String(text)) if text.parse::<bool>().is_ok() => Some("remove the quotes"),
        (Type::Text, Tree::Number(_) | Tree::Bool(_)) => Some("put it into double quotes"),
        _ => None,
    }
}

/// Whether a key is a mark of the runtime that wrote the configuration. Plugins ignore such keys.
fn is_runtimes(key: &str) -> bool {
    ["nerdctlID", "nerdctlLabels"].contains(&key)
}
