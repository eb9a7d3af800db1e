//! Debian's firewalld, which drops packets that are in none of its zones.

use lab::firewalld::{BUS, Firewalld, ask, is_here, reload};
use lab::{
    Chain, Container, Echo, Lab, Outcome, Release, Tool, beyond_reference, injecting, tcp_is_cut_off,
    tcp_says, until_within,
};
use serde_json::{Value, json};

use super::{Traffic, network};
use crate::cnitool::repair::{RESTORED, Watching};
use crate::common::dual_stack;
use crate::firewall::{at, attach, list};

const SOURCES: [&str; 2] = ["10.1.2.2/32", "fd00:1:2::2/128"];

/// Whether a zone has both addresses, according to firewalld.
fn are_in(zone: &str) -> bool {
    let has = SOURCES.map(|source| ask(&format!("--zone={zone} --query-source={source}")));
    assert_eq!(has[0], has[1]);
    has[0]
}

fn with_bus(call: lab::Call) -> lab::Call {
    call.env("DBUS_SYSTEM_BUS_ADDRESS", BUS)
}

/// cnitool with a network in firewalld's zone.
fn tool(lab: &Lab) -> Tool {
    let mut bridge = dual_stack();
    bridge["type"] = json!("bridge");
    let plugins = json!([bridge, {"type": "firewall", "backend": "firewalld"}]);
    lab.configure("10-net.conflist", &json!({"cniVersion": "1.0.0", "name": "net", "plugins": plugins}));
    lab.cnitool().env("DBUS_SYSTEM_BUS_ADDRESS", BUS)
}

#[test]
fn traffic_passes_firewalld_through_its_zone_and_del_leaves_nothing_there() {
    beyond_reference!("firewall-host-ports");
    if !is_here() {
        return;
    }
    for (theirs, keys) in [("nftables", json!({})), ("iptables", json!({"backend": "firewalld"}))] {
        let lab = Lab::new();
        let (pod, far) = (lab.container("pod"), lab.machine("far"));
        let mut firewalld = Firewalld::start(&lab, theirs, "public");
        let network = network(&lab, keys).each(with_bus);
        let result = network.add(&pod, "eth0").ok_result();
        assert!(are_in("trusted"));
        Traffic { pod: &pod, far: &far }.flows(theirs);
        network.check(&pod, "eth0", &result).iter().for_each(Outcome::ok);
        // The address was in the zone already.
        network.del(&pod, "eth0", &result).iter().for_each(Outcome::ok);
        assert!(!are_in("trusted"));
        assert!(lab.host().sh("ls -A /run/cni/firewalld").is_empty());
        network.del(&pod, "eth0", &result).iter().for_each(Outcome::ok);
        // The same without the key.
        let result = network.add(&pod, "eth0").ok_result();
        firewalld.stop();
        network.del(&pod, "eth0", &result).iter().for_each(Outcome::ok);
        assert!(lab.host().sh("ls -A /run/cni/firewalld").is_empty());
    }
}

#[test]
fn while_firewalld_is_stopped_gc_deletes_the_record_of_a_container_that_is_gone() {
    beyond_reference!("firewall-by-owner");
    if !is_here() {
        return;
    }
    let lab = Lab::new();
    let pod = lab.container("pod");
    let mut firewalld = Firewalld::start(&lab, "nftables", "public");
    firewall(&lab, json!({})).on(&pod).add().ok_result();
    firewalld.stop();
    let bare = with_bus(lab.plugin("firewall")).config(json!({"name": "net"}));
    bare.gc(&[("pod", "eth0")]).ok();
    assert!(!lab.host().sh("ls -A /run/cni/firewalld").is_empty());
    bare.gc(&[]).ok();
    assert!(lab.host().sh("ls -A /run/cni/firewalld").is_empty());
}

#[test]
fn a_firewalld_that_does_not_answer_is_an_error_that_says_try_again_and_loses_nothing() {
    beyond_reference!("firewall-by-owner");
    if !is_here() {
        return;
    }
    let lab = Lab::new();
    let pod = lab.container("pod");
    let firewalld = Firewalld::start(&lab, "nftables", "public");
    // With one address: each answer has a timeout of 25 s.
    let call = firewall(&lab, json!({"prevResult": prev_result(&["10.1.2.2/24"])})).on(&pod);
    call.add().ok_result();
    firewalld.suspend();
    call.del().refused(11, "remove 10.1.2.2/32 from firewalld's zone trusted");
    firewalld.resume();
    let is_in_zone = || ask("--zone=trusted --query-source=10.1.2.2/32");
    assert!(is_in_zone());
    call.del().ok();
    assert!(!is_in_zone());
}

/// A network with a separate bridge, whose containers are in firewalld's zone.
fn with_policy(lab: &Lab, number: u8, policy: &str) -> Chain {
    lab.chain(list(number, &json!({"backend": "firewalld", "ingressPolicy": policy}))).each(with_bus)
}

/// CHECK of a container of network 2 fails if one of Ferrule's tables was deleted, until the next ADD.
fn the_policy_is_checked(lab: &Lab, pod: &Container, result: &Value, policy: &str, families: &[&str]) {
    let keys = json!({"name": "net2", "backend": "firewalld", "ingressPolicy": policy, "prevResult": result});
    let call = with_bus(lab.plugin("firewall")).config(keys).on(pod);
    for family in families {
        call.check(result).ok();
        lab.host().sh(&format!("nft delete table {family} ferrule"));
        call.check(result).refused(999, "nftables rules of net2/");
        call.add().ok_result();
    }
    call.check(result).ok();
}

#[test]
fn networks_with_a_policy_in_a_zone_do_not_talk_to_each_other_and_containers_of_one_bridge_do() {
    beyond_reference!("ingress-policy");
    if !is_here() {
        return;
    }
    let lab = Lab::new();
    let [a, b, c, d] = ["a", "b", "c", "d"].map(|id| lab.container(id));
    let _firewalld = Firewalld::start(&lab, "nftables", "public");
    let [one, other, open] = [(2, "same-bridge"), (3, "same-bridge"), (4, "open")]
        .map(|(number, policy)| with_policy(&lab, number, policy));
    let pods = [(&one, &a), (&one, &b), (&other, &c), (&open, &d)];
    let [of_a, of_b, of_c, of_d] = pods.map(|(network, pod)| attach(network, pod));
    assert!(are_in("trusted"));
    let serve = |pod: &Container, ips: &[String; 2]| -> [Echo; 2] {
        ips.each_ref().map(|ip| pod.serve_tcp(&pod.id, &at(ip, 80)))
    };
    let _servers = [serve(&a, &of_a.1), serve(&c, &of_c.1), serve(&d, &of_d.1)];
    for n in [0, 1] {
        assert!(tcp_says(&b, &at(&of_a.1[n], 80)).is_some(), "on one bridge");
        assert!(tcp_is_cut_off(&b, &at(&of_c.1[n], 80)), "from one to the other");
        assert!(tcp_is_cut_off(&c, &at(&of_a.1[n], 80)), "and back");
        // The zone itself lets everything pass.
        assert!(tcp_says(&b, &at(&of_d.1[n], 80)).is_some(), "to a network without a policy");
    }
    the_policy_is_checked(&lab, &a, &of_a.0, "same-bridge", &["inet"]);
    for ((network, pod), (result, _)) in pods.iter().zip([&of_a, &of_b, &of_c, &of_d]) {
        network.del(pod, "eth0", result).iter().for_each(Outcome::ok);
    }
    assert!(!lab.host().ruleset().contains("ferrule"));
    assert!(!are_in("trusted"));
}

#[test]
fn isolated_containers_in_a_zone_reach_their_gateway_but_not_each_other() {
    beyond_reference!("ingress-policy");
    if !is_here() {
        return;
    }
    let lab = Lab::new();
    let [a, b] = ["a", "b"].map(|id| lab.container(id));
    let _firewalld = Firewalld::start(&lab, "nftables", "public");
    let network = with_policy(&lab, 2, "isolated");
    let [(of_a, to_a), (of_b, _)] = [&a, &b].map(|pod| attach(&network, pod));
    assert!(are_in("trusted"));
    for (ip, gateway) in to_a.iter().zip(["10.1.2.1", "fd00:1:2::1"]) {
        assert!(b.is_cut_off_from(ip), "{ip}");
        assert!(b.reaches(gateway), "{gateway}");
    }
    the_policy_is_checked(&lab, &a, &of_a, "isolated", &["inet", "bridge"]);
    for (pod, result) in [(&a, &of_a), (&b, &of_b)] {
        network.del(pod, "eth0", result).iter().for_each(Outcome::ok);
    }
    assert!(!lab.host().ruleset().contains("ferrule"));
    assert!(!are_in("trusted"));
}

/// As docs/firewall.md recommends for networks that must stay connected during a reload.
#[test]
fn with_the_bridge_in_a_zone_traffic_passes_by_nftables_and_status_does_not_fail() {
    beyond_reference!("firewall-nftables");
    if !is_here() {
        return;
    }
    let lab = Lab::new();
    let (pod, far) = (lab.container("pod"), lab.machine("far"));
    let _firewalld = Firewalld::start(&lab, "nftables", "public");
    assert!(ask("--zone=trusted --add-interface=br0"));
    let network = network(&lab, json!({"backend": "nftables"})).each(with_bus);
    network.add(&pod, "eth0").ok_result();
    Traffic { pod: &pod, far: &far }.flows("nftables");
    with_bus(lab.plugin("firewall")).config(json!({"backend": "nftables"})).status().ok();
}

#[test]
fn after_a_reload_or_a_restart_check_fails_and_repair_restores_the_sources() {
    beyond_reference!("firewalld-check");
    if !is_here() {
        return;
    }
    let lab = Lab::new();
    let (pod, far) = (lab.container("pod"), lab.machine("far"));
    let _server = far.serve_tcp("far", "198.51.100.2:7");
    let mut firewalld = Firewalld::start(&lab, "nftables", "public");
    let tool = tool(&lab);
    tool.says("add net pod --container-id pod");
    for restart in [false, true] {
        if restart {
            firewalld.restart();
        } else {
            reload();
        }
        let checked = tool.run("check net --all");
        let said = format!("{checked:?}");
        assert!(!checked.succeeded() && said.contains("firewalld was reloaded or restarted"), "{said}");
        assert!(tcp_is_cut_off(&pod, "198.51.100.2:7"));
        assert_eq!(tool.json("repair --all")["repaired"], json!(["net/pod/eth0"]));
        assert_eq!(tcp_says(&pod, "198.51.100.2:7").as_deref(), Some("far 10.1.2.2"));
        tool.says("check net --all");
    }
    let watching = Watching::start(&tool);
    // The first flush may come before the watcher's first look.
    for _ in 0..2 {
        reload();
        let is_back = || ask(&format!("--zone=trusted --query-source={}", SOURCES[1]));
        until_within(RESTORED, "the container is back", is_back);
    }
    assert_eq!(watching.end(), Some(0));
    reload();
    tool.says("del net pod --container-id pod");
    assert!(!are_in("trusted"));
}

/// The result of an earlier plugin that gave eth0 these addresses.
fn prev_result(addresses: &[&str]) -> Value {
    let ips: Vec<_> = addresses.iter().map(|address| json!({"address": address, "interface": 0})).collect();
    json!({"cniVersion": "1.0.0", "interfaces": [{"name": "eth0", "sandbox": "/run/netns/x"}], "ips": ips})
}

/// Only the plugin.
fn firewall(lab: &Lab, keys: Value) -> lab::Call {
    let prev = prev_result(&["10.1.2.2/24", "fd00:1:2::2/64"]);
    let call = lab.plugin("firewall").config(json!({"cniVersion": "1.0.0", "backend": "firewalld"}));
    with_bus(call).config(json!({"prevResult": prev})).config(keys)
}

#[test]
fn addresses_are_removed_from_a_zone_without_prev_result_except_those_of_newer_containers() {
    beyond_reference!("firewall-by-owner");
    if !is_here() {
        return;
    }
    let lab = Lab::new();
    let [old, new, dead] = ["old", "new", "dead"].map(|id| lab.container(id));
    let mut firewalld = Firewalld::start(&lab, "nftables", "public");
    let bare = with_bus(lab.plugin("firewall")).config(json!({"name": "net"}));
    firewall(&lab, json!({})).on(&old).add().ok_result();
    bare.clone().on(&old).without("CNI_NETNS").del().ok();
    assert!(!are_in("trusted"));
    // The address moves to another container without a DEL in between.
    firewall(&lab, json!({})).on(&old).add().ok_result();
    firewall(&lab, json!({})).on(&new).add().ok_result();
    bare.clone().on(&old).without("CNI_NETNS").del().ok();
    firewall(&lab, json!({})).on(&dead).del().ok();
    assert!(are_in("trusted"));
    // ADD for another network failed because an interface of that name exists.
    bare.clone().config(json!({"name": "other"})).on(&new).del().ok();
    assert!(are_in("trusted"));
    bare.gc(&[("new", "eth0")]).ok();
    assert!(are_in("trusted"));
    bare.gc(&[]).ok();
    assert!(!are_in("trusted"));
    for release in Release::with("firewall") {
        // The reference's ADD, then Ferrule's DEL.
        firewall(&lab, json!({})).on(&old).by_release(release).add().ok_result();
        let result = firewall(&lab, json!({})).on(&old).add().ok_result();
        firewall(&lab, json!({})).on(&old).check(&result).ok();
        bare.clone().on(&old).del().ok();
        firewall(&lab, json!({})).on(&old).by_release(release).add().ok_result();
        firewall(&lab, json!({})).on(&old).check(&result).ok();
        firewall(&lab, json!({})).on(&old).del().ok();
        assert!(!are_in("trusted"));
        // The other way round.
        firewall(&lab, json!({})).on(&old).add().ok_result();
        firewall(&lab, json!({})).on(&old).by_release(release).check(&result).ok();
        firewall(&lab, json!({})).on(&old).by_release(release).del().ok();
        assert!(!are_in("trusted"));
    }
    bare.gc(&[]).ok();
    // A zone that does not exist.
    firewall(&lab, json!({"firewalldZone": "nowhere"})).on(&old).add().refused(7, "nowhere");
    assert!(ask("--zone=work --add-source=10.1.2.2/32"));
    firewall(&lab, json!({})).on(&old).add().refused(7, "work");
    firewall(&lab, json!({})).status().ok();
    firewalld.stop();
    firewall(&lab, json!({})).on(&old).add().refused(2, "firewalld is not running");
    firewall(&lab, json!({})).status().refused(50, "firewalld is not running");
    assert!(lab.host().sh("ls -A /run/cni/firewalld").is_empty());
}

#[test]
fn addresses_are_removed_from_the_configured_zone_that_the_record_or_the_references_configuration_names() {
    beyond_reference!("firewall-by-owner");
    if !is_here() {
        return;
    }
    let lab = Lab::new();
    let pod = lab.container("pod");
    let _firewalld = Firewalld::start(&lab, "nftables", "public");
    let bare = with_bus(lab.plugin("firewall")).config(json!({"name": "net"}));
    let internal = firewall(&lab, json!({"firewalldZone": "internal"})).on(&pod);
    for command in ["DEL", "GC"] {
        let result = internal.add().ok_result();
        assert!(are_in("internal") && !are_in("trusted"));
        internal.check(&result).ok();
        if command == "DEL" {
            bare.clone().on(&pod).del().ok()
        } else {
            bare.gc(&[]).ok()
        }
        assert!(!are_in("internal"), "{command}");
    }
    for release in Release::with("firewall") {
        internal.clone().by_release(release).add().ok_result();
        assert!(are_in("internal"));
        internal.del().ok();
        assert!(!are_in("internal"));
    }
}

#[test]
fn an_address_is_not_removed_if_another_containers_record_cannot_be_read() {
    beyond_reference!("firewall-host-ports");
    if !is_here() {
        return;
    }
    let lab = Lab::new();
    let [pod, later] = ["pod", "later"].map(|id| lab.container(id));
    let _firewalld = Firewalld::start(&lab, "nftables", "public");
    let network = network(&lab, json!({})).each(with_bus);
    let result = network.add(&pod, "eth0").ok_result();
    // As if the address was leased again while the DEL of its first container was late.
    let record = "/run/cni/firewalld/later~eth0.json";
    lab.host().sh(&format!("cp /run/cni/firewalld/pod~eth0.json {record}"));
    let firewall = lab.plugin("firewall").config(json!({"prevResult": result})).on(&pod);
    let unread = injecting(&["-P", record, "-e", "inject=?open,openat:error=EMFILE"]);
    with_bus(firewall.clone()).under(&unread).del().refused(5, record);
    with_bus(firewall.clone()).del().ok();
    assert!(are_in("trusted"));
    with_bus(firewall.on(&later)).del().ok();
    assert!(!are_in("trusted"));
}
