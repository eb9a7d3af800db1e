//! The DEL of a container that has exited comes after the ADD of a new container with a namespace at the same path, for example because
//! the path is `/proc/PID/ns/net`. The new container's interface stays as it is.

use std::fs;

use lab::{Call, Container, Lab, beyond_reference, needs};
use serde_json::{Value, json};

use crate::common::{cable, host_local, leases, routing_of};

/// A call for the container that has exited.
fn of_old(call: &Call) -> Call {
    call.clone().env("CNI_CONTAINERID", "old")
}

/// Attaches the old container and then the new one, and calls DEL of the old one.
fn a_new_interface_stays(plugin: &str, keys: Value) {
    beyond_reference!("own-kind");
    let lab = Lab::new();
    let pod = lab.container("pod");
    cable(&lab);
    let call = lab.plugin(plugin).config(keys).on(&pod);
    of_old(&call).add().ok_result();
    // The kernel deletes the old interface with its namespace.
    pod.sh("ip link del eth0");
    let result = call.add().ok_result();
    let before = lab.snapshot();
    of_old(&call).del().ok();
    lab.snapshot().assert_same(&before);
    call.check(&result).ok();
    call.del().ok();
    assert_eq!(pod.link_names(), [""; 0]);
}

#[test]
fn the_interface_of_bridge_stays() {
    a_new_interface_stays("bridge", json!({"bridge": "br0"}));
}

#[test]
fn the_interface_of_ptp_stays() {
    a_new_interface_stays("ptp", json!({}));
}

#[test]
fn the_interface_of_macvlan_stays() {
    needs!(Macvlan);
    a_new_interface_stays("macvlan", json!({"master": "cable"}));
}

#[test]
fn the_interface_of_macvlan_with_a_tap_stays() {
    needs!(Macvtap);
    a_new_interface_stays("macvlan", json!({"master": "cable", "tap": true}));
}

#[test]
fn the_interface_of_ipvlan_stays() {
    needs!(Ipvlan);
    a_new_interface_stays("ipvlan", json!({"master": "cable"}));
}

#[test]
fn the_interface_of_vlan_stays() {
    needs!(Vlan);
    a_new_interface_stays("vlan", json!({"master": "cable", "vlanId": 100}));
}

#[test]
fn the_interface_of_dummy_stays() {
    needs!(Dummy);
    a_new_interface_stays("dummy", json!({}));
}

#[test]
fn the_interface_of_tap_stays() {
    needs!(Tap);
    a_new_interface_stays("tap", json!({}));
}

/// Runs a chain of two plugins as [`a_new_interface_stays`] does.
fn a_change_of_the_new_interface_stays(plugin: &str, keys: Value, has_change: fn(&Lab, &Container) -> bool) {
    beyond_reference!("own-kind");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let bridge = lab.plugin("bridge").config(json!({"bridge": "br0"})).on(&pod);
    let second = lab.plugin(plugin).config(keys).on(&pod);
    let add = |edit: fn(&Call) -> Call| {
        let first = edit(&bridge).add().ok_result();
        edit(&second).config(json!({"prevResult": first})).add().ok_result()
    };
    let of_old_result = add(of_old);
    pod.sh("ip link del eth0");
    let result = add(Call::clone);
    assert!(has_change(&lab, &pod), "ADD of {plugin} makes no change");
    of_old(&second).config(json!({"prevResult": of_old_result})).del().ok();
    assert!(has_change(&lab, &pod), "DEL of the old container undoes {plugin}");
    second.check(&result).ok();
    second.config(json!({"prevResult": result})).del().ok();
    assert!(!has_change(&lab, &pod), "DEL of the new container keeps {plugin}");
}

#[test]
fn settings_of_tuning_stay() {
    a_change_of_the_new_interface_stays("tuning", json!({"mtu": 1400}), |_, pod| {
        pod.link("eth0").unwrap()["mtu"] == 1400
    });
}

#[test]
fn limits_of_bandwidth_stay() {
    needs!(TrafficControl);
    let limits = json!({
        "ingressRate": 8_000_000, "ingressBurst": 800_000, "egressRate": 8_000_000, "egressBurst": 800_000,
    });
    a_change_of_the_new_interface_stays("bandwidth", limits, |lab, _| {
        lab.host().sh("tc qdisc").contains("qdisc tbf c41: dev veth")
    });
}

/// Both containers have the same address.
#[test]
fn rules_and_routes_of_sbr_stay() {
    beyond_reference!("own-kind");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let ipam = json!({"type": "static", "addresses": [{"address": "10.1.2.2/24", "gateway": "10.1.2.1"}]});
    let bridge = lab.plugin("bridge").config(json!({"bridge": "br0", "ipam": ipam})).on(&pod);
    let sbr = lab.plugin("sbr").on(&pod);
    let add = |edit: fn(&Call) -> Call| {
        let first = edit(&bridge).add().ok_result();
        edit(&sbr).config(json!({"prevResult": first})).add().ok_result()
    };
    let of_old_result = add(of_old);
    pod.sh("ip link del eth0; ip rule del from 10.1.2.2");
    let result = add(Call::clone);
    let before = routing_of(&pod);
    of_old(&sbr).config(json!({"prevResult": of_old_result})).del().ok();
    assert_eq!(routing_of(&pod), before);
    sbr.check(&result).ok();
    sbr.config(json!({"prevResult": result})).del().ok();
    assert!(!pod.sh("ip rule").contains("10.1.2.2"));
}

/// The path was `/proc/PID/ns/net`, and a process of the host has the process id.
#[test]
fn a_path_that_leads_to_the_host_prevents_no_removal_and_the_hosts_interfaces_stay() {
    beyond_reference!("own-netns");
    needs!(TrafficControl);
    let settings = json!({"type": "tuning", "mtu": 1400});
    let limit = json!({"type": "bandwidth", "egressRate": 8_000_000, "egressBurst": 800_000});
    let ipam = host_local(&[&["10.1.2.0/24"]]);
    for plugin in ["bridge", "ptp"] {
        let lab = Lab::new();
        lab.host().sh("ip link add eth0 mtu 1450 type veth peer name far");
        let first = json!({"type": plugin, "ipMasq": true, "ipam": ipam});
        let chain = lab.chain(json!({
            "cniVersion": "1.1.0", "name": "net", "plugins": [first, settings, limit]
        }));
        let pod = lab.container("reused-pid");
        let result = chain.add(&pod, "eth0").ok_result();
        pod.vanish();
        let before = lab.host().link("eth0");
        let late = Container { id: pod.id.clone(), netns: lab.host().clone() };
        for outcome in chain.del(&late, "eth0", &result) {
            assert!(outcome.succeeded() && outcome.stderr.contains("is the plugin's own"), "{outcome:?}");
        }
        assert_eq!(lab.host().link("eth0"), before);
        assert!(leases().is_empty(), "{plugin}");
        assert!(!lab.host().ruleset().contains("10.1.2.2"), "{plugin}");
        assert!(lab.host().ip("link show type ifb").is_empty(), "{plugin}");
        assert!(!fs::exists("/run/cni/tuning/reused-pid_eth0.json").unwrap(), "{plugin}");
    }
}

/// Another vendor's IPAM plugin would refuse this path.
#[test]
fn an_ipam_plugin_of_another_vendor_does_not_get_the_path_of_the_host() {
    beyond_reference!("own-netns");
    let lab = Lab::new();
    let pod = lab.container("pod");
    lab.fake_plugin("theirs", r#"[ $CNI_COMMAND = DEL ] && [ -z "$CNI_NETNS" ]"#);
    let call = lab.plugin("bridge").config(json!({"ipam": {"type": "theirs"}})).on(&pod);
    call.clone().env("CNI_NETNS", "/run/netns/host").del().ok();
    assert!(!call.del().succeeded(), "the container's path is passed on");
}

#[test]
fn the_interface_stays_in_the_vrf() {
    needs!(Vrf);
    a_change_of_the_new_interface_stays("vrf", json!({"vrfname": "blue"}), |_, pod| {
        pod.link("eth0").unwrap()["master"] == "blue"
    });
}
