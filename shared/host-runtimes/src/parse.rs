//! Reading CNI settings from configurations in several languages.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::table::Form;

/// The directories set by a file.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Said {
    pub networks: Vec<PathBuf>,
    pub plugins: Vec<PathBuf>,
    /// Podman's `{append = true}`: in addition to those of earlier files.
    pub appends: bool,
}

/// Converts a configuration to JSON.
pub fn decode(form: Form, path: &Path, text: &[u8]) -> Result<Value, String> {
    match form {
        Form::Toml | Form::Podman => {
            toml::from_slice(text).map_err(|e| format!("it is not TOML: {}", e.message()))
        }
        Form::Hcl if path.extension().is_some_and(|extension| extension == "json") => {
            serde_json::from_slice(text).map_err(|e| format!("it is not JSON: {e}"))
        }
        Form::Hcl => Ok(json!({ "client": assignments(&String::from_utf8_lossy(text)) })),
        Form::Flags => Ok(flags(&String::from_utf8_lossy(text))),
    }
}

/// The directories at the keys of networks and plugins.
pub fn said(config: &Value, keys: &[&[&str]; 2]) -> Said {
    let [networks, plugins] = keys.map(|keys| keys.iter().flat_map(|key| strings(config, key)).collect());
    let appends = config.pointer("/network/cni_plugin_dirs").and_then(Value::as_array);
    let appends = appends.into_iter().flatten().any(|value| value["append"] == true);
    Said { networks, plugins, appends }
}

/// Imported files of containerd's configuration. `None` without imports.
pub fn imports(config: &Value) -> Option<Vec<PathBuf>> {
    let patterns = config.get("imports")?.as_array()?;
    Some(patterns.iter().filter_map(Value::as_str).map(PathBuf::from).collect())
}

/// Whether containerd's CRI plugin, which runs CNI plugins, is disabled. Docker's packages do that.
pub fn disables_cri(config: &Value) -> bool {
    let disabled = config.get("disabled_plugins").and_then(Value::as_array);
    let names = ["cri", "io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime"];
    disabled.into_iter().flatten().any(|name| name.as_str().is_some_and(|name| names.contains(&name)))
}

/// The strings at a path of keys: one, or a list. One string may contain several directories, separated by colons.
fn strings(config: &Value, path: &str) -> Vec<PathBuf> {
    let (key, rest) = path.split_once('.').map_or((path, None), |(key, rest)| (key, Some(rest)));
    let table = config.as_object().into_iter().flatten();
    let values = table.filter(|(name, _)| key == "*" || *name == key).map(|(_, value)| value);
    let found = values.flat_map(|value| match (rest, value) {
        (Some(rest), Value::Array(blocks)) => blocks.iter().flat_map(|one| strings(one, rest)).collect(),
        (Some(rest), table) => strings(table, rest),
        (None, Value::Array(all)) => all.iter().filter_map(Value::as_str).map(PathBuf::from).collect(),
        (None, value) => {
            value.as_str().into_iter().flat_map(|text| text.split(':')).map(PathBuf::from).collect()
        }
    });
    found.filter(|dir| !dir.as_os_str().is_empty()).collect()
}

/// Parses lines `key = "value"` of HCL in all blocks: the relevant keys occur in one block only.
fn assignments(text: &str) -> Value {
    let lines = text.lines().map(str::trim).filter(|line| !line.starts_with(['#', '/']));
    let pairs = lines.filter_map(|line| {
        let (key, value) = line.split_once('=')?;
        let (value, _) = value.trim().strip_prefix('"')?.split_once('"')?;
        Some((key.trim().trim_matches('"').to_owned(), Value::from(value)))
    });
    Value::Object(pairs.collect())
}

/// Parses `--key=value` and `--key value` in a command line. Several values are separated by commas.
fn flags(text: &str) -> Value {
    let lines = text.lines().filter(|line| !line.trim_start().starts_with(['#', ';']));
    let mut words = lines.flat_map(|line| line.split(|c: char| c.is_whitespace() || "\"'".contains(c)));
    let mut found = Map::new();
    while let Some(word) = words.next() {
        let Some((_, flag)) = word.split_once("--") else { continue };
        let value = match flag.split_once('=') {
            Some(pair) => Some(pair),
            None if flag.starts_with("cni-") => words.next().map(|value| (flag, value)),
            None => None,
        };
        if let Some((key, value)) = value {
            found.insert(key.to_owned(), value.split(',').collect());
        }
    }
    Value::Object(found)
}
