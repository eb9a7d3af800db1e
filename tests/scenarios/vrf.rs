//! vrf: an interface in a separate routing domain.

use std::collections::BTreeSet;
use std::thread;

use lab::dhcp::{DhcpNetwork, RANGE, SOON};
use lab::{Call, Container, Lab, beyond_reference, needs, tcp_says};
use serde_json::{Value, json};

use crate::common::{data, routing_of, site_of};

/// A container's second network: a macvlan with two addresses of each family and a default route, in a VRF.
fn second(n: u8, vrf: &str, version: &str) -> Value {
    let subnets = ["10.1.0.0/24", "fd00:1::/64", "10.5.0.0/24", "fd00:5::/64"];
    let ranges = subnets.map(|subnet| json!([{"subnet": subnet}]));
    let routes = json!([{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]);
    let ipam = json!({"type": "host-local", "ranges": ranges, "routes": routes});
    let macvlan = json!({"type": "macvlan", "master": format!("cable{n}"), "ipam": ipam});
    let vrf = json!({"type": "vrf", "vrfname": vrf});
    json!({"cniVersion": version, "name": format!("net{n}"), "plugins": [macvlan, vrf]})
}

pub fn manually(lab: &Lab) -> (Container, Call) {
    manually_in(lab, "1.1.0")
}

/// Like [`manually`], in a version.
pub fn manually_in(lab: &Lab, version: &str) -> (Container, Call) {
    manually_as(lab, "pod", version)
}

/// Like [`manually_in`], for a container of this name.
fn manually_as(lab: &Lab, name: &str, version: &str) -> (Container, Call) {
    let pod = lab.container(name);
    let result = json!({
        "cniVersion": version,
        "interfaces": [{"name": "eth0", "sandbox": pod.netns.path()}],
        "ips": [{"address": "10.1.0.2/24", "interface": 0}, {"address": "fd00:1::2/64", "interface": 0}],
        "routes": [{"dst": "0.0.0.0/0", "gw": "10.1.0.1"}],
    });
    lab.host().sh(&format!(
        "ip link add cable type veth peer name eth0 netns {name}; ip link set cable up
         ip link add other type veth peer name eth1 netns {name}; ip link set other up"
    ));
    pod.sh("for link in eth0 eth1; do echo 0 >/proc/sys/net/ipv6/conf/$link/accept_dad; done
        ip link set lo up; ip link set eth0 up; ip link set eth1 up
        ip addr add 10.1.0.2/24 dev eth0; ip -6 addr add fd00:1::2/64 dev eth0 nodad
        ip -6 addr add fd00:2::2/64 dev eth1 nodad
        ip route add default via 10.1.0.1; ip route add 10.77.0.0/16 via 10.1.0.7 mtu 1300 metric 5 proto static
        ip -6 route add default nexthop via fd00:1::1 dev eth0 nexthop via fd00:2::1 dev eth1");
    ["eth0", "eth1"].iter().for_each(|link| pod.wait_for_link_local(link));
    let keys = json!({"vrfname": "blue", "prevResult": result});
    (pod.clone(), lab.plugin("vrf").version(version).on(&pod).config(keys))
}

#[test]
fn two_vrfs_of_a_container_have_the_same_subnet_and_both_answer() {
    beyond_reference!("vrf-routes");
    needs!(Vrf, Macvlan);
    let lab = Lab::new();
    let pod = lab.container("pod");
    pod.sh("ip link set lo up");
    let clients = [1, 2].map(|n| site_of(&lab, n, 1));
    let mut results = vec![];
    for (n, vrf, version) in [(1, "red", "1.0.0"), (2, "blue", "1.1.0")] {
        let chain = lab.chain(second(n, vrf, version));
        let ifname = format!("net{n}");
        let result = chain.add(&pod, &ifname).ok_result();
        chain
            .check(&pod, &ifname, &result)
            .iter()
            .for_each(|outcome| assert!(outcome.succeeded(), "{outcome:?}"));
        results.push(result);
    }
    assert_eq!((data(&pod, "red", "table"), data(&pod, "blue", "table")), (json!(1), json!(2)));
    assert_eq!(results[1]["routes"][0]["table"], 2);
    // One server for all VRFs (Documentation/networking/vrf.rst).
    pod.sh("echo 1 >/proc/sys/net/ipv4/tcp_l3mdev_accept");
    let _server = pod.serve_tcp("pod", "[::]:80");
    for client in &clients {
        for address in ["10.1.0.2:80", "[fd00:1::2]:80"] {
            assert!(tcp_says(client, address).is_some_and(|answer| answer.starts_with("pod ")), "{address}");
        }
    }
    for (n, vrf, result) in [(1, "red", &results[0]), (2, "blue", &results[1])] {
        let chain = lab.chain(second(n, vrf, "1.0.0"));
        chain
            .del(&pod, &format!("net{n}"), result)
            .iter()
            .for_each(|outcome| assert!(outcome.succeeded(), "{outcome:?}"));
        assert!(pod.link(vrf).is_none());
    }
}

#[test]
fn del_restores_addresses_and_routes() {
    beyond_reference!("vrf-routes");
    needs!(Vrf);
    let lab = Lab::new();
    let (pod, call) = manually(&lab);
    // The kernel adds its rule for VRFs with the first one, and the rule stays.
    pod.sh("ip link add first type vrf table 4242; ip link del first");
    let before = routing_of(&pod);
    let result = call.add().ok_result();
    call.check(&result).ok();
    call.add().ok_result();
    let v4 = pod.sh("ip route show vrf blue");
    assert!(v4.contains("default via 10.1.0.1"), "{v4}");
    assert!(v4.contains("10.77.0.0/16 via 10.1.0.7 dev eth0 proto static metric 5 mtu 1300"), "{v4}");
    assert!(pod.sh("ip -6 route show vrf blue").contains("default via fd00:1::1"));
    let main = pod.sh("ip -6 route show default");
    assert!(main.contains("fd00:2::1") && !main.contains("fd00:1::1"), "{main}");
    assert!(!pod.sh("ip -6 addr show dev eth0").contains("tentative"));
    assert_eq!(result["routes"][0]["table"], 1);
    for _ in 0..2 {
        call.del().ok();
        assert_eq!(routing_of(&pod), before);
    }
}

#[test]
fn a_table_that_only_a_rule_uses_is_not_chosen() {
    beyond_reference!("vrf-routes");
    needs!(Vrf);
    let lab = Lab::new();
    let (pod, call) = manually(&lab);
    pod.sh("ip rule add fwmark 7 lookup 1");
    call.add().ok_result();
    assert_eq!(data(&pod, "blue", "table"), 2);
}

#[test]
fn an_existing_vrf_is_set_up_and_check_notices_that_another_table_is_configured() {
    beyond_reference!("vrf-check");
    needs!(Vrf);
    let lab = Lab::new();
    let (pod, call) = manually(&lab);
    pod.sh("ip link add blue type vrf table 77");
    let with_table = |table: u32| call.clone().config(json!({"table": table}));
    let result = with_table(77).add().ok_result();
    with_table(77).check(&result).ok();
    with_table(78).check(&result).refused(999, "78");
    pod.sh("ip link set blue down");
    with_table(77).check(&result).refused(999, "down");
}

/// The kernel deletes routes and IPv6 addresses of an interface that leaves a VRF. A DEL that is killed then has not
/// restored them. Nor has a rollback that failed, and that may have deleted the VRF.
#[test]
fn a_del_after_a_killed_one_or_a_failed_rollback_restores_the_addresses_and_routes_of_the_result() {
    beyond_reference!("vrf-routes");
    needs!(Vrf);
    let lab = Lab::new();
    let (pod, call) = manually(&lab);
    for left in ["ip link set eth0 nomaster", "ip link del blue"] {
        call.add().ok_result();
        pod.sh(left);
        assert!(!pod.sh("ip route").contains("default"));
        for _ in 0..2 {
            call.del().ok();
            assert!(pod.sh("ip route").contains("default via 10.1.0.1 dev eth0"), "{left}");
            assert!(pod.sh("ip -6 addr show dev eth0").contains("fd00:1::2/64"), "{left}");
            assert!(pod.link("blue").is_none());
        }
    }
}

#[test]
fn thirty_interfaces_that_join_and_leave_vrfs_concurrently_cause_no_errors_or_leftovers() {
    beyond_reference!("vrf-routes");
    needs!(Vrf, Dummy);
    let lab = Lab::new();
    let pod = lab.container("pod");
    pod.sh("ip link set lo up; ip link add first type vrf table 4242; ip link del first
        for n in $(seq 30); do
            ip link add net$n type dummy; ip link set net$n up
            ip addr add 10.1.$n.2/24 dev net$n; ip -6 addr add fd00:$n::2/64 dev net$n nodad
            ip route add 10.2.$n.0/24 via 10.1.$n.1
        done");
    let before = (pod.link_names(), routing_of(&pod));
    let calls: Vec<_> = (1..=30)
        .map(|n| {
            let result = json!({
                "cniVersion": "1.1.0",
                "interfaces": [{"name": format!("net{n}"), "sandbox": pod.netns.path()}],
                "ips": [{"address": format!("10.1.{n}.2/24"), "interface": 0}],
                "routes": [{"dst": format!("10.2.{n}.0/24"), "gw": format!("10.1.{n}.1")}],
            });
            let keys = json!({"vrfname": format!("vrf{}", n % 5), "prevResult": result});
            lab.plugin("vrf").version("1.1.0").on(&pod).ifname(&format!("net{n}")).config(keys)
        })
        .collect();
    let results = concurrently(&calls, |call| call.add().ok_result());
    let tables: BTreeSet<_> = results.iter().map(|result| result["routes"][0]["table"].as_u64()).collect();
    assert!(tables.len() == 5 && !tables.contains(&None), "{tables:?}");
    calls.iter().zip(&results).for_each(|(call, result)| call.check(result).ok());
    concurrently(&calls, |call| call.del().ok());
    assert_eq!((pod.link_names(), routing_of(&pod)), before);
}

fn concurrently<R: Send>(calls: &[Call], run: impl Fn(&Call) -> R + Sync) -> Vec<R> {
    thread::scope(|scope| {
        let run = &run;
        let runs: Vec<_> = calls.iter().map(|call| scope.spawn(move || run(call))).collect();
        runs.into_iter().map(|run| run.join().unwrap()).collect()
    })
}

#[test]
fn a_vrf_stays_until_the_last_interface_has_left_and_its_table_is_one_for_all() {
    beyond_reference!("vrf-routes");
    needs!(Vrf);
    let lab = Lab::new();
    let (pod, call) = manually_as(&lab, "had-a-vrf", "1.1.0");
    let other = call.clone().env("CNI_IFNAME", "eth1").config(json!({"prevResult": {
        "cniVersion": "1.1.0", "interfaces": [{"name": "eth1", "sandbox": pod.netns.path()}],
        "ips": [{"address": "fd00:2::2/64", "interface": 0}],
    }}));
    call.clone().config(json!({"table": 77})).add().ok_result();
    let error = other.clone().config(json!({"table": 78})).add().refused(7, "");
    assert!(error.msg.starts_with("VRF blue already exist with different routing table 77"), "{error:?}");
    other.add().ok_result();
    let error = call.clone().config(json!({"vrfname": "red"})).add().refused(7, "");
    assert!(error.msg.starts_with("interface eth0 has already a master set: blue"), "{error:?}");
    assert!(pod.link("red").is_none());
    call.del().ok();
    assert_eq!(data(&pod, "blue", "table"), 77);
    pod.sh("ip link del eth1");
    other.del().ok();
    assert!(pod.link("blue").is_none());
    call.clone().config(json!({"vrfname": null})).del().ok();
    pod.sh("ip link add blue type veth peer name green");
    call.add().refused(7, "not a VRF");
    call.del().ok();
    assert!(pod.link("blue").is_some());
    pod.vanish();
    call.del().ok();
    call.status().ok();
}

#[test]
fn check_reports_changes() {
    beyond_reference!("vrf-check");
    needs!(Vrf);
    let lab = Lab::new();
    let (pod, call) = manually(&lab);
    for (harm, word) in [
        ("ip link set eth0 nomaster", "master is none"),
        ("ip route del default vrf blue", "0.0.0.0/0"),
        ("ip link set blue down", "down"),
        ("ip link del blue", "does not exist"),
    ] {
        let result = call.add().ok_result();
        call.check(&result).ok();
        pod.sh(harm);
        call.check(&result).refused(999, word);
        call.del().ok();
        // Removing the interface from a VRF manually also deletes its routes and IPv6 addresses.
        pod.sh("ip route replace default via 10.1.0.1; ip -6 addr replace fd00:1::2/64 dev eth0 nodad");
    }
}

#[test]
fn without_vrfs_in_the_kernel_the_error_says_so_and_nothing_has_changed() {
    beyond_reference!("vrf-kernel");
    if lab::skip_with(lab::Feature::Vrf) {
        return;
    }
    let lab = Lab::new();
    let (pod, call) = manually(&lab);
    let before = routing_of(&pod);
    call.add().refused(999, "this kernel has no links of kind vrf: load its module (modprobe vrf)");
    call.status().refused(50, "modprobe vrf");
    call.del().ok();
    assert_eq!(routing_of(&pod), before);
}

#[test]
fn a_lease_of_another_subnet_has_its_routes_in_the_vrf() {
    beyond_reference!("dhcp-change");
    needs!(Vrf);
    let Some(mut net) = DhcpNetwork::with(&format!("{RANGE} {SOON}")) else { return };
    let pod = net.pod("pod");
    let bridge = json!({"type": "bridge", "bridge": "br0", "ipam": {"type": "dhcp"}});
    let plugins = json!([bridge, {"type": "vrf", "vrfname": "blue"}]);
    let chain = net.lab.chain(json!({"cniVersion": "1.1.0", "name": "net", "plugins": plugins}));
    let result = chain.add(&pod, "eth0").ok_result();
    net.move_to_another_subnet();
    net.until("the new address", || pod.addresses("eth0").iter().any(|a| a.starts_with("10.10.0.")));
    net.until("the new route", || pod.sh("ip route show vrf blue").contains("default via 10.10.0.1"));
    assert!(!pod.routes().iter().any(|route| route.starts_with("default")), "{:?}", pod.routes());
    pod.sh("ping -q -c1 -w60 -I blue 10.10.0.1");
    chain.del(&pod, "eth0", &result).iter().for_each(lab::Outcome::ok);
}
