//! Settings of the link for host ports of 127.0.0.1, and how they are restored.

use std::fs;

use lab::{Call, Outcome, beyond_reference, tcp_is_cut_off, tcp_is_refused, tcp_says};
use serde_json::json;

use super::*;
use crate::common::restricted;

fn setting(lab: &Lab) -> String {
    lab.host().sysctl("ipv4/conf/br0/route_localnet")
}

/// Adds a route for 127/8 to the host, in a container.
fn pry(container: &Container) {
    container.sh("ip rule del pref 0; ip rule add pref 5 table local
             ip route add 127.0.0.0/8 via 10.1.2.1 table 9; ip rule add pref 1 to 127.0.0.0/8 table 9
             echo 1 >/proc/sys/net/ipv4/conf/all/route_localnet");
}

#[test]
fn the_setting_is_restored_with_the_last_host_port() {
    beyond_reference!("route-localnet");
    with_each_backend(|lab, keys| {
        let [first, second] = ["first", "second"].map(|id| lab.container(id));
        let [one, other] = [8080, 9090].map(|host| network(lab, keys, json!([port("tcp", host, 80)])));
        let result = one.add(&first, "eth0").ok_result();
        let next = other.add(&second, "eth0").ok_result();
        one.del(&first, "eth0", &result).iter().for_each(Outcome::ok);
        assert_eq!(setting(lab), "1");
        let _server = second.serve_tcp("second", "10.1.2.3:80");
        assert!(tcp_says(lab.host(), "127.0.0.1:9090").is_some());
        other.del(&second, "eth0", &next).iter().for_each(Outcome::ok);
        assert_eq!(setting(lab), "0");
    });
}

#[test]
fn a_setting_that_existed_before_is_kept() {
    with_each_backend(|lab, keys| {
        let pod = lab.container("pod");
        lab.host().sh("ip link add br0 type bridge; echo 1 >/proc/sys/net/ipv4/conf/br0/route_localnet");
        let network = network(lab, keys, web());
        let result = network.add(&pod, "eth0").ok_result();
        network.del(&pod, "eth0", &result).iter().for_each(Outcome::ok);
        assert_eq!(setting(lab), "1");
    });
}

#[test]
fn a_link_with_the_deleted_links_name_as_an_alternative_name_keeps_its_setting() {
    beyond_reference!("route-localnet");
    with_each_backend(|lab, keys| {
        let pod = lab.container("pod");
        lab.host().sh("ip link add br0 type bridge; ip addr add 10.1.2.1/24 dev br0; ip link set br0 up");
        let portmap = portmap(lab, &pod, 2).config(keys.clone());
        portmap.add().ok_result();
        assert_eq!(setting(lab), "1");
        lab.host().sh(
            "ip link delete br0; ip link add other type bridge; ip link property add dev other altname br0
             echo 1 >/proc/sys/net/ipv4/conf/other/route_localnet",
        );
        portmap.del().ok();
        assert_eq!(lab.host().sysctl("ipv4/conf/other/route_localnet"), "1");
    });
}

#[test]
fn after_a_flush_and_the_last_host_port_the_hosts_loopback_is_protected() {
    beyond_reference!("route-localnet");
    with_each_backend(|lab, keys| {
        let [pod, prying] = ["pod", "prying"].map(|id| lab.container(id));
        let network = network(lab, keys, web());
        network.add(&pod, "eth0").ok_result();
        self::network(lab, keys, json!([])).add(&prying, "eth0").ok_result();
        let _private = lab.host().serve_tcp("private", "127.0.0.1:7000");
        pry(&prying);
        lab.host().sh("nft flush ruleset");
        assert!(tcp_says(&prying, "127.0.0.1:7000").is_some(), "or this shows nothing");
        // Without namespace and result, as after a restart of the runtime.
        lab.plugin("portmap").on(&pod).without("CNI_NETNS").del().ok();
        assert!(tcp_is_cut_off(&prying, "127.0.0.1:7000"));
    });
}

/// Without `--watch`: the rules that protect it are in Ferrule's table.
#[test]
fn a_flush_of_all_iptables_tables_keeps_the_hosts_loopback_protected() {
    beyond_reference!("route-localnet");
    let lab = Lab::new();
    let keys = json!({"backend": "iptables"});
    let [pod, prying] = ["pod", "prying"].map(|id| lab.container(id));
    let network = network(&lab, &keys, web());
    let result = network.add(&pod, "eth0").ok_result();
    self::network(&lab, &keys, json!([])).add(&prying, "eth0").ok_result();
    let _private = lab.host().serve_tcp("private", "127.0.0.1:7000");
    pry(&prying);
    lab.host().sh(
        "for table in filter nat mangle raw; do iptables-nft -t $table -F; iptables-nft -t $table -X; done",
    );
    assert_eq!(setting(&lab), "1");
    assert!(tcp_is_cut_off(&prying, "127.0.0.1:7000"));
    network.del(&pod, "eth0", &result).iter().for_each(Outcome::ok);
    assert!(!lab.host().sh("nft list ruleset").contains("ferrule"));
    assert_eq!(setting(&lab), "0");
}

#[test]
fn check_with_iptables_reports_a_missing_guard_in_nftables() {
    beyond_reference!("martians");
    let lab = Lab::new();
    let [pod, other] = ["pod", "other"].map(|id| lab.container(id));
    let network = network(&lab, &by("iptables"), web());
    let result = network.add(&pod, "eth0").ok_result();
    network.check(&pod, "eth0", &result).iter().for_each(Outcome::ok);
    lab.host().sh("nft delete table inet ferrule");
    network.check(&pod, "eth0", &result)[1].refused(999, "martians from loopback");
    // Without a port on 127.0.0.1, no guard is needed.
    let elsewhere = super::network(&lab, &by("iptables"), port_of(GATEWAY[0]));
    let result = elsewhere.add(&other, "eth0").ok_result();
    elsewhere.check(&other, "eth0", &result).iter().for_each(Outcome::ok);
}

#[test]
fn the_setting_is_restored_in_the_container_of_the_gc_daemonset() {
    beyond_reference!("route-localnet");
    with_each_backend(|lab, keys| {
        let pod = lab.container("pod");
        lab.host().sh("ip link add br0 type bridge; ip addr add 10.1.2.1/24 dev br0; ip link set br0 up");
        let portmap = portmap(lab, &pod, 2).config(keys.clone()).under(&restricted("ferrule-gc.yaml"));
        portmap.add().ok_result();
        assert_eq!(setting(lab), "1");
        portmap.gc(&[]).ok();
        assert_eq!(setting(lab), "0");
    });
}

/// Prevents changes of the setting: its users cannot be removed.
fn lock_setting(lab: &Lab) {
    lab.host().sh("d=/run/ferrule/localnet; mount --bind $d $d; mount -o remount,ro,bind $d");
}

fn unlock_setting(lab: &Lab) {
    lab.host().sh("umount /run/ferrule/localnet");
}

#[test]
fn while_the_setting_cannot_be_restored_the_hosts_loopback_is_protected() {
    beyond_reference!("route-localnet");
    with_each_backend(|lab, keys| {
        let [pod, prying] = ["pod", "prying"].map(|id| lab.container(id));
        let network = network(lab, keys, web());
        let result = network.add(&pod, "eth0").ok_result();
        self::network(lab, keys, json!([])).add(&prying, "eth0").ok_result();
        let _private = lab.host().serve_tcp("private", "127.0.0.1:7000");
        pry(&prying);
        lock_setting(lab);
        let portmap =
            lab.plugin("portmap").config(keys.clone()).config(json!({"prevResult": result})).on(&pod);
        for call in [portmap.clone(), portmap.clone().without("CNI_NETNS")] {
            call.del().refused(5, "route_localnet");
            assert_eq!(setting(lab), "1");
            assert!(tcp_is_cut_off(&prying, "127.0.0.1:7000"), "{keys}");
            assert!(tcp_is_refused(lab.host(), &at(GATEWAY[0], 8080)), "{keys}");
        }
        unlock_setting(lab);
        network.del(&pod, "eth0", &result).iter().for_each(Outcome::ok);
        assert_eq!(setting(lab), "0");
        assert!(!lab.host().sh("nft list ruleset").contains("ferrule"), "{keys}");
    });
}

/// The addresses of deleted containers are free for others, of any network.
#[test]
fn while_the_setting_cannot_be_restored_gc_removes_the_stale_host_ports_of_all_networks() {
    beyond_reference!("gc");
    with_each_backend(|lab, keys| {
        let [pod, other, prying] = ["pod", "other", "prying"].map(|id| lab.container(id));
        network(lab, keys, web()).add(&pod, "eth0").ok_result();
        network(lab, keys, json!([])).add(&prying, "eth0").ok_result();
        let second = second_network(lab, keys, json!([port("tcp", 9090, 80)]));
        second.add(&other, "eth0").ok_result();
        let _private = lab.host().serve_tcp("private", "127.0.0.1:7000");
        pry(&prying);
        lock_setting(lab);
        let _servers = [pod.serve_tcp("pod", "10.1.2.2:80"), other.serve_tcp("other", "10.9.0.2:80")];
        let gc = lab.plugin("portmap");
        for (name, at) in [("net", "10.1.2.1:8080"), ("second", "10.9.0.1:9090")] {
            assert!(tcp_says(lab.host(), at).is_some(), "or this shows nothing");
            gc.clone().config(json!({"name": name})).gc(&[]).refused(5, "route_localnet");
            assert!(tcp_is_refused(lab.host(), at), "{keys} {name}");
            assert!(tcp_is_cut_off(&prying, "127.0.0.1:7000"), "{keys} {name}");
        }
        unlock_setting(lab);
        for name in ["second", "net"] {
            gc.clone().config(json!({"name": name})).gc(&[]).ok();
        }
        assert_eq!(setting(lab), "0");
        assert!(!lab.host().sh("nft list ruleset").contains("ferrule"), "{keys}");
    });
}

/// cnitool and Podman's driver call the DEL of bridge although the DEL of portmap has failed.
#[test]
fn the_del_of_bridge_keeps_the_guard_that_a_failed_del_of_portmap_has_kept() {
    beyond_reference!("route-localnet");
    let lab = Lab::new();
    let [pod, prying] = ["pod", "prying"].map(|id| lab.container(id));
    let network = network(&lab, &json!({}), web());
    let result = network.add(&pod, "eth0").ok_result();
    self::network(&lab, &json!({}), json!([])).add(&prying, "eth0").ok_result();
    let _private = lab.host().serve_tcp("private", "127.0.0.1:7000");
    pry(&prying);
    lock_setting(&lab);
    let outcomes = network.del(&pod, "eth0", &result);
    assert!(outcomes.iter().any(Outcome::succeeded) && !outcomes.iter().all(Outcome::succeeded));
    assert!(tcp_is_cut_off(&prying, "127.0.0.1:7000"));
    unlock_setting(&lab);
    lab.plugin("portmap").gc(&[("prying", "eth0")]).ok();
    assert_eq!(setting(&lab), "0");
    assert!(!lab.host().sh("nft list ruleset").contains("ferrule"));
}

/// A call of bridge alone, for a container that the chain has attached.
fn bridge_of(lab: &Lab, pod: &Container, result: &Value) -> Call {
    lab.plugin("bridge").config(dual_stack()).config(json!({"prevResult": result})).on(pod)
}

/// An administrator took portmap out of the configuration, or its DEL was killed and the runtime continues.
#[test]
fn the_del_of_bridge_restores_the_setting_if_the_del_of_portmap_is_not_called() {
    beyond_reference!("route-localnet");
    with_each_backend(|lab, keys| {
        let [pod, prying] = ["pod", "prying"].map(|id| lab.container(id));
        let network = network(lab, keys, web());
        self::network(lab, keys, json!([])).add(&prying, "eth0").ok_result();
        let _private = lab.host().serve_tcp("private", "127.0.0.1:7000");
        pry(&prying);
        let attach = || bridge_of(lab, &pod, &network.add(&pod, "eth0").ok_result());
        let bridge = attach();
        lock_setting(lab);
        bridge.del().refused(5, "route_localnet");
        assert_eq!(setting(lab), "1");
        assert!(tcp_is_cut_off(&prying, "127.0.0.1:7000"), "{keys}");
        unlock_setting(lab);
        lab.plugin("portmap").on(&pod).del().ok();
        assert_eq!(setting(lab), "0");

        attach().del().ok();
        assert_eq!(setting(lab), "0", "{keys}");
        assert!(!lab.host().sh("nft list ruleset").contains("net/pod/eth0"), "{keys}");

        let bridge = attach();
        lab.host().sh("nft flush ruleset");
        bridge.del().ok();
        assert_eq!(setting(lab), "0", "{keys}");
    });
}

/// The address of a deleted container is free for another one.
#[test]
fn while_the_setting_cannot_be_restored_the_del_of_bridge_removes_host_ports() {
    beyond_reference!("route-localnet");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let network = network(&lab, &by("nftables"), web());
    let result = network.add(&pod, "eth0").ok_result();
    lock_setting(&lab);
    let bridge = bridge_of(&lab, &pod, &result);
    bridge.del().refused(5, "route_localnet");
    assert!(tcp_is_refused(lab.host(), &at(GATEWAY[0], 8080)));
    // The next one leaves the rest to portmap.
    bridge.del().ok();
    assert!(lab.host().sh("nft list ruleset").contains("keptguard"));
    unlock_setting(&lab);
    lab.plugin("portmap").on(&pod).del().ok();
    assert!(!lab.host().sh("nft list ruleset").contains("ferrule"));
    assert_eq!(setting(&lab), "0");
}

#[test]
fn gc_restores_it_for_deleted_containers() {
    beyond_reference!("gc");
    with_each_backend(|lab, keys| {
        let [stays, goes] = ["stays", "goes"].map(|id| lab.container(id));
        network(lab, keys, json!([port("tcp", 8080, 80)])).add(&stays, "eth0").ok_result();
        network(lab, keys, json!([port("tcp", 9090, 80)])).add(&goes, "eth0").ok_result();
        let gc = lab.plugin("portmap");
        gc.clone().config(json!({"name": "other"})).gc(&[]).ok();
        gc.gc(&[("stays", "eth0")]).ok();
        assert_eq!(setting(lab), "1");
        gc.gc(&[]).ok();
        assert_eq!(setting(lab), "0");
    });
}

#[test]
fn an_add_whose_result_is_not_read_restores_the_setting() {
    beyond_reference!("rollback");
    with_each_backend(|lab, keys| {
        let pod = lab.container("pod");
        lab.host().sh("ip link add br0 type bridge; ip addr add 10.1.2.1/24 dev br0; ip link set br0 up");
        let unheard = ["sh", "-c", "\"$0\" >/dev/full"].map(str::to_owned);
        assert!(!portmap(lab, &pod, 2).config(keys.clone()).under(&unheard).add().succeeded());
        assert_eq!(setting(lab), "0");
    });
}

#[test]
fn a_bridge_that_was_removed_meanwhile_is_no_failure() {
    beyond_reference!("route-localnet");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let network = network(&lab, &json!({}), web());
    let result = network.add(&pod, "eth0").ok_result();
    lab.host().sh("ip link del br0");
    network.del(&pod, "eth0", &result).iter().for_each(Outcome::ok);
    let left = fs::read_dir("/run/ferrule/localnet").unwrap().count();
    assert_eq!(left, 0);
}

/// Without the earlier value, no DEL could restore it.
#[test]
fn an_add_that_cannot_store_the_earlier_value_fails_and_changes_nothing() {
    beyond_reference!("route-localnet");
    with_each_backend(|lab, keys| {
        let pod = lab.container("pod");
        lab.host().sh("ip link add br0 type bridge; ip addr add 10.1.2.1/24 dev br0; ip link set br0 up
                 mkdir -p /run/ferrule; mount -t tmpfs -o nr_inodes=2 full /run/ferrule");
        let portmap = portmap(lab, &pod, 2).config(keys.clone());
        portmap.add().refused(5, "/run/ferrule/localnet");
        assert_eq!(setting(lab), "0");
        portmap.del().ok();
        lab.host().sh("mount -o remount,ro /run/ferrule");
        portmap.add().refused(5, "/run/ferrule/localnet");
        assert_eq!(setting(lab), "0");
        lab.host().sh("umount /run/ferrule");
    });
}

#[test]
fn an_attachment_that_starts_while_the_last_one_ends_has_the_setting() {
    beyond_reference!("at-once");
    let lab = Lab::new();
    lab.host().sh("ip link add br0 type bridge; ip addr add 10.1.2.1/24 dev br0; ip link set br0 up");
    let pods: Vec<_> = (0..8).map(|n| lab.container(&format!("pod{n}"))).collect();
    let call = |number: usize| {
        let mappings = mapped(json!([port("tcp", 8000 + number as u16, 80)]));
        portmap(&lab, &pods[number], 2 + number as u8).config(mappings)
    };
    let (early, late): (Vec<Call>, Vec<Call>) = ((0..4).map(call).collect(), (4..8).map(call).collect());
    early.iter().for_each(|call| drop(call.add().ok_result()));
    std::thread::scope(|scope| {
        for (goes, comes) in early.iter().zip(&late) {
            scope.spawn(move || goes.del().ok());
            scope.spawn(move || drop(comes.add().ok_result()));
        }
    });
    assert_eq!(setting(&lab), "1");
    late.iter().for_each(|call| call.del().ok());
    assert_eq!(setting(&lab), "0");
}
