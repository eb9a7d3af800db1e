//! The DEL of a container that has exited comes after the ADD of a new container with a namespace at the same path, for example because
//! the path is `/proc/PID/ns/net`. The new container's interface stays as it is.

use lab::{Call, Container, Lab, beyond_reference, needs};
use serde_json::{Value, json};

use crate::common::cable;

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

#[test]
fn the_interface_stays_in_the_vrf() {
    needs!(Vrf);
    a_change_of_the_new_interface_stays("vrf", json!({"vrfname": "blue"}), |_, pod| {
        pod.link("eth0").unwrap()["master"] == "blue"
    });
}
