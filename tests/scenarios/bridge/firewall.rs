//! bridge's firewall rules: masquerade and spoof check.

use lab::{Lab, beyond_reference};
use serde_json::{Value, json};

use crate::common::{del_removes_rules_without_the_namespace, dual_stack, host_end, leases, seen_as};

/// `dual_stack` with masquerade by a backend.
fn masqueraded(backend: &str) -> Value {
    let mut config = dual_stack();
    config["ipMasq"] = json!(true);
    config["ipMasqBackend"] = json!(backend);
    config
}

#[test]
fn packets_that_leave_the_subnet_have_the_hosts_address_and_others_do_not() {
    let lab = Lab::new();
    let far = lab.machine("far");
    let _servers = [far.serve_tcp("far", "198.51.100.2:80"), far.serve_tcp("far", "[2001:db8:51::2]:80")];
    let [pod, neighbour] = ["pod", "neighbour"].map(|id| lab.container(id));
    let mut config = dual_stack();
    config["ipMasq"] = json!(true);
    let call = lab.plugin("bridge").config(config);
    call.clone().on(&pod).add().ok_result();
    call.on(&neighbour).add().ok_result();
    let _near = neighbour.serve_tcp("near", "10.1.2.3:80");

    assert_eq!(seen_as(&pod, "198.51.100.2:80"), "198.51.100.1");
    assert_eq!(seen_as(&pod, "[2001:db8:51::2]:80"), "2001:db8:51::1");
    assert_eq!(seen_as(&pod, "10.1.2.3:80"), "10.1.2.2");
}

#[test]
fn masquerade_can_be_limited_to_one_family() {
    // https://github.com/containernetworking/plugins/issues/398
    beyond_reference!("masquerade-backend");
    let lab = Lab::new();
    let far = lab.machine("far");
    far.sh("ip -6 route add fd00:1:2::/64 via 2001:db8:51::1");
    let _servers = [far.serve_tcp("far", "198.51.100.2:80"), far.serve_tcp("far", "[2001:db8:51::2]:80")];
    let pod = lab.container("pod");
    let only_v4 = json!({"ipMasqFamily": "ipv4"});
    lab.plugin("bridge").config(masqueraded("nftables")).config(only_v4).on(&pod).add().ok_result();
    assert_eq!(seen_as(&pod, "198.51.100.2:80"), "198.51.100.1");
    assert_eq!(seen_as(&pod, "[2001:db8:51::2]:80"), "fd00:1:2::2");
}

#[test]
fn an_administrators_exemption_in_iptables_applies_only_to_masquerade_by_iptables() {
    beyond_reference!("nat-exemptions");
    for (backend, source) in [("iptables", "10.1.2.2"), ("nftables", "198.51.100.1")] {
        let lab = Lab::new();
        let far = lab.machine("far");
        far.sh("ip route add 10.1.2.0/24 via 198.51.100.1");
        let _server = far.serve_tcp("far", "198.51.100.2:80");
        let pod = lab.container("pod");
        lab.host().sh("iptables -t nat -I POSTROUTING -d 198.51.100.0/24 -j ACCEPT");
        lab.plugin("bridge").config(masqueraded(backend)).on(&pod).add().ok_result();
        assert_eq!(seen_as(&pod, "198.51.100.2:80"), source, "{backend}");
    }
}

/// A VPN that admits one address.
#[test]
fn an_administrators_source_nat_in_iptables_precedes_masquerade_also_after_its_rules_are_loaded_again() {
    beyond_reference!("nat-exemptions");
    for backend in ["iptables", "nftables"] {
        let lab = Lab::new();
        let far = lab.machine("far");
        let _server = far.serve_tcp("far", "198.51.100.2:80");
        let pod = lab.container("pod");
        lab.host().sh("ip addr add 198.51.100.7/32 dev lo
            iptables -t nat -A POSTROUTING -s 10.1.2.0/24 -d 198.51.100.0/24 -j SNAT --to-source 198.51.100.7");
        lab.plugin("bridge").config(masqueraded(backend)).on(&pod).add().ok_result();
        assert_eq!(seen_as(&pod, "198.51.100.2:80"), "198.51.100.7", "{backend}");
        lab.host().sh("iptables-save >/run/lab/saved; iptables-restore </run/lab/saved");
        assert_eq!(seen_as(&pod, "198.51.100.2:80"), "198.51.100.7", "{backend}");
    }
}

#[test]
fn a_del_without_namespace_and_prev_result_removes_the_rules() {
    // https://github.com/containernetworking/plugins/issues/810
    beyond_reference!("rules-by-attachment");
    for backend in ["nftables", "iptables"] {
        del_removes_rules_without_the_namespace(
            "of-bridge",
            "bridge",
            masqueraded(backend),
            json!({"macspoofchk": true}),
        );
    }
}

#[test]
fn check_notices_flushed_rules_and_the_next_add_restores_the_tables() {
    beyond_reference!("rules-by-attachment");
    let lab = Lab::new();
    let [a, b] = ["a", "b"].map(|id| lab.container(id));
    let call = lab.plugin("bridge").config(masqueraded("nftables")).config(json!({"macspoofchk": true}));
    let call_a = call.clone().on(&a);
    let result = call_a.add().ok_result();
    call_a.check(&result).ok();
    lab.host().sh("nft flush ruleset");
    call_a.check(&result).refused(999, "nftables rules of net/a/eth0");
    let call_b = call.on(&b);
    let result = call_b.add().ok_result();
    call_b.check(&result).ok();
}

#[test]
fn gc_removes_the_rules_of_deleted_containers() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let [stays, goes] = ["stays", "rules-not-valid"].map(|id| lab.container(id));
    let call = lab.plugin("bridge").version("1.1.0").config(masqueraded("nftables"));
    call.clone().on(&stays).add().ok_result();
    let before = lab.host().ruleset();
    call.clone().on(&goes).add().ok_result();
    goes.vanish();
    call.gc(&[("stays", "eth0")]).ok();
    assert_eq!(lab.host().ruleset(), before);
    assert_eq!(leases(), ["10.1.2.2", "fd00:1:2::2"]);
}

#[test]
fn frames_of_a_container_with_another_ones_address_are_dropped() {
    beyond_reference!("rules-by-attachment");
    let lab = Lab::new();
    let [honest, liar] = ["honest", "liar"].map(|id| lab.container(id));
    let call = lab.plugin("bridge").config(dual_stack()).config(json!({"macspoofchk": true}));
    let call_honest = call.clone().on(&honest);
    let result = call_honest.add().ok_result();
    call_honest.check(&result).ok();
    call.on(&liar).add().ok_result();
    assert!(liar.reaches("10.1.2.2") && liar.reaches("fd00:1:2::2"));
    liar.sh("ip link set eth0 address 02:00:00:00:00:66");
    assert!(liar.is_cut_off_from("10.1.2.2"));
    assert!(honest.reaches("10.1.2.1"));
    assert!(lab.host().ruleset().contains(host_end(&result)));
}

#[test]
fn a_failed_add_removes_its_rules() {
    beyond_reference!("rollback");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = lab.plugin("bridge").config(json!({"bridge": "br0", "macspoofchk": true})).on(&pod);
    // An earlier container, so that the tables, which stay, exist.
    let before_pod = lab.container("before");
    call.clone().on(&before_pod).add().ok_result();
    let before = lab.snapshot();
    lab.fake_plugin("refuses", r#"echo '{"code":120,"msg":"not today"}'; exit 1"#);
    call.config(json!({"ipam": {"type": "refuses"}})).add().refused(120, "not today");
    lab.snapshot().assert_same(&before);
}

#[test]
fn an_unknown_backend_or_family_is_refused_by_name() {
    beyond_reference!("masquerade-backend");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = lab.plugin("bridge").config(dual_stack()).on(&pod);
    for (key, value) in [("ipMasqBackend", "ebpf"), ("ipMasqFamily", "ipx")] {
        let mut bad = json!({"ipMasq": true});
        bad[key] = json!(value);
        let error = call.clone().config(bad).add().refused(7, value);
        assert!(error.msg.contains(key), "{error:?}");
    }
}
