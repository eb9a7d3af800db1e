//! A key of the wrong type, for every plugin and key: ADD refuses it by name. DEL and GC work nevertheless.

use std::fs;

use lab::dhcp::{DhcpNetwork, RANGE, leases_on_disk};
use lab::{Call, Container, Lab, beyond_reference, needs, plugins};
use serde_json::{Value, json};

use crate::common::{host_local, leases};
use crate::portmap::web;

/// Each key has a wrong type with at least one of these.
fn values() -> [Value; 3] {
    [json!(5), json!("word"), json!({"x": 5})]
}

/// Checks DEL or GC. Returns what they left, or an empty string.
type Undone = fn(&Lab, &Container) -> String;

/// A plugin, a successful call of it, and the check after DEL and GC.
struct Fixture {
    call: Call,
    after_del: Undone,
    after_gc: Undone,
    /// Keys without which the delegate, or the result to read, cannot be found.
    blind: &'static [&'static str],
}

impl Fixture {
    /// Each key that the plugin reads, by its path.
    fn keys(&self, lab: &Lab) -> Vec<String> {
        let schema = lab.cnitool().json(&format!("explain {}", self.call.plugin()));
        let mut keys = vec![];
        // An IPAM plugin's keys are in another plugin's configuration.
        let is_ipam = ["dhcp", "host-local", "static"].contains(&self.call.plugin());
        let above = if is_ipam { "ipam." } else { "" };
        collect(&schema["keys"], above, &mut keys);
        let everybodys = ["ipam", "dns", "args", "runtimeConfig", "args.cni", "prevResult", "capabilities"];
        keys.extend(everybodys.map(str::to_owned));
        for (place, inner) in [
            ("ipam", &["type", "ranges", "routes"][..]),
            ("dns", &["nameservers", "domain", "search", "options"]),
            (
                "args.cni",
                &[
                    "mac",
                    "sysctl",
                    "mtu",
                    "promisc",
                    "allmulti",
                    "txQLen",
                    "features",
                    "ips",
                    "hostInterface",
                ],
            ),
            ("runtimeConfig", &["mac", "portMappings", "ips", "ipRanges", "bandwidth"]),
            ("runtimeConfig.bandwidth", &["ingressRate", "ingressBurst", "egressRate", "egressBurst"]),
        ] {
            keys.extend(inner.iter().map(|key| format!("{place}.{key}")));
        }
        keys.sort();
        keys.dedup();
        keys
    }

    /// A value that ADD refuses because of its type, with the key's name. None: the plugin does not read the key.
    fn wrong_value(&self, path: &str) -> Option<Value> {
        values().into_iter().find(|value| {
            let added = mistyped(&self.call, path, value).add();
            if added.succeeded() {
                self.call.del().ok();
                return false;
            }
            let error = added.error();
            let key = path.rsplit('.').next().unwrap();
            // The object in the list has only this key.
            let named = error.msg.contains(key) || error.msg.contains("missing field");
            assert!(error.code != 6 || named, "{path} = {value}: {error:?}");
            error.code == 6
        })
    }

    /// What DEL and GC leave undone with a mistyped key.
    fn faults(&self, lab: &Lab, pod: &Container, path: &str) -> String {
        let value = self.wrong_value(path).unwrap_or_else(|| json!({"x": 5}));
        let bad = mistyped(&self.call, path, &value);
        let mut faults = String::new();
        for (command, undone) in [("DEL", self.after_del), ("GC", self.after_gc)] {
            self.call.add().ok_result();
            let said = if command == "DEL" { bad.del() } else { bad.gc(&[]) };
            let left = undone(lab, pod);
            self.call.del().ok();
            if !said.succeeded() || (!left.is_empty() && !self.blind.contains(&path)) {
                faults += &format!("{command} with {path} = {value} has left {left:?}: {said:#?}\n");
            }
        }
        faults
    }

    /// Tests every key.
    fn run(&self, lab: &Lab, pod: &Container) {
        let keys = self.keys(lab);
        assert!(keys.len() > 20, "{keys:?}");
        let faults: String = keys.iter().map(|path| self.faults(lab, pod, path)).collect();
        assert!(faults.is_empty(), "\n{faults}");
    }
}

/// A new plugin needs a test, named like the others.
#[test]
fn every_plugin_is_tried_with_mistyped_keys() {
    let tests = include_str!("mistyped.rs");
    for plugin in plugins() {
        let test = format!("_of_{}_work", plugin.replace('-', "_"));
        assert!(tests.contains(&test), "no test here has a name with {test}");
    }
}

/// Collects the paths of a schema's keys, including those in lists.
fn collect(keys: &Value, above: &str, paths: &mut Vec<String>) {
    for key in keys.as_array().unwrap() {
        let name = key["key"].as_str().unwrap();
        let list = match key["takes"].as_str().unwrap() {
            takes if takes.starts_with("a list of: a list of") => "[][]",
            takes if takes.starts_with("a list of") => "[]",
            _ => "",
        };
        paths.push(format!("{above}{name}"));
        collect(&key["keys"], &format!("{above}{name}{list}."), paths);
    }
}

/// The call with a value at a path. `key[]` is a list with one object, `key[][]` a list with such a list.
fn mistyped(call: &Call, path: &str, value: &Value) -> Call {
    fn put(place: &mut Value, path: &str, value: &Value) {
        let (step, below) = path.split_once('.').map_or((path, None), |(step, below)| (step, Some(below)));
        let (key, list) = step.strip_suffix("[]").map_or((step, false), |key| (key, true));
        if let Some(key) = key.strip_suffix("[]") {
            let mut inner = json!({});
            put(&mut inner, &format!("inner[].{}", below.unwrap_or_default()), value);
            place[key] = json!([inner["inner"]]);
            return;
        }
        let member = &mut place[key];
        match below {
            None => *member = value.clone(),
            Some(below) if list => {
                *member = json!([{}]);
                put(&mut member[0], below, value);
            }
            Some(below) => put(member, below, value),
        }
    }
    let mut document: Value = serde_json::from_slice(&call.input()).unwrap();
    put(&mut document, path, value);
    call.clone().config(document)
}

/// The lines of `tool`'s output that contain these words.
fn shown(lab: &Lab, tool: &str, words: &[&str]) -> String {
    let text = lab.host().sh(tool);
    text.lines().filter(|line| words.iter().any(|word| line.contains(word))).collect::<Vec<_>>().join("; ")
}

#[test]
fn del_and_gc_of_bandwidth_work_with_a_mistyped_key() {
    beyond_reference!("lenient-del");
    let lab = Lab::new();
    let pod = crate::tuning::wired(&lab, "eth0");
    let undone: Undone = |lab, _| shown(lab, "ip link show type ifb", &["bwp"]);
    let call = crate::bandwidth::limited(&lab, &pod).version("1.1.0");
    Fixture { call, after_del: undone, after_gc: undone, blind: &[] }.run(&lab, &pod);
}

#[test]
fn del_and_gc_of_bridge_work_with_a_mistyped_key() {
    beyond_reference!("lenient-del");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let config = json!({
        "bridge": "cni0", "isGateway": true, "ipMasq": true, "macspoofchk": true,
        "ipam": host_local(&[&["10.1.2.0/24"]]),
    });
    let call = lab.plugin("bridge").version("1.1.0").config(config).on(&pod);
    Fixture { call, after_del: attachment, after_gc: attachment, blind: LEASED }.run(&lab, &pod);
}

#[test]
fn del_and_gc_of_ptp_work_with_a_mistyped_key() {
    beyond_reference!("lenient-del");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let config = json!({"ipMasq": true, "ipam": host_local(&[&["10.1.2.0/24"]])});
    let call = lab.plugin("ptp").version("1.1.0").config(config).on(&pod);
    Fixture { call, after_del: attachment, after_gc: attachment, blind: LEASED }.run(&lab, &pod);
}

/// Without the type, the plugin that leased the address is unknown.
const LEASED: &[&str] = &["ipam", "ipam.type"];

/// The interface, its lease and its rules.
fn attachment(lab: &Lab, pod: &Container) -> String {
    let lease = fs::read_dir("/var/lib/cni/networks/net").unwrap().flatten();
    let lease =
        lease.map(|file| file.file_name().into_string().unwrap()).find(|name| name.starts_with("10."));
    let link = pod.link("eth0").map(|_| "the interface".to_owned());
    let rules = shown(lab, "nft list ruleset", &["net/pod/eth0"]);
    format!("{}{}{rules}", lease.unwrap_or_default(), link.unwrap_or_default())
}

#[test]
fn del_and_gc_of_host_local_work_with_a_mistyped_key() {
    beyond_reference!("lenient-del");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let undone: Undone = |_, _| leases().join(" ");
    let config = json!({"ipam": host_local(&[&["10.1.2.0/24"]])});
    let call = lab.plugin("host-local").version("1.1.0").config(config).on(&pod);
    Fixture { call, after_del: undone, after_gc: undone, blind: &[] }.run(&lab, &pod);
}

#[test]
fn del_and_gc_of_macvlan_work_with_a_mistyped_key() {
    beyond_reference!("lenient-del");
    let lab = Lab::new();
    let pod = lab.container("pod");
    lab.host().sh("ip link add cable type veth peer name far; ip link set cable up");
    let after_del: Undone = |_, pod| leases().join(" ") + pod.link("eth0").map_or("", |_| "the interface");
    let config = json!({"master": "cable", "ipam": host_local(&[&["10.1.2.0/24"]])});
    let call = lab.plugin("macvlan").version("1.1.0").config(config).on(&pod);
    let blind = &["ipam", "ipam.type"];
    Fixture { call, after_del, after_gc: |_, _| leases().join(" "), blind }.run(&lab, &pod);
}

#[test]
fn del_and_gc_of_host_device_work_with_a_mistyped_key() {
    beyond_reference!("lenient-del");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let undone: Undone = |lab, _| {
        let home = lab.host().link("dev0").is_some();
        leases().join(" ") + if home { "" } else { "the device is not home" }
    };
    let call = crate::host_device::of_cable(&lab, &pod);
    Fixture { call, after_del: undone, after_gc: undone, blind: LEASED }.run(&lab, &pod);
}

#[test]
fn del_and_gc_of_ipvlan_work_with_a_mistyped_key() {
    beyond_reference!("lenient-del");
    needs!(Ipvlan);
    let lab = Lab::new();
    let pod = lab.container("pod");
    lab.host().sh("ip link add cable type veth peer name far; ip link set cable up");
    let after_del: Undone = |_, pod| leases().join(" ") + pod.link("eth0").map_or("", |_| "the interface");
    let config = json!({"master": "cable", "ipam": host_local(&[&["10.1.2.0/24"]])});
    let call = lab.plugin("ipvlan").version("1.1.0").config(config).on(&pod);
    let blind = &["ipam", "ipam.type"];
    Fixture { call, after_del, after_gc: |_, _| leases().join(" "), blind }.run(&lab, &pod);
}

#[test]
fn del_and_gc_of_vlan_work_with_a_mistyped_key() {
    beyond_reference!("lenient-del");
    needs!(Vlan);
    let lab = Lab::new();
    let pod = lab.container("pod");
    lab.host().sh("ip link add cable type veth peer name far; ip link set cable up");
    let after_del: Undone = |_, pod| leases().join(" ") + pod.link("eth0").map_or("", |_| "the interface");
    let config = json!({"master": "cable", "vlanId": 100, "ipam": host_local(&[&["10.1.2.0/24"]])});
    let call = lab.plugin("vlan").version("1.1.0").config(config).on(&pod);
    let blind = &["ipam", "ipam.type"];
    Fixture { call, after_del, after_gc: |_, _| leases().join(" "), blind }.run(&lab, &pod);
}

#[test]
fn del_and_gc_of_dummy_work_with_a_mistyped_key() {
    beyond_reference!("lenient-del");
    needs!(Dummy);
    let lab = Lab::new();
    let pod = lab.container("pod");
    let after_del: Undone = |_, pod| leases().join(" ") + pod.link("eth0").map_or("", |_| "the interface");
    let config = json!({"ipam": host_local(&[&["10.1.2.0/24"]])});
    let call = lab.plugin("dummy").version("1.1.0").config(config).on(&pod);
    let blind = &["ipam", "ipam.type"];
    Fixture { call, after_del, after_gc: |_, _| leases().join(" "), blind }.run(&lab, &pod);
}

#[test]
fn del_and_gc_of_flannel_work_with_a_mistyped_key() {
    beyond_reference!("flannel");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let kept = || fs::read_dir("/var/lib/cni/flannel").into_iter().flatten().count();
    let after_gc: Undone = |_, _| leases().join(" ");
    let after_del: Undone = |_, pod| leases().join(" ") + pod.link("eth0").map_or("", |_| "the interface");
    crate::flannel::flanneld_says(&crate::flannel::subnet_env(true));
    let call = lab.plugin("flannel").version("1.1.0").on(&pod);
    Fixture { call, after_del, after_gc, blind: &[] }.run(&lab, &pod);
    assert_eq!(kept(), 0);
}

#[test]
fn del_and_gc_of_dnsname_work_with_a_mistyped_key() {
    beyond_reference!("dnsname");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let bridge = json!({"bridge": "br0", "isDefaultGateway": true, "ipam": host_local(&[&["10.1.2.0/24"]])});
    let prev = lab.plugin("bridge").version("1.1.0").config(bridge).on(&pod).add().ok_result();
    let names: Undone =
        |_, _| fs::read_to_string("/run/containers/cni/dnsname/net/addnhosts").unwrap_or_default();
    let call = lab.plugin("dnsname").version("1.1.0").on(&pod).config(json!({"prevResult": prev}));
    Fixture { call, after_del: names, after_gc: names, blind: &[] }.run(&lab, &pod);
}

#[test]
fn del_and_gc_of_tap_work_with_a_mistyped_key() {
    beyond_reference!("lenient-del");
    needs!(Tap);
    let lab = Lab::new();
    let pod = lab.container("pod");
    let after_del: Undone = |_, pod| leases().join(" ") + pod.link("eth0").map_or("", |_| "the interface");
    let config = json!({"ipam": host_local(&[&["10.1.2.0/24"]])});
    let call = lab.plugin("tap").version("1.1.0").config(config).on(&pod);
    Fixture { call, after_del, after_gc: |_, _| leases().join(" "), blind: LEASED }.run(&lab, &pod);
}

#[test]
fn del_of_loopback_works_with_a_mistyped_key() {
    beyond_reference!("lenient-del");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let undone: Undone = |_, pod| {
        let lo = pod.link("lo").unwrap();
        let up = lo["flags"].as_array().unwrap().contains(&json!("UP"));
        if up { "lo is up".to_owned() } else { String::new() }
    };
    let call = lab.plugin("loopback").version("1.1.0").on(&pod);
    Fixture { call, after_del: undone, after_gc: |_, _| String::new(), blind: &[] }.run(&lab, &pod);
}

#[test]
fn del_and_gc_of_portmap_work_with_a_mistyped_key() {
    beyond_reference!("lenient-del");
    let lab = Lab::new();
    let call = mapped_by(&lab, "nftables");
    Fixture { call, after_del: mapping, after_gc: mapping, blind: &[] }.run(&lab, &lab.container("other"));
}

#[test]
fn del_and_gc_of_portmap_with_iptables_work_with_a_mistyped_key() {
    beyond_reference!("lenient-del");
    let lab = Lab::new();
    let call = mapped_by(&lab, "iptables");
    let fixture = Fixture { call, after_del: mapping, after_gc: mapping, blind: &[] };
    let pod = lab.container("other");
    let faults = ["backend", "snat", "conditionsV4", "runtimeConfig.portMappings"];
    let faults = faults.map(|path| fixture.faults(&lab, &pod, path)).concat();
    assert!(faults.is_empty(), "\n{faults}");
}

fn mapped_by(lab: &Lab, backend: &str) -> Call {
    let pod = lab.container("pod");
    let prev = json!({"interfaces": [{"name": "eth0", "sandbox": pod.path()}],
                      "ips": [{"address": "10.1.2.2/24", "interface": 0}]});
    let keys = json!({"backend": backend, "prevResult": prev, "runtimeConfig": {"portMappings": web()}});
    lab.plugin("portmap").version("1.1.0").on(&pod).config(keys)
}

/// The rules of the container's mapping.
fn mapping(lab: &Lab, _: &Container) -> String {
    shown(lab, "nft list ruleset", &["net/pod/eth0", "8080"])
}

#[test]
fn del_and_gc_of_firewall_work_with_a_mistyped_key() {
    beyond_reference!("lenient-del");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let prev = json!({"interfaces": [{"name": "eth0", "sandbox": pod.path()}],
                      "ips": [{"address": "10.1.2.2/24", "interface": 0}]});
    let keys = json!({"backend": "nftables", "acceptMarkBit": 20, "prevResult": prev});
    let call = lab.plugin("firewall").version("1.1.0").on(&pod).config(keys);
    let undone: Undone = |lab, _| shown(lab, "nft list ruleset", &["net/pod/eth0"]);
    Fixture { call, after_del: undone, after_gc: undone, blind: &[] }.run(&lab, &lab.container("other"));
}

#[test]
fn del_and_gc_of_dhcp_work_with_a_mistyped_key() {
    beyond_reference!("lenient-del");
    let Some(net) = DhcpNetwork::with(RANGE) else { return };
    let (pod, call) = net.plugged("pod");
    let undone: Undone = |_, _| format!("{}", leases_on_disk()).replace('0', "");
    Fixture { call: call.version("1.1.0"), after_del: undone, after_gc: undone, blind: &[] }
        .run(&net.lab, &pod);
}

#[test]
fn del_and_gc_of_static_work_with_a_mistyped_key() {
    beyond_reference!("lenient-del");
    let lab = Lab::new();
    let pod = lab.container("pod");
    // It has no state: DEL and GC only have to succeed.
    let undone: Undone = |_, _| String::new();
    let ipam = json!({"type": "static", "addresses": [{"address": "10.1.2.7/24"}]});
    let call = lab.plugin("static").version("1.1.0").config(json!({"ipam": ipam})).on(&pod);
    Fixture { call, after_del: undone, after_gc: undone, blind: &[] }.run(&lab, &pod);
}

#[test]
fn del_and_gc_of_tuning_work_with_a_mistyped_key() {
    beyond_reference!("lenient-del");
    let lab = Lab::new();
    let pod = crate::tuning::wired(&lab, "eth0");
    let backup: Undone = |_, pod| {
        // GC changes no interface.
        pod.sh("ip link set eth0 mtu 1500");
        let files = fs::read_dir("/run/cni/tuning").into_iter().flatten().flatten();
        files.map(|file| file.path().display().to_string()).collect()
    };
    let undone: Undone = |_, pod| {
        let files = fs::read_dir("/run/cni/tuning").into_iter().flatten().count();
        let mtu = pod.link("eth0").unwrap()["mtu"].clone();
        if files == 0 && mtu == 1500 { String::new() } else { format!("{files} files, MTU {mtu}") }
    };
    let call = crate::tuning::tuning(&lab, &pod, json!({"mtu": 1400})).version("1.1.0");
    let call = call.config(json!({"prevResult": {"interfaces": [{"name": "eth0", "sandbox": pod.path()}]}}));
    Fixture { call, after_del: undone, after_gc: backup, blind: &[] }.run(&lab, &pod);
}

/// DEL removes everything that sbr creates. It is all in the container, so GC removes nothing.
#[test]
fn del_and_gc_of_sbr_work_with_a_mistyped_key() {
    beyond_reference!("lenient-del");
    let lab = Lab::new();
    let (pod, call) = crate::sbr::manually(&lab);
    let rules: Undone = |_, pod| {
        let rules = pod.sh("ip rule; ip -6 rule");
        if rules.contains("10.1.0.2") || rules.contains("fd00:1::2") { rules } else { String::new() }
    };
    Fixture { call, after_del: rules, after_gc: |_, _| String::new(), blind: &[] }.run(&lab, &pod);
}

#[test]
fn del_and_gc_of_vrf_work_with_a_mistyped_key() {
    beyond_reference!("lenient-del");
    needs!(Vrf);
    let lab = Lab::new();
    let (pod, call) = crate::vrf::manually(&lab);
    let vrf: Undone = |_, pod| pod.link("blue").map(|link| link.to_string()).unwrap_or_default();
    Fixture { call, after_del: vrf, after_gc: |_, _| String::new(), blind: &["vrfname"] }.run(&lab, &pod);
}
