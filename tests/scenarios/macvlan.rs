//! macvlan: reachability in each mode, hardware addresses, and broadcasts. Promises of all kinds on a master are in `on_master`.

use std::net::Ipv4Addr;

use lab::{Call, Lab, beyond_reference, needs, tcp_says};
use serde_json::{Value, json};

use crate::common::{cable, container_interface, data, ips, is_up, remember_another_machine, until_learned};

const MAC: &str = "02:00:00:00:00:aa";

/// Addresses of the network on the host's uplink, in which [`Lab::machine`] is .2 and ::2.
fn ipam() -> Value {
    json!({"type": "host-local", "ranges": [
        [{"subnet": "198.51.100.0/24", "rangeStart": "198.51.100.100"}],
        [{"subnet": "2001:db8:51::/64", "rangeStart": "2001:db8:51::100"}],
    ]})
}

/// A macvlan on the host's uplink.
fn on_uplink(lab: &Lab) -> Call {
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

/// With `dhcp`, the link is up before it has addresses, so the kernel does not announce them by itself.
#[test]
fn neighbours_with_an_old_entry_for_an_address_of_dhcp_are_updated() {
    beyond_reference!("announce");
    needs!(Macvlan);
    let lab = Lab::new();
    let server = lab.machine("server");
    let pod = lab.container("pod");
    let addresses = ["198.51.100.77", "2001:db8:51::77"];
    let result = json!({"cniVersion": "1.0.0", "ips": [
        {"address": "198.51.100.77/24"}, {"address": "2001:db8:51::77/64"},
    ]});
    lab.fake_plugin("dhcp", &format!("[ $CNI_COMMAND != ADD ] || echo '{result}'"));
    remember_another_machine(&server, &addresses);
    // Only the lab's plugin of this name is found.
    let call = on_uplink(&lab).on(&pod).env("CNI_PATH", Lab::plugin_dir().to_str().unwrap());
    let result = call.config(json!({"ipam": {"type": "dhcp"}})).add().ok_result();
    until_learned(&server, &addresses, &container_interface(&result)["mac"]);
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
fn check_reports_a_changed_mode() {
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = on_cable(&lab).on(&pod);
    let result = call.add().ok_result();
    call.check(&result).ok();
    pod.sh("ip link set eth0 type macvlan mode private");
    assert!(!call.check(&result).succeeded());
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
fn without_ipam_it_is_for_layer_2_and_up() {
    let lab = Lab::new();
    let pod = lab.container("pod");
    let result = on_cable(&lab).on(&pod).add().ok_result();
    assert!(ips(&result).is_empty() && is_up(&pod, "eth0"));
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

#[test]
fn a_machine_behind_a_macvtap_is_on_the_masters_network() {
    beyond_reference!("macvtap");
    needs!(Macvtap);
    let lab = Lab::new();
    let server = lab.machine("server");
    let pod = lab.container("pod");
    let keys = json!({"tap": true, "mac": "02:00:00:00:00:77", "ipam": null});
    let call = on_uplink(&lab).config(keys).on(&pod);
    let result = call.add().ok_result();
    {
        let _machine = pod.machine_behind_macvtap("eth0", Ipv4Addr::new(198, 51, 100, 50));
        assert!(server.reaches("198.51.100.50"));
    }
    call.check(&result).ok();
    call.clone().config(json!({"tap": false})).check(&result).refused(999, "kind is macvtap");
    call.del().ok();
    assert!(pod.link("eth0").is_none());
}

/// The reference creates no macvtap, so one without an owner's alias is another program's.
#[test]
fn del_keeps_a_macvtap_that_another_program_created() {
    beyond_reference!("macvtap");
    needs!(Macvtap);
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = on_cable(&lab).config(json!({"tap": true})).on(&pod);
    pod.sh("ip link add net1 type veth peer name net2; ip link add eth0 link net1 type macvtap");
    call.del().ok();
    assert!(pod.link("eth0").is_some());
}

/// Between the creation of the link and its alias, too.
#[test]
fn del_removes_the_macvtap_of_a_killed_add() {
    beyond_reference!("macvtap");
    needs!(Macvtap);
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = on_cable(&lab).config(json!({"tap": true})).on(&pod);
    let mut left = 0;
    for nth in 1..=8 {
        let kill = format!("inject=recvmsg:signal=KILL:when={nth}");
        call.clone().under(&["strace", "-qo", "/dev/null", "-e", &kill].map(str::to_owned)).add();
        let is_without_alias = |link: &Value| link["ifalias"].is_null();
        left += u8::from(pod.link("eth0").is_some_and(|link| is_without_alias(&link)));
        call.del().ok();
        assert!(pod.link("eth0").is_none(), "killed at answer {nth}");
    }
    assert!(left > 0, "no ADD was killed before the link had its alias");
}

#[test]
fn a_wireless_master_is_a_warning_because_access_points_accept_one_mac() {
    beyond_reference!("macvlan-errors");
    needs!(Macvlan);
    let lab = Lab::new();
    let call = on_cable(&lab);
    // As sysfs shows such an interface.
    lab.host().sh("mount -t tmpfs none /sys; mkdir -p /sys/class/net/cable/phy80211");
    for (mode, is_warned) in [("bridge", true), ("passthru", false)] {
        let pod = lab.container(mode);
        let call = call.clone().config(json!({"mode": mode})).on(&pod);
        let added = call.add();
        added.ok_result();
        assert_eq!(added.stderr.contains("master cable is a wireless interface"), is_warned, "{added:?}");
        call.del().ok();
    }
}

#[test]
fn a_macvtap_on_a_macvlan_has_the_same_master() {
    beyond_reference!("macvtap");
    needs!(Macvtap);
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = on_cable(&lab).config(json!({"tap": true, "master": "upper"})).on(&pod);
    lab.host().sh("ip link add upper link cable type macvlan mode bridge; ip link set upper up");
    let result = call.add().ok_result();
    call.check(&result).ok();
}
