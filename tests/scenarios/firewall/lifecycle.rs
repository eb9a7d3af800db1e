//! Each command, also with changes by other programs in between.

use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::thread;

use lab::{Call, Lab, Outcome, beyond_reference, under_test};
use serde_json::json;

use super::*;
use crate::common::leases;
use crate::field::crowd::by_workers;
use crate::field::effects::has_word;
use crate::field::stubs;

/// A call with a result that contains the container's address.
fn call(lab: &Lab, pod: &Container, address: &str) -> Call {
    let prev = json!({"interfaces": [{"name": "eth0", "sandbox": pod.path()}],
                      "ips": [{"address": address, "interface": 0}]});
    lab.plugin("firewall").version("1.1.0").on(pod).config(json!({"backend": "nftables", "prevResult": prev}))
}

#[test]
fn del_and_gc_need_neither_result_nor_namespace_and_keep_other_attachments() {
    beyond_reference!("firewall-nftables");
    let lab = Lab::new();
    lab.host().sh(POLICY_DROP);
    let before = lab.host().ruleset();
    let [a, b, c] = ["without-result", "b", "c"].map(|id| lab.container(id));
    let calls = [(&a, "10.1.2.2/24"), (&b, "10.1.2.3/24"), (&c, "fd00::5/64")];
    let calls = calls.map(|(pod, address)| call(&lab, pod, address));
    calls.iter().for_each(|call| drop(call.add().ok_result()));
    a.vanish();
    let bare = |pod: &Container| lab.plugin("firewall").version("1.1.0").on(pod);
    bare(&a).without("CNI_NETNS").del().ok();
    bare(&a).without("CNI_NETNS").del().ok();
    lab.plugin("firewall").version("1.1.0").gc(&[("b", "eth0")]).ok();
    let left = lab.host().ruleset();
    assert!(
        !left.contains("net/without-result/eth0")
            && !left.contains("net/c/eth0")
            && left.contains("net/b/eth0")
    );
    assert!(left.contains("mark bit 12"), "it is still needed: {left}");
    bare(&b).del().ok();
    assert_eq!(lab.host().ruleset(), before);
}

#[test]
fn an_address_of_a_newer_attachment_stays_allowed_when_the_older_one_is_deleted() {
    beyond_reference!("firewall-nftables");
    let lab = Lab::new();
    let [old, new] = ["old", "new"].map(|id| lab.container(id));
    let calls = [&old, &new].map(|pod| call(&lab, pod, "10.1.2.2/24"));
    let results = calls.each_ref().map(|call| call.add().ok_result());
    calls.iter().zip(&results).for_each(|(call, result)| call.check(result).ok());
    calls[0].del().ok();
    calls[1].check(&results[1]).ok();
    calls[1].del().ok();
    assert_eq!(lab.host().ruleset(), "");
}

#[test]
fn an_add_repeated_with_another_mark_bit_leaves_no_rule_for_the_earlier_one() {
    beyond_reference!("firewall-nftables");
    for other_bit in [None, Some(20), Some(21)] {
        let lab = Lab::new();
        lab.host().sh(POLICY_DROP);
        let before = lab.host().ruleset();
        let [pod, other] = ["pod", "other"].map(|id| lab.container(id));
        let with_bit = |call: &Call, bit: u8| call.clone().config(json!({"acceptMarkBit": bit}));
        let [of_pod, of_other] =
            [(&pod, "10.1.2.2/24"), (&other, "10.1.2.3/24")].map(|(pod, address)| call(&lab, pod, address));
        let others = other_bit.map(|bit| with_bit(&of_other, bit).add().ok_result());
        with_bit(&of_pod, 20).add().ok_result();
        let result = with_bit(&of_pod, 12).add().ok_result();
        let bits = || {
            let rules = lab.host().sh("iptables -S CNI-FORWARD");
            [12, 20, 21].map(|bit| rules.contains(&format!("\"ferrule: mark bit {bit}\"")))
        };
        assert_eq!(bits(), [true, other_bit == Some(20), other_bit == Some(21)], "{other_bit:?}");
        with_bit(&of_pod, 12).check(&result).ok();
        if let (Some(bit), Some(result)) = (other_bit, &others) {
            with_bit(&of_other, bit).check(result).ok();
        }
        of_pod.del().ok();
        if others.is_some() {
            assert_eq!(bits(), [false, other_bit == Some(20), other_bit == Some(21)], "{other_bit:?}");
            of_other.del().ok();
        }
        assert_eq!(lab.host().ruleset(), before, "{other_bit:?}");
    }
}

/// Such a rule is of an earlier version of Ferrule, or of an ADD that was killed.
#[test]
fn the_last_del_removes_rules_for_mark_bits_that_no_attachment_uses() {
    beyond_reference!("firewall-nftables");
    let lab = Lab::new();
    lab.host().sh(POLICY_DROP);
    let before = lab.host().ruleset();
    let pod = lab.container("pod");
    let call = call(&lab, &pod, "10.1.2.2/24");
    call.add().ok_result();
    lab.host().sh("iptables -A CNI-FORWARD -m mark --mark 0x100000/0x100000 \
        -m comment --comment 'ferrule: mark bit 20' -j ACCEPT");
    call.del().ok();
    assert_eq!(lab.host().ruleset(), before);
}

#[test]
fn check_notices_every_missing_rule_and_the_next_add_restores_it() {
    beyond_reference!("firewall-nftables");
    let lab = Lab::new();
    lab.host().sh(POLICY_DROP);
    let pod = lab.container("pod");
    let network = network(&lab, 2, &json!({"ingressPolicy": "isolated", "backend": "nftables"}));
    let (result, _) = attach(&network, &pod);
    let all_pass = || network.check(&pod, "eth0", &result).iter().all(Outcome::succeeded);
    for loss in [
        "nft flush set inet ferrule forward4/12",
        "nft flush set inet ferrule fenced",
        "nft flush set inet ferrule apart",
        "nft flush set bridge ferrule separated",
        "nft flush chain inet ferrule forward",
        "nft flush chain inet ferrule isolation",
        "iptables -F CNI-FORWARD",
        "ip6tables -F FORWARD",
        "iptables -F; iptables -X",
    ] {
        assert!(all_pass(), "before {loss}");
        lab.host().sh(loss);
        assert!(!all_pass(), "{loss}");
        let keys = json!({"ingressPolicy": "isolated", "backend": "nftables", "prevResult": result});
        let again = lab.plugin("firewall").on(&pod).config(keys).config(json!({"name": "net2"}));
        again.add().ok_result();
    }
    assert!(all_pass());
    network.del(&pod, "eth0", &result).iter().for_each(Outcome::ok);
    assert!(!lab.host().ruleset().contains("ferrule"));
}

#[test]
fn check_with_a_policy_reports_that_the_interface_no_longer_exists() {
    beyond_reference!("ingress-policy");
    for (policy, is_reported) in [("isolated", true), ("open", false)] {
        let lab = Lab::new();
        let pod = lab.container("pod");
        let (result, _) = attach(&network(&lab, 2, &json!({"ingressPolicy": policy})), &pod);
        pod.sh("ip link del eth0");
        let keys = json!({"name": "net2", "ingressPolicy": policy, "prevResult": result});
        let call = lab.plugin("firewall").version("1.0.0").on(&pod).config(keys);
        let outcome = call.check(&result);
        if is_reported {
            outcome.refused(3, "interface eth0 no longer exists");
        } else {
            outcome.ok();
        }
    }
}

#[test]
fn all_versions_are_supported_and_the_result_is_passed_on() {
    beyond_reference!("firewall-nftables");
    let lab = Lab::new();
    let pod = lab.container("pod");
    for version in ["0.1.0", "0.2.0"] {
        let prev = json!({"ip4": {"ip": "10.1.2.2/24"}, "dns": {"nameservers": ["10.1.0.53"]}});
        let call = lab.plugin("firewall").version(version).on(&pod).config(json!({"prevResult": prev}));
        let result = call.add().ok_result();
        assert_eq!((&result["ip4"]["ip"], &result["dns"]), (&json!("10.1.2.2/24"), &prev["dns"]));
        assert!(lab.host().ruleset().contains("10.1.2.2"));
        call.del().ok();
    }
    assert_eq!(lab.host().ruleset(), "");
}

#[test]
fn one_hundred_containers_by_sixteen_workers_attach_and_detach_on_one_bridge_without_errors_or_leftovers() {
    beyond_reference!("firewall-nftables");
    is_crowded(100, &under_test().dir);
}

#[test]
fn the_test_with_many_containers_fails_if_a_plugin_is_replaced_by_a_stub() {
    beyond_reference!("firewall-nftables");
    let chain =
        json!({"plugins": [{"type": "bridge", "ipam": {"type": "host-local"}}, {"type": "firewall"}]});
    stubs::fails_with_stubs("the crowd", &chain, |plugins| is_crowded(8, plugins));
}

/// Sixteen workers attach and detach containers on a bridge.
fn is_crowded(count: u16, plugins: &Path) {
    let lab = Lab::new();
    lab.host().sh(POLICY_DROP);
    let state = || (lab.host().ruleset(), lab.host().link_names());
    lab.host().sh("ip link add br0 type bridge");
    let before = state();
    let pods: Vec<_> = (0..count).map(|n| lab.container(&format!("pod{n}"))).collect();
    let plugin = |name: &str| stubs::call(lab.plugin(name), plugins);
    let bridge = plugin("bridge").config(json!({"bridge": "br0", "ipam": host_local(&[&["10.1.0.0/16"]])}));
    let plugin = plugin("firewall").config(json!({"ingressPolicy": "same-bridge"}));
    let firewall = |result: &Value| plugin.clone().config(json!({"prevResult": result}));
    let results = by_workers(&pods, |pod| {
        let result = bridge.clone().on(pod).add().ok_result();
        assert!(pod.link("eth0").is_some(), "{}: bridge has done nothing", pod.id);
        firewall(&result).on(pod).add().ok_result();
        result
    });
    let attached: Vec<_> = pods.iter().zip(&results).collect();
    let set = |name: &str| lab.host().sh(&format!("nft list set inet ferrule {name} 2>/dev/null || true"));
    let [open, fenced] = ["forward4/12", "fenced"].map(set);
    assert!(has_word(&fenced, "br0"), "the policy: firewall has done nothing: {fenced}");
    for (pod, result) in &attached {
        let address = ips(result)[0].split('/').next().unwrap();
        assert!(has_word(&open, address), "{}: firewall has done nothing for {address}: {open}", pod.id);
    }
    let check = |(pod, result): &(&Container, &Value)| firewall(result).on(pod).check(result).ok();
    let del = |(pod, result): &(&Container, &Value)| {
        firewall(result).on(pod).del().ok();
        bridge.clone().on(pod).del().ok();
    };
    by_workers(&attached, check);
    let (first, others) = attached.split_at(attached.len() / 2);
    by_workers(first, del);
    by_workers(others, check);
    by_workers(others, del);
    // The kernel deletes a pair a moment after the namespace's end of it.
    lab.host().wait_until("the links are deleted", |host| host.link_names() == before.1);
    assert_eq!(state(), before);
    assert!(leases().is_empty(), "{:?}", leases());
}

/// A fake system bus that sends the same answer to everyone, until the test ends.
fn bus_that_says(call: &Call, word: &'static str) -> Call {
    let path = format!("/run/lab/bus-{}", word.len());
    let listener = UnixListener::bind(&path).unwrap();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            stream.write_all(word.as_bytes()).ok();
            stream.read_to_end(&mut Vec::new()).ok();
        }
    });
    call.clone().env("DBUS_SYSTEM_BUS_ADDRESS", &format!("unix:path={path}"))
}

/// The host's bus denies access to root of a user namespace, in which rootless runtimes call plugins.
#[test]
fn a_bus_that_denies_access_is_an_error_only_if_firewalld_is_the_configured_backend() {
    beyond_reference!("firewall-nftables");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = bus_that_says(&call(&lab, &pod, "10.1.2.2/24"), "REJECTED EXTERNAL\r\n");
    let by_name = call.clone().config(json!({"backend": "firewalld"}));
    let call = call.config(json!({"backend": null}));
    let result = call.add().ok_result();
    assert!(lab.host().ruleset().contains("forward4/12"));
    call.check(&result).ok();
    call.status().ok();
    by_name.add().refused(5, "the bus does not let user 0");
    by_name.status().refused(50, "the bus does not let user 0");
    call.del().ok();
    assert_eq!(lab.host().ruleset(), "");
    call.gc(&[]).ok();
}

#[test]
fn a_bus_that_does_not_answer_is_an_error_that_says_try_again() {
    beyond_reference!("firewall-nftables");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = bus_that_says(&call(&lab, &pod, "10.1.2.2/24"), "");
    for backend in [json!("firewalld"), json!(null)] {
        let error = call.clone().config(json!({"backend": backend})).add().refused(11, "look for firewalld");
        assert!(error.details.contains("busctl status"), "{error:?}");
    }
    assert_eq!(lab.host().ruleset(), "");
}

#[test]
fn an_unusable_bus_does_not_make_del_fail() {
    beyond_reference!("firewall-nftables");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = call(&lab, &pod, "10.1.2.2/24");
    call.add().ok_result();
    let call = bus_that_says(&call, "HTTP/1.1 400 Bad Request\r\n").config(json!({"backend": null}));
    let error = call.add().refused(999, "look for firewalld");
    assert!(error.details.contains("nftables"), "{error:?}");
    let outcome = call.del();
    outcome.ok();
    assert!(outcome.stderr.contains("look for firewalld"), "{}", outcome.stderr);
    assert_eq!(lab.host().ruleset(), "");
}

/// A kernel may have nf_tables without CONFIG_NF_TABLES_BRIDGE. Then each ADD would fail.
#[test]
fn status_probes_the_bridge_family_for_isolated_containers_and_the_spoof_check() {
    beyond_reference!("status");
    let lab = Lab::new();
    let traced = ["strace", "-qq", "-v", "-o", "/run/lab/trace", "-e", "trace=sendto,sendmsg"];
    let probes_bridge = |plugin: &str, keys: Value| {
        lab.plugin(plugin).config(keys).under(&traced.map(str::to_owned)).status().ok();
        let trace = std::fs::read_to_string("/run/lab/trace").unwrap();
        trace.lines().any(|line| line.contains("NFT_MSG_NEWTABLE") && line.contains("AF_BRIDGE"))
    };
    assert!(!probes_bridge("firewall", json!({"ingressPolicy": "same-bridge"})));
    assert!(probes_bridge("firewall", json!({"ingressPolicy": "isolated"})));
    assert!(probes_bridge("bridge", json!({"macspoofchk": true, "ipam": host_local(&[&["10.1.2.0/24"]])})));
}
