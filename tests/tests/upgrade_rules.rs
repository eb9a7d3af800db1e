//! Firewall rules of the reference on a host that changes to ours, with containers on it.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};
use suite::{Call, Chain, Lab, Outcome, beyond_reference, tcp_is_cut_off, tcp_says};

use crate::common::dual_stack;

/// bridge with masquerade, and portmap, as the reference installs them: by iptables.
fn full_chain(lab: &Lab, keys: Value, host_port: u16) -> Chain {
    let mut bridge = dual_stack();
    bridge["type"] = json!("bridge");
    bridge["ipMasq"] = json!(true);
    let mut portmap = keys;
    portmap["type"] = json!("portmap");
    let mappings = ["tcp", "udp"]
        .map(|protocol| json!({"hostPort": host_port, "containerPort": 80, "protocol": protocol}));
    portmap["runtimeConfig"] = json!({"portMappings": mappings});
    lab.chain(json!({"cniVersion": "1.0.0", "name": "net", "plugins": [bridge, portmap]}))
}

/// The nat tables of iptables, without what counts and what tells the time.
fn nat(lab: &Lab) -> Vec<String> {
    let saved = lab.host().sh("iptables-save -t nat; ip6tables-save -t nat");
    let lines = saved.lines().filter(|line| !line.starts_with('#'));
    let mut lines: Vec<_> = lines.map(|line| line.split(" [").next().unwrap().to_owned()).collect();
    lines.sort();
    lines
}

#[test]
fn rules_that_the_reference_made_go_with_our_del() {
    let lab = Lab::new();
    let far = lab.machine("far");
    let [stays, goes] = ["stays", "goes"].map(|id| lab.container(id));
    let [first, second] = [8080, 9090].map(|port| full_chain(&lab, json!({}), port));
    first.clone().each(Call::by_the_reference).add(&stays, "eth0").ok_result();
    let before = nat(&lab);
    let result = second.clone().each(Call::by_the_reference).add(&goes, "eth0").ok_result();
    assert_ne!(nat(&lab), before);

    second.del(&goes, "eth0", &result).iter().for_each(Outcome::ok);
    assert_eq!(nat(&lab), before);
    let _server = stays.serve_tcp("stays", "10.1.2.2:80");
    assert_eq!(tcp_says(&far, "198.51.100.1:8080").as_deref(), Some("stays 198.51.100.2"));
}

#[test]
fn rules_that_the_reference_made_go_without_namespace_and_prev_result() {
    beyond_reference!("rules-by-attachment");
    let lab = Lab::new();
    let [stays, goes] = ["stays", "goes"].map(|id| lab.container(id));
    let network = full_chain(&lab, json!({}), 8080);
    network.clone().each(Call::by_the_reference).add(&stays, "eth0").ok_result();
    let before = nat(&lab);
    network.clone().each(Call::by_the_reference).add(&goes, "eth0").ok_result();
    goes.vanish();
    for plugin in ["portmap", "bridge"] {
        let call = lab.plugin(plugin).on(&goes).without("CNI_NETNS");
        call.config(json!({"ipam": dual_stack()["ipam"]})).del().ok();
    }
    assert_eq!(nat(&lab), before);
}

#[test]
fn rules_that_the_reference_made_go_with_our_gc() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let [stays, goes] = ["stays", "goes"].map(|id| lab.container(id));
    let [first, second] = [8080, 9090].map(|port| full_chain(&lab, json!({}), port));
    first.each(Call::by_the_reference).add(&stays, "eth0").ok_result();
    let before = nat(&lab);
    second.each(Call::by_the_reference).add(&goes, "eth0").ok_result();
    goes.vanish();
    for plugin in ["portmap", "bridge"] {
        let call = lab.plugin(plugin).config(json!({"ipam": dual_stack()["ipam"]}));
        call.gc(&[("stays", "eth0")]).ok();
    }
    assert_eq!(nat(&lab), before);
}

#[test]
fn a_mapping_of_ours_takes_the_port_over_from_a_stale_one_of_the_reference() {
    beyond_reference!("newest-wins");
    for backend in ["nftables", "iptables"] {
        let lab = Lab::new();
        let far = lab.machine("far");
        let [stale, fresh] = ["stale", "fresh"].map(|id| lab.container(id));
        let network = full_chain(&lab, json!({"backend": backend}), 8080);
        let old = network.clone().each(Call::by_the_reference).add(&stale, "eth0").ok_result();
        network.add(&fresh, "eth0").ok_result();
        let _servers = [stale.serve_tcp("stale", "10.1.2.2:80"), fresh.serve_tcp("fresh", "10.1.2.3:80")];
        let answer = Some("fresh 198.51.100.2".to_owned());
        assert_eq!(tcp_says(&far, "198.51.100.1:8080"), answer, "{backend}");
        network.del(&stale, "eth0", &old).iter().for_each(Outcome::ok);
        assert_eq!(tcp_says(&far, "198.51.100.1:8080"), answer, "{backend}");
        network.del(&fresh, "eth0", &old).iter().for_each(Outcome::ok);
        assert!(tcp_is_cut_off(&far, "198.51.100.1:8080"), "{backend}");
    }
}

#[test]
fn on_a_host_without_rules_of_the_reference_no_program_is_started() {
    beyond_reference!("rules-by-attachment");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let started = lab.dir().join("started");
    fs::create_dir(lab.dir().join("watched")).unwrap();
    for program in ["iptables", "ip6tables", "nft"] {
        for suffix in ["", "-save", "-restore", "-nft-save", "-legacy-save", "-nft-restore"] {
            let path = lab.dir().join(format!("watched/{program}{suffix}"));
            fs::write(&path, format!("#!/bin/sh\necho $0 >>{}\nexit 1\n", started.display())).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
    }
    let network = full_chain(&lab, json!({}), 8080).each(|call| call.env("PATH", "/run/lab/watched"));
    let result = network.add(&pod, "eth0").ok_result();
    network.del(&pod, "eth0", &result).iter().for_each(Outcome::ok);
    assert_eq!(fs::read_to_string(started).unwrap_or_default(), "");
}
