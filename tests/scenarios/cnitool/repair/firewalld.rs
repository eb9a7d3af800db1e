//! Debian's firewalld reloads and removes rules.

use lab::firewalld::{BUS, Firewalld, ask, is_here, reload};
use lab::{Lab, StopPoint, beyond_reference, tcp_is_cut_off, until_within};
use serde_json::json;

use super::concurrent::{IS_REPAIR, start_under, with_own_plugins};
use super::{HOST, RESTORED, Watching, answers, tool};
use crate::common::dual_stack;

/// A zone that accepts everything, so that only NAT matters.
const ZONE: &str = "trusted";

#[test]
fn after_a_reload_of_firewalld_a_host_port_works_or_check_reports_it_and_repair_restores_it() {
    beyond_reference!("repair");
    if !is_here() {
        return;
    }
    for (theirs, ours, lost) in [
        ("iptables", "iptables", Some(true)),
        // Up to version 1.3. From 2.0 on, only if firewalld has direct rules (firewalld#863).
        ("nftables", "iptables", None),
        ("iptables", "nftables", Some(false)),
        ("nftables", "nftables", Some(false)),
    ] {
        let lab = Lab::new();
        let (pod, far) = (lab.container("pod"), lab.machine("far"));
        let _firewalld = Firewalld::start(&lab, theirs, ZONE);
        let tool = tool(&lab, ours);
        tool.says("add net pod --container-id pod");
        let _server = pod.serve_tcp("pod", "10.1.2.2:80");
        assert!(answers(&far), "{ours} with {theirs}");

        reload();
        let checked = tool.run("check net --all");
        let says_so = if checked.succeeded() { answers(&far) } else { tcp_is_cut_off(&far, HOST) };
        assert!(says_so, "{ours} with {theirs}: {checked:#?}");
        let lost = lost.unwrap_or(!checked.succeeded());
        assert_eq!(checked.succeeded(), !lost, "{ours} with {theirs}: {checked:#?}");
        let repaired = if lost { json!(["net/pod/eth0"]) } else { json!([]) };
        assert_eq!(tool.json("repair --all")["repaired"], repaired, "{ours} with {theirs}");
        assert!(answers(&far), "{ours} with {theirs}");
        tool.says("check net --all");
    }
}

#[test]
fn watch_restores_rules_after_a_reload_of_firewalld() {
    beyond_reference!("repair");
    if !is_here() {
        return;
    }
    for theirs in ["iptables", "nftables"] {
        let lab = Lab::new();
        let (pod, far) = (lab.container("pod"), lab.machine("far"));
        let _firewalld = Firewalld::start(&lab, theirs, ZONE);
        let tool = tool(&lab, "iptables");
        tool.says("add net pod --container-id pod");
        let _server = pod.serve_tcp("pod", "10.1.2.2:80");
        let watching = Watching::start(&tool);
        // The first flush may come before the watcher's first look.
        for _ in 0..2 {
            reload();
            until_within(RESTORED, "the rules are back", || tool.run("check net --all").succeeded());
            assert!(answers(&far), "{theirs}");
        }
        assert_eq!(watching.end(), Some(0), "{theirs}");
    }
}

#[test]
fn a_repair_removes_the_addresses_that_it_has_added_to_a_zone_after_a_del() {
    beyond_reference!("repair");
    if !is_here() {
        return;
    }
    let lab = Lab::new();
    lab.container("pod");
    let _firewalld = Firewalld::start(&lab, "nftables", "public");
    let mut bridge = dual_stack();
    bridge["type"] = json!("bridge");
    let plugins = json!([bridge, {"type": "firewall", "backend": "firewalld"}]);
    lab.configure("10-net.conflist", &json!({"cniVersion": "1.0.0", "name": "net", "plugins": plugins}));
    let tool = with_own_plugins(lab.cnitool()).env("DBUS_SYSTEM_BUS_ADDRESS", BUS);
    let repair = |strace: &[String]| {
        start_under(strace, "firewall", IS_REPAIR);
        tool.run("repair --all")
    };
    tool.says("add net pod --container-id pod");
    reload();
    let addition = StopPoint::before("/firewalld.lock>", |strace| drop(repair(strace)));
    reload();
    let repaired = addition.run(repair, || drop(tool.says("del net pod --container-id pod")));
    for source in ["10.1.2.2/32", "fd00:1:2::2/128"] {
        assert!(!ask(&format!("--zone=trusted --query-source={source}")), "{source} is in the zone");
    }
    assert!(lab.host().sh("ls -A /run/cni/firewalld").is_empty());
    assert!(repaired.stderr.contains("net/pod/eth0 is skipped"), "{repaired:#?}");
}
