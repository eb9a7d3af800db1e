//! Invalid configurations of firewall, tested like those of other plugins.

use lab::{Lab, beyond_reference};
use serde_json::json;

use crate::all_plugins::bad_input::{Bad, refuses};

#[test]
fn keys_of_firewall() {
    beyond_reference!("bad-input");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let prev = json!({
        "cniVersion": "1.0.0",
        "interfaces": [{"name": "eth0", "sandbox": pod.path()}],
        "ips": [{"address": "10.1.2.2/24", "interface": 0}],
    });
    let call = lab.plugin("firewall").on(&pod).config(json!({"prevResult": prev}));
    #[rustfmt::skip]
    let rows = [
        Bad("a backend that is none", 7, "backend \"ebpf\"", |c| c.config(json!({"backend": "ebpf"}))),
        Bad("a backend that is a number", 6, "backend", |c| c.config(json!({"backend": 1}))),
        Bad("a policy that is none", 7, "ingressPolicy \"closed\"", |c| c.config(json!({"ingressPolicy": "closed"}))),
        Bad("a policy that is a list", 6, "ingressPolicy", |c| c.config(json!({"ingressPolicy": ["open"]}))),
        Bad("a chain with a rule behind it", 7, "iptablesAdminChainName", |c| c.config(json!({"iptablesAdminChainName": "X -j ACCEPT"}))),
        Bad("a chain that is an option", 7, "iptablesAdminChainName", |c| c.config(json!({"iptablesAdminChainName": "-F"}))),
        Bad("a chain with a line end", 7, "iptablesAdminChainName", |c| c.config(json!({"iptablesAdminChainName": "X\nCOMMIT"}))),
        Bad("a chain of too many letters", 7, "iptablesAdminChainName", |c| c.config(json!({"iptablesAdminChainName": "a".repeat(29)}))),
        Bad("a bit beyond the last", 7, "acceptMarkBit 32", |c| c.config(json!({"acceptMarkBit": 32}))),
        Bad("a bit before the first", 7, "acceptMarkBit -1", |c| c.config(json!({"acceptMarkBit": -1}))),
        Bad("a bit that is a word", 6, "acceptMarkBit", |c| c.config(json!({"acceptMarkBit": "12"}))),
        Bad("a zone that is a number", 6, "firewalldZone", |c| c.config(json!({"firewalldZone": 1}))),
        Bad("no result before", 7, "prevResult", |c| c.config(json!({"prevResult": null}))),
    ];
    refuses(&lab, &call, "ADD", &rows);
}
