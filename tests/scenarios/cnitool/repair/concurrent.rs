//! A repair and a DEL of the same attachment: one of them is stopped in the middle while the other runs. And repairs in a
//! loop.

use std::path::Path;
use std::process::Command;

use lab::dhcp::in_background;
use lab::{StopPoint, meanwhile, write_program};

use super::*;

/// cnitool, which finds the programs of [`start_under`] before the plugins.
pub fn with_own_plugins(tool: Tool) -> Tool {
    tool.env("CNI_PATH", &format!("{}:{}", Lab::plugin_dir().display(), under_test().dir.display()))
}

/// Makes cnitool start a plugin by strace's command if a condition of sh is true.
pub fn start_under(strace: &[String], plugin: &str, condition: &str) {
    let (real, strace) = (quoted(&under_test().dir.join(plugin)), strace.join(" "));
    let script = format!("#!/bin/sh\n! {condition} || exec {strace} {real} \"$@\"\nexec {real} \"$@\"\n");
    write_program(&Lab::plugin_dir().join(plugin), &script);
}

pub const IS_REPAIR: &str = r#"[ "$1" = repair ]"#;
const IS_DEL: &str = r#"[ "$CNI_COMMAND" = DEL ]"#;

/// The ADD of a plugin that changes nothing, as a command of sh.
const PASS_ON: &str =
    r#"exec python3 -c 'import json, sys; json.dump(json.load(sys.stdin)["prevResult"], sys.stdout)'"#;

fn rules(host: &Netns) -> String {
    host.sh("nft list ruleset; iptables-legacy-save 2>/dev/null || :")
}

#[track_caller]
fn assert_no_rules(lab: &Lab, what: &str) {
    let rules = rules(lab.host());
    assert!(!rules.contains("net/pod") && !rules.contains("10.1.2."), "{what}: {rules}");
}

#[test]
fn a_repair_removes_the_rules_that_it_has_installed_after_a_del() {
    beyond_reference!("repair");
    // The first call of the installation.
    for (backend, installs) in [("nftables", "NFNL_MSG_BATCH_BEGIN"), ("iptables", "/iptables.lock>")] {
        let lab = Lab::new();
        lab.container("pod");
        let tool = with_own_plugins(tool(&lab, backend));
        // cnitool would repair the rules of portmap concurrently. If portmap changes the ruleset first, bridge repeats
        // requests, and then its two runs differ.
        let mut network = pods(backend);
        network["plugins"].as_array_mut().unwrap().truncate(1);
        lab.configure("10-net.conflist", &network);
        let repair = |strace: &[String]| {
            start_under(strace, "bridge", IS_REPAIR);
            tool.run("repair --all")
        };
        tool.says("add net pod --container-id pod");
        lab.host().sh("nft flush ruleset");
        let installation = StopPoint::before(installs, |strace| drop(repair(strace)));
        lab.host().sh("nft flush ruleset");
        let repaired = installation.run(repair, || drop(tool.says("del net pod --container-id pod")));
        assert_no_rules(&lab, backend);
        assert!(repaired.stderr.contains("net/pod/eth0 is skipped"), "{backend}: {repaired:#?}");
    }
}

#[test]
fn a_del_removes_the_rules_that_a_repair_restored_before_it_deletes_the_interface() {
    beyond_reference!("repair");
    for (plugin, backend) in
        [("bridge", "nftables"), ("bridge", "iptables"), ("ptp", "nftables"), ("ptp", "iptables")]
    {
        let lab = Lab::new();
        lab.container("pod");
        let tool = with_own_plugins(tool(&lab, backend));
        let mut network = pods(backend);
        network["plugins"][0]["type"] = json!(plugin);
        lab.configure("10-net.conflist", &network);
        let del = |strace: &[String]| {
            start_under(strace, plugin, IS_DEL);
            tool.says("del net pod --container-id pod")
        };
        tool.says("add net pod --container-id pod");
        let deletion = StopPoint::before("RTM_DELLINK", |strace| drop(del(strace)));
        tool.says("add net pod --container-id pod");
        let host = lab.host();
        deletion.run(del, || {
            // The rules of portmap, whose DEL has run, are removed again. Those of this plugin are restored.
            let repaired = tool.run("repair --all");
            let what = format!("{plugin}: {backend}: {repaired:#?}");
            assert!(repaired.stderr.contains("net/pod/eth0 is skipped: its DEL runs"), "{what}");
            let rules = rules(host);
            assert!(rules.contains("10.1.2.") && !rules.contains("8080"), "{what}\n{rules}");
        });
        assert_no_rules(&lab, &format!("{plugin}: {backend}"));
    }
}

/// A plugin of another vendor may take long in its DEL. Until the last plugin's DEL, the interface exists, and the container looks alive.
#[test]
fn what_a_repair_restores_in_the_middle_of_a_del_is_removed_again() {
    needs!(TrafficControl);
    beyond_reference!("repair");
    let slow = format!(
        "case $CNI_COMMAND in
        ADD) {PASS_ON} ;;
        DEL) cat >/dev/null; touch /run/lab/running; while ! [ -e /run/lab/go-on ]; do sleep 0.01; done ;;
        esac"
    );
    for backend in ["nftables", "iptables"] {
        let lab = Lab::new();
        let pod = lab.container("pod");
        let tool = tool(&lab, backend);
        lab.fake_plugin("slow", &slow);
        let mut network = pods(backend);
        let plugins = network["plugins"].as_array_mut().unwrap();
        plugins.insert(1, json!({"type": "slow"}));
        plugins.push(json!({"type": "firewall", "backend": backend}));
        plugins.push(json!({"type": "bandwidth", "egressRate": 8_000_000, "egressBurst": 800_000}));
        lab.configure("10-net.conflist", &network);
        tool.says("add net pod --container-id pod");
        let mut del = tool.spawn("del net pod --container-id pod");
        lab.host().wait_until("the slow DEL runs", |_| fs::exists("/run/lab/running").unwrap());

        let repaired = tool.run("repair --all");
        assert!(
            repaired.stderr.contains("net/pod/eth0 is skipped: its DEL runs"),
            "{backend}: {repaired:#?}"
        );
        assert!(pod.link("eth0").is_some(), "the container looks alive");
        fs::write("/run/lab/go-on", "").unwrap();
        assert!(del.wait().unwrap().success(), "{backend}");
        assert_no_rules(&lab, backend);
        assert!(lab.host().ip("link show type ifb").is_empty(), "{backend}");
    }
}

/// A program with the variables of a DEL may be another user's, and the DEL may be that of an earlier container with the same id.
#[test]
fn what_a_repair_restores_stays_if_the_container_is_not_being_deleted() {
    beyond_reference!("repair");
    const USER: &[&str] = &["setpriv", "--reuid=4242", "--clear-groups"];
    const ADD: &[&str] = &["env", "CNI_COMMAND=ADD"];
    const ROOT: &[&str] = &["env"];
    for (programs, vendor) in
        [(&[USER][..], "true"), (&[ROOT, ADD], "true"), (&[ROOT], "touch /var/lib/cni/results/net-pod-eth0")]
    {
        let lab = Lab::new();
        let _pod = lab.container("pod");
        let tool = tool(&lab, "nftables");
        // This vendor's plugin does something else at the beginning of a repair.
        lab.fake_plugin(
            "vendor",
            &format!(
                "[ \"$CNI_COMMAND\" != ADD ] || {PASS_ON}
                [ \"$1\" != repair ] || {{ {vendor}; }}"
            ),
        );
        let mut network = pods("nftables");
        network["plugins"].as_array_mut().unwrap().push(json!({"type": "vendor"}));
        lab.configure("10-net.conflist", &network);
        tool.says("add net pod --container-id pod");
        let started: Vec<_> = programs
            .iter()
            .map(|under| {
                let variables = ["env", "CNI_COMMAND=DEL", "CNI_CONTAINERID=pod", "CNI_IFNAME=eth0"];
                let command = [&variables[..], under, &["sleep", "600"]].concat();
                let mut process = Command::new(command[0]);
                process.args(&command[1..]);
                in_background(lab.host(), process, Path::new("/dev/null"))
            })
            .collect();
        lab.host().sh("nft flush ruleset");
        let repaired = tool.run("repair --all");
        assert!(repaired.succeeded() && !repaired.stderr.contains("skipped"), "{vendor}: {repaired:#?}");
        tool.says("check net --all");
        drop(started);
    }
}

#[test]
fn adds_and_dels_succeed_while_repairs_run_and_leave_no_rules() {
    beyond_reference!("repair");
    for backend in ["nftables", "iptables"] {
        let lab = Lab::new();
        let tool = tool(&lab, backend);
        let pods: Vec<_> = (0..8).map(|i| lab.container(&format!("pod{i}"))).collect();
        meanwhile(
            || drop(tool.run("repair --all")),
            || {
                for pod in &pods {
                    tool.says(&format!("add net {0} --container-id {0}", pod.id));
                    tool.says(&format!("del net {0} --container-id {0}", pod.id));
                }
            },
        );
        assert_no_rules(&lab, backend);
    }
}
