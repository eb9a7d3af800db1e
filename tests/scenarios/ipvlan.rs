//! ipvlan: reachability in each mode, and the addresses of a chain. Promises of all kinds on a master are in `on_master`.

use lab::{Call, Lab, Netns, beyond_reference, needs, tcp_says};
use serde_json::{Value, json};

use crate::common::{cable, container_interface, data, ips, is_up, remember_another_machine, until_learned};

/// Addresses of the network on the host's uplink, in which [`Lab::machine`] is .2 and ::2.
fn ipam() -> Value {
    json!({"type": "host-local", "ranges": [
        [{"subnet": "198.51.100.0/24", "rangeStart": "198.51.100.100"}],
        [{"subnet": "2001:db8:51::/64", "rangeStart": "2001:db8:51::100"}],
    ]})
}

/// An ipvlan on the host's uplink.
fn on_uplink(lab: &Lab) -> Call {
    lab.plugin("ipvlan").config(json!({"master": "uplink", "ipam": ipam()}))
}

/// A separate network behind the host's uplink, and a machine there with a route to it.
fn behind_the_host(lab: &Lab, mode: &str) -> (Netns, Call) {
    let server = lab.machine("server");
    server.sh("ip route add 10.7.0.0/16 via 198.51.100.1; ip route add fd00:7::/64 via 2001:db8:51::1");
    lab.host().sh("sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1");
    let ipam = json!({
        "type": "host-local", "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}],
        "ranges": [[{"subnet": "10.7.0.0/24"}], [{"subnet": "fd00:7::/64"}]],
    });
    (server, on_uplink(lab).config(json!({"mode": mode, "ipam": ipam})))
}

/// A master, on layer 2.
fn on_cable(lab: &Lab) -> Call {
    cable(lab);
    lab.plugin("ipvlan").version("1.1.0").config(json!({"master": "cable"}))
}

#[test]
fn in_mode_l2_containers_reach_each_other_and_the_masters_network_but_not_the_host() {
    needs!(Ipvlan);
    let lab = Lab::new();
    let server = lab.machine("server");
    let [a, b] = ["a", "b"].map(|id| lab.container(id));
    let call = on_uplink(&lab);
    let result = call.clone().on(&a).add().ok_result();
    call.on(&b).add().ok_result();
    assert_eq!(ips(&result), ["198.51.100.100/24", "2001:db8:51::100/64"]);
    for address in ["198.51.100.2", "2001:db8:51::2", "198.51.100.101", "2001:db8:51::101"] {
        assert!(a.reaches(address), "{address}");
    }
    let _servers = [server.serve_tcp("server", "0.0.0.0:80"), b.serve_tcp("b", "[::]:80")];
    assert_eq!(tcp_says(&a, "198.51.100.2:80").as_deref(), Some("server 198.51.100.100"));
    assert_eq!(tcp_says(&a, "[2001:db8:51::101]:80").as_deref(), Some("b 2001:db8:51::100"));
    assert!(a.is_cut_off_from("198.51.100.1"), "the master does not hear its children");
}

fn reach_through_the_host(mode: &str) {
    let lab = Lab::new();
    let (server, call) = behind_the_host(&lab, mode);
    let [a, b] = ["a", "b"].map(|id| lab.container(id));
    let result = call.clone().on(&a).add().ok_result();
    call.clone().on(&b).add().ok_result();
    assert_eq!(data(&a, "eth0", "mode"), mode);
    assert!(a.link("eth0").unwrap()["flags"].as_array().unwrap().contains(&json!("NOARP")));
    for address in ["198.51.100.2", "2001:db8:51::2", "10.7.0.3", "fd00:7::3"] {
        assert!(a.reaches(address), "{address}");
    }
    let _servers = [server.serve_tcp("server", "0.0.0.0:80"), b.serve_tcp("b", "[::]:80")];
    assert_eq!(tcp_says(&a, "198.51.100.2:80").as_deref(), Some("server 10.7.0.2"));
    assert_eq!(tcp_says(&server, "10.7.0.3:80").as_deref(), Some("b ::ffff:198.51.100.2"));
    call.on(&a).check(&result).ok();
}

#[test]
fn in_mode_l3_the_host_routes_for_the_containers() {
    needs!(Ipvlan);
    reach_through_the_host("l3");
}

#[test]
fn in_mode_l3s_the_host_routes_for_the_containers_too() {
    needs!(Ipvlan);
    reach_through_the_host("l3s");
}

#[test]
fn in_mode_l3_a_default_route_needs_no_gateway() {
    needs!(Ipvlan);
    let lab = Lab::new();
    let (_server, call) = behind_the_host(&lab, "l3");
    let pod = lab.container("pod");
    let answer =
        json!({"cniVersion": "1.0.0", "ips": [{"address": "10.7.0.9/32"}], "routes": [{"dst": "0.0.0.0/0"}]});
    lab.fake_plugin("doorless", &format!("[ $CNI_COMMAND != ADD ] || echo '{answer}'"));
    let call = call.on(&pod).config(json!({"ipam": {"type": "doorless"}}));
    let result = call.add().ok_result();
    assert!(pod.reaches("198.51.100.2"));
    call.check(&result).ok();
}

#[test]
fn private_containers_reach_the_network_and_not_each_other() {
    beyond_reference!("ipvlan-flag");
    needs!(Ipvlan);
    let lab = Lab::new();
    lab.machine("server");
    let [a, b] = ["a", "b"].map(|id| lab.container(id));
    let call = on_uplink(&lab).config(json!({"flag": "private"}));
    call.clone().on(&a).add().ok_result();
    call.on(&b).add().ok_result();
    assert!(a.sh("ip -d link show eth0").contains("private"));
    assert!(a.reaches("198.51.100.2"));
    assert!(a.is_cut_off_from("198.51.100.101"));
}

#[test]
fn neighbours_with_an_old_entry_for_the_address_are_updated() {
    beyond_reference!("announce");
    needs!(Ipvlan);
    let lab = Lab::new();
    let server = lab.machine("server");
    let pod = lab.container("pod");
    let addresses = ["198.51.100.100", "2001:db8:51::100"];
    remember_another_machine(&server, &addresses);
    on_uplink(&lab).on(&pod).add().ok_result();
    let master = lab.host().link("uplink").unwrap()["address"].clone();
    until_learned(&server, &addresses, &master);
}

#[test]
fn a_second_network_with_another_mode_switches_the_master_and_check_reports_it() {
    beyond_reference!("ipvlan-check");
    needs!(Ipvlan);
    let lab = Lab::new();
    let [a, b] = ["a", "b"].map(|id| lab.container(id));
    let call = on_cable(&lab);
    let result = call.clone().on(&a).add().ok_result();
    call.clone().on(&a).check(&result).ok();
    let other = call.clone().on(&b).config(json!({"name": "other", "mode": "l3", "flag": "private"}));
    other.add().ok_result();
    let error = call.clone().on(&a).check(&result).refused(999, "mode is l3, but was l2 after ADD");
    assert!(error.details.contains("network"), "{error:?}");
    call.on(&a).config(json!({"mode": "l3"})).check(&result).refused(999, "flag is private");
}

#[test]
fn an_ipvlan_on_an_ipvlan_has_the_same_master() {
    beyond_reference!("ipvlan-check");
    needs!(Ipvlan);
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = on_cable(&lab).config(json!({"master": "upper"})).on(&pod);
    lab.host().sh("ip link add upper link cable type ipvlan mode l2; ip link set upper up");
    let result = call.add().ok_result();
    call.check(&result).ok();
}

#[test]
fn a_requested_mac_is_ignored_with_a_warning() {
    beyond_reference!("ipvlan-mac");
    needs!(Ipvlan);
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = on_cable(&lab).on(&pod).args("MAC=02:00:00:00:00:aa;COLOUR=red");
    let added = call.add();
    assert!(added.stderr.contains("the MAC 02:00:00:00:00:aa is not set"), "{added:#?}");
    assert_eq!(container_interface(&added.ok_result())["mac"], lab.host().link("cable").unwrap()["address"]);
}

#[test]
fn an_address_that_another_container_on_the_master_has_is_refused_for_now() {
    beyond_reference!("ipvlan-errors");
    needs!(Ipvlan);
    let lab = Lab::new();
    let [a, b] = ["a", "b"].map(|id| lab.container(id));
    let answer = json!({"cniVersion": "1.0.0", "ips": [{"address": "10.7.0.9/24"}]});
    lab.fake_plugin("same", &format!("[ $CNI_COMMAND != ADD ] || echo '{answer}'"));
    let call = on_cable(&lab).config(json!({"ipam": {"type": "same"}}));
    call.clone().on(&a).add().ok_result();
    let before = lab.snapshot();
    let error = call.on(&b).add().refused(11, "10.7.0.9");
    assert!(error.details.contains("another container on the same master"), "{error:?}");
    lab.snapshot().assert_same(&before);
}

/// Repeating it would not help.
#[test]
fn an_address_with_two_prefix_lengths_is_refused() {
    beyond_reference!("static-prefixes");
    needs!(Ipvlan);
    let lab = Lab::new();
    let pod = lab.container("pod");
    let twice = json!([{"address": "10.1.2.7/24"}, {"address": "10.1.2.7/32"}]);
    let call = on_cable(&lab).config(json!({"ipam": {"type": "static", "addresses": twice}})).on(&pod);
    let before = lab.snapshot();
    let error = call.add().refused(7, "10.1.2.7");
    assert!(error.details.contains("an interface of ipvlan accepts it only once"), "{error:?}");
    lab.snapshot().assert_same(&before);
}

#[test]
fn a_master_with_macvlans_is_refused() {
    beyond_reference!("ipvlan-errors");
    needs!(Ipvlan, Macvlan);
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = on_cable(&lab).on(&pod);
    lab.host().sh("ip link add link cable name other type macvlan mode bridge");
    let before = lab.snapshot();
    let error = call.add().refused(7, "eth0");
    assert!(error.details.contains("of another kind"), "{error:?}");
    lab.snapshot().assert_same(&before);
}

#[test]
fn without_a_master_it_is_the_link_of_the_default_route() {
    beyond_reference!("ipvlan-del");
    needs!(Ipvlan);
    let lab = Lab::new();
    lab.machine("server");
    let pod = lab.container("pod");
    lab.host().sh("ip route add default via 198.51.100.2");
    let call = lab.plugin("ipvlan").on(&pod).config(json!({"ipam": ipam()}));
    let result = call.add().ok_result();
    assert!(pod.reaches("198.51.100.2"));
    call.check(&result).ok();
}

#[test]
fn in_a_chain_without_ipam_unassigned_addresses_belong_to_the_interface() {
    needs!(Ipvlan);
    let lab = Lab::new();
    let pod = lab.container("pod");
    let interfaces = json!([{"name": "cable"}]);
    let prev = json!({
        "cniVersion": "1.0.0", "interfaces": interfaces, "routes": [{"dst": "10.9.0.0/16"}],
        "ips": [{"address": "10.7.0.9/24", "gateway": "10.7.0.1", "interface": 0}],
    });
    let call = on_cable(&lab).on(&pod).version("1.0.0").config(json!({"master": null, "prevResult": prev}));
    let result = call.add().ok_result();
    assert_eq!((ips(&result), pod.addresses("eth0")), (vec!["10.7.0.9/24"], vec!["10.7.0.9/24".to_owned()]));
    let owner = result["ips"][0]["interface"].as_u64().unwrap();
    assert_eq!(result["interfaces"][usize::try_from(owner).unwrap()]["name"], "eth0");
    assert_eq!(result["routes"].as_array().unwrap().len(), 1);
    assert!(pod.sh("ip route").contains("10.9.0.0/16 via 10.7.0.1"));
    call.clone().config(json!({"master": "cable"})).check(&result).ok();
    call.config(json!({"master": "cable"})).del().ok();
    assert!(pod.link("eth0").is_none());
}

#[test]
fn on_the_interface_of_an_earlier_plugin_in_the_container_it_has_the_addresses_of_that_one() {
    // The reference's ADD fails: https://github.com/containernetworking/plugins/issues/88
    beyond_reference!("prev-result-kept");
    needs!(Ipvlan);
    let lab = Lab::new();
    let pod = lab.container("pod");
    pod.sh("ip link add net1 type veth peer name net2; ip link set net1 up; ip link set net2 up");
    let prev = json!({
        "cniVersion": "1.0.0", "interfaces": [{"name": "net1", "sandbox": pod.path()}],
        "ips": [{"address": "10.7.0.9/24", "interface": 0}],
    });
    let call = lab.plugin("ipvlan").on(&pod).version("1.0.0");
    let call = call.config(json!({"linkInContainer": true, "prevResult": prev}));
    // With a master of its own, the attachment has layer 2 only.
    let bare = call.clone().config(json!({"master": "net1"}));
    let result = bare.add().ok_result();
    assert_eq!((&result["ips"][0]["interface"], pod.addresses("eth0")), (&json!(0), vec![]));
    bare.del().ok();
    let result = call.add().ok_result();
    assert_eq!((ips(&result), pod.addresses("eth0")), (vec!["10.7.0.9/24"], vec!["10.7.0.9/24".to_owned()]));
    let owner = result["ips"][0]["interface"].as_u64().unwrap();
    assert_eq!(result["interfaces"][usize::try_from(owner).unwrap()]["name"], "eth0");
    call.check(&result).ok();
    call.del().ok();
    assert!(pod.link("eth0").is_none());
}

#[test]
fn in_a_chain_addresses_of_other_interfaces_of_the_container_stay_on_them() {
    beyond_reference!("prev-result-kept");
    needs!(Ipvlan);
    let lab = Lab::new();
    let pod = lab.container("pod");
    let prev = json!({
        "cniVersion": "1.1.0", "interfaces": [{"name": "net1", "sandbox": pod.path()}],
        "ips": [{"address": "10.7.0.9/24", "interface": 0}],
    });
    let result = on_cable(&lab).on(&pod).config(json!({"prevResult": prev})).add().ok_result();
    assert_eq!((ips(&result), &result["ips"][0]["interface"]), (vec!["10.7.0.9/24"], &json!(0)));
    assert!(pod.addresses("eth0").is_empty() && is_up(&pod, "eth0"));
}
