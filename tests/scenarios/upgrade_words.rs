//! What the reference's 1.9.1 refuses, ours refuse too, and scripts find its words at the beginning of the message.

use lab::{Call, Lab, Release};
use serde_json::{Value, json};

/// A refusal that a configuration provokes: the plugin, and the configuration's own keys.
struct Row(&'static str, Value);

/// The message of ours begins with the reference's.
fn same_words() -> Vec<Row> {
    let addresses = |address: &str| json!({"ipam": {"type": "static", "addresses": [{"address": address}]}});
    let asked = json!({"ips": ["10.0.0.1"]});
    let shaped = |keys: Value| {
        let mut all = json!({"prevResult": prev()});
        all.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
        Row("bandwidth", all)
    };
    let mapped = json!({"portMappings": [{"hostPort": 80, "containerPort": 80, "protocol": "tcp"}]});
    vec![
        Row("static", addresses("10.0.0.1")),
        Row("static", addresses("x")),
        Row("static", json!({"ipam": {"type": "static"}, "runtimeConfig": asked})),
        Row("static", json!({"ipam": {"type": "static"}, "args": {"cni": asked}})),
        shaped(json!({"ingressBurst": 1000})),
        shaped(json!({"egressBurst": 1000})),
        shaped(json!({"ingressRate": 1000})),
        shaped(json!({"egressRate": 8000, "egressBurst": 99_999_999_999_u64})),
        Row("bandwidth", json!({"ingressRate": 8000, "ingressBurst": 8000})),
        Row("portmap", json!({"runtimeConfig": mapped})),
        Row("firewall", json!({})),
        Row("sbr", json!({})),
        Row("tuning", json!({})),
        Row("vrf", json!({"vrfname": "blue"})),
        Row("vrf", json!({"prevResult": prev()})),
        Row("host-device", json!({})),
    ]
}

/// Ours refuse them as well, in other words.
fn other_words() -> Vec<Row> {
    let local = |keys: Value| {
        let mut ipam = json!({"type": "host-local", "subnet": "10.0.0.0/24"});
        ipam.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
        Row("host-local", json!({"ipam": ipam}))
    };
    let chained = |plugin, keys: Value| {
        let mut all = json!({"prevResult": prev()});
        all.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
        Row(plugin, all)
    };
    vec![
        Row("bridge", json!({"hairpinMode": true, "promiscMode": true})),
        Row("bridge", json!({"vlan": 5000})),
        Row("bridge", json!({"vlanTrunk": [{"minID": 5}]})),
        Row("bridge", json!({"vlanTrunk": [{"minID": 9, "maxID": 5}]})),
        Row("bridge", json!({"vlanTrunk": [{"id": 5000}]})),
        Row("macvlan", json!({"master": "cable", "mode": "foo"})),
        Row("macvlan", json!({"master": "cable", "mtu": 9000})),
        Row("macvlan", json!({"master": "nope"})),
        Row("ipvlan", json!({"master": "cable", "mode": "foo"})),
        Row("vlan", json!({"vlanId": 5})),
        Row("vlan", json!({"master": "cable", "vlanId": 5000})),
        Row("host-device", json!({"device": "nope"})),
        Row("host-device", json!({"hwaddr": "zz"})),
        Row("host-device", json!({"kernelpath": "/etc"})),
        local(json!({"subnet": "x"})),
        local(json!({"subnet": "10.0.0.0/31"})),
        local(json!({"rangeStart": "10.0.1.1"})),
        local(json!({"rangeEnd": "10.0.1.1"})),
        local(json!({"rangeStart": "10.0.0.9", "rangeEnd": "10.0.0.5"})),
        Row("static", json!({"ipam": {"type": "static", "routes": [{"dst": "x"}]}})),
        chained("portmap", json!({"markMasqBit": 55})),
        chained("portmap", json!({"backend": "foo"})),
        chained("portmap", json!({"externalSetMarkChain": "A", "markMasqBit": 5})),
        chained("tuning", json!({"sysctl": {"kernel.x": "1"}})),
        chained("tuning", json!({"mac": "zz"})),
        chained("firewall", json!({"ingressPolicy": "foo"})),
    ]
}

fn prev() -> Value {
    json!({
        "cniVersion": "1.0.0", "interfaces": [{"name": "eth0", "sandbox": "/run/netns/pod"}],
        "ips": [{"address": "10.1.2.2/24", "interface": 0}],
    })
}

/// The message of the reference's refusal, and the outcome of ours.
fn refusals(Row(plugin, keys): &Row) -> (String, lab::CniError) {
    let lab = Lab::new();
    let pod = lab.container("pod");
    crate::common::cable(&lab);
    let call: Call = lab.plugin(plugin).on(&pod).config(keys.clone());
    let theirs: Value = serde_json::from_str(&call.clone().by_release(Release::V1_9_1).add().stdout).unwrap();
    let words = theirs["msg"].as_str().unwrap_or_else(|| panic!("1.9.1 accepts {plugin} {keys}: {theirs}"));
    (words.to_owned(), call.add().error())
}

#[test]
fn messages_of_refusals_begin_with_the_words_of_the_reference() {
    if !Release::with("bridge").contains(&Release::V1_9_1) {
        return;
    }
    for row in same_words() {
        let (words, ours) = refusals(&row);
        assert!(ours.msg.starts_with(&words), "{} {}: {words:?}, and ours {ours:?}", row.0, row.1);
    }
}

#[test]
fn what_the_reference_refuses_is_refused_with_a_code_of_the_specification() {
    if !Release::with("bridge").contains(&Release::V1_9_1) {
        return;
    }
    for row in other_words() {
        let (words, ours) = refusals(&row);
        lab::beyond_reference!("errors");
        assert!([2, 4, 5, 6, 7].contains(&ours.code), "{} {}: {words:?}, and ours {ours:?}", row.0, row.1);
    }
}
