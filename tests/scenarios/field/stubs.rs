//! A test of the tests: a network's test fails if one plugin is replaced by a stub.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::thread;

use lab::dhcp::has_dnsmasq;
use lab::{beyond_reference, under_test};
use serde_json::Value;

use super::{
    effects, engines, is_missing, is_served_by, kubenets, kubernetes, plugins_of, second_networks,
    sends_to_a_server,
};

/// Returns the previous result or an empty one, and does nothing else.
const STUB: &str = r#"#!/usr/bin/python3
import json, os, sys
conf = json.load(sys.stdin)
version = conf.get("cniVersion", "1.0.0")
if os.environ["CNI_COMMAND"] == "ADD":
    print(json.dumps(conf.get("prevResult") or {"cniVersion": version, "ips": [], "dns": {}}))
if os.environ["CNI_COMMAND"] == "VERSION":
    print(json.dumps({"cniVersion": version, "supportedVersions": ["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"]}))
"#;

/// A directory with all plugins, one of which is a stub. It is outside of /run and /var, where labs have private
/// directories.
fn directory(stubbed: &str) -> PathBuf {
    let name = thread::current().name().unwrap_or_default().replace("::", "-");
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name).join(stubbed);
    fs::create_dir_all(&directory).unwrap();
    for plugin in fs::read_dir(&under_test().dir).unwrap().map(|entry| entry.unwrap().path()) {
        let link = directory.join(plugin.file_name().unwrap());
        if !link.exists() {
            symlink(&plugin, link).unwrap();
        }
    }
    let stub = directory.join(stubbed);
    fs::remove_file(&stub).ok();
    fs::write(&stub, STUB).unwrap();
    fs::set_permissions(&stub, fs::Permissions::from_mode(0o755)).unwrap();
    directory
}

/// Asserts that a network's test, which gets the directory of the plugins, fails with each plugin replaced by a stub.
pub fn fails_with_stubs(who: &str, network: &Value, test: impl Fn(&Path) + Sync) {
    for plugin in workers(network) {
        let plugins = directory(plugin);
        // A lab belongs to a thread.
        let run = thread::scope(|scope| scope.spawn(|| test(&plugins)).join());
        fs::remove_dir_all(&plugins).unwrap();
        assert!(run.is_err(), "{who}: {plugin} does nothing, and the test passes");
    }
}

/// Ferrule's plugins with an effect in a network: tuning without keys has none.
fn workers(network: &Value) -> Vec<&str> {
    let works = |plugin: &&Value| {
        under_test().dir.join(effects::kind(plugin)).exists()
            && (effects::kind(plugin) != "tuning" || plugin["sysctl"].is_object())
    };
    plugins_of(network).into_iter().filter(works).map(|plugin| plugin["type"].as_str().unwrap()).collect()
}

#[test]
fn a_runtimes_network_fails_its_test_if_a_plugin_is_replaced_by_a_stub() {
    beyond_reference!("flannel");
    let networks = [kubernetes(), kubenets(), engines(), second_networks()].into_iter().flatten();
    let networks = networks.filter(|(_, network)| is_missing(network).is_none());
    let networks = networks.filter(|(_, network)| !sends_to_a_server(network) || has_dnsmasq());
    for (who, network) in networks {
        fails_with_stubs(who, &network, |plugins| is_served_by(who, &network, plugins));
    }
}
