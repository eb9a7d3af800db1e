//! bandwidth: the kernel limits what a container sends and receives, and everything is restored afterwards.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use lab::{Call, Container, Lab, Netns, Release, beyond_1_1_1, beyond_reference, needs};
use serde_json::{Value, json};

use crate::common::{cable, host_local};
use crate::tuning::{wired, wired_as};

/// The reference's name of the ifb: `printf netpod | sha512sum`.
const IFB: &str = "bwp6230a40fd8ff";

/// Limits for both directions of an interface that another plugin created: [`wired`].
pub fn limited(lab: &Lab, pod: &Container) -> Call {
    let inside = json!({"name": "eth0", "mac": "02:00:00:00:00:01", "sandbox": pod.path()});
    let prev = json!({"cniVersion": "1.0.0", "interfaces": [{"name": "cable"}, inside]});
    lab.plugin("bandwidth").on(pod).config(json!({"prevResult": prev})).config(json!({
        "ingressRate": 8_000_000, "ingressBurst": 800_000, "egressRate": 4_000_000, "egressBurst": 400_000,
    }))
}

/// A link's root queueing discipline, as `tc` prints it.
fn root(netns: &Netns, link: &str) -> Value {
    let all: Vec<Value> =
        serde_json::from_str(&netns.sh(&format!("tc -s -j qdisc show dev {link}"))).unwrap();
    all.into_iter().find(|qdisc| qdisc["root"] == true).unwrap()
}

/// Rate in bytes per second, and burst in bytes, of a token bucket filter.
fn bucket(netns: &Netns, link: &str) -> (u64, u64) {
    let root = root(netns, link);
    assert_eq!(root["kind"], "tbf", "{root}");
    // `"burst": "100000b/1"`
    let burst = &root["options"]["burst"];
    let burst = burst.as_u64().or_else(|| burst.as_str()?.split('b').next()?.parse().ok()).unwrap();
    (root["options"]["rate"].as_u64().unwrap(), burst)
}

fn ifbs(lab: &Lab) -> Vec<String> {
    let names = lab.host().ip("link show type ifb").into_iter();
    names.map(|link| link["ifname"].as_str().unwrap().to_owned()).collect()
}

/// Adds addresses at both ends of the veth pair.
fn addressed(lab: &Lab, pod: &Container) {
    lab.host().sh("ip addr add 10.1.2.1/24 dev cable");
    pod.sh("ip addr add 10.1.2.2/24 dev eth0");
}

#[test]
fn both_directions_are_limited_on_the_host_and_del_leaves_the_wire_as_it_was() {
    needs!(TrafficControl);
    beyond_reference!("bandwidth-del");
    let lab = Lab::new();
    let pod = wired(&lab, "eth0");
    let call = limited(&lab, &pod);
    let before = lab.snapshot();
    let result = call.add().ok_result();
    let last = result["interfaces"].as_array().unwrap().last().unwrap();
    assert_eq!(last["name"], IFB);
    assert_eq!(last["mac"], lab.host().link(IFB).unwrap()["address"]);
    assert_eq!(bucket(lab.host(), "cable"), (1_000_000, 100_000));
    assert_eq!(bucket(lab.host(), IFB), (500_000, 50_000));
    assert_eq!(root(lab.host(), "cable")["options"]["lat"], 25_000);
    call.check(&result).ok();
    call.del().ok();
    lab.snapshot().assert_same(&before);
    call.del().ok();
}

#[test]
fn the_hosts_end_of_the_veth_is_limited_even_if_prev_result_does_not_list_it() {
    needs!(TrafficControl);
    let lab = Lab::new();
    let pod = wired(&lab, "eth0");
    let before = lab.snapshot();
    let inside = json!({"name": "eth0", "mac": "02:00:00:00:00:01", "sandbox": pod.path()});
    let prev = json!({"cniVersion": "1.0.0", "interfaces": [inside]});
    let call = limited(&lab, &pod).config(json!({"prevResult": prev}));
    for release in Release::with("bandwidth") {
        let error: Value = serde_json::from_str(&call.clone().by_release(release).add().stdout).unwrap();
        assert_eq!(error["msg"], "no veth peer of container interface found in host ns", "{release}");
        assert_eq!(error["code"], 999, "{release}");
        lab.snapshot().assert_same(&before);
    }
    beyond_reference!("bandwidth-peer");
    let result = call.add().ok_result();
    assert_eq!(bucket(lab.host(), "cable"), (1_000_000, 100_000));
    assert_eq!(bucket(lab.host(), IFB), (500_000, 50_000));
    call.check(&result).ok();
    call.del().ok();
    lab.snapshot().assert_same(&before);
}

#[test]
fn without_limits_the_result_is_passed_on_and_nothing_is_created() {
    needs!(TrafficControl);
    let lab = Lab::new();
    let pod = wired(&lab, "eth0");
    let zero = json!({"ingressRate": 0, "ingressBurst": 0, "egressRate": 0, "egressBurst": 0});
    let call = limited(&lab, &pod).config(zero);
    let before = lab.snapshot();
    let result = call.add().ok_result();
    assert_eq!(result["interfaces"].as_array().unwrap().len(), 2);
    lab.snapshot().assert_same(&before);
    call.check(&result).ok();
    call.del().ok();
}

#[test]
fn a_limit_of_one_direction_does_not_change_the_other() {
    needs!(TrafficControl);
    let lab = Lab::new();
    let pod = wired(&lab, "eth0");
    limited(&lab, &pod).config(json!({"egressRate": null, "egressBurst": null})).add().ok_result();
    assert!(ifbs(&lab).is_empty());
    assert_eq!(bucket(lab.host(), "cable").0, 1_000_000);
    let other = limited(&lab, &pod).config(json!({"ingressRate": null, "ingressBurst": null}));
    other.del().ok();
    lab.host().sh("tc qdisc del dev cable root || :");
    other.add().ok_result();
    assert_eq!((ifbs(&lab).len(), root(lab.host(), "cable")["kind"].clone()), (1, json!("noqueue")));
}

#[test]
fn two_plugins_of_a_chain_may_limit_one_direction_each() {
    needs!(TrafficControl);
    let lab = Lab::new();
    let pod = wired(&lab, "eth0");
    let ingress = limited(&lab, &pod).config(json!({"egressRate": null, "egressBurst": null}));
    let egress = limited(&lab, &pod).config(json!({"ingressRate": null, "ingressBurst": null}));
    let none = ingress.clone().config(json!({"ingressRate": null, "ingressBurst": null}));
    let mut result = ingress.clone().add().ok_result();
    for later in [&egress, &none] {
        result = later.clone().config(json!({"prevResult": result})).add().ok_result();
    }
    assert_eq!((bucket(lab.host(), "cable").0, bucket(lab.host(), IFB).0), (1_000_000, 500_000));
    for plugin in [&ingress, &egress, &none] {
        plugin.check(&result).ok();
    }
}

#[test]
fn the_runtimes_limits_count_where_the_network_has_none() {
    needs!(TrafficControl);
    let lab = Lab::new();
    let pod = wired(&lab, "eth0");
    // As kubelet and containerd pass them.
    let of_the_runtime = json!({"ingressRate": 80_000_000, "ingressBurst": 2_147_483_647_u64});
    let call = limited(&lab, &pod).config(json!({"runtimeConfig": {"bandwidth": of_the_runtime}}));
    call.add().ok_result();
    assert_eq!(bucket(lab.host(), "cable").0, 1_000_000);
    call.del().ok();
    if lab::under_test().reference {
        // The reference's DEL leaves it: docs/reference-quirks.md#bandwidth-del.
        lab.host().sh("tc qdisc del dev cable root 2>/dev/null || :");
    }
    let none = json!({"ingressRate": null, "ingressBurst": null, "egressRate": null, "egressBurst": null});
    let call = call.config(none);
    let result = call.add().ok_result();
    assert_eq!(bucket(lab.host(), "cable").0, 10_000_000);
    assert!(ifbs(&lab).is_empty());
    call.check(&result).ok();
}

/// Sends from one namespace to another. Returns the bytes that a link has sent, and the time.
fn sent(lab: &Lab, [from, to]: [&Netns; 2], address: &str, bytes: usize, link: &str) -> (u64, Duration) {
    let count = || root(lab.host(), link)["bytes"].as_u64().unwrap();
    let listener = to.run(|| TcpListener::bind((address, 0))).unwrap();
    let at = listener.local_addr().unwrap();
    let receiver = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(600))).unwrap();
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        all.len()
    });
    let (before, start) = (count(), Instant::now());
    from.run(|| TcpStream::connect(at).unwrap().write_all(&vec![0; bytes])).unwrap();
    assert_eq!(receiver.join().unwrap(), bytes);
    (count() - before, start.elapsed())
}

#[test]
fn at_most_the_burst_and_the_rates_share_since_then_pass() {
    needs!(TrafficControl);
    let lab = Lab::new();
    let pod = wired(&lab, "eth0");
    addressed(&lab, &pod);
    limited(&lab, &pod).add().ok_result();
    let (host, inside): (&Netns, &Netns) = (lab.host(), &pod);
    for (ends, address, link) in [([host, inside], "10.1.2.2", "cable"), ([inside, host], "10.1.2.1", IFB)] {
        let (rate, burst) = bucket(host, link);
        let is_held_up = || {
            let (bytes, time) = sent(&lab, ends, address, 250_000, link);
            // One more packet may have been in flight.
            let most =
                burst + u64::try_from(u128::from(rate) * time.as_micros() / 1_000_000).unwrap() + 65_536;
            assert!(bytes >= 250_000 && bytes <= most, "{link}: {bytes} bytes in {time:?}, {most} at most");
            root(host, link)["overlimits"].as_u64().unwrap() > 0
        };
        // On a busy machine, the sender may be slower than the limit.
        assert!((0..100).any(|_| is_held_up()), "{link}");
    }
}

/// 2147483647 bits, 268 MB. The time to fill the bucket needs more than 32 bits. With only 32, 27.9 MB were left.
#[test]
fn the_burst_is_as_large_as_the_kubelet_requests_also_at_a_low_rate() {
    needs!(TrafficControl);
    beyond_reference!("bandwidth-burst");
    let lab = Lab::new();
    let pod = wired(&lab, "eth0");
    addressed(&lab, &pod);
    let slow = json!({"rate": 1_000_000, "burst": 2_147_483_647});
    let limits = json!({
        "ingressRate": slow["rate"], "ingressBurst": slow["burst"], "egressRate": slow["rate"], "egressBurst": slow["burst"],
    });
    let call = limited(&lab, &pod).config(limits);
    let result = call.add().ok_result();
    call.check(&result).ok();
    let (host, inside): (&Netns, &Netns) = (lab.host(), &pod);
    for (ends, address, link) in [([host, inside], "10.1.2.2", "cable"), ([inside, host], "10.1.2.1", IFB)] {
        sent(&lab, ends, address, 40_000_000, link);
        assert_eq!(root(host, link)["overlimits"], 0, "{link}");
    }
}

#[test]
fn a_burst_without_room_for_a_packet_is_raised_and_full_packets_pass() {
    needs!(TrafficControl);
    beyond_reference!("bandwidth-burst");
    let lab = Lab::new();
    let pod = wired(&lab, "eth0");
    addressed(&lab, &pod);
    let call = limited(&lab, &pod).config(json!({"ingressBurst": 8000, "egressBurst": 8}));
    let added = call.add();
    assert!(added.stderr.contains("cable") && added.stderr.contains("12112 bits"), "{}", added.stderr);
    let result = added.ok_result();
    pod.sh("ping -n -q -c 3 -i 0.1 -w 60 -M do -s 1472 10.1.2.1");
    assert_eq!(root(lab.host(), "cable")["drops"], 0);
    call.check(&result).ok();
    lab.host().sh("ip link set cable mtu 1400");
    call.check(&result).ok();
    lab.host().sh("tc qdisc change dev cable root handle c41: tbf rate 8mbit burst 1600 limit 26600");
    call.check(&result).refused(999, "cable");
}

/// The ifb's own MTU is so small that the kernel does not set up IPv6 on it.
#[test]
fn large_packets_of_both_families_pass_an_ifb_that_has_no_addresses() {
    needs!(TrafficControl, Ipv6);
    let lab = Lab::new();
    let pod = wired(&lab, "eth0");
    lab.host().sh("ip link set cable mtu 9000 && ip addr add fd00::1/64 dev cable nodad");
    pod.sh("ip link set eth0 mtu 9000 && ip addr add fd00::2/64 dev eth0 nodad");
    addressed(&lab, &pod);
    let call = limited(&lab, &pod);
    let result = call.add().ok_result();
    for address in ["10.1.2.1", "fd00::1"] {
        pod.sh(&format!("ping -n -q -c 3 -i 0.1 -w 60 -M do -s 8900 {address}"));
    }
    assert!(root(lab.host(), IFB)["bytes"].as_u64().unwrap() > 6 * 8900);
    assert_eq!(root(lab.host(), IFB)["drops"], 0);
    if !lab::under_test().reference {
        assert_eq!(lab.host().ip(&format!("addr show dev {IFB}"))[0]["addr_info"], json!([]));
    }
    call.check(&result).ok();
}

#[test]
fn latency_is_how_long_a_packet_may_wait() {
    needs!(TrafficControl);
    beyond_reference!("bandwidth-keys");
    let lab = Lab::new();
    let pod = wired(&lab, "eth0");
    let call = limited(&lab, &pod).config(json!({"latencyMs": 400}));
    let result = call.add().ok_result();
    for link in ["cable", IFB] {
        assert_eq!(root(lab.host(), link)["options"]["lat"], 400_000);
    }
    call.check(&result).ok();
    call.clone().config(json!({"latencyMs": 25})).check(&result).refused(999, "queue limit");
}

#[test]
fn two_interfaces_of_a_container_have_an_ifb_each() {
    needs!(TrafficControl);
    beyond_reference!("bandwidth-ifb");
    let lab = Lab::new();
    let pod = wired(&lab, "eth0");
    lab.host().sh("ip link add eth1 netns pod type veth peer name cable1; ip link set cable1 up; ip -n pod link set eth1 up");
    let before = lab.snapshot();
    let first = limited(&lab, &pod);
    let second = first.clone().ifname("eth1").version("1.1.0");
    let results = [first.add().ok_result(), second.add().ok_result()];
    assert_eq!(ifbs(&lab).len(), 2);
    first.check(&results[0]).ok();
    second.check(&results[1]).ok();
    first.del().ok();
    assert_eq!(ifbs(&lab).len(), 1);
    second.check(&results[1]).ok();
    second.gc(&[("pod", "eth1")]).ok();
    assert_eq!(ifbs(&lab).len(), 1);
    second.gc(&[("pod", "eth0")]).ok();
    assert!(ifbs(&lab).is_empty());
    second.del().ok();
    lab.snapshot().assert_same(&before);
}

#[test]
fn del_without_namespace_and_result_removes_the_ifb_and_traffic_continues() {
    needs!(TrafficControl);
    beyond_reference!("bandwidth-del");
    let lab = Lab::new();
    let pod = wired(&lab, "eth0");
    addressed(&lab, &pod);
    let before = lab.snapshot();
    let call = limited(&lab, &pod);
    call.add().ok_result();
    call.without("CNI_NETNS").config(json!({"prevResult": null})).del().ok();
    lab.snapshot().assert_same(&before);
    assert!(pod.reaches("10.1.2.1"));
}

#[test]
fn del_after_the_containers_deletion_leaves_nothing() {
    needs!(TrafficControl);
    let lab = Lab::new();
    let before = lab.snapshot();
    let pod = wired_as(&lab, "was-limited", "eth0");
    let call = limited(&lab, &pod);
    call.add().ok_result();
    pod.vanish();
    lab.host().sh("ip link del cable 2>/dev/null || :");
    call.del().ok();
    lab.snapshot().without("was-limited").assert_same(&before);
}

#[test]
fn gc_removes_its_networks_ifbs_and_no_others() {
    needs!(TrafficControl);
    beyond_reference!("gc");
    let lab = Lab::new();
    let pod = wired(&lab, "eth0");
    let call = limited(&lab, &pod).version("1.1.0");
    call.add().ok_result();
    lab.host().sh("ip link add bwp0123456789ab type ifb; ip link add ifb7 type ifb; ip link add bwpmine type ifb; ip link set bwpmine alias mine");
    call.clone().config(json!({"name": "other"})).gc(&[]).ok();
    call.gc(&[("pod", "eth0")]).ok();
    assert_eq!(ifbs(&lab).len(), 4);
    call.gc(&[]).ok();
    assert_eq!(ifbs(&lab).len(), 3);
    assert!(lab.host().link(IFB).is_none());
}

/// Filters and their parents that another program has added.
const OTHERS: [&str; 3] = [
    "tc qdisc add dev cable ingress",
    "tc qdisc add dev cable clsact; tc filter add dev cable ingress prio 49152 protocol ip u32 match u32 0 0 flowid 7:1",
    "tc qdisc add dev cable clsact; tc filter add dev cable egress u32 match u32 0 0 flowid 7:1",
];

#[test]
fn filters_of_other_programs_are_kept_and_their_parent_is_used() {
    needs!(TrafficControl);
    beyond_reference!("bandwidth-clsact");
    for others in OTHERS {
        let lab = Lab::new();
        let pod = wired(&lab, "eth0");
        addressed(&lab, &pod);
        lab.host().sh(others);
        let before = lab.snapshot();
        let call = limited(&lab, &pod);
        let result = call.add().ok_result();
        call.check(&result).ok();
        let count = || root(lab.host(), IFB)["packets"].as_u64().unwrap();
        let at_first = count();
        assert!(pod.reaches("10.1.2.1") && count() > at_first, "{others}");
        call.del().ok();
        lab.snapshot().assert_same(&before);
    }
}

/// A filter that redirects packets decides about them, so one that drops packets must come first.
#[test]
fn the_filters_of_other_programs_come_before_ours() {
    needs!(TrafficControl);
    beyond_reference!("bandwidth-clsact");
    let lab = Lab::new();
    let pod = wired(&lab, "eth0");
    lab.host().sh("tc qdisc add dev cable clsact; tc filter add dev cable ingress prio 49151 u32 match u32 0 0 flowid 7:1");
    limited(&lab, &pod).add().ok_result();
    let filters = lab.host().sh("tc filter show dev cable ingress");
    let [theirs, ours] = ["flowid 7:1", "mirred"].map(|words| filters.find(words).expect(words));
    assert!(theirs < ours, "{filters}");
}

#[test]
fn a_clsact_of_ours_stays_while_other_programs_use_it() {
    needs!(TrafficControl);
    beyond_reference!("bandwidth-clsact");
    let lab = Lab::new();
    let pod = wired(&lab, "eth0");
    let call = limited(&lab, &pod);
    call.add().ok_result();
    lab.host().sh("tc filter add dev cable ingress prio 1 u32 match u32 0 0 flowid 7:1");
    call.del().ok();
    let filters = lab.host().sh("tc filter show dev cable ingress");
    assert!(filters.contains("flowid 7:1") && !filters.contains("mirred"), "{filters}");
}

#[test]
fn an_interface_without_an_end_on_the_host_is_limited_inside_if_configured() {
    needs!(TrafficControl, Macvlan);
    beyond_reference!("bandwidth-keys");
    let lab = Lab::new();
    cable(&lab);
    let pod = lab.container("pod");
    let macvlan = lab
        .plugin("macvlan")
        .on(&pod)
        .config(json!({"master": "cable", "ipam": host_local(&[&["10.1.2.0/24"]])}));
    let prev = macvlan.add().ok_result();
    let before = lab.snapshot();
    let call = limited(&lab, &pod).config(json!({"prevResult": prev}));
    let egress = call.clone().config(json!({"ingressRate": null, "ingressBurst": null}));
    let error = egress.add().refused(7, "egressRate");
    assert!(error.details.contains("shapeInContainer"), "{error:?}");
    lab.snapshot().assert_same(&before);
    let inside = json!({"shapeInContainer": true});
    call.config(inside.clone()).add().refused(7, "ingressRate");
    lab.snapshot().assert_same(&before);
    let egress = egress.config(inside);
    let result = egress.add().ok_result();
    assert_eq!(bucket(&pod, "eth0"), (500_000, 50_000));
    assert!(ifbs(&lab).is_empty());
    egress.check(&result).ok();
    pod.sh("tc qdisc del dev eth0 root");
    egress.check(&result).refused(999, "eth0");
    egress.add().ok_result();
    egress.del().ok();
    lab.snapshot().assert_same(&before);
    // As with a later tuning: no result and no other link has the MTU that ADD found.
    let small = egress.config(json!({"egressBurst": 8000}));
    let result = small.add().ok_result();
    pod.sh("ip link set eth0 mtu 1400");
    small.check(&result).ok();
    pod.sh("tc qdisc change dev eth0 root handle c41: tbf rate 4mbit burst 1400 limit 13900");
    small.check(&result).refused(999, "eth0");
}

/// Changes by another program, and a word of CHECK's error.
const LOSSES: [(&str, &str); 6] = [
    ("tc qdisc del dev cable root", "cable"),
    ("tc qdisc replace dev cable root tbf rate 1mbit burst 10k latency 25ms", "rate"),
    ("tc qdisc replace dev cable root pfifo", "pfifo"),
    ("ip link del $IFB", "is missing"),
    ("ip link set $IFB down", "state is down"),
    ("tc qdisc del dev cable clsact", "are not redirected"),
];

#[test]
fn check_reports_removed_objects_and_a_repeated_add_restores_them() {
    needs!(TrafficControl);
    beyond_reference!("bandwidth-check");
    for (loss, words) in LOSSES {
        let lab = Lab::new();
        let pod = wired(&lab, "eth0");
        let before = lab.snapshot();
        let call = limited(&lab, &pod);
        let result = call.add().ok_result();
        lab.host().sh(&loss.replace("$IFB", IFB));
        call.check(&result).refused(999, words);
        call.add().ok_result();
        call.check(&result).ok();
        let filters = lab.host().sh("tc filter show dev cable ingress");
        assert!(!filters.contains("device *") && filters.matches("mirred").count() == 1, "{loss}: {filters}");
        call.del().ok();
        // If the ifb was deleted, the owner of the parent of the filters is unknown.
        lab.host().sh("tc qdisc del dev cable clsact 2>/dev/null || :");
        lab.snapshot().assert_same(&before);
    }
}

/// Repair restores the limits, but sets no interface of another plugin up.
#[test]
fn check_reports_that_the_limited_interface_is_down() {
    needs!(TrafficControl);
    beyond_reference!("bandwidth-check");
    let lab = Lab::new();
    let pod = wired(&lab, "eth0");
    let call = limited(&lab, &pod);
    let result = call.add().ok_result();
    lab.host().sh("ip link set cable down");
    call.check(&result).refused(999, "link cable: state is down");
    lab.host().sh("ip link set cable up");
    call.check(&result).ok();
}

#[test]
fn add_warns_of_another_queueing_discipline_that_it_replaces_and_not_of_its_own() {
    needs!(TrafficControl);
    beyond_reference!("bandwidth-check");
    let lab = Lab::new();
    let pod = wired(&lab, "eth0");
    lab.host().sh("tc qdisc add dev cable root handle 5: pfifo limit 77");
    let call = limited(&lab, &pod);
    for is_replaced in [true, false] {
        let added = call.add();
        added.ok_result();
        let warning = "link cable had another queueing discipline, of kind pfifo; it is replaced";
        assert_eq!(added.stderr.contains(warning), is_replaced, "{added:#?}");
        assert_eq!(added.stderr.contains("queueing discipline"), is_replaced, "{added:#?}");
    }
    assert_eq!(bucket(lab.host(), "cable").0, 1_000_000);
}

#[test]
fn a_failed_add_leaves_earlier_rules() {
    needs!(TrafficControl);
    beyond_reference!("bandwidth-del");
    let lab = Lab::new();
    let pod = wired(&lab, "eth0");
    // Other links have both names of the ifb.
    lab.host().sh("tc qdisc add dev cable root handle 5: pfifo limit 77");
    let call = limited(&lab, &pod);
    call.add().ok_result();
    let own = ifbs(&lab).remove(0);
    call.del().ok();
    lab.host().sh("tc qdisc replace dev cable root handle 5: pfifo limit 77");
    lab.host().sh(&format!("ip link add {own} type bridge"));
    let second = call.clone();
    second.add().ok_result();
    let other = ifbs(&lab).remove(0);
    second.del().ok();
    lab.host().sh(&format!(
        "ip link add {other} type bridge; tc qdisc replace dev cable root handle 5: pfifo limit 77"
    ));
    let before = lab.snapshot();
    call.add().refused(999, &other);
    lab.snapshot().assert_same(&before);
    call.del().ok();
}

#[test]
fn status_says_that_the_kernel_has_all_parts_and_leaves_nothing() {
    needs!(TrafficControl);
    beyond_1_1_1!("status");
    let lab = Lab::new();
    let before = lab.snapshot();
    lab.plugin("bandwidth").version("1.1.0").status().ok();
    lab.snapshot().assert_same(&before);
}
