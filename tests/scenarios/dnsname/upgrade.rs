//! The original plugin (containers/dnsname 1.3.1, built by Debian) and Ferrule's take turns on one network.

use lab::{Call, Lab, beyond_reference};
use serde_json::json;

use super::*;

/// Calls only dnsname, for a container that a bridge has attached.
struct Attached {
    pod: Container,
    bridge: Call,
    dnsname: Call,
}

impl Attached {
    fn new(lab: &Lab, name: &str) -> Self {
        let pod = lab.container(name);
        let network = network(&json!({}));
        let bridge = lab.plugin("bridge").config(network["plugins"][0].clone()).on(&pod);
        let prev = bridge.add().ok_result();
        let dnsname = lab.plugin("dnsname").config(network["plugins"][1].clone()).on(&pod);
        let dnsname = dnsname.args(&format!("IgnoreUnknown=1;K8S_POD_NAME={name}"));
        let aliases = json!({"aliases": {"net": [format!("alias-{name}")]}});
        let dnsname = dnsname.config(json!({"prevResult": prev, "runtimeConfig": aliases}));
        Self { pod, bridge, dnsname }
    }

    fn add(&self, original: Option<&Path>) {
        self.by(original).add().ok_result();
    }

    fn del(&self, original: Option<&Path>) {
        self.by(original).del().ok();
        self.bridge.del().ok();
    }

    fn by(&self, original: Option<&Path>) -> Call {
        original.map_or(self.dnsname.clone(), |dir| self.dnsname.clone().in_dir(dir))
    }
}

/// Three containers resolve names while the plugins change. `first` starts the network, and `then` continues with it.
fn take_turns(first: Option<&Path>, then: Option<&Path>) {
    let Some(dig) = Dig::here() else { return };
    let lab = Lab::new();
    let [a, b, c] = ["alpha", "beta", "gamma"].map(|name| Attached::new(&lab, name));
    let knows = |from: &Attached, names: &[&str]| {
        let known = |name: &&&str| !dig.ask(&from.pod, SERVERS[0], &format!("{name} A")).is_empty();
        // The original plugin returns before the server has read the names.
        lab::until("the names are known", || names.iter().all(|name| known(&name)));
    };
    a.add(first);
    b.add(first);
    knows(&a, &["alpha", "beta", "alias-alpha", "beta.dns.test"]);
    let server = server_of("net").unwrap();
    c.add(then);
    knows(&a, &["alpha", "beta", "gamma", "alias-beta", "alias-gamma.dns.test"]);
    assert_eq!(server_of("net").unwrap(), server, "the running server goes on");
    b.del(then);
    lab::until("the name is gone", || dig.ask(&a.pod, SERVERS[0], "beta A").is_empty());
    knows(&a, &["alpha", "gamma"]);
    a.del(then);
    c.del(then);
    lab::until("the server has exited", || !Path::new("/proc").join(&server).join("exe").exists());
    assert!(is_gone("net"));
}

#[test]
fn ferrules_dnsname_continues_with_a_network_of_the_original_and_removes_its_entries() {
    beyond_reference!("dnsname");
    let Some(tree) = unpacked("dnsname") else { return };
    take_turns(Some(&tree.join("usr/lib/cni")), None);
}

#[test]
fn the_original_dnsname_continues_with_a_network_of_ferrules_and_removes_its_entries() {
    beyond_reference!("dnsname");
    let Some(tree) = unpacked("dnsname") else { return };
    take_turns(None, Some(&tree.join("usr/lib/cni")));
}

#[test]
fn a_crashed_server_of_the_original_is_started_again_without_its_privileges_and_with_all_names() {
    beyond_reference!("dnsname");
    let (Some(tree), Some(dig)) = (unpacked("dnsname"), Dig::here()) else { return };
    let dir = tree.join("usr/lib/cni");
    let lab = Lab::new();
    let [a, b] = ["alpha", "beta"].map(|name| Attached::new(&lab, name));
    a.add(Some(&dir));
    lab.host().sh(&format!("kill -9 {}", server_of("net").unwrap()));
    b.add(None);
    assert_eq!(dig.ask(&b.pod, SERVERS[0], "alpha A").len(), 1);
    let status = fs::read_to_string(format!("/proc/{}/status", server_of("net").unwrap())).unwrap();
    assert!(!status.contains("\nUid:\t0\t"), "{status}");
    // The original plugin finds all files at the paths that it expects.
    a.del(Some(&dir));
    lab::until("the name is gone", || dig.ask(&b.pod, SERVERS[0], "alpha A").is_empty());
    b.del(None);
    assert_eq!(server_of("net"), None);
}
