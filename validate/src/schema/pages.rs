//! The tables of keys in docs/. `UPDATE_PAGES=1 cargo test --package validate pages` writes them; without this variable, the test compares.

use std::path::Path;
use std::{env, fs};

use cni::schema::paths;

use super::drift::argument_of;
use super::{Key, PLUGIN, Plugin, Role, Type, find, plugins};

/// The lines around a table. The test does not change the rest of a page.
const MARKS: [&str; 2] = ["<!-- keys -->\n", "<!-- /keys -->\n"];

#[test]
fn each_plugins_page_has_the_table_of_the_plugins_keys() {
    let mut stale = Vec::new();
    for plugin in plugins().filter(|plugin| !plugin.keys.is_empty()) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../docs/{}.md", plugin.name));
        let page = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let expected = with_table(plugin, &page);
        if page != expected && env::var_os("UPDATE_PAGES").is_some() {
            fs::write(&path, expected).unwrap();
        } else if page != expected {
            stale.push(plugin.name);
        }
    }
    assert!(
        stale.is_empty(),
        "the tables of {stale:?} differ from the plugins' keys: write them with UPDATE_PAGES=1"
    );
}

/// The page with the table of the plugin's keys.
fn with_table(plugin: &Plugin, page: &str) -> String {
    let parts =
        page.split_once(MARKS[0]).and_then(|(before, rest)| Some((before, rest.split_once(MARKS[1])?.1)));
    let (before, after) = parts.unwrap_or_else(|| panic!("the page of {} has no table of keys", plugin.name));
    let rows: String = listed(plugin).iter().map(|(path, key)| row(path, key, page)).collect();
    format!(
        "{before}{}\n| key | type | default | meaning |\n|---|---|---|---|\n{rows}\n{}{after}",
        MARKS[0], MARKS[1]
    )
}

/// The keys with their paths: those of the plugin with all inner keys, `ipam` and `dns` of an interface plugin, and capability arguments.
fn listed(plugin: &Plugin) -> Vec<(String, &'static Key)> {
    let mut listed = paths(plugin.keys, "");
    if plugin.role == Role::Interface {
        let common = ["ipam", "dns"].map(|name| find(PLUGIN, name).unwrap());
        listed.extend(common.map(|key| (key.name.to_owned(), key)));
    }
    for capability in plugin.capabilities {
        let argument = argument_of(capability);
        // The objects in `ipRanges` are those in `ranges`.
        let is_known = |key: &Key| listed.iter().any(|(_, known)| known.name == key.name);
        let inner = if argument[1..].iter().all(|(_, key)| is_known(key)) { 1 } else { argument.len() };
        listed.extend_from_slice(&argument[..inner]);
    }
    listed
}

/// A row of the table. The key is a link if the page has a section or an anchor of its name.
fn row(path: &str, key: &Key, page: &str) -> String {
    let anchor = key.name.to_lowercase();
    let has_section =
        page.contains(&format!("<a id=\"{anchor}\">")) || page.contains(&format!("\n## {}\n", key.name));
    let name = if has_section { format!("[`{path}`](#{anchor})") } else { format!("`{path}`") };
    format!("| {name} | {} | {} | {} |\n", kind(key.takes), default(key), key.about)
}

/// A type in few words.
fn kind(takes: Type) -> String {
    match takes {
        Type::Bool | Type::BoolOrText => "boolean".to_owned(),
        Type::Number(0, high) if high >= i64::from(u32::MAX) - 1 => "number".to_owned(),
        Type::Number(low, high) => format!("{low} to {high}"),
        Type::OneOf(words) => words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", "),
        Type::Ip => "address".to_owned(),
        Type::Cidr => "address with prefix length".to_owned(),
        Type::IpOrCidr => "address or subnet".to_owned(),
        Type::Mac => "MAC address".to_owned(),
        Type::IfName | Type::LinkName => "interface name".to_owned(),
        Type::Path => "[absolute path](validate.md#relative-paths)".to_owned(),
        Type::List(inner) => format!("list of {}", kinds(*inner)),
        Type::Map(inner) => format!("object of {}", kinds(*inner)),
        Type::Object(_) | Type::Ipam | Type::IpamPart | Type::Delegate | Type::Plugin => "object".to_owned(),
        Type::Text | Type::Version => "string".to_owned(),
        Type::Any => "any".to_owned(),
    }
}

/// A type in the plural.
fn kinds(takes: Type) -> String {
    match takes {
        Type::Ip => "addresses".to_owned(),
        Type::IpOrCidr => "addresses or subnets".to_owned(),
        Type::List(inner) => format!("lists of {}", kinds(*inner)),
        other => format!("{}s", kind(other)),
    }
}

/// A default: a value as code, and words as they are.
fn default(key: &Key) -> String {
    let is_value = match key.takes {
        Type::OneOf(words) => words.contains(&key.default),
        Type::Bool => ["true", "false"].contains(&key.default),
        Type::Text | Type::IfName | Type::LinkName => {
            !key.default.contains(' ') && !["none", "unchanged"].contains(&key.default)
        }
        _ => key.default.starts_with(['/', '{']),
    };
    match key.default {
        "" => "required".to_owned(),
        value if is_value => format!("`{value}`"),
        words => words.to_owned(),
    }
}
