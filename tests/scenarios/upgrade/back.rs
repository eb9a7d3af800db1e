//! Switching back: what the reference's DEL leaves of a Ferrule attachment, and the commands of docs/migrate.md that
//! remove it.

use std::fs;

use lab::{Call, Lab, Release, beyond_reference, repository};
use serde_json::{Value, json};

use crate::common::{dual_stack, leases};

/// bridge, portmap and firewall with rules of all kinds.
fn plugins(backend: &str) -> Vec<Value> {
    let ports = json!({"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]});
    let mut bridge = dual_stack();
    for (key, value) in [
        ("type", json!("bridge")),
        ("ipMasq", json!(true)),
        ("ipMasqBackend", json!(backend)),
        ("macspoofchk", json!(true)),
    ] {
        bridge[key] = value;
    }
    vec![
        bridge,
        json!({"type": "portmap", "backend": backend, "runtimeConfig": ports}),
        json!({"type": "firewall", "backend": backend, "ingressPolicy": "same-bridge"}),
    ]
}

/// The commands on the page that remove the last container's rules.
fn clean_up() -> String {
    let page = fs::read_to_string(repository().join("docs/migrate.md")).unwrap();
    let mut blocks = page.split("```sh example\n").filter_map(|text| text.split("```").next());
    blocks
        .find(|block| block.contains("/run/ferrule/localnet"))
        .expect("the page has the commands")
        .to_owned()
}

/// Rules of an administrator that only resemble Ferrule's.
const OTHERS: [&str; 2] = [
    "FORWARD -i ferrule0 -m comment --comment Ferrule:others -j OTHERS",
    "FORWARD -m comment --comment not-of-ferrule:others -j OTHERS",
];

/// Everything of Ferrule on the host, and the chains that both suites use.
fn of_ours(lab: &Lab) -> String {
    let rules = "(nft list ruleset; iptables-legacy-save) | grep -i -E 'ferrule|CNI-' | grep -v OTHERS || :";
    lab.host().sh(&format!("{rules}; ls /run/ferrule/localnet 2>/dev/null || :"))
}

#[test]
fn the_commands_on_the_page_remove_the_rules_that_the_references_del_leaves() {
    beyond_reference!("rules-by-attachment");
    for release in Release::with("bridge") {
        for backend in ["nftables", "iptables"] {
            let lab = Lab::new();
            let pod = lab.container("pod");
            lab.host().sh("nft add table inet others; iptables -N OTHERS");
            // With nftables, the plugin firewall also opens legacy tables that drop packets.
            let has_legacy =
                lab.host().try_exec(&["iptables-legacy", "-P", "FORWARD", "DROP"]).status.success();
            for rule in OTHERS {
                lab.host().sh(&format!("iptables -A {rule}"));
            }
            let call = |conf: &Value| -> Call {
                lab.plugin(conf["type"].as_str().unwrap()).config(conf.clone()).on(&pod)
            };
            let conflist = plugins(backend);
            let mut prev = call(&conflist[0]).add().ok_result();
            for conf in &conflist[1..] {
                prev = call(conf).config(json!({"prevResult": prev})).add().ok_result();
            }
            for conf in conflist.iter().rev() {
                // The reference's DEL of bridge fails if one of its chains is missing.
                call(conf).config(json!({"prevResult": prev})).by_release(release).del();
            }
            assert!(pod.link("eth0").is_none() && leases().is_empty(), "{release} removes link and leases");
            assert!(!of_ours(&lab).is_empty(), "{release} knows rules of {backend}: the page can say so");
            let opened = lab.host().sh("iptables-legacy-save").contains("CNI-FORWARD");
            assert_eq!(opened, has_legacy && backend == "nftables", "{release}, {backend}");
            lab.host().sh(&clean_up());
            assert_eq!(of_ours(&lab), "", "{release}, {backend}");
            assert_eq!(lab.host().sysctl("ipv4/conf/br0/route_localnet"), "0", "{release}, {backend}");
            lab.host().sh("nft list table inet others");
            for rule in OTHERS {
                lab.host().sh(&format!("iptables -C {rule}"));
            }
        }
    }
}
