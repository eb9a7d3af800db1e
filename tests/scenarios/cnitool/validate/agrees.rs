//! If `cnitool validate` accepts a configuration without a finding, ADD does not refuse it: each key of each plugin's
//! published schema, with each of a list of values.

use std::collections::BTreeSet;

use lab::dhcp::{DhcpNetwork, RANGE};
use lab::{Feature, Lab, Outcome, Tool, beyond_reference, needs};
use serde_json::{Value, json};

use crate::common::{cable, host_local};
use crate::flannel::{flanneld_says, subnet_env};

const FILE: &str = "/etc/cni/net.d/10-net.conflist";

/// Error codes for a wrong configuration (section 5 of the specification).
const OF_THE_CONFIGURATION: [u64; 4] = [1, 2, 6, 7];

fn ipam() -> Value {
    host_local(&[&["10.1.2.0/24"]])
}

fn bridge(ipam: Value) -> Value {
    json!({"type": "bridge", "bridge": "br0", "ipam": ipam})
}

/// Only the plugin.
fn alone(plugin: Value) -> Vec<Value> {
    vec![plugin]
}

/// The plugin after a bridge.
fn chained(plugin: Value) -> Vec<Value> {
    vec![bridge(ipam()), plugin]
}

/// Tests each key of the plugin, which is the chain's last one or that one's IPAM plugin. `prepare` runs on the host
/// before each test.
fn agrees(lab: &Lab, plugin: &str, chain: &[Value], prepare: &str) {
    lab.container("pod");
    let tool = lab.cnitool();
    let (mut accepted, mut succeeded, mut reported) = (0, 0, 0);
    for member in members(&tool, plugin) {
        for value in values() {
            let network = json!({"cniVersion": "1.1.0", "name": "net", "plugins": with_member(chain, plugin, &member, &value)});
            lab.configure("10-net.conflist", &network);
            lab.host().sh(prepare);
            let judged: Value =
                serde_json::from_str(&tool.run(&format!("validate {FILE} --output json")).stdout).unwrap();
            if !judged["findings"].as_array().unwrap().is_empty() {
                reported += 1;
                continue;
            }
            accepted += 1;
            let added = tool.run("add net pod --output json");
            // No file describes what is in the container.
            let misses_a_link = added.stderr.contains("this link does not exist in namespace /run/netns/pod");
            assert!(
                added.succeeded() || misses_a_link || !OF_THE_CONFIGURATION.contains(&code(&added)),
                "{network}\n{added:#?}"
            );
            let deleted = tool.run("del net pod");
            // After a DEL that fails, cnitool would not call the plugin again.
            if added.succeeded() {
                succeeded += 1;
                assert!(deleted.succeeded(), "{network}\n{deleted:#?}");
            }
        }
    }
    assert!(accepted > 0 && reported > 0, "{plugin}: {accepted} accepted, {reported} reported");
    assert!(succeeded > accepted / 2, "{plugin}: {succeeded} of {accepted} ADDs succeeded");
}

/// The code of an error, which is printed after the plugin's log.
fn code(failed: &Outcome) -> u64 {
    let json = failed.stderr.lines().last().unwrap_or_default();
    let error: Value = serde_json::from_str(json).unwrap_or_else(|_| panic!("{failed:#?}"));
    error["code"].as_u64().unwrap()
}

/// The names of a plugin's keys.
fn members(tool: &Tool, plugin: &str) -> Vec<String> {
    let schema: Value = serde_json::from_str(&tool.says(&format!("schema {plugin}"))).unwrap();
    // The common keys are tested with the plugin that has no others.
    let common: BTreeSet<&str> = if plugin == "loopback" {
        ["type", "name", "cniVersion", "runtimeConfig", "prevResult"].into()
    } else {
        ["type", "name", "cniVersion", "capabilities", "runtimeConfig", "prevResult", "ipam", "args"].into()
    };
    // Some kernels have bridges without VLANs.
    let is_possible = |name: &str| {
        plugin != "bridge" || Feature::BridgeVlanFiltering.is_there() || !name.to_lowercase().contains("vlan")
    };
    let names = schema["properties"].as_object().unwrap().keys();
    let names: Vec<String> =
        names.filter(|name| !common.contains(name.as_str()) && is_possible(name)).cloned().collect();
    assert!(!names.is_empty(), "{plugin}: {schema}");
    names
}

fn values() -> Vec<Value> {
    vec![
        json!(true),
        json!(0),
        json!(1),
        json!(4094),
        json!(-1),
        json!(""),
        json!("word"),
        json!("/word"),
        json!("10.1.2.7"),
        json!("10.1.2.0/24"),
        json!("10.1.2.7/24"),
        json!("0a:58:0a:01:02:07"),
        json!("ff:ff:ff:ff:ff:ff"),
        json!([]),
        json!({}),
        json!(["10.1.2.7"]),
        json!([[{"subnet": "10.1.2.0/30"}]]),
        json!([[{"subnet": "10.1.2.0/31"}]]),
        json!([{"dst": "10.9.0.0/16"}]),
        json!({"net.core.somaxconn": "500"}),
        json!(null),
    ]
}

fn with_member(chain: &[Value], plugin: &str, member: &str, value: &Value) -> Vec<Value> {
    let mut plugins = chain.to_vec();
    let last = plugins.last_mut().unwrap();
    let object = if last["type"] == plugin { last } else { &mut last["ipam"] };
    object[member] = value.clone();
    plugins
}

/// A bridge of another chain must not interfere, nor one that an earlier value of the key `bridge` has created.
const NO_BRIDGE: &str = "for bridge in br0 word 10.1.2.7; do ip link del $bridge 2>/dev/null || true; done";

#[test]
fn of_bridge() {
    agrees(&Lab::new(), "bridge", &alone(bridge(ipam())), NO_BRIDGE);
}

#[test]
fn of_host_local() {
    agrees(&Lab::new(), "host-local", &alone(bridge(ipam())), NO_BRIDGE);
}

#[test]
fn of_static() {
    let ipam = json!({"type": "static", "addresses": [{"address": "10.1.2.9/24"}]});
    agrees(&Lab::new(), "static", &alone(bridge(ipam)), NO_BRIDGE);
}

/// With a server and the daemon, because the daemon uses the configuration too.
#[test]
fn of_dhcp() {
    let Some(net) = DhcpNetwork::with(RANGE) else { return };
    agrees(&net.lab, "dhcp", &alone(bridge(json!({"type": "dhcp"}))), "");
}

#[test]
fn of_ptp() {
    agrees(&Lab::new(), "ptp", &alone(json!({"type": "ptp", "ipam": ipam()})), "");
}

#[test]
fn of_loopback() {
    agrees(&Lab::new(), "loopback", &alone(json!({"type": "loopback"})), "");
}

#[test]
fn of_host_device() {
    let device = "ip link show dev0 >/dev/null 2>&1 || ip link add dev0 type veth peer name dev1";
    let plugin = json!({"type": "host-device", "device": "dev0", "ipam": ipam()});
    agrees(&Lab::new(), "host-device", &alone(plugin), device);
}

/// Tests a plugin that creates an interface on the link `cable`.
fn on_a_cable(plugin: &str, more: Value) {
    let lab = Lab::new();
    cable(&lab);
    let mut conf = json!({"type": plugin, "master": "cable", "ipam": ipam()});
    conf.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    agrees(&lab, plugin, &alone(conf), "");
}

#[test]
fn of_macvlan() {
    needs!(Macvlan);
    on_a_cable("macvlan", json!({}));
}

#[test]
fn of_ipvlan() {
    needs!(Ipvlan);
    on_a_cable("ipvlan", json!({}));
}

#[test]
fn of_vlan() {
    needs!(Vlan);
    on_a_cable("vlan", json!({"vlanId": 5}));
}

#[test]
fn of_dummy() {
    needs!(Dummy);
    agrees(&Lab::new(), "dummy", &alone(json!({"type": "dummy", "ipam": ipam()})), "");
}

#[test]
fn of_tap() {
    needs!(Tap);
    agrees(&Lab::new(), "tap", &alone(json!({"type": "tap", "ipam": ipam()})), "");
}

#[test]
fn of_flannel() {
    beyond_reference!("flannel");
    let lab = Lab::new();
    flanneld_says(&subnet_env(true));
    agrees(&lab, "flannel", &alone(json!({"type": "flannel"})), "ip link del cni0 2>/dev/null || true");
}

#[test]
fn of_bandwidth() {
    needs!(TrafficControl);
    agrees(&Lab::new(), "bandwidth", &chained(json!({"type": "bandwidth"})), NO_BRIDGE);
}

#[test]
fn of_firewall() {
    agrees(&Lab::new(), "firewall", &chained(json!({"type": "firewall"})), NO_BRIDGE);
}

#[test]
fn of_portmap() {
    let plugin = json!({"type": "portmap", "capabilities": {"portMappings": true}});
    agrees(&Lab::new(), "portmap", &chained(plugin), NO_BRIDGE);
}

#[test]
fn of_sbr() {
    agrees(&Lab::new(), "sbr", &chained(json!({"type": "sbr"})), NO_BRIDGE);
}

#[test]
fn of_tuning() {
    agrees(&Lab::new(), "tuning", &chained(json!({"type": "tuning"})), NO_BRIDGE);
}

#[test]
fn of_vrf() {
    needs!(Vrf);
    agrees(&Lab::new(), "vrf", &chained(json!({"type": "vrf", "vrfname": "blue"})), NO_BRIDGE);
}

#[test]
fn of_dnsname() {
    let mut chain = chained(json!({"type": "dnsname"}));
    chain[0]["isDefaultGateway"] = json!(true);
    agrees(&Lab::new(), "dnsname", &chain, NO_BRIDGE);
}
