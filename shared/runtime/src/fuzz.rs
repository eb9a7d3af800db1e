//! Fuzz targets of this crate and their conditions. The seeds are in fuzz/corpus; a unit test replays them.

#![allow(clippy::unwrap_used, reason = "a fuzz target ends with a panic")]

use std::fs;
use std::path::Path;

use cni::{Attachments, NetworkName};
use serde_json::{Map, Value};

use crate::conf::Raw;
use crate::request::Extras;
use crate::{AttachmentParameters, Cache, ConfDir, Network, text};

/// A network's configuration: writing and parsing are inverse, each plugin's request has the network's name and version and is no larger
/// than its input, and both parsers accept the same.
///
/// # Panics
/// If this does not hold.
pub fn configuration(input: &[u8]) {
    if let Ok(network) = Network::from_bytes(input) {
        judge(&network);
        let kept = Network::from_bytes(network.bytes()).unwrap();
        assert_eq!((&kept.name, kept.version), (&network.name, network.version));
        let kinds = |network: &Network| network.plugins.iter().map(|p| p.kind.clone()).collect::<Vec<_>>();
        assert_eq!(kinds(&kept), kinds(&network));
    }
    let Ok(source) = str::from_utf8(input) else { return };
    let strict = serde_json::from_str::<Value>(source);
    let (root, problems) = text::parse(source);
    let lines = source.lines().count().max(1);
    assert!(problems.iter().all(|problem| problem.at.line <= lines + 1 && !problem.text.is_empty()));
    match strict {
        // A key may occur twice.
        Ok(_) => {
            assert!(root.is_some() && problems.iter().all(|p| p.text.starts_with("the key ")), "{problems:?}")
        }
        Err(e) => assert!(root.is_none() || !problems.is_empty(), "{e}"),
    }
}

fn judge(network: &Network) {
    assert!(network.versions.contains(&network.version) || network.versions.is_empty());
    let attach =
        AttachmentParameters::new("c", "eth0").unwrap().capability("portMappings", Value::Array(Vec::new()));
    for plugin in &network.plugins {
        assert_eq!(Path::new("/bin").join(plugin.kind.as_str()).parent(), Some(Path::new("/bin")));
        let prev = Value::Object(Map::new());
        let extras =
            Extras { attach: Some(&attach), prev: Some(&prev), valid: Some(&Attachments::default()) };
        let request = extras.request(network, plugin).unwrap();
        assert!(request.len() < network.bytes().len() + 1024);
        // Values are passed on undecoded: a number may be out of range.
        let request: Raw = serde_json::from_slice(&request).unwrap();
        let said = |key| serde_json::from_str::<Value>(request[key].get()).unwrap();
        assert_eq!(said("name"), network.name.as_str());
        assert_eq!(said("cniVersion"), network.version.as_str());
        assert_eq!(said("cni.dev/valid-attachments"), Value::Array(Vec::new()));
        assert!(!request.contains_key("capabilities"));
    }
}

/// A configuration directory: each file is a network or has an error that names it, and a network is found by its name. `scratch` is a
/// temporary directory.
///
/// # Panics
/// If this does not hold.
pub fn directory(scratch: &Path, input: &[u8]) {
    let dir = ConfDir::new(scratch.join("net.d"));
    seeds::unpack(dir.path(), input);
    let loaded = dir.load().unwrap();
    assert!(loaded.is_sorted_by_key(|file| &file.file));
    for file in &loaded {
        assert_eq!(file.file.parent(), Some(dir.path()));
        match &file.network {
            Ok(network) => {
                judge(network);
                assert!(!network.plugins.is_empty() && network.file.as_ref() == Some(&file.file));
                assert_eq!(dir.find(&network.name).unwrap().name, network.name);
            }
            Err(e) => {
                assert!(e.to_string().contains("net.d") && e.to_string().len() < 4096 + 16 * input.len())
            }
        }
    }
    let first = loaded.into_iter().find_map(|file| file.network.ok());
    assert_eq!(dir.default_network().ok().map(|network| network.file), first.map(|network| network.file));
}

/// A cache file: writing and parsing are inverse. `scratch` is a temporary directory.
///
/// # Panics
/// If this does not hold.
pub fn cache(scratch: &Path, input: &[u8]) {
    let cache = Cache::new(scratch);
    let (name, at) =
        (NetworkName::parse("n").unwrap(), AttachmentParameters::new("c", "eth0").unwrap().attachment);
    let file = cache.path(&name, &at);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, input).unwrap();
    assert!(cache.list().unwrap().len() <= 1);
    let files = cache.of_network(&name).unwrap();
    assert!(files.entries.len() + files.unreadable.len() <= 1 && files.ambiguous.is_empty());
    if let Ok(Some(entry)) = cache.load(&name, &at) {
        let own = cache.path(&entry.network, &entry.attach.attachment);
        assert_eq!(own.parent(), file.parent());
        if let (Ok(network), Ok(_)) = (entry.network(), entry.result()) {
            let result = entry.result_in(network.version).unwrap();
            cache.write(&network, &entry.attach, &result).unwrap();
            let again = cache.load(&network.name, &entry.attach.attachment).unwrap().unwrap();
            assert_eq!(again.attach, entry.attach);
            assert_eq!(again.network().unwrap().version, network.version);
            cache.remove(&network.name, &entry.attach.attachment).unwrap();
        }
    }
    cache.remove(&name, &at).unwrap();
    assert!(cache.load(&name, &at).unwrap().is_none());
    // Only a file of another attachment is still in the cache.
    assert!(cache.list().unwrap().iter().all(|entry| entry.network != name || entry.attach.attachment != at));
}

#[test]
fn every_seed_passes() {
    seeds::replay("conflist", configuration);
    let scratch = tempfile::tempdir().unwrap();
    seeds::replay("conf_dir", |input| directory(scratch.path(), input));
    seeds::replay("cache", |input| cache(scratch.path(), input));
}
