//! Converts the tables to JSON Schema (draft 2020-12), for editors and for validators of other programs: `cnitool
//! schema`, docs/schema/.
//!
//! A schema contains the rules that do not depend on the host, and is a little less strict than `validate`. For
//! example, it checks the format of an address but not its value. Each configuration that `validate` accepts is valid
//! by the schema.

use serde_json::{Map, Value, json};

use super::{Key, LIST, PLUGIN, Plugin, Role, Type, plugins};

const DRAFT: &str = "https://json-schema.org/draft/2020-12/schema";

/// The file name of a network's schema, without its extension.
pub const NETWORK: &str = "network";

/// All schemas by file name without extension: the one of a network, and one for each plugin.
pub fn all() -> impl Iterator<Item = (&'static str, Value)> {
    [(NETWORK, network())].into_iter().chain(plugins().map(|plugin| (plugin.name, document(plugin))))
}

/// A schema as the text of its file. A value that fits into a line is on one line.
pub fn as_file(schema: &Value) -> String {
    broken(schema, 0) + "\n"
}

fn broken(value: &Value, depth: usize) -> String {
    const WIDTH: usize = 140;
    let flat = value.to_string();
    if 2 * depth + flat.len() <= WIDTH {
        return flat;
    }
    let inner = |value| broken(value, depth + 1);
    let (open, items, close) = match value {
        Value::Object(members) => (
            '{',
            members.iter().map(|(key, value)| format!("{}: {}", json!(key), inner(value))).collect(),
            '}',
        ),
        Value::Array(items) => ('[', items.iter().map(inner).collect::<Vec<_>>(), ']'),
        _ => return flat,
    };
    let (margin, next) = ("  ".repeat(depth), "  ".repeat(depth + 1));
    format!("{open}\n{next}{}\n{margin}{close}", items.join(&format!(",\n{next}")))
}

/// The schema of a network's configuration, a `.conflist`.
fn network() -> Value {
    let mut schema = object(LIST.iter());
    schema["properties"]["plugins"] = json!({"description": "The plugins, in the order of ADD.", "type": "array", "minItems": 1, "items": {"$ref": "#/$defs/plugin"}});
    // flannel has its own key `ipam`, so each plugin's schema contains this key.
    let mut plugin = object(PLUGIN.iter().filter(|key| key.name != "ipam"));
    plugin["allOf"] = chosen_by_type(|plugin| plugin.role != Role::Ipam);
    let mut defs = ipam_plugins();
    defs.insert("plugin".to_owned(), plugin);
    defs.extend(definitions(|plugin| plugin.role != Role::Ipam));
    headed(NETWORK, "The configuration of a network: a .conflist file.", schema, defs)
}

/// The schema of a plugin's own object: a `.conf` file, or an item of `plugins`. For an IPAM plugin, the object
/// `ipam`.
fn document(plugin: &Plugin) -> Value {
    let mut defs = if takes_ipam(plugin) { ipam_plugins() } else { Map::new() };
    if plugin.role == Role::Delegating {
        defs.extend(definitions(|plugin| plugin.role == Role::Interface));
    }
    let mut schema = keys_of(plugin);
    match schema["required"].as_array_mut() {
        Some(required) => required.push("type".into()),
        None => schema["required"] = json!(["type"]),
    }
    headed(plugin.name, plugin.about, schema, defs)
}

fn definitions(fits: impl Fn(&Plugin) -> bool) -> impl Iterator<Item = (String, Value)> {
    plugins().filter(move |plugin| fits(plugin)).map(|plugin| (plugin.name.to_owned(), keys_of(plugin)))
}

fn headed(name: &str, about: &str, mut schema: Value, defs: Map<String, Value>) -> Value {
    schema["$schema"] = DRAFT.into();
    schema["$id"] = format!("urn:ferrule:cni:{name}").into();
    schema["title"] = name.into();
    schema["description"] = about.into();
    if !defs.is_empty() {
        schema["$defs"] = defs.into();
    }
    schema
}

/// The schemas of the object `ipam` and of the IPAM plugins.
fn ipam_plugins() -> Map<String, Value> {
    let is_ipam = |plugin: &Plugin| plugin.role == Role::Ipam;
    let ipam = json!({
        "description": "An IPAM plugin, and its keys. {} is none.",
        "type": ["object", "null"],
        "if": {"type": "object", "minProperties": 1},
        "then": {"required": ["type"], "properties": {"type": text("")}, "allOf": chosen_by_type(is_ipam)},
    });
    [("ipam".to_owned(), ipam)].into_iter().chain(definitions(is_ipam)).collect()
}

/// Selects the schema by the plugin's type. Plugins of other vendors are not checked.
fn chosen_by_type(fits: impl Fn(&Plugin) -> bool) -> Value {
    let one = |plugin: &Plugin| {
        json!({
            "if": {"type": "object", "required": ["type"], "properties": {"type": {"const": plugin.name}}},
            "then": {"$ref": format!("#/$defs/{}", plugin.name)},
        })
    };
    plugins().filter(|plugin| fits(plugin)).map(one).collect()
}

/// The configuration of a delegate. The delegating plugin sets some of its keys, and `type` if it is missing.
fn part(default: &str, role: Role, set: &[&str]) -> Value {
    let set: Map<String, Value> = set.iter().map(|key| ((*key).to_owned(), false.into())).collect();
    json!({
        "type": "object",
        "properties": set,
        "allOf": chosen_by_type(|plugin| plugin.role == role),
        "if": {"not": {"required": ["type"]}},
        "then": {"$ref": format!("#/$defs/{default}")},
    })
}

/// Whether a plugin calls an IPAM plugin. A chained plugin reads the addresses in `prevResult` instead.
fn takes_ipam(plugin: &Plugin) -> bool {
    matches!(plugin.role, Role::Interface | Role::Delegating)
}

/// The schema of all keys. `type` is not required here: the schemas that require it add it.
fn keys_of(plugin: &Plugin) -> Value {
    let fits = |key: &&Key| match plugin.role {
        Role::Ipam => key.name == "type",
        _ => key.name != "ipam" || takes_ipam(plugin),
    };
    let common = PLUGIN.iter().filter(fits);
    let own = common.filter(|key| super::find(plugin.keys, key.name).is_none()).chain(plugin.keys);
    let mut schema = object(own);
    if let Some(required) = schema["required"].as_array_mut() {
        required.retain(|name| name != "type");
    }
    schema
}

fn object<'k>(keys: impl Iterator<Item = &'k Key>) -> Value {
    let (mut properties, mut required) = (Map::new(), Vec::new());
    for key in keys {
        properties.insert(key.name.to_owned(), property(key));
        if key.is_required() {
            required.push(key.name);
        }
    }
    let mut schema = json!({"type": "object", "properties": properties});
    if !required.is_empty() {
        schema["required"] = required.into();
    }
    schema
}

/// The schema of a key. A null value is treated as unset.
fn property(key: &Key) -> Value {
    let mut schema = value(key.takes);
    match schema.get_mut("type") {
        Some(Value::Array(types)) => types.push("null".into()),
        Some(one) => *one = json!([one.take(), "null"]),
        None => {}
    }
    if let Some(words) = schema.get_mut("enum").and_then(Value::as_array_mut) {
        words.push(Value::Null);
    }
    schema["description"] = match key.default {
        "" => format!("{} Required.", key.about),
        default => format!("{} Default: {default}.", key.about),
    }
    .into();
    schema
}

/// The schema of a value. Plugins treat an empty string as unset, so all string formats allow it.
fn value(takes: Type) -> Value {
    const IP: &str = r"([0-9]{1,3}(\.[0-9]{1,3}){3}|[0-9A-Fa-f:]*:[0-9A-Fa-f:.]*)";
    match takes {
        Type::Any | Type::Plugin => json!({}),
        Type::Ipam => json!({"$ref": "#/$defs/ipam"}),
        Type::IpamPart => part("host-local", Role::Ipam, &[]),
        Type::Delegate => part("bridge", Role::Interface, &["name", "ipam"]),
        Type::Bool => json!({"type": "boolean"}),
        Type::BoolOrText => {
            json!({"type": ["boolean", "string"], "pattern": "^([Tt][Rr][Uu][Ee]|[Ff][Aa][Ll][Ss][Ee])?$"})
        }
        Type::Number(low, i64::MAX) => json!({"type": "integer", "minimum": low}),
        Type::Number(low, high) => json!({"type": "integer", "minimum": low, "maximum": high}),
        Type::OneOf(words) => json!({"enum": words.iter().chain(&[""]).collect::<Vec<_>>()}),
        // Also relative paths, although they give a warning.
        Type::Text | Type::Path => json!({"type": "string"}),
        Type::Version => text(r"[0-9]+\.[0-9]+\.[0-9]+"),
        Type::Ip => text(IP),
        Type::Cidr => text(&format!("{IP}/[0-9]{{1,3}}")),
        Type::IpOrCidr => text(&format!("{IP}(/[0-9]{{1,3}})?")),
        Type::Mac => text("[0-9A-Fa-f]{2}([:-][0-9A-Fa-f]{2}){5,19}|[0-9A-Fa-f]{4}(\\.[0-9A-Fa-f]{4}){2,9}"),
        Type::IfName => text("[^/:\\s]{1,15}"),
        Type::LinkName => text("[^/:\\s]{1,127}"),
        Type::List(inner) => json!({"type": "array", "items": value(*inner)}),
        Type::Object(keys) => object(keys.iter()),
        Type::Map(inner) => json!({"type": "object", "additionalProperties": value(*inner)}),
    }
}

/// A string that matches a pattern or is empty. Without a pattern: any string.
fn text(form: &str) -> Value {
    if form.is_empty() {
        json!({"type": "string"})
    } else {
        json!({"type": "string", "pattern": format!("^({form})?$")})
    }
}

#[cfg(test)]
mod tests;
