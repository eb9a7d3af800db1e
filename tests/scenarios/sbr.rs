//! sbr: packets from an interface's address leave through that interface.

use lab::{Call, Container, Lab, beyond_1_1_1, beyond_reference, tcp_says};
use serde_json::{Value, json};

use crate::common::{routing_of, site};

/// A container's second network, as Multus attaches it: a macvlan with two addresses of each family and a default
/// route, and sbr.
fn second(n: u8, version: &str) -> Value {
    let subnets = [
        format!("10.{n}.0.0/24"),
        format!("fd00:{n}::/64"),
        format!("10.10{n}.0.0/24"),
        format!("fd00:10{n}::/64"),
    ];
    let ranges: Vec<_> = subnets.iter().map(|subnet| json!([{"subnet": subnet}])).collect();
    let routes = json!([{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]);
    let ipam = json!({"type": "host-local", "ranges": ranges, "routes": routes});
    let macvlan = json!({"type": "macvlan", "master": format!("cable{n}"), "ipam": ipam});
    json!({"cniVersion": version, "name": format!("net{n}"), "plugins": [macvlan, {"type": "sbr"}]})
}

/// A container with a manually configured eth0 with two addresses of each family, and sbr's call for it.
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
        "ips": [
            {"address": "10.1.0.2/24", "gateway": "10.1.0.1", "interface": 0},
            {"address": "fd00:1::2/64", "gateway": "fd00:1::1", "interface": 0},
        ],
        "routes": [{"dst": "0.0.0.0/0"}, {"dst": "10.77.0.0/16", "gw": "10.1.0.7"}],
    });
    lab.host().sh(&format!("ip link add cable type veth peer name eth0 netns {name}; ip link set cable up"));
    pod.sh("echo 0 >/proc/sys/net/ipv6/conf/eth0/accept_dad; ip link set lo up; ip link set eth0 up
        ip addr add 10.1.0.2/24 dev eth0; ip -6 addr add fd00:1::2/64 dev eth0 nodad
        ip route add default via 10.1.0.1; ip route add 10.77.0.0/16 via 10.1.0.7 mtu 1300 metric 5 proto static
        ip -6 route add 2001:db8::/32 via fd00:1::7 dev eth0");
    pod.wait_for_link_local("eth0");
    let call = lab.plugin("sbr").version(version).on(&pod).config(json!({"prevResult": result}));
    (pod, call)
}

#[test]
fn answers_leave_by_the_interface_on_which_the_request_arrived() {
    beyond_reference!("sbr-gateway");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let bridge = lab.plugin("bridge").on(&pod).config(crate::common::dual_stack());
    bridge.add().ok_result();
    // Both clients have the same address.
    let clients = [1, 2].map(|n| site(&lab, n));
    let _server = pod.serve_tcp("pod", "[::]:80");
    let mut results = vec![];
    for (n, version) in [(1, "1.0.0"), (2, "1.1.0")] {
        let chain = lab.chain(second(n, version));
        let result = chain.add(&pod, &format!("net{n}")).ok_result();
        chain
            .check(&pod, &format!("net{n}"), &result)
            .iter()
            .for_each(|outcome| assert!(outcome.succeeded(), "{outcome:?}"));
        results.push(result);
    }
    assert_eq!(results[1]["routes"][0]["table"], 104, "the first network's addresses have a table each");
    for (family, client, address) in [("4", "192.0.2.2", "10.102.0"), ("6", "2001:db8:77::2", "fd00:102:")] {
        let (from, dot) = (address, if family == "4" { "." } else { ":" });
        let way = pod.sh(&format!("ip -{family} route get {client} from {from}{dot}2"));
        assert!(
            way.contains(&format!("via {from}{dot}1 dev net2")),
            "each address has a way of its own: {way}"
        );
    }
    for (client, at) in clients.iter().zip(["1", "2"]) {
        for address in [format!("10.{at}.0.2:80"), format!("[fd00:{at}::2]:80")] {
            let answer = tcp_says(client, &address).unwrap();
            assert!(answer.starts_with("pod ") && answer.ends_with('2'), "{answer}");
        }
    }
    // Packets without a bound source address use the same route as before.
    assert!(pod.sh("ip route get 192.0.2.2").contains("dev eth0"));
    assert!(pod.sh("ip route get 192.0.2.2 from 10.2.0.2").contains("dev net2"));
    let chain = lab.chain(second(1, "1.0.0"));
    chain
        .del(&pod, "net1", &results[0])
        .iter()
        .for_each(|outcome| assert!(outcome.succeeded(), "{outcome:?}"));
    assert!(!pod.sh("ip rule; ip -6 rule").contains("10.1.0.2"));
    assert!(tcp_says(&clients[1], "10.2.0.2:80").is_some());
}

#[test]
fn del_restores_everything_that_add_has_moved() {
    beyond_reference!("sbr-restore");
    let lab = Lab::new();
    let (pod, call) = manually(&lab);
    for keys in
        [json!({}), json!({"addSourceHints": true}), json!({"gateways": ["10.1.0.9"]}), json!({"table": 7})]
    {
        let (before, call) = (routing_of(&pod), call.clone().config(keys.clone()));
        let result = call.add().ok_result();
        assert_ne!(routing_of(&pod), before, "{keys}");
        let after = routing_of(&pod);
        call.check(&result).ok();
        // Another ADD finds everything that the first one created.
        call.add().ok_result();
        assert_eq!(routing_of(&pod), after, "{keys}");
        for _ in 0..2 {
            call.del().ok();
            assert_eq!(routing_of(&pod), before, "{keys}");
        }
    }
}

#[test]
fn del_keeps_tables_of_others_and_empties_its_own_without_a_rule() {
    beyond_reference!("sbr-restore");
    let lab = Lab::new();
    let (pod, call) = manually(&lab);
    // The last table is as `ipam.routes` with `table` and `scope` fills it.
    pod.sh("ip route add 10.99.0.0/16 via 10.1.0.7 table 100; ip route add default via 10.1.0.7 table 500
        ip -6 route add 2001:db8:9::/48 via fd00:1::7 dev eth0 table 501
        ip route add 10.1.0.0/24 dev eth0 scope link table 502");
    let before = routing_of(&pod);
    let result = call.add().ok_result();
    assert!(pod.sh("ip rule").contains("from 10.1.0.2 lookup 101"), "table 100 is in use");
    pod.sh("ip rule del from 10.1.0.2 lookup 101; ip -6 rule del from fd00:1::2 lookup 102");
    for prev in [json!(null), result] {
        call.clone().config(json!({"prevResult": prev})).del().ok();
        assert_eq!(routing_of(&pod), before);
    }
}

/// A VPN's rule, whose table is filled later.
#[test]
fn a_table_that_only_a_rule_uses_is_not_chosen() {
    beyond_reference!("sbr-restore");
    let lab = Lab::new();
    let (pod, call) = manually(&lab);
    pod.sh("ip rule add fwmark 7 lookup 100");
    call.add().ok_result();
    assert!(pod.sh("ip rule").contains("from 10.1.0.2 lookup 101"));
}

/// Its addresses may come from router advertisements, so the result does not contain them.
#[test]
fn routes_of_a_family_without_an_address_in_the_result_stay() {
    beyond_reference!("sbr-restore");
    let lab = Lab::new();
    let (pod, call) = manually(&lab);
    let ips = json!([{"address": "10.1.0.2/24", "gateway": "10.1.0.1", "interface": 0}]);
    let result = json!({
        "cniVersion": "1.1.0", "interfaces": [{"name": "eth0", "sandbox": pod.path()}], "ips": ips,
    });
    let call = call.config(json!({"prevResult": result}));
    let v6 = || pod.sh("ip -6 route show table all type unicast; ip -6 rule");
    let before = v6();
    let result = call.add().ok_result();
    assert_eq!(v6(), before);
    call.check(&result).ok();
    call.del().ok();
    assert_eq!(v6(), before);
}

#[test]
fn del_restores_a_route_whose_gateway_and_source_are_in_different_subnets() {
    beyond_reference!("sbr-restore");
    let lab = Lab::new();
    let (pod, call) = manually(&lab);
    pod.sh("ip addr add 10.2.0.2/24 dev eth0; ip route add 10.88.0.0/16 via 10.2.0.1 src 10.1.0.2");
    let ips = ["10.1.0.2/24", "10.2.0.2/24", "fd00:1::2/64"].map(|ip| json!({"address": ip, "interface": 0}));
    let result = json!({
        "cniVersion": "1.1.0", "interfaces": [{"name": "eth0", "sandbox": pod.path()}], "ips": ips,
    });
    let call = call.config(json!({"prevResult": result}));
    let before = routing_of(&pod);
    call.add().ok_result();
    assert!(pod.sh("ip route show table 100").contains("10.88.0.0/16 via 10.2.0.1"));
    call.del().ok();
    assert_eq!(routing_of(&pod), before);
}

/// The next plugin of the chain deletes the interface.
#[test]
fn after_del_the_container_still_prefers_the_default_route_of_its_other_interface() {
    beyond_reference!("sbr-restore");
    let lab = Lab::new();
    let (pod, call) = manually(&lab);
    lab.host().sh("ip link add far type veth peer name other netns pod; ip link set far up");
    // Its link-local address would come a moment later.
    pod.sh("ip link set other addrgenmode none up; ip addr add 10.8.0.2/24 dev other; ip route append default via 10.8.0.1");
    let before = routing_of(&pod);
    let by = |interface: &str| pod.sh("ip route get 192.0.2.2").contains(&format!("dev {interface} "));
    assert!(by("eth0"));
    call.add().ok_result();
    assert!(by("other"));
    call.del().ok();
    assert!(by("other"));
    pod.sh("ip route del default via 10.8.0.1; ip route append default via 10.8.0.1");
    assert_eq!(routing_of(&pod), before);
}

#[test]
fn the_next_hops_of_another_interface_stay_in_whatever_order() {
    beyond_reference!("sbr-restore");
    let lab = Lab::new();
    let (pod, call) = manually(&lab);
    lab.host().sh("ip link add far type veth peer name other netns pod; ip link set far up");
    pod.sh("ip link set other addrgenmode none up; ip addr add 10.8.0.2/24 dev other");
    let (own, others) = ("nexthop via 10.1.0.1 dev eth0", "nexthop via 10.8.0.1 dev other");
    pod.sh(&format!("ip route add 10.65.0.0/16 {own} {others}; ip route add 10.66.0.0/16 {others} {own}"));
    let before = routing_of(&pod);
    call.clone().config(json!({"gateways": ["203.0.113.1"]})).add().refused(999, "203.0.113.1");
    assert_eq!(routing_of(&pod), before);
    call.add().ok_result();
    for net in ["10.65.0.0/16", "10.66.0.0/16"] {
        let hops = |table: &str| pod.sh(&format!("ip -o route show table {table} {net}"));
        assert_eq!(hops("main").trim(), format!("{net} via 10.8.0.1 dev other"));
        assert_eq!(hops("100").trim(), format!("{net} via 10.1.0.1 dev eth0"));
    }
    call.del().ok();
    for net in ["10.65.0.0/16", "10.66.0.0/16"] {
        let hops = pod.sh(&format!("ip -o route show {net}"));
        assert!(hops.contains("via 10.8.0.1 dev other") && hops.contains("via 10.1.0.1 dev eth0"), "{hops}");
    }
}

#[test]
fn an_interface_without_a_sandbox_in_the_result_is_the_containers_if_no_other_one_is() {
    let lab = Lab::new();
    let (pod, call) = manually_in(&lab, "1.0.0");
    let result = json!({
        "cniVersion": "1.0.0", "interfaces": [{"name": "eth0"}],
        "ips": [{"address": "10.1.0.2/24", "gateway": "10.1.0.1", "interface": 0}], "routes": [{"dst": "0.0.0.0/0"}],
    });
    let call = call.config(json!({"prevResult": result}));
    let result = call.add().ok_result();
    assert!(pod.sh("ip rule").contains("from 10.1.0.2 lookup 100"));
    call.check(&result).ok();
    pod.sh("ip link del eth0");
    call.config(json!({"prevResult": result})).del().ok();
    assert!(!pod.sh("ip rule").contains("10.1.0.2"));
}

#[test]
fn the_routes_are_in_a_table_for_each_address_and_in_the_result() {
    beyond_reference!("sbr-table-of-each-address");
    let lab = Lab::new();
    let (pod, call) = manually(&lab);
    let result = call.add().ok_result();
    let v4 = pod.sh("ip route show table 100");
    assert!(
        v4.contains("default via 10.1.0.1")
            && v4.contains("10.77.0.0/16 via 10.1.0.7 dev eth0 proto static metric 5 mtu 1300"),
        "{v4}"
    );
    let v6 = pod.sh("ip -6 route show table 101");
    assert!(v6.contains("default via fd00:1::1") && v6.contains("2001:db8::/32 via fd00:1::7"), "{v6}");
    assert_eq!(pod.sh("ip route show dev eth0"), "");
    assert_eq!(pod.sh("ip -6 route show dev eth0").trim(), "fe80::/64 proto kernel metric 256 pref medium");
    let rules = pod.sh("ip rule; ip -6 rule");
    assert!(
        rules.contains("from 10.1.0.2 lookup 100") && rules.contains("from fd00:1::2 lookup 101"),
        "{rules}"
    );
    assert_eq!((&result["routes"][0]["table"], &result["routes"][1]["table"]), (&json!(100), &json!(100)));
}

#[test]
fn a_table_of_the_configuration_gets_rules_only() {
    beyond_1_1_1!("sbr-keys");
    let lab = Lab::new();
    let (pod, call) = manually(&lab);
    let routes = pod.sh("ip route show table all; ip -6 route show table all");
    call.clone().config(json!({"table": 7})).add().ok_result();
    assert!(pod.sh("ip rule; ip -6 rule").matches("lookup 7").count() == 2);
    assert_eq!(pod.sh("ip route show table all; ip -6 route show table all"), routes);
}

#[test]
fn gateways_lead_the_default_routes_and_hints_keep_the_subnets_in_main() {
    beyond_reference!("sbr-keys");
    let lab = Lab::new();
    let (pod, call) = manually(&lab);
    let keys = json!({"gateways": ["fd00:1::9", "10.1.0.9"], "addSourceHints": true});
    call.config(keys).add().ok_result();
    assert!(pod.sh("ip route get 192.0.2.9 from 10.1.0.2").contains("via 10.1.0.9"));
    assert!(pod.sh("ip route get 2001:db9::9 from fd00:1::2").contains("via fd00:1::9"));
    assert!(pod.sh("ip route show dev eth0").contains("10.1.0.0/24 proto kernel scope link src 10.1.0.2"));
    assert!(pod.sh("ip -6 route show dev eth0").contains("fd00:1::/64 proto kernel src fd00:1::2"));
}

#[test]
fn a_failed_add_leaves_everything_as_it_was() {
    beyond_reference!("sbr-restore");
    let lab = Lab::new();
    let (pod, call) = manually(&lab);
    let before = routing_of(&pod);
    call.clone().config(json!({"gateways": ["203.0.113.1"]})).add().refused(999, "203.0.113.1");
    assert_eq!(routing_of(&pod), before);
    let none = json!({"prevResult": {"cniVersion": "1.1.0", "ips": []}});
    call.config(none).add().refused(7, "no address of interface eth0");
}

#[test]
fn rules_are_removed_without_the_interface_and_without_the_namespace_del_succeeds() {
    beyond_reference!("sbr-restore");
    let lab = Lab::new();
    let (pod, call) = manually_as(&lab, "had-rules", "1.1.0");
    let rules = pod.sh("ip rule; ip -6 rule");
    call.add().ok_result();
    pod.sh("ip link del eth0");
    call.del().ok();
    assert_eq!(pod.sh("ip rule; ip -6 rule"), rules);
    pod.vanish();
    call.del().ok();
    assert!(!pod.netns.path().exists());
    call.gc(&[]).ok();
    call.status().ok();
}

/// An interface `other` next to eth0, with an address of eth0.
fn twin(lab: &Lab, pod: &Container) {
    lab.host().sh(&format!("ip link add far type veth peer name other netns {}; ip link set far up", pod.id));
    pod.sh("ip link set other addrgenmode none up; ip addr add 10.1.0.2/24 dev other noprefixroute");
}

#[test]
fn an_address_that_another_interface_has_is_refused() {
    beyond_reference!("sbr-shared");
    let lab = Lab::new();
    let (pod, call) = manually(&lab);
    twin(&lab, &pod);
    let before = routing_of(&pod);
    for keys in [json!({}), json!({"table": 7})] {
        call.clone().config(keys).add().refused(7, "10.1.0.2");
        assert_eq!(routing_of(&pod), before);
    }
}

/// For example of a new container, whose namespace has the path of the old one.
#[test]
fn del_keeps_the_rule_of_an_address_that_another_interface_has() {
    beyond_reference!("sbr-shared");
    let lab = Lab::new();
    let (pod, call) = manually(&lab);
    call.add().ok_result();
    twin(&lab, &pod);
    pod.sh("ip link del eth0");
    call.del().ok();
    let rules = pod.sh("ip rule; ip -6 rule");
    assert!(rules.contains("from 10.1.0.2 lookup 100") && !rules.contains("fd00:1::2"), "{rules}");
}

#[test]
fn rules_of_other_programs_and_their_tables_stay() {
    beyond_reference!("sbr-shared");
    let lab = Lab::new();
    let (pod, call) = manually(&lab);
    pod.sh("ip rule add from 10.1.0.2 lookup 500; ip route add 10.99.0.0/16 via 10.1.0.7 table 500
        ip route add blackhole 10.98.0.0/16 table 500
        ip rule add from 10.1.0.2 fwmark 1 lookup 501");
    let before = routing_of(&pod);
    for _ in 0..2 {
        let result = call.add().ok_result();
        call.check(&result).ok();
        call.add().ok_result();
        assert!(!pod.sh("ip route show table 500").contains("default"));
        call.del().ok();
        assert_eq!(routing_of(&pod), before);
    }
    call.del().ok();
    assert_eq!(routing_of(&pod), before);
    call.add().ok_result();
    pod.sh("ip link del eth0");
    call.del().ok();
    assert_eq!(pod.sh("ip rule | grep -F 10.1.0.2").trim(), pod.sh("ip rule | grep 'lookup 50[01]'").trim());
}

/// A link-local address has no route of its own there, and administrators may replace the subnet's route.
#[test]
fn rules_are_recognized_whatever_routes_their_tables_have() {
    beyond_reference!("sbr-restore");
    let lab = Lab::new();
    let (pod, call) = manually(&lab);
    pod.sh("ip -6 route del 2001:db8::/32; ip addr del fd00:1::2/64 dev eth0; ip addr add fe80::5/64 dev eth0 nodad");
    let call = call.config(json!({"prevResult": {
        "cniVersion": "1.1.0",
        "interfaces": [{"name": "eth0", "sandbox": pod.netns.path()}],
        "ips": [
            {"address": "10.1.0.2/24", "gateway": "10.1.0.1", "interface": 0},
            {"address": "fe80::5/64", "gateway": "fe80::1", "interface": 0},
        ],
    }}));
    let rules = pod.sh("ip rule; ip -6 rule");
    let result = call.add().ok_result();
    // FRR has the numbers from 186 to 198.
    assert_eq!(pod.sh("ip rule; ip -6 rule").matches(" proto 230").count(), 2);
    pod.sh("ip route replace 10.1.0.0/24 dev eth0 table 100 mtu 1400");
    let after = routing_of(&pod);
    call.check(&result).ok();
    call.add().ok_result();
    assert_eq!(routing_of(&pod), after);
    call.del().ok();
    assert_eq!(pod.sh("ip rule; ip -6 rule"), rules);
    call.clone().config(json!({"table": 500})).add().ok_result();
    call.del().ok();
    assert_eq!(pod.sh("ip rule; ip -6 rule"), rules);
}

#[test]
fn check_reports_changes() {
    beyond_reference!("sbr-check");
    let lab = Lab::new();
    let (pod, call) = manually(&lab);
    for (harm, word) in [
        ("ip rule del from 10.1.0.2 lookup 100", "10.1.0.2"),
        ("ip route del default table 100", "default route of 10.1.0.2"),
        ("ip route del 10.77.0.0/16 table 100", "10.77.0.0/16"),
    ] {
        let result = call.add().ok_result();
        call.check(&result).ok();
        pod.sh(harm);
        call.check(&result).refused(999, word);
        call.del().ok();
    }
}

#[test]
fn a_default_route_without_a_gateway_of_the_address_counts() {
    beyond_reference!("sbr-gateway");
    let lab = Lab::new();
    let (pod, call) = manually(&lab);
    pod.sh("ip route del default");
    let result = json!({
        "cniVersion": "1.1.0",
        "interfaces": [{"name": "eth0", "sandbox": pod.netns.path()}],
        "ips": [{"address": "10.1.0.2/24", "interface": 0}],
        "routes": [{"dst": "0.0.0.0/0", "gw": "10.1.0.8"}],
    });
    call.config(json!({"prevResult": result})).add().ok_result();
    assert!(pod.sh("ip route show table 100 default").contains("via 10.1.0.8"));
}
