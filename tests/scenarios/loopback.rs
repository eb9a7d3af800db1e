use std::collections::BTreeMap;

use faults::{Fixture, Target};
use lab::{Lab, beyond_reference, under_test};
use serde_json::{Value, json};

use crate::common::{host_local, is_up, with_full_stdout};

#[test]
fn the_loopback_interface_comes_up_and_answers_in_both_families() {
    let lab = Lab::new();
    let pod = lab.container("pod");
    let result = lab.plugin("loopback").ifname("lo").on(&pod).add().ok_result();
    assert!(pod.reaches("127.0.0.1"));
    assert!(pod.reaches("::1"));
    assert_eq!(result["interfaces"][0]["name"], "lo");
    assert_eq!(result["interfaces"][0]["sandbox"], pod.path().to_str().unwrap());
    assert_eq!(addresses(&result), ["127.0.0.1/8", "::1/128"]);
}

/// For example an anycast address of a router.
#[test]
fn other_addresses_of_the_interface_are_not_in_the_result_and_do_not_satisfy_check() {
    beyond_reference!("bridge-check");
    let lab = Lab::new();
    let pod = lab.container("pod");
    pod.sh("ip addr add 10.9.9.9/32 dev lo");
    let call = lab.plugin("loopback").ifname("lo").on(&pod);
    assert_eq!(addresses(&call.add().ok_result()), ["127.0.0.1/8", "::1/128"]);
    pod.sh("ip addr flush dev lo; ip addr add 10.9.9.9/32 dev lo");
    call.run("CHECK").refused(999, "link lo has lost its addresses");
}

#[test]
fn a_failed_add_keeps_an_interface_up_that_was_up_before() {
    let lab = Lab::new();
    for was_up in [false, true] {
        let pod = lab.container(&format!("pod-{was_up}"));
        if was_up {
            pod.sh("ip link set lo up");
        }
        let failed = lab.plugin("loopback").ifname("lo").on(&pod).under(&with_full_stdout()).add();
        assert!(!failed.succeeded(), "{failed:?}");
        if was_up || !under_test().reference {
            assert_eq!(is_up(&pod, "lo"), was_up);
        }
    }
}

#[test]
fn check_needs_no_result_of_add() {
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = lab.plugin("loopback").ifname("lo").on(&pod);
    call.add().ok_result();
    call.run("CHECK").ok();
    beyond_reference!("bridge-check");
    pod.sh("ip link set lo down");
    call.run("CHECK").refused(999, "link lo is down");
    pod.sh("ip link set lo up; ip addr flush dev lo");
    call.run("CHECK").refused(999, "link lo has lost its addresses");
}

#[test]
fn after_other_plugins_it_returns_their_result_unchanged() {
    let lab = Lab::new();
    let pod = lab.container("pod");
    let prev = json!({
        "cniVersion": "1.0.0",
        "interfaces": [{"name": "eth0", "mac": "02:00:00:00:00:01", "sandbox": pod.path()}],
        "ips": [{"address": "10.1.2.9/24", "gateway": "10.1.2.1", "interface": 0}],
        "routes": [{"dst": "0.0.0.0/0"}],
        "dns": {"nameservers": ["10.1.2.1"]},
    });
    let call =
        lab.plugin("loopback").version("1.0.0").ifname("lo").config(json!({"prevResult": prev})).on(&pod);
    assert_eq!(call.add().ok_result(), prev);
    assert!(is_up(&pod, "lo"));
}

fn addresses(result: &Value) -> Vec<&str> {
    result["ips"].as_array().unwrap().iter().map(|ip| ip["address"].as_str().unwrap()).collect()
}

#[test]
fn del_sets_the_loopback_interface_down() {
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = lab.plugin("loopback").ifname("lo").on(&pod);
    call.add().ok_result();
    assert!(is_up(&pod, "lo"));
    call.del().ok();
    assert!(!is_up(&pod, "lo"));
}

/// The plugins that refuse unknown keys in `CNI_ARGS`.
const REFUSING: [&str; 6] = ["bridge", "host-local", "macvlan", "static", "tap", "tuning"];

#[test]
fn plugins_that_need_no_cni_args_ignore_malformed_and_unknown_ones() {
    let targets = Target::plugins().into_iter().map(|target| (target.plugin().to_owned(), target));
    let mut others: BTreeMap<_, _> = targets.collect();
    // DEL of the reference leaves objects of the others, which the next ADD refuses.
    let is_tested = |plugin: &str| !under_test().reference || ["loopback", "portmap"].contains(&plugin);
    others.retain(|plugin, _| !REFUSING.contains(&plugin.as_str()) && is_tested(plugin));
    for target in others.values() {
        let fixture = Fixture::new(target);
        // As delegates of the plugin, they would refuse the arguments.
        let result =
            json!({"cniVersion": "1.0.0", "ips": [{"address": "10.1.2.9/24", "gateway": "10.1.2.1"}]});
        let script = format!("[ $CNI_COMMAND != ADD ] || echo '{result}'");
        REFUSING.iter().for_each(|delegate| fixture.lab().fake_plugin(delegate, &script));
        for args in ["none", "COLOUR=red", ";;", "=", "IgnoreUnknown=maybe"] {
            fixture.prepare("ADD");
            let call = fixture.call("ADD", None).args(args);
            let result = call.add().ok_result();
            call.check(&result).ok();
            call.del().ok();
        }
    }
}

#[test]
fn plugins_that_need_cni_args_refuse_unknown_keys() {
    let lab = Lab::new();
    let pod = lab.container("pod");
    for plugin in REFUSING {
        let call = lab.plugin(plugin).on(&pod).config(json!({"prevResult": {}, "ipam": {"type": plugin}}));
        call.args("COLOUR=red").add().refused(4, "COLOUR");
    }
    // ptp ignores the key, but its delegate does not.
    let ptp = lab.plugin("ptp").on(&pod).config(json!({"ipam": host_local(&[&["10.1.2.0/24"]])}));
    ptp.args("COLOUR=red").add().refused(4, "COLOUR");
}
