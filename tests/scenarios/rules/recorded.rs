//! The rules of the reference for two containers, recorded for the tests of the crate netfilter, which start no plugin.

use std::{env, fs};

use lab::{Call, Lab, Release, repository};
use serde_json::{Value, json};

use crate::common::{host_end, ports};

/// What each file begins with, for a command that lists rules.
fn head(list: &str) -> String {
    format!(
        "# Rules of the reference's release 1.9.1 for the containers c1 and c2 of the network cbr0, by {list}. Recorded by
# BLESS=1 cargo test -p suite --test scenarios -- recorded_rules_are_those_of_the_reference\n"
    )
}

/// Rules of all kinds, for a container whose port 80 is `host_port` of the host.
fn plugins(backend: &str, mac: &str, host_port: u16) -> Value {
    let range = |subnet, start| json!([{"subnet": subnet, "rangeStart": start}]);
    let ranges = [range("10.1.0.0/24", "10.1.0.5"), range("fd00::/64", "fd00::5")];
    let mappings = json!([{"hostPort": host_port, "containerPort": 80, "protocol": "tcp"}]);
    let mut portmap = ports();
    portmap["backend"] = json!(backend);
    portmap["runtimeConfig"] = json!({"portMappings": mappings});
    json!([
        {
            "type": "bridge", "bridge": "br0", "isGateway": true, "ipMasq": true, "ipMasqBackend": backend,
            "macspoofchk": backend == "nftables", "args": {"cni": {"mac": mac}},
            "ipam": {"type": "host-local", "ranges": ranges},
        },
        portmap,
    ])
}

/// Lists the rules after the reference has attached both containers. Random names of links, and counters, are replaced.
fn rules(backend: &str, list: &str) -> String {
    let lab = Lab::new();
    let attach = |(id, mac, host_port): (&'static str, &str, u16)| {
        let plugins = plugins(backend, mac, host_port);
        let chain = lab.chain(json!({"cniVersion": "1.0.0", "name": "cbr0", "plugins": plugins}));
        let theirs = chain.each(|call: Call| call.by_release(Release::V1_9_1));
        (id, theirs.add(&lab.container(id), "eth0").ok_result())
    };
    let results = [("c1", "02:00:00:00:00:05", 8080), ("c2", "02:00:00:00:00:06", 8081)].map(attach);
    let listed = results.iter().fold(lab.host().sh(list), |text, (id, result)| {
        text.replace(host_end(result), &id.replace('c', "veth"))
    });
    let lines = listed.lines().filter(|line| !line.starts_with('#'));
    let line = |line: &str| match line.split_once(" [") {
        Some((chain, _)) if line.starts_with(':') => format!("{chain} [0:0]\n"),
        _ => format!("{line}\n"),
    };
    lines.map(line).collect()
}

#[test]
fn recorded_rules_are_those_of_the_reference() {
    if !Release::V1_9_1.is_here() {
        return;
    }
    for (backend, list) in [
        ("nftables", "nft list ruleset"),
        ("iptables", "iptables-save -t nat"),
        ("iptables", "ip6tables-save -t nat"),
    ] {
        let found = head(list) + &rules(backend, list);
        let tool = list.split([' ', '-']).next().unwrap();
        let file = repository().join(format!("shared/netfilter/tests/reference/{tool}.txt"));
        if env::var_os("BLESS").is_some() {
            fs::write(&file, &found).unwrap();
        }
        assert_eq!(found, fs::read_to_string(&file).unwrap(), "{}", file.display());
    }
}
