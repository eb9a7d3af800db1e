//! vlan: tagged traffic, ids, and names. Promises of all kinds on a master are in `on_master`.

use lab::{Call, Container, Lab, Netns, beyond_reference, needs, tcp_says};
use serde_json::{Value, json};

use crate::common::{cable, container_interface, data, ips, leases};

const MAC: &str = "02:00:00:00:00:aa";

/// Addresses of the tagged network, in which [`tagged`] is .2 and ::2.
fn ipam() -> Value {
    json!({"type": "host-local", "ranges": [
        [{"subnet": "203.0.113.0/24", "rangeStart": "203.0.113.100"}],
        [{"subnet": "2001:db8:71::/64", "rangeStart": "2001:db8:71::100"}],
    ]})
}

/// Another machine on the host's uplink, with tagged frames on a link `tagged`.
fn tagged(lab: &Lab, link: &str) -> Netns {
    let server = lab.machine("server");
    server.sh(&format!(
        "{link}; ip addr add 203.0.113.2/24 dev tagged; ip addr add 2001:db8:71::2/64 dev tagged nodad
         ip link set tagged up"
    ));
    server
}

const TAG_100: &str = "ip link add link eth0 name tagged type vlan id 100";

/// VLAN 100 of the host's uplink.
fn on_uplink(lab: &Lab) -> Call {
    lab.plugin("vlan").config(json!({"master": "uplink", "vlanId": 100, "ipam": ipam()}))
}

/// VLAN 100 of a master, on layer 2.
fn on_cable(lab: &Lab) -> Call {
    cable(lab);
    lab.plugin("vlan").version("1.1.0").config(json!({"master": "cable", "vlanId": 100}))
}

/// VLAN 100 of a link in the container that has the interface's name.
fn next_to_eth0(lab: &Lab, pod: &Container) -> Call {
    pod.sh("ip link add eth0 type veth peer name other; ip link set eth0 up; ip link set other up");
    lab.plugin("vlan").version("1.1.0").on(pod).config(json!({"vlanId": 100, "linkInContainer": true}))
}

#[test]
fn the_container_reaches_only_machines_with_the_same_tag() {
    needs!(Vlan);
    let lab = Lab::new();
    let server = tagged(&lab, TAG_100);
    let [pod, stranger] = ["pod", "stranger"].map(|id| lab.container(id));
    let call = on_uplink(&lab);
    let result = call.clone().on(&pod).add().ok_result();
    assert_eq!(ips(&result), ["203.0.113.100/24", "2001:db8:71::100/64"]);
    assert!(pod.reaches("203.0.113.2") && pod.reaches("2001:db8:71::2"));
    let _server = server.serve_tcp("server", "[::]:80");
    let answer = tcp_says(&pod, "[2001:db8:71::2]:80");
    assert_eq!(answer.as_deref(), Some("server 2001:db8:71::100"));
    call.on(&stranger).config(json!({"vlanId": 200})).add().ok_result();
    assert!(stranger.is_cut_off_from("203.0.113.2"), "it has another tag");
}

#[test]
fn a_tag_in_a_providers_tag_works_through_both() {
    beyond_reference!("vlan-protocol");
    needs!(Vlan);
    let lab = Lab::new();
    tagged(
        &lab,
        "ip link add link eth0 name outer type vlan protocol 802.1ad id 200; ip link set outer up
         ip link add link outer name tagged type vlan id 100",
    );
    let pod = lab.container("pod");
    let chain = lab.chain(json!({"cniVersion": "1.1.0", "name": "net", "plugins": [
        {"type": "vlan", "master": "uplink", "vlanId": 200, "protocol": "802.1ad"},
        {"type": "vlan", "vlanId": 100, "linkInContainer": true, "ipam": ipam()},
    ]}));
    let result = chain.add(&pod, "eth0").ok_result();
    assert_eq!(data(&pod, "eth0", "protocol"), "802.1ad");
    assert_eq!(pod.link("eth0.100").unwrap()["link"], "eth0");
    assert!(pod.reaches("203.0.113.2") && pod.reaches("2001:db8:71::2"));
    chain.check(&pod, "eth0", &result).iter().for_each(lab::Outcome::ok);
    chain.del(&pod, "eth0", &result).iter().for_each(lab::Outcome::ok);
    assert!(leases().is_empty());
    assert!(pod.link("eth0").is_none() && pod.link("eth0.100").is_none());
}

#[test]
fn a_vlan_that_has_an_interface_is_named_with_its_master_and_nothing_is_left() {
    beyond_reference!("vlan-taken");
    needs!(Vlan);
    let lab = Lab::new();
    let [a, b] = ["a", "b"].map(|id| lab.container(id));
    let call = on_cable(&lab);
    lab.host().sh("ip link add link cable name cable.200 type vlan id 200");
    call.clone().on(&a).add().ok_result();
    let before = lab.snapshot();
    for id in [100, 200] {
        let second = call.clone().on(&b).config(json!({"vlanId": id}));
        let error = second.add().refused(7, &format!("VLAN {id} of master cable"));
        assert!(error.details.contains(&format!("macvlan on cable.{id}")), "{error:?}");
        second.del().ok();
        lab.snapshot().assert_same(&before);
    }
    call.on(&b).config(json!({"protocol": "802.1ad"})).add().ok_result();
}

#[test]
fn the_mac_is_the_masters_or_the_most_specific_requested_one() {
    beyond_reference!("mac-ways");
    needs!(Vlan);
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = on_cable(&lab).on(&pod);
    call.add().ok_result();
    assert_eq!(pod.link("eth0").unwrap()["address"], lab.host().link("cable").unwrap()["address"]);
    call.del().ok();
    let call = call.config(json!({"mac": "02:00:00:00:00:01"})).args(&format!("MAC={MAC};COLOUR=red"));
    let result = call.add().ok_result();
    assert_eq!(container_interface(&result)["mac"], MAC);
    assert_eq!(pod.link("eth0").unwrap()["address"], MAC);
}

#[test]
fn check_reports_another_id_and_another_tag() {
    beyond_reference!("vlan-check");
    needs!(Vlan);
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = on_cable(&lab).on(&pod);
    let result = call.add().ok_result();
    call.check(&result).ok();
    let with = |keys| call.clone().config(keys).check(&result);
    with(json!({"vlanId": 200})).refused(999, "vlanId is 100, but was 200 after ADD");
    with(json!({"protocol": "802.1ad"})).refused(999, "protocol is 802.1Q");
}

#[test]
fn the_master_in_the_container_may_be_given_by_an_alternative_name() {
    beyond_reference!("vlan-chained");
    needs!(Vlan);
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = next_to_eth0(&lab, &pod).config(json!({"master": "lan0"}));
    pod.sh("ip link property add dev eth0 altname lan0");
    let before = lab.snapshot();
    let result = call.add().ok_result();
    assert!(pod.link("eth0.100").is_some());
    call.check(&result).ok();
    call.del().ok();
    lab.snapshot().assert_same(&before);
}

#[test]
fn if_the_master_has_its_name_the_interfaces_name_contains_the_id() {
    beyond_reference!("vlan-chained");
    needs!(Vlan);
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = next_to_eth0(&lab, &pod);
    let prev = json!({"cniVersion": "1.1.0", "interfaces": [{"name": "eth0", "sandbox": pod.path()}]});
    let before = lab.snapshot();
    for keys in [json!({"master": "eth0"}), json!({"prevResult": prev})] {
        let call = call.clone().config(keys);
        let result = call.add().ok_result();
        assert_eq!(result["interfaces"].as_array().unwrap().last().unwrap()["name"], "eth0.100");
        assert_eq!(
            (data(&pod, "eth0.100", "id"), &pod.link("eth0.100").unwrap()["link"]),
            (json!(100), &json!("eth0"))
        );
        call.check(&result).ok();
        pod.sh("ip link set eth0.100 down");
        call.check(&result).refused(999, "eth0.100");
        // A DEL need not have the result.
        call.config(json!({"prevResult": null})).del().ok();
        lab.snapshot().assert_same(&before);
    }
}

#[test]
fn gc_keeps_an_interface_in_the_hosts_namespace_whose_name_contains_the_id() {
    beyond_reference!("gc");
    needs!(Vlan);
    let lab = Lab::new();
    let vm = Container { id: "vm".to_owned(), netns: lab.host().clone() };
    let call = next_to_eth0(&lab, &vm).config(json!({"master": "eth0"})).env("CNI_NETNS_OVERRIDE", "1");
    call.add().ok_result();
    // The runtime knows it by CNI_IFNAME.
    call.gc(&[("vm", "eth0")]).ok();
    assert!(lab.host().link("eth0.100").is_some());
    call.del().ok();
    assert!(lab.host().link("eth0.100").is_none());
}

#[test]
fn of_a_tag_in_a_tag_del_removes_the_inner_one_only() {
    beyond_reference!("vlan-chained");
    needs!(Vlan);
    let lab = Lab::new();
    let pod = lab.container("pod");
    pod.sh("ip link add net1 type veth peer name net2; ip link set net1 up; ip link set net2 up");
    let call = on_cable(&lab).on(&pod).config(json!({"protocol": "802.1ad"}));
    for (outer, id) in
        [(json!({}), 200), (json!({}), 100), (json!({"master": "net1", "linkInContainer": true}), 100)]
    {
        let outer = call.clone().config(outer);
        let inner = json!({"master": null, "vlanId": id, "protocol": null, "linkInContainer": true});
        let inner = outer.clone().config(inner);
        let first = outer.add().ok_result();
        let second = inner.clone().config(json!({"prevResult": first})).add().ok_result();
        for _ in 0..2 {
            inner.clone().config(json!({"prevResult": second})).del().ok();
            assert!(pod.link("eth0").is_some() && pod.link(&format!("eth0.{id}")).is_none());
        }
        outer.del().ok();
        assert!(pod.link("eth0").is_none());
    }
}

#[test]
fn a_vlan_that_the_container_created_on_its_interface_is_kept() {
    beyond_reference!("vlan-chained");
    needs!(Vlan);
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = next_to_eth0(&lab, &pod).config(json!({"master": "eth0"}));
    pod.sh("ip link add link eth0 name eth0.100 type vlan id 100");
    let before = lab.snapshot();
    call.add().refused(4, "eth0.100");
    call.del().ok();
    lab.snapshot().assert_same(&before);
}

#[test]
fn a_name_that_would_be_too_long_with_the_id_is_refused() {
    beyond_reference!("vlan-chained");
    let lab = Lab::new();
    let pod = lab.container("pod");
    pod.sh("ip link add twelve-chars type veth peer name other; ip link set twelve-chars up");
    let call = lab.plugin("vlan").on(&pod).ifname("twelve-chars");
    let call = call.config(json!({"master": "twelve-chars", "vlanId": 100, "linkInContainer": true}));
    let before = lab.snapshot();
    call.add().refused(4, "twelve-chars.100");
    call.del().ok();
    lab.snapshot().assert_same(&before);
}

#[test]
fn status_and_add_report_a_master_that_is_down() {
    beyond_reference!("status");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = on_cable(&lab);
    lab.host().sh("ip link set cable down");
    // A kernel without VLANs refuses it first.
    if lab::Feature::Vlan.is_there() {
        call.status().refused(50, "master cable is down");
    }
    let before = lab.snapshot();
    let refused = call.on(&pod).add();
    refused.refused(11, "master cable is down");
    assert!(!refused.stderr.contains("until it is set up"), "{refused:?}");
    lab.snapshot().assert_same(&before);
}

#[test]
fn an_id_of_0_has_to_be_written_and_makes_a_tag_without_a_vlan() {
    beyond_reference!("vlan-id");
    needs!(Vlan);
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = on_cable(&lab).on(&pod);
    call.clone().config(json!({"vlanId": null})).add().refused(7, "vlanId is missing");
    let call = call.config(json!({"vlanId": 0}));
    let result = call.add().ok_result();
    assert_eq!(data(&pod, "eth0", "id"), 0);
    call.check(&result).ok();
}
