//! Refused names and configurations.

use lab::{Lab, beyond_reference};
use serde_json::json;

use super::*;

#[test]
fn hostile_names_are_refused_and_leave_nothing() {
    beyond_reference!("dnsname");
    let lab = Lab::new();
    with_parents();
    let networks = Networks::new(&lab, &[network(&json!({}))]);
    let (pod, _) = networks.attach(&lab, "pod", &[]);
    let before = hosts_of("net");
    let other = lab.container("other");
    let long = "x".repeat(300);
    for name in [
        "a\nb",
        "a\tb",
        "a#b",
        "#",
        &long,
        "..",
        "a..b",
        "*",
        "*.dns.test",
        "-a",
        "10.1.2.9",
        "a b",
        "\u{e4}",
    ] {
        let outcome = networks.try_add("net", &other, "other", &[name]);
        let error: Value = serde_json::from_str(&outcome.stdout).unwrap_or_default();
        assert!(!outcome.succeeded(), "{name:?}");
        let said = format!("{error}{}", outcome.stderr);
        assert!(said.contains("runtimeConfig.aliases"), "{name:?}: {said}");
        assert_eq!(hosts_of("net"), before, "{name:?}");
    }
    for name in ["a\tb", "a#b", &long, "..", "*"] {
        let outcome = networks.try_add("net", &other, name, &[]);
        let said = format!("{}{}", outcome.stdout, outcome.stderr);
        assert!(!outcome.succeeded() && said.contains("K8S_POD_NAME"), "{name:?}: {said}");
        assert_eq!(hosts_of("net"), before, "{name:?}");
    }
    networks.del("net", &pod);
}

#[test]
fn each_mistake_has_its_code() {
    beyond_reference!("dnsname");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let prev = json!({
        "cniVersion": "1.0.0", "interfaces": [{"name": "eth0", "sandbox": pod.netns.path()}],
        "ips": [{"address": "10.1.2.3/24", "gateway": "10.1.2.1", "interface": 0}],
    });
    let call = lab.plugin("dnsname").on(&pod).config(json!({"prevResult": prev}));
    let aliases = |names: Value| json!({"runtimeConfig": {"aliases": names}});
    for (keys, code, word) in [
        (json!({"prevResult": null}), 7, "chained"),
        (json!({"domainName": "a b"}), 7, "domainName"),
        (json!({"domainName": "x".repeat(190)}), 7, "domainName"),
        (json!({"domainName": 5}), 6, "domainName"),
        (json!({"internal": "yes"}), 6, "internal"),
        (json!({"multiDomain": 1}), 6, "multiDomain"),
        (aliases(json!("db")), 6, "aliases"),
        (aliases(json!(["a\nb"])), 7, "aliases"),
        (aliases(json!({"net": ["*"]})), 7, "aliases"),
        (json!({}), 7, "macvlan"),
    ] {
        call.clone().config(keys.clone()).add().refused(code, word);
    }
    call.clone().args("K8S_POD_NAME=a..b").add().refused(7, "K8S_POD_NAME");
    assert!(is_gone("net"));
}

#[test]
fn a_network_in_which_the_host_has_no_address_is_refused_with_the_reason() {
    beyond_reference!("dnsname");
    lab::needs!(Macvlan);
    let lab = Lab::new();
    crate::common::cable(&lab);
    // The host is the router of a LAN. The gateway is the host's address in the LAN, and machines in the LAN must not reach the server.
    lab.host().sh(
        "ip link add lan type veth peer name switch; ip addr add 10.1.2.1/24 dev lan; ip link set lan up",
    );
    let pod = lab.container("pod");
    let ipam = host_local(&[&["10.1.2.0/24"]]);
    let macvlan = json!({"type": "macvlan", "master": "cable", "ipam": ipam});
    let bridge = json!({"type": "bridge", "bridge": "br0", "ipam": ipam});
    for first in [macvlan, bridge] {
        let networks = Networks::new(&lab, &[chained("net", &first, &json!({}))]);
        let outcome = networks.try_add("net", &pod, "pod", &[]);
        assert!(!outcome.succeeded());
        let said = format!("{}{}", outcome.stdout, outcome.stderr);
        assert!(said.contains("isGateway") && said.contains("macvlan"), "{said}");
        assert_eq!(server_of("net"), None);
        networks.del("net", &pod);
    }
}

#[test]
fn without_dnsmasq_errors_of_status_and_add_name_the_package() {
    beyond_reference!("dnsname");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let network = network(&json!({}));
    let prev = lab.plugin("bridge").config(network["plugins"][0].clone()).on(&pod).add().ok_result();
    let call = lab.plugin("dnsname").config(network["plugins"][1].clone()).on(&pod);
    let call = call.config(json!({"prevResult": prev}));
    call.status().ok();
    // Hides dnsmasq, if the machine has it: mounts an empty directory over each directory of programs.
    lab.host().sh(
        "mkdir /run/lab/empty; for dir in /usr/local/sbin /usr/sbin; do mount --bind /run/lab/empty $dir; done",
    );
    call.status().refused(50, "dnsmasq-base");
    call.add().refused(50, "dnsmasq-base");
    assert!(is_gone("net") && server_of("net").is_none());
    call.del().ok();
}
