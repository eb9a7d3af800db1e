//! ADD, DEL, CHECK, GC and STATUS, together with other containers and other firewalls.

use lab::{
    Call, Lab, Outcome, Release, beyond_reference, tcp_is_cut_off, tcp_is_refused, tcp_says, under_test,
};
use serde_json::json;

use super::*;

#[test]
fn two_networks_of_one_container_have_separate_rules() {
    with_each_backend(|lab, keys| {
        let (pod, far) = (lab.container("pod"), lab.machine("far"));
        network(lab, keys, web()).add(&pod, "eth0").ok_result();
        let second = second_network(lab, keys, json!([port("tcp", 9090, 90)]));
        let result = second.add(&pod, "eth1").ok_result();
        let _servers = [pod.serve_tcp("pod", "10.1.2.2:80"), pod.serve_tcp("second", "10.9.0.2:90")];
        let host = |port| at(HOST[0], port);
        assert_eq!(tcp_says(&far, &host(8080)), pod_sees(FAR[0]));
        assert!(tcp_says(lab.host(), &host(9090)).is_some_and(|answer| answer.starts_with("second")));
        second.del(&pod, "eth1", &result).iter().for_each(Outcome::ok);
        assert_eq!(tcp_says(&far, &host(8080)), pod_sees(FAR[0]));
        assert!(tcp_is_refused(lab.host(), &host(9090)));
    });
}

/// A rule of iptables compares at most 15 ports.
#[test]
fn each_of_a_containers_32_ports_leads_to_it() {
    with_each_backend(|lab, keys| {
        let (pod, far) = (lab.container("pod"), lab.machine("far"));
        let ports = 8000..8032;
        let mappings = ports.clone().map(|host| port("tcp", host, 80)).collect();
        let network = network(lab, keys, mappings);
        let result = network.add(&pod, "eth0").ok_result();
        let _servers = serve_tcp(&pod, 80);
        let works = |number: &u16| (0..2).all(|n| tcp_says(&far, &at(HOST[n], *number)) == pod_sees(FAR[n]));
        let failed: Vec<_> = ports.clone().filter(|number| !works(number)).collect();
        assert_eq!(failed, [0; 0], "{keys}");
        network.check(&pod, "eth0", &result).iter().for_each(Outcome::ok);
        network.del(&pod, "eth0", &result).iter().for_each(Outcome::ok);
        assert!(ports.step_by(15).all(|number| tcp_is_refused(&far, &at(HOST[0], number))), "{keys}");
    });
}

#[test]
fn chains_and_rules_that_others_put_into_our_table_stay_after_the_last_del() {
    beyond_reference!("nothing-left");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let network = network(&lab, &by("nftables"), web());
    for (put, mine, take) in [
        ("add chain inet ferrule mine", "chain mine", "delete chain inet ferrule mine"),
        (
            "add rule inet ferrule hostports tcp dport 1 counter",
            "tcp dport 1 ",
            "flush chain inet ferrule hostports",
        ),
        (
            "add rule inet ferrule guard counter comment \"mine\"",
            "comment \"mine\"",
            "flush chain inet ferrule guard",
        ),
    ] {
        let result = network.add(&pod, "eth0").ok_result();
        lab.host().sh(&format!("nft '{put}'"));
        network.del(&pod, "eth0", &result).iter().for_each(Outcome::ok);
        let left = lab.host().sh("nft list table inet ferrule");
        assert!(left.contains(mine) && !left.contains("10.1.2.2"), "{put}: {left}");
        let result = network.add(&pod, "eth0").ok_result();
        network.check(&pod, "eth0", &result).iter().for_each(Outcome::ok);
        assert!(lab.host().sh("nft list table inet ferrule").contains(mine), "{put}");
        lab.host().sh(&format!("nft '{take}'"));
        network.del(&pod, "eth0", &result).iter().for_each(Outcome::ok);
        assert!(!lab.host().sh("nft list ruleset").contains("ferrule"), "{put}");
    }
}

/// The rules of a mapping with another mark, or with conditions, are evaluated before the maps.
#[test]
fn an_add_warns_of_older_rules_that_precede_its_mapping() {
    beyond_reference!("newest-wins");
    let older = [json!({"markMasqBit": 14}), json!({"conditionsV4": ["ip saddr 192.0.2.0/24"]})];
    for keys in older {
        let lab = Lab::new();
        let [old, new] = ["old", "new"].map(|id| lab.container(id));
        let result = network(&lab, &keys, web()).add(&old, "eth0").ok_result();
        let newer = network(&lab, &by("nftables"), web());
        let added = newer.add(&new, "eth0");
        added.ok_result();
        let warning = "net/old/eth0 has rules with conditions or another markMasqBit";
        assert!(added.stderr.contains(warning), "{added:#?}");
        assert!(added.stderr.contains("tcp 8080 to 10.1.2.3:80"), "{added:#?}");
        let other = network(&lab, &by("nftables"), json!([port("tcp", 9090, 80), port("udp", 8080, 80)]));
        let added = other.add(&new, "eth1");
        added.ok_result();
        assert!(!added.stderr.contains(warning), "{added:#?}");
        newer.del(&old, "eth0", &result).iter().for_each(Outcome::ok);
        let _server = new.serve_tcp("new", "10.1.2.3:80");
        assert!(tcp_says(&lab.machine("far"), &at(HOST[0], 8080)).is_some());
    }
}

#[test]
fn a_newer_mapping_wins_and_the_older_ones_del_keeps_it() {
    // https://github.com/containernetworking/plugins/issues/683
    beyond_reference!("newest-wins");
    with_each_backend(|lab, keys| {
        let ([stale, fresh], far) = (["stale", "fresh"].map(|id| lab.container(id)), lab.machine("far"));
        let network = network(lab, keys, web());
        let stale_result = network.add(&stale, "eth0").ok_result();
        let fresh_result = network.add(&fresh, "eth0").ok_result();
        let _servers = [stale.serve_tcp("stale", "10.1.2.2:80"), fresh.serve_tcp("fresh", "10.1.2.3:80")];
        let answer = Some("fresh 198.51.100.2".to_owned());
        assert_eq!(tcp_says(&far, &at(HOST[0], 8080)), answer);
        network.del(&stale, "eth0", &stale_result).iter().for_each(Outcome::ok);
        assert_eq!(tcp_says(&far, &at(HOST[0], 8080)), answer);
        network.check(&fresh, "eth0", &fresh_result).iter().for_each(Outcome::ok);
        network.del(&fresh, "eth0", &fresh_result).iter().for_each(Outcome::ok);
        assert!(tcp_is_refused(&far, &at(HOST[0], 8080)));
    });
}

/// After a change of the configuration, while a container of the earlier one still runs or has exited without a DEL. Rules of
/// iptables come first.
#[test]
fn add_and_check_name_an_attachment_that_maps_the_port_with_iptables() {
    beyond_reference!("newest-wins");
    let lab = Lab::new();
    let ([first, old, new], far) = (["first", "old", "new"].map(|id| lab.container(id)), lab.machine("far"));
    network(&lab, &by("nftables"), json!([port("tcp", 9999, 80)])).add(&first, "eth0").ok_result();
    let with_iptables = network(&lab, &by("iptables"), json!([port("tcp", 8080, 80), port("udp", 8080, 80)]));
    let of_old = with_iptables.add(&old, "eth0").ok_result();
    let network = network(&lab, &by("nftables"), web());
    let added = network.add(&new, "eth0");
    let result = added.ok_result();
    let _servers = [old.serve_tcp("old", "10.1.2.3:80"), new.serve_tcp("new", "10.1.2.4:80")];
    assert_eq!(
        tcp_says(&far, &at(HOST[0], 8080)).as_deref(),
        Some("old 198.51.100.2"),
        "the warning is true"
    );
    let checked = network.check(&new, "eth0", &result);
    checked.iter().for_each(Outcome::ok);
    for stderr in [&added.stderr, &checked[1].stderr] {
        let warnings: Vec<_> =
            stderr.lines().filter(|line| line.contains("net/old/eth0 maps a host port")).collect();
        assert_eq!(warnings.len(), 2, "one for each family: {stderr}");
        assert!(warnings[0].ends_with("map tcp 8080 to 10.1.2.4:80"), "{stderr}");
    }
    with_iptables.del(&old, "eth0", &of_old).iter().for_each(Outcome::ok);
    assert_eq!(tcp_says(&far, &at(HOST[0], 8080)).as_deref(), Some("new 198.51.100.2"));
    assert_eq!(network.check(&new, "eth0", &result)[1].stderr, "");
}

/// A container that has exited without a DEL, and starts again with its id and another address, after the default backend has changed.
#[test]
fn an_add_with_nftables_removes_the_attachments_own_rules_from_iptables() {
    beyond_reference!("newest-wins");
    let lab = Lab::new();
    let ([pod, other], far) = (["pod", "other"].map(|id| lab.container(id)), lab.machine("far"));
    network(&lab, &json!({}), json!([])).add(&pod, "eth0").ok_result();
    let mapped_9090 = mapped(json!([port("tcp", 9090, 80)]));
    portmap(&lab, &other, 3).config(by("iptables")).config(mapped_9090).add().ok_result();
    let saved = || lab.host().sh("iptables-save | grep -v '^[#:]'; ip6tables-save | grep -v '^[#:]'");
    let before = saved();
    portmap(&lab, &pod, 9).config(by("iptables")).add().ok_result();
    assert_ne!(saved(), before);
    let call = portmap(&lab, &pod, 2);
    let added = call.add();
    let result = added.ok_result();
    assert_eq!((saved(), &*added.stderr), (before, ""));
    let _server = pod.serve_tcp("pod", &at(POD[0], 80));
    assert_eq!(tcp_says(&far, &at(HOST[0], 8080)), pod_sees(FAR[0]));
    call.check(&result).ok();
}

/// Such as on a node on which kube-proxy has changed to IPVS mode meanwhile.
#[test]
fn an_add_with_iptables_removes_the_attachments_own_host_ports_from_nftables() {
    beyond_reference!("newest-wins");
    let lab = Lab::new();
    let ([pod, other], far) = (["pod", "other"].map(|id| lab.container(id)), lab.machine("far"));
    for machine in [&pod, &other] {
        network(&lab, &json!({}), json!([])).add(machine, "eth0").ok_result();
    }
    let mapped_9090 = mapped(json!([port("tcp", 9090, 80)]));
    portmap(&lab, &other, 3).config(mapped_9090).add().ok_result();
    let redirects = || lab.host().sh("nft list table inet ferrule | grep 'tcp . ' || true");
    let before = redirects();
    portmap(&lab, &pod, 9).add().ok_result();
    assert_ne!(redirects(), before);
    let call = portmap(&lab, &pod, 2).config(by("iptables"));
    let added = call.add();
    let result = added.ok_result();
    assert_eq!((redirects(), &*added.stderr), (before, ""));
    let _servers = [pod.serve_tcp("pod", &at(POD[0], 80)), other.serve_tcp("other", "10.1.2.3:80")];
    assert_eq!(tcp_says(&far, &at(HOST[0], 8080)), pod_sees(FAR[0]));
    assert!(tcp_says(&far, &at(HOST[0], 9090)).unwrap_or_default().starts_with("other"));
    call.check(&result).ok();
}

/// The reference's rules name the container, but not the interface, so another interface may need them.
#[test]
fn add_and_check_name_the_references_mapping_of_the_same_container_if_it_leads_to_another_address() {
    beyond_reference!("newest-wins");
    for (release, (number, warnings)) in Release::with_each("portmap", [(9, 2), (2, 0)]) {
        let lab = Lab::new();
        let pod = lab.container("pod");
        network(&lab, &json!({}), json!([])).add(&pod, "eth0").ok_result();
        portmap(&lab, &pod, number).by_release(release).add().ok_result();
        let call = portmap(&lab, &pod, 2);
        let added = call.add();
        let checked = call.check(&added.ok_result());
        checked.ok();
        for stderr in [&added.stderr, &checked.stderr] {
            let warning = "dnat name: \"net\" id: \"pod\" maps a host port of net/pod/eth0 with iptables";
            assert_eq!(stderr.matches(warning).count(), warnings, "{release} {number}: {stderr}");
            assert_eq!(stderr.lines().count(), warnings, "{release} {number}: {stderr}");
        }
        call.del().ok();
        assert!(!lab.host().sh("iptables-save; ip6tables-save").contains("--to-destination"));
    }
}

#[test]
fn an_attachment_with_the_same_port_of_another_address_is_not_named() {
    beyond_reference!("newest-wins");
    let lab = Lab::new();
    lab.host().sh("ip addr add 192.0.2.1/32 dev lo; ip addr add 192.0.2.2/32 dev lo");
    let [one, other, same] = ["one", "other", "same"].map(|id| lab.container(id));
    network(&lab, &by("iptables"), port_of("192.0.2.1")).add(&one, "eth0").ok_result();
    let network = |ip| network(&lab, &by("nftables"), port_of(ip));
    let added = network("192.0.2.2").add(&other, "eth0");
    let checked = network("192.0.2.2").check(&other, "eth0", &added.ok_result());
    assert_eq!((&*added.stderr, &*checked[1].stderr), ("", ""));
    assert!(network("192.0.2.1").add(&same, "eth0").stderr.contains("net/one/eth0 maps a host port"));
}

#[test]
fn an_attachment_with_the_same_port_of_another_protocol_at_another_address_is_not_named() {
    beyond_reference!("newest-wins");
    let lab = Lab::new();
    lab.host().sh("ip addr add 192.0.2.1/32 dev lo; ip addr add 192.0.2.2/32 dev lo");
    let [one, other] = ["one", "other"].map(|id| lab.container(id));
    let mappings = |ip| {
        let udp = json!({"hostPort": 8080, "containerPort": 53, "protocol": "udp", "hostIP": ip});
        json!([port("tcp", 8080, 80), udp])
    };
    network(&lab, &by("iptables"), mappings("192.0.2.1")).add(&one, "eth0").ok_result();
    let added = network(&lab, &by("nftables"), mappings("192.0.2.2")).add(&other, "eth0");
    added.ok_result();
    let warned: Vec<_> = added.stderr.lines().filter(|line| line.contains("maps a host port")).collect();
    assert_eq!(warned.len(), 2, "TCP, once for each family: {warned:#?}");
    assert!(warned.iter().all(|line| line.contains("map tcp 8080 to ")), "{warned:#?}");
}

#[test]
fn cnitool_show_leaves_the_warning_of_mappings_with_iptables_to_check() {
    beyond_reference!("newest-wins");
    let lab = Lab::new();
    let [old, _new] = ["old", "new"].map(|id| lab.container(id));
    network(&lab, &by("iptables"), web()).add(&old, "eth0").ok_result();
    let mut bridge = dual_stack();
    bridge["type"] = json!("bridge");
    let portmap = json!({"type": "portmap", "backend": "nftables", "capabilities": {"portMappings": true}});
    let plugins = json!([bridge, portmap]);
    lab.configure("10-net.conflist", &json!({"cniVersion": "1.0.0", "name": "net", "plugins": plugins}));
    let tool = lab.cnitool().env("CAP_ARGS", &json!({"portMappings": web()}).to_string());
    tool.says("add net new --container-id new");
    let [shown, checked] = ["show new", "check net new --container-id new"].map(|line| tool.run(line));
    assert!(shown.succeeded() && shown.stdout.contains("8080"), "{shown:#?}");
    let warns = |outcome: &Outcome| outcome.stderr.contains("net/old/eth0 maps a host port");
    assert_eq!((warns(&shown), warns(&checked)), (false, true), "{shown:#?} {checked:#?}");
}

/// Podman's `network connect` calls ADD for another network with the same mappings, and `network disconnect` its DEL. The
/// other network may be internal, so the first one keeps the port.
#[test]
fn a_container_on_two_networks_keeps_its_host_port_when_it_joins_or_leaves_either() {
    beyond_reference!("newest-wins");
    let own_mark = |backend: &str| json!({"backend": backend, "markMasqBit": 7});
    for keys in [by("nftables"), by("iptables"), own_mark("nftables"), own_mark("iptables")] {
        for leaves_first in [true, false] {
            let (lab, keys) = (&Lab::new(), &keys);
            // In nftables, CHECK does not compare them with other attachments' rules.
            let are_rules = *keys == own_mark("nftables");
            let (pod, far) = (lab.container("pod"), lab.machine("far"));
            let networks = [network(lab, keys, web()), second_network(lab, keys, web())];
            let first = networks[0].add(&pod, "eth0").ok_result();
            let second = networks[1].add(&pod, "eth1").ok_result();
            let _servers = [pod.serve_tcp("one", "10.1.2.2:80"), pod.serve_tcp("two", "10.9.0.2:80")];
            let answers = || tcp_says(lab.host(), &at(HOST[0], 8080)).map(|answer| answer[..3].to_owned());
            assert_eq!(answers().as_deref(), Some("one"), "{keys}");
            let waits = networks[1].check(&pod, "eth1", &second);
            waits.iter().for_each(Outcome::ok);
            let warns = |text| are_rules || waits[1].stderr.contains(text);
            assert!(warns("another attachment uses a host port of"), "{:?}", waits[1]);
            assert!(warns("net/pod/eth0 has it now"), "{:?}", waits[1]);
            networks[0].check(&pod, "eth0", &first).iter().for_each(Outcome::ok);
            if leaves_first {
                networks[0].del(&pod, "eth0", &first).iter().for_each(Outcome::ok);
                // That network's route was deleted with it.
                pod.sh("ip route add default via 10.9.0.1");
                assert_eq!(answers().as_deref(), Some("two"), "{keys}");
                let has = networks[1].check(&pod, "eth1", &second);
                has.iter().for_each(Outcome::ok);
                assert_eq!(has[1].stderr, "");
                networks[1].del(&pod, "eth1", &second).iter().for_each(Outcome::ok);
            } else {
                networks[1].del(&pod, "eth1", &second).iter().for_each(Outcome::ok);
                assert_eq!(answers().as_deref(), Some("one"));
                let has = networks[0].check(&pod, "eth0", &first);
                has.iter().for_each(Outcome::ok);
                assert_eq!(has[1].stderr, "");
                networks[0].del(&pod, "eth0", &first).iter().for_each(Outcome::ok);
            }
            assert!(tcp_is_refused(&far, &at(HOST[0], 8080)));
        }
    }
}

#[test]
fn gc_returns_a_port_to_the_remaining_attachment() {
    beyond_reference!("newest-wins");
    with_each_backend(|lab, keys| {
        let ([old, new], far) = (["old", "new"].map(|id| lab.container(id)), lab.machine("far"));
        let network = network(lab, keys, web());
        network.add(&old, "eth0").ok_result();
        network.add(&new, "eth0").ok_result();
        let _servers = [old.serve_tcp("old", "10.1.2.2:80"), new.serve_tcp("new", "10.1.2.3:80")];
        assert_eq!(tcp_says(&far, &at(HOST[0], 8080)).as_deref(), Some("new 198.51.100.2"));
        lab.plugin("portmap").config(keys.clone()).gc(&[("old", "eth0")]).ok();
        assert_eq!(tcp_says(&far, &at(HOST[0], 8080)).as_deref(), Some("old 198.51.100.2"));
    });
}

#[test]
fn with_a_firewall_that_drops_packets_mapped_ports_work_as_far_as_it_allows() {
    let iptables = "iptables -P FORWARD DROP
        iptables -A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
        iptables -A FORWARD -m conntrack --ctstate DNAT -j ACCEPT";
    let nftables =
        "nft 'table inet foreign { chain forward { type filter hook forward priority 0; policy drop;
        ct state established,related accept; ct status dnat accept; }; }'";
    for foreign in [iptables, nftables] {
        with_each_backend(|lab, keys| {
            let (pod, far) = (lab.container("pod"), lab.machine("far"));
            lab.host().sh(foreign);
            let without_counters = || lab.host().exec(&["nft", "--stateless", "list", "ruleset"]);
            let before = without_counters();
            let network = network(lab, keys, web());
            let result = network.add(&pod, "eth0").ok_result();
            let _servers = serve_tcp(&pod, 80);
            assert_eq!(tcp_says(&far, &at(HOST[0], 8080)), pod_sees(FAR[0]));
            assert!(tcp_is_cut_off(&far, &at(POD[0], 80)), "the foreign firewall is in force");
            network.del(&pod, "eth0", &result).iter().for_each(Outcome::ok);
            if !under_test().reference && keys["backend"] == "nftables" {
                assert_eq!(without_counters(), before);
            }
        });
    }
}

#[test]
fn after_a_flushed_ruleset_check_fails_and_the_next_add_has_all_that_it_needs() {
    beyond_reference!("check-host-ports");
    with_each_backend(|lab, keys| {
        let ([pod, next], far) = (["pod", "next"].map(|id| lab.container(id)), lab.machine("far"));
        let network = network(lab, keys, web());
        let result = network.add(&pod, "eth0").ok_result();
        network.check(&pod, "eth0", &result).iter().for_each(Outcome::ok);
        lab.host().sh("nft flush ruleset");
        network.check(&pod, "eth0", &result)[1].refused(999, "net/pod/eth0");
        network.add(&next, "eth0").ok_result();
        let _server = next.serve_tcp("next", "10.1.2.3:80");
        assert_eq!(tcp_says(&far, &at(HOST[0], 8080)).as_deref(), Some("next 198.51.100.2"));
        network.del(&pod, "eth0", &result).iter().for_each(Outcome::ok);
    });
}

#[test]
fn the_result_of_the_plugin_before_is_passed_on_as_it_is() {
    let lab = Lab::new();
    let pod = lab.container("pod");
    let lists = |version| {
        json!({
            "cniVersion": version,
            "interfaces": [{"name": "br0", "mac": "02:00:00:00:00:01"},
                           {"name": "eth0", "mac": "02:00:00:00:00:02", "sandbox": pod.path()}],
            "ips": [{"address": "10.1.2.2/24", "gateway": "10.1.2.1", "interface": 1}],
            "routes": [{"dst": "0.0.0.0/0", "gw": "10.1.2.1"}],
            "dns": {"nameservers": ["10.1.2.1"], "domain": "local", "search": ["local"], "options": ["ndots:5"]},
        })
    };
    let mut old = lists("0.4.0");
    old["ips"][0]["version"] = json!("4");
    let pair = json!({"cniVersion": "0.2.0", "ip4": {"ip": "10.1.2.2/24", "gateway": "10.1.2.1"},
                      "dns": {"nameservers": ["10.1.2.1"]}});
    for prev in [lists("1.0.0"), old, pair] {
        let call = portmap(&lab, &pod, 2).version(prev["cniVersion"].as_str().unwrap());
        let call = call.config(json!({"prevResult": prev}));
        assert_eq!(call.add().ok_result(), prev);
        call.del().ok();
    }
}

#[test]
fn without_mappings_nothing_is_done() {
    let lab = Lab::new();
    let pod = lab.container("pod");
    let before = lab.snapshot();
    for nothing in [json!({"runtimeConfig": null}), json!({"runtimeConfig": {"portMappings": []}})] {
        let call = portmap(&lab, &pod, 2).config(nothing);
        let prev = call.add().ok_result();
        call.check(&prev).ok();
        call.del().ok();
    }
    lab.snapshot().assert_same(&before);
}

#[test]
fn del_finds_its_rules_without_mappings_result_and_namespace() {
    // https://github.com/containernetworking/plugins/issues/509
    beyond_reference!("rules-by-attachment");
    with_each_backend(|lab, keys| {
        let [stays, goes] = ["stays", "without-mappings"].map(|id| lab.container(id));
        portmap(lab, &stays, 3).config(keys.clone()).add().ok_result();
        let before = lab.host().ruleset();
        let mappings = mapped(json!([port("tcp", 9090, 90)]));
        let call = portmap(lab, &goes, 2).config(keys.clone()).config(mappings);
        call.add().ok_result();
        assert_ne!(lab.host().ruleset(), before);
        goes.vanish();
        let bare = call.config(json!({"prevResult": null, "runtimeConfig": null})).without("CNI_NETNS");
        bare.del().ok();
        assert_eq!(lab.host().ruleset(), before);
        bare.del().ok();
    });
}

#[test]
fn del_does_not_check_whether_add_would_accept_the_configuration() {
    beyond_reference!("lenient-del");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = portmap(&lab, &pod, 2);
    call.add().ok_result();
    let broken = json!({"backend": 7, "markMasqBit": 99, "externalSetMarkChain": "", "conditionsV4": "none",
                        "runtimeConfig": {"portMappings": [{"hostPort": "many"}]}});
    call.config(broken).del().ok();
    assert_eq!(lab.host().ruleset(), "");
}

#[test]
fn gc_removes_the_host_ports_of_deleted_containers() {
    beyond_reference!("gc");
    with_each_backend(|lab, keys| {
        let [stays, goes] = ["stays", "goes"].map(|id| lab.container(id));
        portmap(lab, &stays, 3).config(keys.clone()).add().ok_result();
        let before = lab.host().ruleset();
        let mappings = mapped(json!([port("tcp", 9090, 90)]));
        let call = portmap(lab, &goes, 2).config(keys.clone()).config(mappings);
        call.add().ok_result();
        let gc = call.config(json!({"runtimeConfig": null, "prevResult": null}));
        gc.clone().config(json!({"name": "other"})).gc(&[]).ok();
        assert_ne!(lab.host().ruleset(), before, "another network's containers are not ours to judge");
        gc.gc(&[("stays", "eth0")]).ok();
        assert_eq!(lab.host().ruleset(), before);
    });
}

#[test]
fn check_reports_a_mapping_that_a_newer_container_has_too() {
    beyond_reference!("newest-wins");
    let lab = Lab::new();
    let [stale, fresh] = ["stale", "fresh"].map(|id| lab.container(id));
    let call = portmap(&lab, &stale, 2);
    let prev = call.add().ok_result();
    call.check(&prev).ok();
    portmap(&lab, &fresh, 3).add().ok_result();
    let waits = call.check(&prev);
    waits.ok();
    assert!(waits.stderr.contains("net/fresh/eth0 has it now: map tcp 8080"), "{waits:?}");
}

#[test]
fn status_says_whether_a_port_could_be_mapped() {
    beyond_reference!("status");
    let lab = Lab::new();
    let status = lab.plugin("portmap").config(json!({"capabilities": {"portMappings": true}}));
    status.status().ok();
    status.clone().config(by("iptables")).status().ok();
    lab.host().sh("mount --bind /dev/null $(readlink -f $(command -v iptables-restore))");
    status.clone().status().ok();
    status.config(by("iptables")).status().refused(50, "iptables");
}

#[test]
fn status_probes_the_kernel_once_per_boot() {
    beyond_reference!("status");
    let lab = Lab::new();
    let traced = ["strace", "-qq", "-o", "/run/lab/trace", "-e", "trace=sendto"].map(str::to_owned);
    let status = lab.plugin("portmap").config(by("nftables")).under(&traced);
    let sent = || {
        status.status().ok();
        std::fs::read_to_string("/run/lab/trace").unwrap().lines().count()
    };
    let note = "/run/ferrule/nf_tables-hostports.boot";
    let probed = sent();
    let noted = sent();
    assert!(noted < probed, "it does not ask the kernel again");
    lab.host().sh(&format!("sed -i '2s/^./x/' {note}"));
    assert_eq!(sent(), probed, "a note of another boot");
    assert_eq!(sent(), noted);
    lab.host().sh(&format!("chmod 644 {note}"));
    assert_eq!(sent(), probed, "a note that others may have written");
}

#[test]
fn a_failed_add_removes_its_rules() {
    beyond_reference!("rollback");
    let lab = Lab::new();
    let [first, pod] = ["first", "pod"].map(|id| lab.container(id));
    portmap(&lab, &first, 3).add().ok_result();
    let before = lab.snapshot();
    // The container's address is behind a link whose earlier route_localnet cannot be stored.
    lab.host().sh("ip link add br0 type bridge; ip addr add 10.1.2.1/24 dev br0; ip link set br0 up
         mkdir -p /run/ferrule/localnet; mount -t tmpfs -o nr_inodes=1 full /run/ferrule/localnet");
    let mappings = mapped(json!([port("tcp", 9090, 90)]));
    portmap(&lab, &pod, 2).config(mappings).add().refused(5, "route_localnet");
    lab.host().sh("umount /run/ferrule/localnet; rmdir /run/ferrule/localnet; ip link del br0");
    lab.snapshot().assert_same(&before);
}

#[test]
fn sixteen_concurrent_containers_on_an_empty_firewall() {
    beyond_reference!("at-once");
    with_each_backend(|lab, keys| {
        let pods: Vec<_> = (0..16).map(|n| lab.container(&format!("pod{n}"))).collect();
        let ports = 8000..8016;
        let calls = pods.iter().zip(2..).zip(ports.clone()).map(|((pod, number), host)| {
            let mappings = mapped(json!([port("tcp", host, 80)]));
            portmap(lab, pod, number).config(keys.clone()).config(mappings)
        });
        let calls: Vec<_> = calls.collect();
        let in_ruleset = || {
            let ruleset = lab.host().ruleset();
            ports.clone().filter(|port| ruleset.contains(&port.to_string())).count()
        };
        concurrently(&calls, Call::add).iter().for_each(|outcome| drop(outcome.ok_result()));
        assert_eq!(in_ruleset(), 16);
        concurrently(&calls, Call::del).iter().for_each(Outcome::ok);
        assert_eq!(in_ruleset(), 0);
    });
}

/// Runs the calls concurrently. Threads of a lab share its namespaces.
fn concurrently(calls: &[Call], command: fn(&Call) -> Outcome) -> Vec<Outcome> {
    std::thread::scope(|scope| {
        let runs: Vec<_> = calls.iter().map(|call| scope.spawn(move || command(call))).collect();
        runs.into_iter().map(|run| run.join().unwrap()).collect()
    })
}
