//! A host switches from the reference to Ferrule, or back, while containers run.

mod back;
pub mod gc;
mod masquerade;
pub mod repair;
mod rules;
mod words;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use lab::{Call, Lab, Release, beyond_reference, needs, tcp_says, under_test};
use serde_json::{Value, json};

use crate::cnitool::repair::{limited, losses_of_limits};
use crate::common::{STORE, cable, dual_stack, host_local, ips, leases, routing_of};
use crate::tuning::{BACKUP, tuning, wired};

/// The executables that run a call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Who {
    Ours,
    Reference(Release),
}

impl Who {
    pub fn run(self, call: &Call) -> Call {
        match self {
            Self::Ours => call.clone(),
            Self::Reference(release) => call.clone().by_release(release),
        }
    }
}

/// From each release of the reference with this plugin to Ferrule, and back: the first runs ADD, the second takes over.
pub fn ways(plugin: &str) -> Vec<[Who; 2]> {
    let both = |release| {
        let theirs = Who::Reference(release);
        [[theirs, Who::Ours], [Who::Ours, theirs]]
    };
    Release::with(plugin).into_iter().flat_map(both).collect()
}

/// From each release of the reference with this plugin to Ferrule.
pub fn to_ours(plugin: &str) -> Vec<[Who; 2]> {
    ways(plugin).into_iter().filter(|way| way[1] == Who::Ours).collect()
}

/// An interface on a link of the host.
fn on_cable(lab: &Lab, plugin: &str, keys: Value) -> Call {
    cable(lab);
    let ipam = host_local(&[&["10.1.2.0/24"], &["fd00:1:2::/64"]]);
    lab.plugin(plugin).config(json!({"master": "cable", "mtu": 1400, "ipam": ipam})).config(keys)
}

/// Attaches with one, and runs CHECK, GC and DEL with the other.
fn is_taken_over(plugin: &str, keys: &Value) {
    for [old, new] in ways(plugin) {
        let lab = Lab::new();
        let [a, b] = ["a", "b"].map(|id| lab.container(id));
        let call = on_cable(&lab, plugin, keys.clone());
        // Shared objects exist before, so that only the attachment can be left. A master has one interface for each
        // VLAN.
        let beside = if plugin == "vlan" { json!({"vlanId": 200}) } else { json!({}) };
        old.run(&call).config(beside).on(&b).add().ok_result();
        let before = lab.snapshot();
        let result = old.run(&call).on(&a).add().ok_result();
        new.run(&call).on(&a).check(&result).ok();
        gc::keeps_valid_and_removes_stale(&lab, new, &call, [&a, &b], &result, &before);
        new.run(&call).on(&a).del().ok();
        lab.snapshot().assert_same(&before);
    }
}

/// An administrator may install only some of Ferrule's plugins, and keep the reference's other ones.
#[test]
fn a_network_works_with_some_plugins_of_ferrule_and_others_of_the_reference() {
    beyond_reference!("way-home");
    const PLUGINS: [&str; 3] = ["bridge", "host-local", "portmap"];
    let dir = Path::new("/run/lab/both");
    let ports = json!([{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]);
    for release in Release::with("bridge") {
        for (different, is_ours) in PLUGINS.into_iter().flat_map(|plugin| [(plugin, true), (plugin, false)]) {
            let lab = Lab::new();
            let (pod, far) = (lab.container("pod"), lab.machine("far"));
            fs::create_dir(dir).unwrap();
            let ours = |plugin: &str| (plugin == different) == is_ours;
            for plugin in PLUGINS {
                let place = if ours(plugin) { under_test().dir.clone() } else { release.place() };
                symlink(place.join(plugin), dir.join(plugin)).unwrap();
            }
            let bridge = lab.plugin("bridge").in_dir(dir).on(&pod).config(dual_stack());
            let result = bridge.add().ok_result();
            let portmap = lab.plugin("portmap").in_dir(dir).on(&pod);
            let keys = json!({"runtimeConfig": {"portMappings": ports}, "prevResult": result});
            let portmap = portmap.config(keys);
            portmap.add().ok_result();
            let _server = pod.serve_tcp("pod", "10.1.2.2:80");
            let said = tcp_says(&far, "198.51.100.1:8080");
            assert_eq!(said.as_deref(), Some("pod 198.51.100.2"), "{release}, {different} {is_ours}");
            // The reference's portmap refuses host ports of two families that it has made.
            for call in [&bridge, &portmap].into_iter().filter(|call| ours(call.plugin())) {
                call.check(&result).ok();
            }
            portmap.del().ok();
            bridge.config(json!({"prevResult": result})).del().ok();
            let rules = lab.host().sh("nft list ruleset; iptables-legacy-save");
            assert!(!rules.contains("10.1.2.2"), "{release}, {different} {is_ours}: {rules}");
            assert!(leases().is_empty(), "{release}, {different} {is_ours}");
            lab.host().wait_until("the pair is deleted", |host| host.ip("link show master br0").is_empty());
        }
    }
}

/// A device of the host, with its peer.
fn host_device(lab: &Lab) -> Call {
    lab.host().sh("ip link add dev0 type veth peer name far0; ip link set far0 up; ip link add dev1 type veth peer name far1");
    lab.plugin("host-device")
        .config(json!({"device": "dev0", "ipam": host_local(&[&["10.1.2.0/24"], &["fd00:1:2::/64"]])}))
}

#[test]
fn a_device_moved_by_the_other_suite_passes_check_and_returns() {
    beyond_reference!("way-home");
    for [old, new] in ways("host-device") {
        let lab = Lab::new();
        let [a, b] = ["a", "b"].map(|id| lab.container(id));
        let call = host_device(&lab);
        // Shared objects exist before, so that only the attachment can be left.
        old.run(&call).config(json!({"device": "dev1"})).on(&b).add().ok_result();
        let before = lab.snapshot();
        let result = old.run(&call).on(&a).add().ok_result();
        new.run(&call).on(&a).check(&result).ok();
        new.run(&call).on(&a).del().ok();
        // The reference does not know Ferrule's records. GC deletes them.
        call.gc(&[("b", "eth0")]).ok();
        lab.snapshot().assert_same(&before);
    }
}

#[test]
fn a_device_moved_by_the_reference_returns_even_if_the_selector_does_not_find_it() {
    beyond_reference!("way-home");
    for [theirs, ours] in to_ours("host-device") {
        for (selector, now, change) in [
            (json!({"device": null, "hwaddr": "02:00:00:00:00:07"}), json!({}), "address 02:00:00:00:00:08"),
            (json!({}), json!({"device": "dev1"}), "up"),
        ] {
            let lab = Lab::new();
            let pod = lab.container("pod");
            let call = host_device(&lab).config(selector).on(&pod);
            lab.host().sh("ip link set dev0 address 02:00:00:00:00:07");
            let result = theirs.run(&call).add().ok_result();
            pod.sh(&format!("ip link set eth0 {change}"));
            let edited = ours.run(&call).config(now);
            // Without a result, ADD may have failed because another network's interface has the name.
            edited.del().ok();
            assert!(lab.host().link("dev0").is_none());
            edited.config(json!({"prevResult": result})).del().ok();
            assert_eq!(lab.host().link("dev0").unwrap()["ifalias"], Value::Null);
        }
    }
}

#[test]
fn a_macvlan_of_the_other_suite_passes_check_and_gc_and_is_deleted_with_its_lease() {
    is_taken_over("macvlan", &json!({}));
}

#[test]
fn an_ipvlan_of_the_other_suite_passes_check_and_gc_and_is_deleted_with_its_lease() {
    needs!(Ipvlan);
    is_taken_over("ipvlan", &json!({}));
}

#[test]
fn a_vlan_of_the_other_suite_passes_check_and_gc_and_is_deleted_with_its_lease() {
    needs!(Vlan);
    is_taken_over("vlan", &json!({"vlanId": 100}));
}

/// The reference does not turn on VLAN filtering on an existing bridge. Its older releases keep VLAN 1.
#[test]
fn a_port_in_a_vlan_of_the_reference_passes_check() {
    needs!(BridgeVlanFiltering);
    for [theirs, ours] in to_ours("bridge") {
        for existing in ["", "ip link add br0 address 02:00:00:00:00:07 type bridge"] {
            let lab = Lab::new();
            let pod = lab.container("pod");
            lab.host().sh(existing);
            let call = lab.plugin("bridge").config(dual_stack()).config(json!({"vlan": 10})).on(&pod);
            let result = theirs.run(&call).add().ok_result();
            ours.run(&call).check(&result).ok();
        }
    }
}

#[test]
fn the_references_gateway_of_a_vlan_is_deleted_with_its_last_user() {
    needs!(BridgeVlanFiltering);
    for command in ["DEL", "GC"] {
        for [theirs, ours] in to_ours("bridge") {
            let lab = Lab::new();
            let pod = lab.container("in-the-references-vlan");
            let call = lab.plugin("bridge").config(dual_stack()).config(json!({"vlan": 10})).on(&pod);
            theirs.run(&call).add().ok_result();
            if command == "DEL" {
                ours.run(&call).del().ok();
            } else {
                pod.vanish();
                lab.host().wait_until("the veth is deleted", |host| {
                    host.link_names().iter().filter(|name| name.starts_with("veth")).count() < 2
                });
                ours.run(&call).gc(&[]).ok();
            }
            assert_eq!(lab.host().link_names(), ["br0"], "{command}");
        }
    }
}

/// With kubelet's burst. The reference's numbers have 32 bits: of the bytes that wait, and of the microseconds to fill the bucket.
#[test]
fn very_high_and_very_low_limits_of_the_reference_pass_check() {
    needs!(TrafficControl);
    for [theirs, ours] in to_ours("bandwidth") {
        for rate in [10_u64.pow(15), 10_u64.pow(13), 100_000, 10_000] {
            let lab = Lab::new();
            let pod = wired(&lab, "eth0");
            let burst = i32::MAX;
            let limits = json!({
                "ingressRate": rate, "ingressBurst": burst, "egressRate": rate, "egressBurst": burst,
            });
            let call = crate::bandwidth::limited(&lab, &pod).config(limits);
            let result = theirs.run(&call).add().ok_result();
            ours.run(&call).check(&result).ok();
        }
    }
}

#[test]
fn limits_of_the_other_suite_pass_check_and_their_ifb_is_deleted() {
    needs!(TrafficControl);
    for [old, new] in ways("bandwidth") {
        let lab = Lab::new();
        let pod = wired(&lab, "eth0");
        let call = crate::bandwidth::limited(&lab, &pod);
        let before = lab.snapshot();
        let result = old.run(&call).add().ok_result();
        new.run(&call).check(&result).ok();
        new.run(&call).del().ok();
        // These are deleted with their link, which stays here. The reference's DEL leaves its own and Ferrule's, with a filter that
        // loses all packets. Ferrule's DEL leaves only the reference's, because nothing on them names their owner.
        let filters = lab.host().sh("tc filter show dev cable ingress");
        assert_eq!(filters.is_empty(), new == Who::Ours, "{old:?}: {filters}");
        let hook = if old == Who::Ours { "clsact" } else { "ingress" };
        lab.host().sh(&format!("tc qdisc del dev cable root; tc qdisc del dev cable {hook}"));
        lab.snapshot().assert_same(&before);
    }
}

#[test]
fn limits_of_the_reference_in_a_chain_are_repaired_and_our_del_leaves_nothing() {
    beyond_reference!("repair");
    needs!(TrafficControl);
    for release in Release::with("bandwidth") {
        let lab = Lab::new();
        let [first, pod] = ["first", "pod"].map(|id| lab.container(id).id);
        lab.configure("10-net.conflist", &limited());
        let ours = lab.cnitool();
        let theirs = ours.clone().by_release(release);
        // The bridge exists before, so that only the attachment can be left.
        theirs.says(&format!("add net first --container-id {first}"));
        ours.says(&format!("del net first --container-id {first}"));
        let before = lab.snapshot();
        for loss in 0..4 {
            theirs.says(&format!("add net pod --container-id {pod}"));
            ours.says("check net --all");
            let loss = losses_of_limits(&lab)[loss].replace("clsact", "ingress");
            lab.host().sh(&loss);
            assert!(!ours.run("check net --all").succeeded(), "{release} {loss}");
            assert_eq!(ours.json("repair --all")["repaired"], json!(["net/pod/eth0"]), "{release} {loss}");
            ours.says("check net --all");
            ours.says(&format!("del net pod --container-id {pod}"));
            lab.snapshot().assert_same(&before);
        }
    }
}

/// Its name contains only a hash of network and container.
#[test]
fn gc_keeps_an_ifb_of_the_reference_and_del_without_the_namespace_deletes_it() {
    beyond_reference!("firewall-upgrade");
    needs!(TrafficControl);
    for [theirs, ours] in to_ours("bandwidth") {
        let lab = Lab::new();
        let pod = wired(&lab, "eth0");
        let call = crate::bandwidth::limited(&lab, &pod);
        theirs.run(&call).add().ok_result();
        lab.host().sh("ip link del cable");
        let ifbs = || lab.host().ip("link show type ifb").len();
        let ours = ours.run(&call).without("CNI_NETNS");
        ours.gc(&[]).ok();
        assert_eq!(ifbs(), 1);
        ours.del().ok();
        assert_eq!(ifbs(), 0);
    }
}

/// The reference's interfaces of a container share an ifb.
#[test]
fn the_references_limit_of_another_interface_stays_when_an_interface_is_detached() {
    needs!(TrafficControl);
    for [theirs, ours] in to_ours("bandwidth") {
        for (limits, netns) in
            [(json!({}), true), (json!({}), false), (json!({"egressRate": 0, "egressBurst": 0}), true)]
        {
            let lab = Lab::new();
            let pod = wired(&lab, "eth0");
            lab.host().sh("ip link add eth1 netns pod type veth peer name cable1; ip link set cable1 up; ip -n pod link set eth1 up");
            let first = crate::bandwidth::limited(&lab, &pod);
            let result = theirs.run(&first).add().ok_result();
            let before = lab.snapshot();
            let second = ours.run(&first).ifname("eth1").config(limits);
            second.add().ok_result();
            let second = if netns { second } else { second.without("CNI_NETNS") };
            second.del().ok();
            lab.snapshot().assert_same(&before);
            ours.run(&first).check(&result).ok();
            ours.run(&first).del().ok();
            assert!(lab.host().ip("link show type ifb").is_empty());
        }
    }
}

#[test]
fn rules_and_routes_of_the_references_sbr_pass_check_and_are_restored() {
    beyond_reference!("sbr-restore");
    for [old, new] in ways("sbr") {
        let lab = Lab::new();
        let (pod, call) = crate::sbr::manually_in(&lab, "1.0.0");
        // A default route that the reference adds to a table looks like one that it has moved there.
        pod.sh("ip -6 route add default via fd00:1::1 dev eth0");
        let (routing, rules) = (routing_of(&pod), pod.sh("ip rule; ip -6 rule"));
        let result = old.run(&call).add().ok_result();
        assert_ne!(pod.sh("ip rule; ip -6 rule"), rules);
        gc::keeps_everything(&lab, new, &call, &pod);
        new.run(&call).check(&result).ok();
        new.run(&call).del().ok();
        assert_eq!(pod.sh("ip rule; ip -6 rule"), rules);
        // The reference leaves the routes in the table. Ferrule restores them nevertheless.
        call.del().ok();
        assert_eq!(routing_of(&pod), routing);
    }
}

/// Release 1.1.1 loses the routes of the interface. Our DEL restores those of the result.
#[test]
fn a_vrf_of_the_other_suite_passes_check_with_its_routes_and_is_deleted_with_its_last_interface() {
    needs!(Vrf);
    for [old, new] in ways("vrf") {
        let lab = Lab::new();
        let (pod, call) = crate::vrf::manually_in(&lab, "1.0.0");
        let result = old.run(&call).add().ok_result();
        assert_eq!(pod.link("eth0").unwrap()["master"], "blue");
        assert_eq!(result["routes"][0]["dst"], "0.0.0.0/0");
        gc::keeps_everything(&lab, new, &call, &pod);
        let checked = new.run(&call).check(&result);
        if old == Who::Reference(Release::V1_1_1) {
            checked.refused(999, "route to 0.0.0.0/0 is missing");
        } else {
            checked.ok();
        }
        new.run(&call).del().ok();
        assert!(pod.link("blue").is_none());
        assert!(pod.addresses("eth0").contains(&"10.1.0.2/24".to_owned()));
        if new == Who::Ours {
            assert!(pod.sh("ip route show default").contains("via 10.1.0.1 dev eth0"), "{old:?}");
        }
    }
}

#[test]
fn an_attachment_of_the_other_suite_passes_check_and_gc_and_is_deleted_with_its_lease() {
    for [old, new] in ways("bridge") {
        let lab = Lab::new();
        let [a, b] = ["a", "b"].map(|id| lab.container(id));
        let call = lab.plugin("bridge").config(dual_stack());
        // The bridge exists before, so that only the attachment can be left.
        old.run(&call).on(&b).add().ok_result();
        let before = lab.snapshot();
        let result = old.run(&call).on(&a).add().ok_result();
        new.run(&call).on(&a).check(&result).ok();
        gc::keeps_valid_and_removes_stale(&lab, new, &call, [&a, &b], &result, &before);
        new.run(&call).on(&a).del().ok();
        lab.snapshot().assert_same(&before);
    }
}

/// An interface that needs no link of the host.
fn of_its_own(plugin: &str, keys: &Value) {
    for [old, new] in ways(plugin) {
        let lab = Lab::new();
        let [a, b] = ["a", "b"].map(|id| lab.container(id));
        let ipam = host_local(&[&["10.1.2.0/24"], &["fd00:1:2::/64"]]);
        let call = lab.plugin(plugin).config(json!({"ipam": ipam})).config(keys.clone());
        old.run(&call).on(&b).add().ok_result();
        let before = lab.snapshot();
        let result = old.run(&call).on(&a).add().ok_result();
        new.run(&call).on(&a).check(&result).ok();
        gc::keeps_valid_and_removes_stale(&lab, new, &call, [&a, &b], &result, &before);
        new.run(&call).on(&a).del().ok();
        lab.snapshot().assert_same(&before);
    }
}

#[test]
fn a_dummy_of_the_other_suite_passes_check_and_gc_and_is_deleted_with_its_lease() {
    needs!(Dummy);
    of_its_own("dummy", &json!({}));
}

#[test]
fn a_tap_of_the_other_suite_passes_check_and_gc_and_is_deleted_with_its_lease() {
    needs!(Tap);
    for keys in [
        json!({"owner": 0, "group": 0, "multiQueue": true, "mtu": 1400}),
        json!({"mtu": 1400}),
        json!({"mac": "02:00:00:00:00:aa", "owner": 1}),
    ] {
        of_its_own("tap", &keys);
    }
}

/// The reference has `mtu` and `advmss` in its result, and does not set them.
#[test]
fn routes_of_the_reference_pass_check_without_their_metrics() {
    for [theirs, ours] in to_ours("bridge") {
        for plugin in ["bridge", "ptp", "macvlan"] {
            let lab = Lab::new();
            let pod = lab.container("pod");
            let mut ipam = host_local(&[&["10.1.2.0/24"], &["fd00:1:2::/64"]]);
            ipam["routes"] = json!([
                {"dst": "192.0.2.0/24", "gw": "10.1.2.1", "mtu": 1300, "advmss": 1200},
                {"dst": "2001:db8::/32", "gw": "fd00:1:2::1", "mtu": 1300},
            ]);
            let call = on_cable(&lab, plugin, json!({"ipam": ipam})).on(&pod);
            let result = theirs.run(&call).add().ok_result();
            ours.run(&call).check(&result).ok();
            if result["routes"][0]["mtu"] == 1300 {
                pod.sh("ip route change 192.0.2.0/24 via 10.1.2.1 dev eth0 mtu 1290");
                let words = "mtu of the route to 192.0.2.0/24 is 1290";
                ours.run(&call).check(&result).refused(999, words);
            }
            pod.sh("ip route del 192.0.2.0/24");
            ours.run(&call).check(&result).refused(999, "route to 192.0.2.0/24 is missing");
            ours.run(&call).del().ok();
        }
    }
}

/// ptp with both families.
fn ptp(lab: &Lab) -> Call {
    lab.plugin("ptp").config(json!({"ipam": host_local(&[&["10.1.2.0/24"], &["fd00:1:2::/64"]])}))
}

#[test]
fn a_loopback_interface_set_up_by_the_other_suite_passes_check_and_is_set_down() {
    for [old, new] in ways("loopback") {
        let lab = Lab::new();
        let pod = lab.container("pod");
        let call = lab.plugin("loopback").ifname("lo").on(&pod);
        // The kernel keeps the addresses of an interface that has been up once.
        pod.sh("ip link set lo up; ip link set lo down");
        let before = lab.snapshot();
        let result = old.run(&call).add().ok_result();
        assert!(pod.reaches("127.0.0.1") && pod.reaches("::1"));
        new.run(&call).check(&result).ok();
        new.run(&call).del().ok();
        lab.snapshot().assert_same(&before);
    }
}

/// Attaches with one, and runs CHECK, GC and DEL with the other.
fn changes_hands(lab: &Lab, call: &Call, [old, new]: [Who; 2]) {
    let [a, b] = ["a", "b"].map(|id| lab.container(id));
    // Forwarding and the tables exist before, so that only the attachment can be left.
    old.run(call).on(&b).add().ok_result();
    let before = lab.snapshot();
    let result = old.run(call).on(&a).add().ok_result();
    new.run(call).on(&a).check(&result).ok();
    assert!(a.reaches("10.1.2.2") && a.reaches("fd00:1:2::2"));
    gc::keeps_valid_and_removes_stale(lab, new, call, [&a, &b], &result, &before);
    new.run(call).on(&a).del().ok();
    lab.snapshot().assert_same(&before);
}

#[test]
fn a_ptp_attachment_of_the_other_suite_passes_check_and_gc_and_is_deleted_with_its_lease() {
    for way in ways("ptp") {
        let lab = Lab::new();
        changes_hands(&lab, &ptp(&lab), way);
    }
}

/// Release 1.1.1 has only iptables, which is the default of 1.9.1, too. The reference's own DEL with nftables can fail: `masquerade.rs`.
#[test]
fn a_ptp_attachment_that_the_reference_masquerades_is_deleted_to_the_last_rule() {
    for way in to_ours("ptp") {
        for backend in [None, Some("nftables")] {
            let has_nftables = way[0] != Who::Reference(Release::V1_1_1) && !under_test().reference;
            if backend.is_some() && !has_nftables {
                continue;
            }
            let lab = Lab::new();
            let call = ptp(&lab).config(json!({"ipMasq": true, "ipMasqBackend": backend}));
            changes_hands(&lab, &call, way);
            // The rules of the container that stays.
            let is_nftables = lab.host().sh("nft list tables").contains("cni_plugins_masquerade");
            assert_eq!(is_nftables, backend.is_some(), "{way:?}");
        }
    }
}

/// A runtime calls DEL after an ADD that failed.
#[test]
fn a_network_that_is_refused_because_of_an_interface_of_the_reference_keeps_it() {
    beyond_reference!("own-kind");
    for [theirs, ours] in to_ours("bridge") {
        for (first, second) in [("bridge", "bridge"), ("bridge", "ptp"), ("ptp", "bridge")] {
            let lab = Lab::new();
            let pod = lab.container("pod");
            let of = |plugin| lab.plugin(plugin).on(&pod).config(dual_stack());
            theirs.run(&of(first)).add().ok_result();
            let before = lab.snapshot();
            let other = ours.run(&of(second)).config(json!({"name": "other", "bridge": "br1"}));
            other.add().refused(4, "eth0");
            other.del().ok();
            lab.snapshot().assert_same(&before);
        }
    }
}

#[test]
fn containers_of_before_and_after_the_change_reach_each_other() {
    for [old, new] in ways("bridge") {
        let lab = Lab::new();
        let [a, b] = ["a", "b"].map(|id| lab.container(id));
        let call = lab.plugin("bridge").config(dual_stack());
        old.run(&call).on(&a).add().ok_result();
        let result = new.run(&call).on(&b).add().ok_result();
        assert_eq!(ips(&result), ["10.1.2.3/24", "fd00:1:2::3/64"]);
        for address in ["10.1.2.3", "fd00:1:2::3", "10.1.2.1", "fd00:1:2::1"] {
            assert!(a.reaches(address), "{address}");
        }
    }
}

#[test]
fn a_lease_written_by_the_other_is_honoured_and_released() {
    for [old, new] in ways("host-local") {
        let lab = Lab::new();
        let ipam = |id| {
            let call = lab
                .plugin("host-local")
                .config(json!({"ipam": host_local(&[&["10.0.0.0/29"], &["fd00::/64"]])}));
            call.env("CNI_CONTAINERID", id).env("CNI_NETNS", "/run/netns/of-nobody")
        };
        old.run(&ipam("a")).add().ok_result();
        assert_eq!(
            ips(&new.run(&ipam("b")).add().ok_result()),
            ["10.0.0.3/29", "fd00::3/64"],
            "it goes on where the other was"
        );
        new.run(&ipam("c")).add().ok_result();
        assert!(
            !new.run(&ipam("d")).config(json!({"runtimeConfig": {"ips": ["10.0.0.2"]}})).add().succeeded()
        );
        new.run(&ipam("a")).del().ok();
        old.run(&ipam("b")).del().ok();
        assert_eq!(leases(), ["10.0.0.4", "fd00::4"]);
    }
}

#[test]
fn static_addresses_of_the_other_suite_pass_check_and_are_deleted_with_the_interface() {
    for way in ways("static") {
        let lab = Lab::new();
        cable(&lab);
        let addresses = json!([
            {"address": "10.1.2.2/24", "gateway": "10.1.2.1"}, {"address": "fd00:1:2::2/64"},
        ]);
        let ipam = json!({
            "type": "static", "addresses": addresses, "routes": [{"dst": "10.9.0.0/16", "gw": "10.1.2.1"}],
        });
        let call = lab.plugin("macvlan").config(json!({"master": "cable", "ipam": ipam}));
        let far = lab.container("far");
        lab.host().sh(
            "ip link set far netns far; ip -n far addr add 10.1.2.1/24 dev far; ip -n far link set far up
            ip -n far addr add fd00:1:2::1/64 dev far nodad",
        );
        let pod = lab.container("pod");
        let [old, new] = way.map(|who| who.run(&call).on(&pod));
        let before = lab.snapshot();
        let result = old.add().ok_result();
        assert!(far.reaches("10.1.2.2") && far.reaches("fd00:1:2::2"));
        new.check(&result).ok();
        new.del().ok();
        lab.snapshot().assert_same(&before);
    }
}

#[test]
fn both_write_the_same_files_except_our_index_and_lock() {
    let writers = ways("host-local").into_iter().map(|[who, _]| who);
    let written: Vec<_> = writers
        .map(|who| {
            let lab = Lab::new();
            let call = lab
                .plugin("host-local")
                .config(json!({"ipam": host_local(&[&["10.0.0.0/29"], &["fd00::/64"]])}));
            let call = call.env("CNI_CONTAINERID", "a").env("CNI_NETNS", "/run/netns/of-nobody");
            who.run(&call).add().ok_result();
            let entries = fs::read_dir(STORE).unwrap().flatten();
            let mut files: Vec<_> =
                entries.map(|file| (file.file_name(), fs::read(file.path()).unwrap())).collect();
            files.retain(|(name, _)| name != ".index" && name != ".lock");
            files.sort();
            files
        })
        .collect();
    assert!(written.len() > 1 && written.windows(2).all(|two| two[0] == two[1]), "{written:#?}");
}

/// A unit test of tuning (`backup.rs`) reads a text with these members.
#[test]
fn attributes_saved_by_the_other_suite_are_restored() {
    for [old, new] in ways("tuning") {
        let lab = Lab::new();
        let pod = wired(&lab, "eth0");
        let before = lab.snapshot();
        let mut config = json!({"mac": "02:00:00:00:00:aa", "mtu": 1400, "promisc": true, "allmulti": true});
        let mut members =
            json!({"mac": "02:00:00:00:00:01", "mtu": 1500, "promisc": false, "allmulti": false});
        // Release 1.1.1 does not know the key.
        if ![old, new].contains(&Who::Reference(Release::V1_1_1)) {
            config["txQLen"] = json!(500);
            members["txQLen"] = json!(1000);
        }
        let call = tuning(&lab, &pod, config);
        let result = old.run(&call).add().ok_result();
        let mut saved: Value = serde_json::from_slice(&fs::read(BACKUP).unwrap()).unwrap();
        if old == Who::Ours {
            // The reference ignores other members.
            saved.as_object_mut().unwrap().retain(|member, _| members.get(member).is_some());
        }
        assert_eq!(saved, members, "{old:?}");
        new.run(&call).check(&result).ok();
        new.run(&call).del().ok();
        lab.snapshot().assert_same(&before);
    }
}
