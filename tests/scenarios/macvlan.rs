//! macvlan with host-local: the interface on its master, reachability, and cleanup.

use lab::{Call, Lab, beyond_reference, tcp_says};
use serde_json::{Value, json};

use crate::common::{
    a_failed_ipam_plugin_leaves_nothing, a_taken_name_is_refused, cable, container_interface, data, ips,
    is_deaf_to_routers, is_up, leases, the_chains_interface_is_the_master,
};

const MAC: &str = "02:00:00:00:00:aa";

/// Addresses of the network on the host's uplink, in which [`Lab::machine`] is .2 and ::2.
fn ipam() -> Value {
    json!({"type": "host-local", "ranges": [
        [{"subnet": "198.51.100.0/24", "rangeStart": "198.51.100.100"}],
        [{"subnet": "2001:db8:51::/64", "rangeStart": "2001:db8:51::100"}],
    ]})
}

/// A macvlan on the host's uplink.
pub fn on_uplink(lab: &Lab) -> Call {
    lab.plugin("macvlan").config(json!({"master": "uplink", "ipam": ipam()}))
}

/// A master, on layer 2.
fn on_cable(lab: &Lab) -> Call {
    cable(lab);
    lab.plugin("macvlan").version("1.1.0").config(json!({"master": "cable"}))
}

#[test]
fn containers_reach_each_other_and_the_masters_network_but_not_the_host() {
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

#[test]
fn the_result_is_the_containers_interface_as_the_kernel_has_it() {
    let lab = Lab::new();
    lab.machine("server");
    let pod = lab.container("pod");
    let result = on_uplink(&lab).on(&pod).add().ok_result();
    assert_eq!(result["interfaces"].as_array().unwrap().len(), 1);
    let interface = container_interface(&result);
    assert_eq!((&interface["name"], &interface["sandbox"]), (&json!("eth0"), &json!(pod.path())));
    assert_eq!(interface["mac"], pod.link("eth0").unwrap()["address"]);
    assert!(result["ips"].as_array().unwrap().iter().all(|ip| ip["interface"] == 0));
    assert_eq!(pod.addresses("eth0"), ["198.51.100.100/24", "2001:db8:51::100/64"]);
    assert_eq!((data(&pod, "eth0", "mode"), is_up(&pod, "eth0")), (json!("bridge"), true));
    assert!(!lab.host().sh("ip link").contains("macvlan"), "nothing is in the host");
}

#[test]
fn nothing_is_left_after_del_and_a_second_del_succeeds() {
    let lab = Lab::new();
    lab.machine("server");
    let [a, b] = ["a", "b"].map(|id| lab.container(id));
    let call = on_uplink(&lab);
    call.clone().on(&b).add().ok_result();
    let before = lab.snapshot();
    call.clone().on(&a).add().ok_result();
    for _ in 0..2 {
        call.clone().on(&a).del().ok();
        lab.snapshot().assert_same(&before);
    }
}

#[test]
fn del_releases_the_lease_even_if_the_master_or_the_container_was_deleted() {
    let lab = Lab::new();
    lab.machine("server");
    let [a, b] = ["a", "b"].map(|id| lab.container(id));
    let call = on_uplink(&lab);
    call.clone().on(&a).add().ok_result();
    call.clone().on(&b).add().ok_result();
    call.clone().on(&b).env("CNI_NETNS", "/run/netns/gone").del().ok();
    lab.host().sh("ip link del uplink");
    call.on(&a).del().ok();
    assert!(leases().is_empty(), "{:?}", leases());
}

#[test]
fn a_link_of_the_host_may_have_the_name_of_the_containers_one() {
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = on_cable(&lab).on(&pod);
    lab.host().sh("ip link add name eth0 address 02:00:00:00:00:01 type bridge");
    let before = lab.snapshot();
    call.add().ok_result();
    assert_eq!(data(&pod, "eth0", "mode"), "bridge");
    assert_eq!(lab.host().link("eth0").unwrap()["linkinfo"]["info_kind"], "bridge");
    call.del().ok();
    lab.snapshot().assert_same(&before);
}

#[test]
fn private_containers_reach_the_network_and_not_each_other() {
    let lab = Lab::new();
    lab.machine("server");
    let [a, b] = ["a", "b"].map(|id| lab.container(id));
    let call = on_uplink(&lab).config(json!({"mode": "private"}));
    call.clone().on(&a).add().ok_result();
    call.on(&b).add().ok_result();
    assert_eq!(data(&a, "eth0", "mode"), "private");
    assert!(a.reaches("198.51.100.2"));
    assert!(a.is_cut_off_from("198.51.100.101"));
}

#[test]
fn in_mode_vepa_containers_reach_each_other_only_by_a_switch_that_sends_back() {
    let lab = Lab::new();
    let [a, b] = ["a", "b"].map(|id| lab.container(id));
    let call = on_cable(&lab).config(json!({"mode": "vepa", "ipam": ipam()}));
    lab.host().sh("ip link add switch type bridge; ip link set switch up; ip link set far master switch");
    call.clone().on(&a).add().ok_result();
    call.on(&b).add().ok_result();
    assert_eq!(data(&a, "eth0", "mode"), "vepa");
    assert!(a.is_cut_off_from("198.51.100.101"));
    lab.host().sh("bridge link set dev far hairpin on");
    assert!(a.reaches("198.51.100.101"));
}

#[test]
fn in_mode_passthru_one_container_has_the_master_and_its_mac() {
    beyond_reference!("macvlan-errors");
    let lab = Lab::new();
    let [a, b] = ["a", "b"].map(|id| lab.container(id));
    let call = on_cable(&lab).config(json!({"mode": "passthru"}));
    let added = call.clone().on(&a).config(json!({"mac": MAC})).add();
    let master = lab.host().link("cable").unwrap()["address"].clone();
    assert!(added.stderr.contains("in mode passthru it is the master's"), "{added:#?}");
    assert_eq!(container_interface(&added.ok_result())["mac"], master);
    let error = call.on(&b).add().refused(7, "cable");
    assert!(error.details.contains("passthru"), "{error:?}");
}

#[test]
fn the_most_specific_requested_mac_is_used() {
    beyond_reference!("mac-ways");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let mut call = on_cable(&lab).on(&pod);
    type Ask = fn(Call) -> Call;
    let ways: [(&str, Ask); 4] = [
        ("02:00:00:00:00:01", |c| c.config(json!({"mac": "02:00:00:00:00:01"}))),
        ("02:00:00:00:00:02", |c| c.args("MAC=02:00:00:00:00:02")),
        ("02:00:00:00:00:03", |c| c.config(json!({"args": {"cni": {"mac": "02:00:00:00:00:03"}}}))),
        ("02:00:00:00:00:04", |c| c.config(json!({"runtimeConfig": {"mac": "02:00:00:00:00:04"}}))),
    ];
    for (mac, ask) in ways {
        call = ask(call);
        let result = call.add().ok_result();
        assert_eq!(container_interface(&result)["mac"], mac);
        assert_eq!(pod.link("eth0").unwrap()["address"], mac);
        call.del().ok();
    }
}

#[test]
fn the_error_for_a_mac_in_use_on_the_master_explains_the_cause() {
    beyond_reference!("macvlan-errors");
    let lab = Lab::new();
    let [a, b] = ["a", "b"].map(|id| lab.container(id));
    let call = on_cable(&lab).config(json!({"mac": MAC}));
    call.clone().on(&a).add().ok_result();
    let before = lab.snapshot();
    let error = call.on(&b).add().refused(7, "eth0");
    assert!(error.details.contains(MAC), "{error:?}");
    lab.snapshot().assert_same(&before);
}

#[test]
fn the_mtu_is_the_masters_or_a_smaller_one() {
    let lab = Lab::new();
    let [a, b] = ["a", "b"].map(|id| lab.container(id));
    let call = on_cable(&lab);
    lab.host().sh("ip link set cable mtu 1450");
    call.clone().on(&a).add().ok_result();
    call.clone().on(&b).config(json!({"mtu": 1400})).add().ok_result();
    assert_eq!([&a, &b].map(|pod| pod.link("eth0").unwrap()["mtu"].clone()), [1450, 1400]);
}

#[test]
fn a_masters_mtu_that_is_lowered_lowers_the_containers_and_check_expects_it() {
    beyond_reference!("macvlan-check");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = on_cable(&lab).on(&pod);
    let result = call.add().ok_result();
    lab.host().sh("ip link set cable mtu 1400");
    assert_eq!(pod.link("eth0").unwrap()["mtu"], 1400);
    call.check(&result).ok();
    pod.sh("ip link set eth0 mtu 1300");
    call.check(&result).refused(999, "MTU");
}

#[test]
fn the_queue_for_broadcasts_has_the_configured_length() {
    beyond_reference!("macvlan-check");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = on_cable(&lab).on(&pod).config(json!({"bcqueuelen": 2000}));
    let result = call.add().ok_result();
    assert_eq!(data(&pod, "eth0", "bcqueuelen"), 2000);
    call.check(&result).ok();
    pod.sh("ip link set eth0 type macvlan bcqueuelen 3000");
    call.check(&result).refused(999, "bcqueuelen is 3000");
}

#[test]
fn check_reports_a_changed_mode_and_a_missing_master() {
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = on_cable(&lab).on(&pod);
    let result = call.add().ok_result();
    call.check(&result).ok();
    pod.sh("ip link set eth0 type macvlan mode private");
    assert!(!call.check(&result).succeeded());
    pod.sh("ip link set eth0 type macvlan mode bridge");
    pod.sh("ip link set eth0 down");
    assert!(lab::under_test().reference || !call.check(&result).succeeded());
    lab.host().sh("ip link del cable");
    let error = call.check(&result).error();
    assert!(lab::under_test().reference || error.details.contains("together with its master"), "{error:?}");
    call.del().ok();
}

#[test]
fn the_master_may_be_in_the_container() {
    let lab = Lab::new();
    let pod = lab.container("pod");
    pod.sh("ip link add net1 type veth peer name net2; ip link set net1 up; ip link set net2 up");
    let before = lab.snapshot();
    let call = lab.plugin("macvlan").on(&pod).config(json!({"master": "net1", "linkInContainer": true}));
    let result = call.add().ok_result();
    assert_eq!(pod.link("eth0").unwrap()["link"], "net1");
    call.check(&result).ok();
    call.del().ok();
    lab.snapshot().assert_same(&before);
}

#[test]
fn without_a_master_it_is_the_link_of_the_default_route() {
    let lab = Lab::new();
    lab.machine("server");
    let pod = lab.container("pod");
    lab.host().sh("ip route add default via 198.51.100.2");
    let call = lab.plugin("macvlan").on(&pod).config(json!({"ipam": ipam()}));
    let result = call.add().ok_result();
    assert!(pod.reaches("198.51.100.2"));
    call.check(&result).ok();
}

#[test]
fn in_a_chain_the_master_is_an_earlier_plugins_interface_and_its_result_is_passed_on() {
    beyond_reference!("macvlan-chained");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = the_chains_interface_is_the_master(on_cable(&lab).on(&pod));
    let two = json!([{"name": "cable"}, {"name": "far"}]);
    let ambiguous = call.config(json!({"prevResult": {"cniVersion": "1.1.0", "interfaces": two}}));
    ambiguous.add().refused(7, "cable, far");
}

#[test]
fn without_ipam_it_is_for_layer_2_and_up() {
    let lab = Lab::new();
    let pod = lab.container("pod");
    let result = on_cable(&lab).on(&pod).add().ok_result();
    assert!(ips(&result).is_empty() && is_up(&pod, "eth0"));
}

#[test]
fn an_existing_name_is_refused_and_del_keeps_its_owner() {
    beyond_reference!("own-kind");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = on_cable(&lab).on(&pod);
    pod.sh("ip link add eth0 type veth peer name other");
    a_taken_name_is_refused(&lab, &call);
    pod.sh("ip link del eth0");
    call.add().ok_result();
    a_taken_name_is_refused(&lab, &call.config(json!({"name": "second"})));
}

#[test]
fn a_failed_ipam_plugin_leaves_no_interface() {
    beyond_reference!("nothing-left");
    let lab = Lab::new();
    let pod = lab.container("pod");
    a_failed_ipam_plugin_leaves_nothing(&lab, &on_cable(&lab).on(&pod));
}

#[test]
fn gc_releases_the_leases_of_deleted_containers() {
    beyond_reference!("gc");
    let lab = Lab::new();
    lab.machine("server");
    let [a, b] = ["a", "b"].map(|id| lab.container(id));
    let call = on_uplink(&lab);
    call.clone().on(&a).add().ok_result();
    call.clone().on(&b).add().ok_result();
    call.gc(&[("b", "eth0")]).ok();
    assert_eq!(leases(), ["198.51.100.101", "2001:db8:51::101"]);
}

#[test]
fn status_reports_a_missing_master() {
    beyond_reference!("status");
    let lab = Lab::new();
    let call = on_cable(&lab);
    call.status().ok();
    call.clone().config(json!({"master": "gone"})).status().refused(50, "gone");
    // An earlier plugin of the chain may create it.
    call.clone().config(json!({"master": null})).status().ok();
    call.config(json!({"master": "net1", "linkInContainer": true})).status().ok();
}

#[test]
fn router_advertisements_of_the_masters_network_are_ignored_if_configured() {
    beyond_reference!("accept-ra");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = on_cable(&lab).on(&pod);
    call.clone().config(json!({"acceptRa": false})).add().ok_result();
    is_deaf_to_routers(&pod);
}

#[test]
fn a_warning_is_logged_if_the_master_is_down() {
    beyond_reference!("macvlan-errors");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = on_cable(&lab).on(&pod);
    lab.host().sh("ip link set cable down");
    let added = call.add();
    assert!(added.stderr.contains("master cable is down"), "{added:#?}");
    added.ok_result();
}
