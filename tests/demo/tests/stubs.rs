//! A test of the test: each part of the demonstration fails if one of its plugins does nothing.
#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "../src/chains.rs"]
mod chains;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use lab::{SEPARATE_DELEGATES, StubDirectory};
use serde_json::Value;

/// The executables that a chain starts. flannel calls bridge and host-local.
fn executables(network: &Value) -> BTreeSet<&str> {
    let plugins = network["plugins"].as_array().unwrap();
    let names = plugins.iter().flat_map(|plugin| [&plugin["type"], &plugin["ipam"]["type"]]);
    let mut names: BTreeSet<_> = names.filter_map(Value::as_str).collect();
    if names.contains("flannel") {
        names.extend(["bridge", "host-local"]);
    }
    names
}

/// What a part of the demonstration prints if it fails.
fn failure(part: &str, stubbed: Option<&str>) -> Option<String> {
    let bin = StubDirectory::new(&Path::new(env!("CARGO_TARGET_TMPDIR")).join("stubs-of-the-demo"), stubbed);
    let mut demo = Command::new(env!("CARGO_BIN_EXE_demo"));
    // Delegates, too, are started from these files.
    let demo = demo.arg(part).env("FERRULE_BIN", bin.path()).env(SEPARATE_DELEGATES, "1");
    let output = demo.output().unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    (!output.status.success()).then_some(text)
}

#[test]
fn each_part_fails_if_a_plugin_is_replaced_by_a_stub() {
    let parts = [("containers", chains::of_the_containers()), ("machines", chains::of_the_machines())];
    for (part, network) in parts {
        assert_eq!(failure(part, None), None, "{part}: no plugin is replaced");
        for plugin in executables(&network) {
            let text = failure(part, Some(plugin)).unwrap_or_default();
            let last = text.lines().find(|line| line.contains("These did not work")).unwrap_or_default();
            // The chain cannot continue with an empty result.
            let stopped = text.contains(&StubDirectory::words_of(plugin)) && text.contains("ADD: ");
            assert!(
                last.contains(plugin) || last.is_empty() && stopped,
                "{part}: {plugin} does nothing, and the demonstration does not notice it: {text}"
            );
        }
    }
}
