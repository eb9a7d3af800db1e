//! Containers on hosts that drop forwarded packets.

use lab::{Lab, beyond_reference, tcp_is_cut_off, tcp_says, udp_is_refused};
use serde_json::json;

use super::*;

/// On a host with this policy, a container's traffic passes, and no other.
fn passes_under(policy: &str) {
    let lab = Lab::new();
    let (far, pod) = (lab.machine("far"), lab.container("pod"));
    // bridge turns forwarding on, and leaves it on.
    lab.host().sh("sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1");
    lab.host().sh(policy);
    let before = lab.snapshot();
    let network = network(&lab, 2, &json!({}));
    let (result, pods) = attach(&network, &pod);
    let _servers = FAR.map(|ip| far.serve_tcp("far", &at(ip, 80)));
    let _own = pods.each_ref().map(|ip| pod.serve_tcp("pod", &at(ip, 80)));
    for n in [0, 1] {
        assert!(tcp_says(&pod, &at(FAR[n], 80)).is_some(), "out, and the answers in: {}", FAR[n]);
        assert!(udp_is_refused(&pod, &at(FAR[n], 9)), "the ICMP errors of its connections in: {}", FAR[n]);
        assert!(
            tcp_is_cut_off(&far, &at(&pods[n], 80)),
            "new connections in are the administrator's to permit"
        );
        assert!(tcp_says(&far, &at(HOST[n], 8002)).is_some(), "but for host ports: {}", HOST[n]);
    }
    network.check(&pod, "eth0", &result).iter().for_each(lab::Outcome::ok);
    network.del(&pod, "eth0", &result).iter().for_each(lab::Outcome::ok);
    lab.host().sh("ip link del br2; rm -rf /var/lib/cni/networks/net2");
    lab.snapshot().assert_same(&before);
}

#[test]
fn under_a_policy_of_iptables_nft_containers_and_host_ports_work_and_nothing_is_left() {
    beyond_reference!("firewall-nftables");
    passes_under(POLICY_DROP);
}

#[test]
fn under_a_policy_of_iptables_legacy_containers_and_host_ports_work_and_nothing_is_left() {
    beyond_reference!("firewall-nftables");
    passes_under(POLICY_DROP_LEGACY);
}

#[test]
fn saving_and_restoring_iptables_changes_neither_allowed_nor_dropped_traffic() {
    beyond_reference!("firewall-nftables");
    let lab = Lab::new();
    let (far, pod) = (lab.machine("far"), lab.container("pod"));
    lab.host().sh(POLICY_DROP);
    let network = network(&lab, 2, &json!({}));
    let (result, pods) = attach(&network, &pod);
    lab.host().sh("iptables-save >/run/lab/saved && iptables-restore </run/lab/saved");
    let _servers = [far.serve_tcp("far", &at(FAR[0], 80)), pod.serve_tcp("pod", &at(&pods[0], 80))];
    assert!(tcp_says(&pod, &at(FAR[0], 80)).is_some());
    assert!(tcp_is_cut_off(&far, &at(&pods[0], 80)));
    network.check(&pod, "eth0", &result).iter().for_each(lab::Outcome::ok);
}

#[test]
fn the_administrators_chain_is_evaluated_first_and_keeps_its_rules() {
    beyond_reference!("firewall-nftables");
    for policy in [POLICY_DROP, POLICY_DROP_LEGACY] {
        let lab = Lab::new();
        let (far, pod) = (lab.machine("far"), lab.container("pod"));
        lab.host().sh(policy);
        let tool = policy.split(' ').next().unwrap();
        let network = network(&lab, 2, &json!({"iptablesAdminChainName": "RULES-OF-MINE"}));
        let (result, pods) = attach(&network, &pod);
        lab.host().sh(&format!(
            "{tool} -A RULES-OF-MINE -p tcp --dport 81 -d {} -j ACCEPT
             {tool} -A RULES-OF-MINE -p tcp --dport 82 -j REJECT",
            pods[0]
        ));
        let _own = [80, 81].map(|port| pod.serve_tcp("pod", &at(&pods[0], port)));
        let _far = far.serve_tcp("far", &at(FAR[0], 82));
        assert!(tcp_says(&far, &at(&pods[0], 81)).is_some());
        assert!(tcp_is_cut_off(&far, &at(&pods[0], 80)));
        assert!(tcp_is_cut_off(&pod, &at(FAR[0], 82)));
        network.del(&pod, "eth0", &result).iter().for_each(lab::Outcome::ok);
        let left = lab.host().sh(&format!("{tool} -S"));
        assert!(left.contains("-A CNI-FORWARD") && left.contains("-j RULES-OF-MINE"), "{left}");
        assert!(left.contains("--dport 81") && !left.contains("mark"), "{left}");
    }
}

/// Podman's networks use `CNI-ADMIN`, and Nomad's use `NOMAD-ADMIN`.
#[test]
fn networks_with_different_administrators_chains_keep_both() {
    beyond_reference!("firewall-nftables");
    let backends = ["nftables", "iptables"];
    for (podman, nomad) in backends.into_iter().flat_map(|one| backends.map(|other| (one, other))) {
        let lab = Lab::new();
        let (far, [a, b]) = (lab.machine("far"), ["a", "b"].map(|id| lab.container(id)));
        lab.host().sh(POLICY_DROP);
        let one = network(&lab, 2, &json!({"backend": podman}));
        let other = network(&lab, 3, &json!({"backend": nomad, "iptablesAdminChainName": "NOMAD-ADMIN"}));
        let (result, pods) = attach(&one, &a);
        lab.host().sh(&format!("iptables -A CNI-ADMIN -s {} -d {} -j DROP", pods[0], FAR[0]));
        let _servers = FAR.map(|ip| far.serve_tcp("far", &at(ip, 80)));
        let (of_other, pods) = attach(&other, &b);
        lab.host().sh(&format!("iptables -A NOMAD-ADMIN -s {} -d {} -j DROP", pods[0], FAR[0]));
        assert!(tcp_is_cut_off(&b, &at(FAR[0], 80)), "{podman}, then {nomad}");
        assert!(tcp_says(&b, &at(FAR[1], 80)).is_some(), "{podman}, then {nomad}");
        for pod in [&a, &b] {
            assert!(udp_is_refused(pod, &at(FAR[1], 9)), "the ICMP errors, {podman}, then {nomad}");
        }
        assert!(tcp_is_cut_off(&a, &at(FAR[0], 80)), "{podman}, then {nomad}");
        assert!(tcp_says(&a, &at(FAR[1], 80)).is_some(), "{podman}, then {nomad}");
        one.check(&a, "eth0", &result).iter().for_each(lab::Outcome::ok);
        other.check(&b, "eth0", &of_other).iter().for_each(lab::Outcome::ok);
        other.del(&b, "eth0", &of_other).iter().for_each(lab::Outcome::ok);
        one.check(&a, "eth0", &result).iter().for_each(lab::Outcome::ok);
        assert!(tcp_is_cut_off(&a, &at(FAR[0], 80)), "{podman}, after the DEL of {nomad}");
    }
}

#[test]
fn a_chain_of_others_that_drops_is_named_with_the_rule_that_opens_it() {
    beyond_reference!("firewall-nftables");
    let lab = Lab::new();
    let (far, pod) = (lab.machine("far"), lab.container("pod"));
    lab.host().sh(
        "nft add table inet site; nft 'add chain inet site pass { type filter hook forward priority 5; policy drop; }'
         nft add table ip6 other; nft 'add chain ip6 other refuse { type filter hook forward priority 6; }'
         nft add rule ip6 other refuse counter reject
         nft add table ip open; nft 'add chain ip open every { type filter hook forward priority 7; }'
         nft add rule ip open every counter accept",
    );
    let network = network(&lab, 2, &json!({"acceptMarkBit": 20, "backend": "nftables"}));
    let outcome = network.add(&pod, "eth0");
    let result = outcome.ok_result();
    assert!(!outcome.stderr.contains("chain every"), "{}", outcome.stderr);
    for rule in [
        "nft insert rule inet site pass meta mark and 0x100000 == 0x100000 accept",
        "nft insert rule ip6 other refuse meta mark and 0x100000 == 0x100000 accept",
    ] {
        assert!(outcome.stderr.contains(rule), "{}", outcome.stderr);
        lab.plugin("firewall").config(json!({"acceptMarkBit": 20})).status().ok();
    }
    let by_name =
        || lab.plugin("firewall").config(json!({"acceptMarkBit": 20, "backend": "nftables"})).status();
    by_name().refused(50, "inet site pass");
    lab.host().sh("nft insert rule inet site pass meta mark and 0x100000 == 0x100000 accept");
    // The network may have IPv4 addresses only.
    by_name().ok();
    lab.host().sh("nft insert rule ip6 other refuse meta mark and 0x100000 == 0x100000 accept");
    let _servers = FAR.map(|ip| far.serve_tcp("far", &at(ip, 80)));
    FAR.iter().for_each(|ip| assert!(tcp_says(&pod, &at(ip, 80)).is_some(), "{ip}"));
    by_name().ok();
    network.check(&pod, "eth0", &result).iter().for_each(lab::Outcome::ok);
}

/// STATUS makes a node unavailable, so it fails only if no packet can pass.
#[test]
fn status_fails_only_if_no_rule_of_a_chain_that_drops_can_accept_the_containers() {
    beyond_reference!("firewall-nftables");
    let answers = "ct state established,related accept";
    for (family, rules, fails) in [
        ("inet", vec![answers], true),
        ("inet", vec!["ct state invalid drop", "counter", answers, "tcp dport 22 drop"], true),
        ("inet", vec![answers, "counter reject", "accept"], true),
        ("inet", vec![answers, "ip saddr 10.1.2.0/24 accept", "ip daddr 10.1.2.0/24 accept"], false),
        ("inet", vec!["ct state new,established accept"], false),
        ("inet", vec!["tcp dport 80 jump more"], false),
        ("inet", vec!["iifname vmap { br2 : accept }"], false),
        ("ip", vec![], false),
        ("ip6", vec![], false),
    ] {
        let lab = Lab::new();
        let table = format!("{family} site");
        lab.host().sh(&format!(
            "nft add table {table}; nft add chain {table} more
             nft 'add chain {table} pass {{ type filter hook forward priority 0; policy drop; }}'"
        ));
        for rule in &rules {
            lab.host().sh(&format!("nft 'add rule {table} pass {rule}'"));
        }
        let status = lab.plugin("firewall").config(json!({"backend": "nftables"})).status();
        if fails {
            status.refused(50, "inet site pass");
        } else {
            status.ok();
            let pod = lab.container("pod");
            let added = network(&lab, 2, &json!({"backend": "nftables"})).add(&pod, "eth0");
            assert!(added.stderr.contains("chain pass of the table"), "{rules:?}: {added:#?}");
        }
    }
}

/// The plugin accepts connections through host ports before the other rules of FORWARD, but after the administrator's.
#[test]
fn only_a_rule_in_the_administrators_chain_restricts_a_host_port() {
    beyond_reference!("firewall-host-ports");
    for backend in ["nftables", "iptables"] {
        let lab = Lab::new();
        let (far, pod) = (lab.machine("far"), lab.container("pod"));
        lab.host().sh("iptables -P FORWARD ACCEPT");
        let (_, pods) = attach(&network(&lab, 2, &json!({"backend": backend})), &pod);
        let _server = pod.serve_tcp("pod", &at(&pods[0], 80));
        let _far = far.serve_tcp("far", "198.51.100.2:8002");
        let host = at(HOST[0], 8002);
        lab.host().sh("iptables -A FORWARD -s 198.51.100.0/24 -j DROP");
        assert!(tcp_says(&far, &host).is_some(), "{backend}");
        for (sources, is_open) in [("198.51.100.0/24", true), ("192.0.2.0/24", false)] {
            lab.host().sh(&format!(
                "iptables -F CNI-ADMIN
                 iptables -A CNI-ADMIN -p tcp -m conntrack --ctstate DNAT --ctorigdstport 8002 --ctdir ORIGINAL \
                     ! -s {sources} -j DROP"
            ));
            assert_eq!(tcp_says(&far, &host).is_some(), is_open, "{backend}, {sources}");
            // The container's own connections to such a port are no host port's.
            assert!(tcp_says(&pod, "198.51.100.2:8002").is_some(), "{backend}, {sources}");
        }
    }
}

#[test]
fn a_chain_that_precedes_the_mark_is_named_with_another_remedy_and_status_fails() {
    beyond_reference!("firewall-nftables");
    let lab = Lab::new();
    let pod = lab.container("pod");
    lab.host().sh(
        "nft add table inet early; nft 'add chain inet early pass { type filter hook forward priority -20; policy drop; }'
         nft insert rule inet early pass meta mark and 0x1000 == 0x1000 accept",
    );
    let outcome = network(&lab, 2, &json!({"backend": "nftables"})).add(&pod, "eth0");
    outcome.ok_result();
    assert!(outcome.stderr.contains("priority -20 is below -10"), "{}", outcome.stderr);
    assert!(!outcome.stderr.contains("nft insert rule"), "{}", outcome.stderr);
    let status = lab.plugin("firewall").config(json!({"backend": "nftables"})).status();
    status.refused(50, "priority -20 is below -10");
}

/// An iptables rule accepts packets only in its own chain, and sets no mark.
#[test]
fn add_names_another_programs_chain_that_drops_and_that_iptables_cannot_open() {
    beyond_reference!("firewall-nftables");
    let lab = Lab::new();
    let (far, pod) = (lab.machine("far"), lab.container("pod"));
    lab.host().sh(
        "nft add table inet site; nft 'add chain inet site pass { type filter hook forward priority 5; policy drop; }'
         nft insert rule inet site pass meta mark and 0x1000 == 0x1000 accept",
    );
    let by = |backend| network(&lab, 2, &json!({"backend": backend}));
    let outcome = by("iptables").add(&pod, "eth0");
    let result = outcome.ok_result();
    let _server = far.serve_tcp("far", &at(FAR[0], 80));
    assert!(tcp_is_cut_off(&pod, &at(FAR[0], 80)));
    let warning = "the chain pass of the table inet site drops forwarded packets";
    assert!(outcome.stderr.contains(warning), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("set the backend to nftables"), "{}", outcome.stderr);
    by("iptables").del(&pod, "eth0", &result).iter().for_each(lab::Outcome::ok);
    let outcome = by("nftables").add(&pod, "eth0");
    outcome.ok_result();
    assert!(!outcome.stderr.contains("drops forwarded packets"), "{}", outcome.stderr);
    assert!(tcp_says(&pod, &at(FAR[0], 80)).is_some());
}

#[test]
fn every_address_of_the_previous_result_passes_whichever_interface_has_it() {
    for interface in [
        json!({"name": "cali0"}),
        json!({"name": "eth0"}),
        json!({"name": "net7", "sandbox": "/run/netns/pod"}),
    ] {
        let lab = Lab::new();
        let (far, pod) = (lab.machine("far"), lab.container("pod"));
        lab.host().sh(POLICY_DROP);
        let bridge = lab.plugin("bridge").config(crate::common::dual_stack()).on(&pod);
        let mut prev = bridge.add().ok_result();
        prev["interfaces"] = json!([interface]);
        for ip in prev["ips"].as_array_mut().unwrap() {
            ip["interface"] = json!(0);
        }
        let _servers = FAR.map(|ip| far.serve_tcp("far", &at(ip, 80)));
        assert!(tcp_is_cut_off(&pod, &at(FAR[0], 80)) && tcp_is_cut_off(&pod, &at(FAR[1], 80)));
        let call = lab.plugin("firewall").config(json!({"prevResult": prev})).on(&pod);
        let result = call.add().ok_result();
        for ip in FAR {
            assert!(tcp_says(&pod, &at(ip, 80)).is_some(), "{interface}: {ip}");
        }
        beyond_reference!("firewall-nftables");
        call.check(&result).ok();
        call.del().ok();
        assert!(tcp_is_cut_off(&pod, &at(FAR[0], 80)) && tcp_is_cut_off(&pod, &at(FAR[1], 80)));
    }
}

#[test]
fn a_result_without_a_suitable_address_is_a_warning() {
    beyond_reference!("firewall-nftables");
    let lab = Lab::new();
    let pod = lab.container("pod");
    for ips in [json!([]), json!([{"address": "127.0.0.1/8"}, {"address": "fe80::1/64"}])] {
        let prev = json!({"cniVersion": "1.0.0", "interfaces": [{"name": "eth0", "sandbox": pod.path()}], "ips": ips});
        let added = lab.plugin("firewall").config(json!({"prevResult": prev})).on(&pod).add();
        added.ok_result();
        assert!(added.stderr.contains("nothing is allowed through the firewall"), "{added:#?}");
    }
}
