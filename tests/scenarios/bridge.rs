//! bridge with host-local.

mod firewall;

use std::time::Duration;
use std::{fs, thread};

use lab::{
    CniError, Lab, Netns, beyond_1_1_1, beyond_reference, injecting, needs, tcp_says, udp_says, under_test,
    until_within,
};
use serde_json::{Value, json};

use crate::common::{
    container_interface, dual_stack, has_learned_default_route, host_end, host_local, ips,
    learn_default_route, leases, new_links_neither_forward_nor_have_ipv6, udev_replaces_no_mac,
};

/// One family, only addresses.
fn plain() -> Value {
    json!({"bridge": "br0", "ipam": host_local(&[&["10.1.2.0/24"]])})
}

fn flag(netns: &Netns, link: &str, name: &str) -> bool {
    netns.link(link).unwrap()["flags"].as_array().unwrap().contains(&json!(name))
}

/// A setting of a bridge port, by its name in `ip -d -j`.
fn port(lab: &Lab, name: &str, key: &str) -> Value {
    lab.host().link(name).unwrap()["linkinfo"]["info_slave_data"][key].clone()
}

#[test]
fn two_containers_reach_each_other_and_the_host_in_both_families() {
    let lab = Lab::new();
    let [a, b] = ["a", "b"].map(|id| lab.container(id));
    let call = lab.plugin("bridge").config(dual_stack());
    call.clone().on(&a).add().ok_result();
    call.on(&b).add().ok_result();

    assert_eq!(a.addresses("eth0"), ["10.1.2.2/24", "fd00:1:2::2/64"]);
    assert_eq!(b.addresses("eth0"), ["10.1.2.3/24", "fd00:1:2::3/64"]);
    for address in ["10.1.2.3", "fd00:1:2::3", "10.1.2.1", "fd00:1:2::1"] {
        assert!(a.reaches(address), "{address}");
    }
    let _servers = [b.serve_tcp("b", "[::]:80"), b.serve_udp("b", "0.0.0.0:53")];
    assert_eq!(tcp_says(&a, "[fd00:1:2::3]:80").as_deref(), Some("b fd00:1:2::2"));
    assert_eq!(udp_says(&a, "10.1.2.3:53").as_deref(), Some("b 10.1.2.2"));
}

#[test]
fn only_the_bridge_is_left_after_del() {
    let lab = Lab::new();
    let [a, b] = ["a", "b"].map(|id| lab.container(id));
    let call = lab.plugin("bridge").config(dual_stack());
    call.clone().on(&a).add().ok_result();
    let before = lab.snapshot();
    call.clone().on(&b).add().ok_result();
    call.on(&b).del().ok();
    lab.snapshot().assert_same(&before);
}

#[test]
fn the_result_names_bridge_host_end_and_container_end_as_the_kernel_has_them() {
    let lab = Lab::new();
    let pod = lab.container("pod");
    let result = lab.plugin("bridge").config(dual_stack()).on(&pod).add().ok_result();
    let interfaces = result["interfaces"].as_array().unwrap();
    assert_eq!(interfaces[0]["name"], "br0");
    assert_eq!(container_interface(&result)["name"], "eth0");
    assert_eq!(container_interface(&result)["sandbox"], json!(pod.path()));
    let place = interfaces.iter().position(|one| one == container_interface(&result)).unwrap();
    for ip in result["ips"].as_array().unwrap() {
        assert_eq!(ip["interface"], json!(place), "the address is the container's");
    }
    for interface in interfaces {
        let inside = interface["sandbox"].as_str().is_some_and(|path| !path.is_empty());
        let netns = if inside { &pod } else { lab.host() };
        let link = netns.link(interface["name"].as_str().unwrap()).unwrap();
        assert_eq!(interface["mac"], link["address"]);
    }
    assert_eq!(lab.host().link(host_end(&result)).unwrap()["master"], "br0");
}

#[test]
fn the_result_contains_the_mtu_of_each_interface() {
    // https://github.com/containernetworking/plugins/issues/1015
    beyond_reference!("result-mtu");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = lab.plugin("bridge").version("1.1.0").config(plain()).config(json!({"mtu": 1400}));
    let result = call.on(&pod).add().ok_result();
    let mtus: Vec<_> = result["interfaces"].as_array().unwrap().iter().map(|one| &one["mtu"]).collect();
    assert_eq!(mtus, [1400, 1400, 1400]);
}

#[test]
fn the_bridge_is_a_gateway_or_the_default_gateway_if_configured() {
    let lab = Lab::new();
    let [a, b, c] = ["a", "b", "c"].map(|id| lab.container(id));
    let call = lab.plugin("bridge").config(plain());

    call.clone().on(&a).add().ok_result();
    assert!(lab.host().addresses("br0").is_empty());
    assert_eq!(a.routes(), ["10.1.2.0/24 dev eth0"]);

    let result = call.clone().config(json!({"isGateway": true})).on(&b).add().ok_result();
    assert_eq!(lab.host().addresses("br0"), ["10.1.2.1/24"]);
    assert_eq!(result["ips"][0]["gateway"], "10.1.2.1");
    assert_eq!(b.routes(), ["10.1.2.0/24 dev eth0"]);
    assert_eq!(lab.host().sysctl("ipv4/ip_forward"), "1");

    call.config(json!({"isDefaultGateway": true})).on(&c).add().ok_result();
    assert_eq!(c.routes(), ["10.1.2.0/24 dev eth0", "default via 10.1.2.1 dev eth0"]);
}

#[test]
fn a_default_route_in_another_table_does_not_replace_the_one_through_the_gateway() {
    beyond_1_1_1!("route-attributes");
    let default = |route: &str| route.starts_with("default");
    for (attributes, expected) in [
        (json!({"table": 100}), "default via 10.1.2.1 dev eth0"),
        (json!({"table": 254, "gw": "10.1.2.9"}), "default via 10.1.2.9 dev eth0"),
        (json!({"priority": 500, "gw": "10.1.2.9"}), "default via 10.1.2.9 dev eth0"),
    ] {
        let lab = Lab::new();
        let pod = lab.container("pod");
        let mut ipam = host_local(&[&["10.1.2.0/24"]]);
        let mut route = attributes;
        route["dst"] = json!("0.0.0.0/0");
        ipam["routes"] = json!([route]);
        let conf = json!({"bridge": "br0", "isDefaultGateway": true, "ipam": ipam});
        let call = lab.plugin("bridge").version("1.1.0").config(conf).on(&pod);
        let result = call.add().ok_result();
        let routes: Vec<_> = pod.routes().into_iter().filter(|route| default(route)).collect();
        assert_eq!(routes, [expected], "{route}");
        call.check(&result).ok();
    }
}

/// With two default routes, IPv6 would use both.
#[test]
fn the_default_route_of_an_earlier_plugin_remains_the_only_one_of_its_family() {
    beyond_reference!("default-gateway-twice");
    let lab = Lab::new();
    let pod = lab.container("pod");
    pod.sh("ip link add eth1 type veth peer name other; ip link set eth1 up; ip link set other up
         ip addr add fd00:9::2/64 dev eth1 nodad; ip route add default via fd00:9::1 dev eth1");
    let prev = json!({
        "cniVersion": "1.0.0",
        "interfaces": [{"name": "eth1", "sandbox": pod.path()}],
        "ips": [{"address": "fd00:9::2/64", "gateway": "fd00:9::1", "interface": 0}],
        "routes": [{"dst": "::/0", "gw": "fd00:9::1"}],
    });
    let call = lab
        .plugin("bridge")
        .config(dual_stack())
        .config(json!({"isDefaultGateway": true, "prevResult": prev}));
    let result = call.on(&pod).add().ok_result();
    let defaults: Vec<_> = pod.routes().into_iter().filter(|route| route.starts_with("default")).collect();
    assert_eq!(defaults, ["default via 10.1.2.1 dev eth0", "default via fd00:9::1 dev eth1"], "{result}");
    let routes = result["routes"].as_array().unwrap();
    assert_eq!(routes.iter().filter(|route| route["dst"] == "::/0").count(), 1, "{result}");
}

#[test]
fn a_new_bridge_resolves_neighbours_without_testing_its_link_local_address() {
    beyond_reference!("bridge-dad");
    let lab = Lab::new();
    let pod = lab.container("pod");
    lab.plugin("bridge").config(dual_stack()).on(&pod).add().ok_result();
    assert_eq!(lab.host().sysctl("ipv6/conf/br0/accept_dad"), "0");
}

#[test]
fn the_bridge_of_an_add_that_was_killed_gets_its_sysctls_by_the_next_add() {
    beyond_reference!("bridge-dad");
    let keys = ["accept_ra", "accept_dad"];
    for killed_at in keys {
        let lab = Lab::new();
        let [a, b] = ["a", "b"].map(|id| lab.container(id));
        let call = lab.plugin("bridge").config(dual_stack());
        let path = format!("/proc/sys/net/ipv6/conf/br0/{killed_at}");
        let kill = injecting(&["-P", &path, "-e", "inject=?open,openat:signal=KILL:when=1"]);
        assert_eq!(call.clone().on(&a).under(&kill).add().exit, None, "{killed_at}");
        assert!(lab.host().link("br0").is_some());
        call.clone().on(&a).del().ok();
        call.on(&b).add().ok_result();
        assert_eq!(
            keys.map(|key| lab.host().sysctl(&format!("ipv6/conf/br0/{key}"))),
            ["0", "0"],
            "{killed_at}"
        );
    }
}

/// Otherwise the bridge would be up, and no later ADD would set it.
#[test]
fn an_add_that_cannot_set_a_new_bridges_sysctl_for_now_fails_and_the_next_one_sets_it() {
    beyond_reference!("bridge-dad");
    for key in ["accept_ra", "accept_dad"] {
        let lab = Lab::new();
        let pod = lab.container("pod");
        let call = lab.plugin("bridge").config(dual_stack()).on(&pod);
        let path = format!("/proc/sys/net/ipv6/conf/br0/{key}");
        let full = injecting(&["-P", &path, "-e", "inject=?open,openat:error=ENFILE:when=1"]);
        call.clone().under(&full).add().refused(5, &format!("cannot set ipv6/conf/br0/{key}"));
        call.add().ok_result();
        assert_eq!(lab.host().sysctl(&format!("ipv6/conf/br0/{key}")), "0");
    }
}

#[test]
fn a_container_reaches_another_machine_through_the_host() {
    let lab = Lab::new();
    let pod = lab.container("pod");
    let far = lab.machine("far");
    lab.plugin("bridge").config(dual_stack()).on(&pod).add().ok_result();
    let _server = far.serve_tcp("far", "[::]:80");
    assert_eq!(tcp_says(&pod, "198.51.100.2:80").as_deref(), Some("far ::ffff:10.1.2.2"));
    assert_eq!(tcp_says(&pod, "[2001:db8:51::2]:80").as_deref(), Some("far fd00:1:2::2"));
}

#[test]
fn routes_of_the_address_plugin_are_set_in_the_container() {
    let lab = Lab::new();
    let pod = lab.container("pod");
    let mut conf = dual_stack();
    conf["ipam"]["routes"] = json!([{"dst": "192.0.2.0/24"}, {"dst": "2001:db8::/32", "gw": "fd00:1:2::9"}]);
    lab.plugin("bridge").config(conf).on(&pod).add().ok_result();
    let routes = pod.routes();
    assert!(routes.contains(&"192.0.2.0/24 via 10.1.2.1 dev eth0".to_owned()), "{routes:?}");
    assert!(routes.contains(&"2001:db8::/32 via fd00:1:2::9 dev eth0".to_owned()), "{routes:?}");
}

#[test]
fn a_route_through_a_gateway_in_no_subnet_of_the_interface_is_an_error_that_says_so() {
    beyond_reference!("errors");
    let lab = Lab::new();
    let pod = lab.container("pod");
    for (dst, gateway) in [("192.0.2.0/24", "10.9.9.9"), ("2001:db8::/32", "fd00:9::9")] {
        let mut conf = dual_stack();
        conf["ipam"]["routes"] = json!([{"dst": dst, "gw": gateway}]);
        let refused = lab.plugin("bridge").config(conf).on(&pod).add().refused(999, dst);
        assert!(refused.details.contains("in none of the interface's subnets"), "{refused:?}");
    }
}

#[test]
fn a_route_with_an_unspecified_gateway_is_on_the_link_and_check_finds_it() {
    beyond_reference!("unspecified-gateway");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let mut conf = dual_stack();
    conf["ipam"]["routes"] =
        json!([{"dst": "192.0.2.0/24", "gw": "0.0.0.0"}, {"dst": "2001:db8::/32", "gw": "::"}]);
    let call = lab.plugin("bridge").config(conf).on(&pod);
    let result = call.add().ok_result();
    let routes = pod.routes();
    for dst in ["192.0.2.0/24", "2001:db8::/32"] {
        assert!(routes.contains(&format!("{dst} dev eth0")), "{routes:?}");
    }
    call.check(&result).ok();
}

/// For 0, the kernel chooses the number, and does not report 0. It lowers an MTU and an MSS that are too large.
#[test]
fn check_passes_after_an_add_with_metrics_of_a_route_that_the_kernel_replaces() {
    beyond_reference!("route-attributes");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let mut conf = dual_stack();
    let route = |dst, number| json!({"dst": dst, "priority": 0, "mtu": number, "advmss": number});
    conf["ipam"]["routes"] = json!([
        route("192.0.2.0/24", 0),
        route("2001:db8:77::/64", 0),
        route("198.18.0.0/15", 65535),
        route("2001:db8:78::/64", 65535),
    ]);
    let call = lab.plugin("bridge").version("1.1.0").config(conf).on(&pod);
    let result = call.add().ok_result();
    call.check(&result).ok();
    pod.sh("ip -6 route del 2001:db8:77::/64");
    call.check(&result).refused(999, "2001:db8:77::/64");
}

#[test]
fn mtu_advmss_priority_table_and_scope_of_a_route_are_applied() {
    beyond_reference!("route-attributes");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let mut conf = plain();
    conf["ipam"]["routes"] = json!([
        {"dst": "192.0.2.0/24", "gw": "10.1.2.1", "mtu": 1300, "advmss": 1200, "priority": 77},
        {"dst": "203.0.113.0/24", "table": 100, "scope": 253},
        {"dst": "198.18.0.0/15", "table": 0},
    ]);
    let call = lab.plugin("bridge").config(conf).on(&pod);
    // Like libcni and the reference, host-local and bridge write the attributes in all of these versions.
    for version in ["0.3.1", "1.0.0", "1.1.0"] {
        let call = call.clone().version(version);
        let result = call.add().ok_result();
        assert_eq!(result["routes"][0]["priority"], 77, "{version}");
        let line = pod.exec(&["ip", "route", "show", "192.0.2.0/24"]);
        assert_eq!(
            line.trim(),
            "192.0.2.0/24 via 10.1.2.1 dev eth0 metric 77 mtu 1300 advmss 1200",
            "{version}"
        );
        let line = pod.exec(&["ip", "route", "show", "table", "100"]);
        assert_eq!(line.trim(), "203.0.113.0/24 dev eth0 scope link", "{version}");
        if version != "0.3.1" {
            call.check(&result).ok();
            pod.sh("ip route change 192.0.2.0/24 via 10.1.2.1 dev eth0 metric 77 mtu 1300");
            let words = "advmss of the route to 192.0.2.0/24 is none, but was 1200 after ADD";
            call.check(&result).refused(999, words);
        }
        call.del().ok();
    }
}

/// CVE-2020-10749: a container could make itself the host's default route.
#[test]
fn the_host_ignores_router_advertisements_on_a_bridge_that_it_created_itself() {
    let lab = Lab::new();
    let pod = lab.container("pod");
    lab.host()
        .sh("ip link add br0 type bridge; ip link set br0 up; echo 1 >/proc/sys/net/ipv6/conf/br0/accept_ra");
    lab.plugin("bridge").config(plain()).on(&pod).add().ok_result();
    assert_eq!(lab.host().sh("cat /proc/sys/net/ipv6/conf/br0/accept_ra").trim(), "0");
}

/// With forwarding on, hosts accept router advertisements on their uplink only with the value 2, so they may have it as the default.
#[test]
fn the_host_ignores_router_advertisements_on_a_new_bridge_also_if_its_default_is_to_always_accept_them() {
    beyond_reference!("bridge-accept-ra");
    let lab = Lab::new();
    lab.host().sh("echo 2 >/proc/sys/net/ipv6/conf/default/accept_ra");
    lab.plugin("bridge").config(plain()).on(&lab.container("pod")).add().ok_result();
    assert_eq!(lab.host().sysctl("ipv6/conf/br0/accept_ra"), "0");
}

#[test]
fn router_advertisements_that_an_administrator_wants_on_the_bridge_are_still_accepted() {
    beyond_reference!("bridge-accept-ra");
    let lab = Lab::new();
    let pod = lab.container("pod");
    lab.host()
        .sh("ip link add br0 type bridge; ip link set br0 up; echo 2 >/proc/sys/net/ipv6/conf/br0/accept_ra");
    lab.plugin("bridge").config(plain()).on(&pod).add().ok_result();
    assert_eq!(lab.host().sh("cat /proc/sys/net/ipv6/conf/br0/accept_ra").trim(), "2");
}

#[test]
fn router_advertisements_on_the_bridge_are_still_accepted_if_the_default_route_comes_from_them() {
    needs!(Ipv6);
    beyond_reference!("silenced-routers");
    let lab = Lab::new();
    let (far, pod) = (lab.machine("far"), lab.container("pod"));
    lab.host().sh(
        "ip link add br0 type bridge; echo 1 >/proc/sys/net/ipv6/conf/br0/accept_ra; ip link set br0 up; ip link set uplink master br0",
    );
    learn_default_route(&lab, &far, "br0");
    let other = lab.container("other");
    for (keys, container, accept_ra) in [(plain(), &other, "1"), (dual_stack(), &pod, "2")] {
        let added = lab.plugin("bridge").config(keys).on(container).add();
        added.ok_result();
        assert!(added.stderr.contains("containers on br0 can change it"), "{added:#?}");
        assert_eq!(lab.host().sysctl("ipv6/conf/br0/accept_ra"), accept_ra);
    }
    assert!(has_learned_default_route(lab.host(), "br0"));
}

/// CVE-2020-10749: `ip link del br0` leaves the port up, and the host then receives packets from the container.
#[test]
fn the_host_ignores_router_advertisements_on_a_port_that_has_left_the_bridge() {
    let lab = Lab::new();
    let pod = lab.container("pod");
    let result = lab.plugin("bridge").config(plain()).on(&pod).add().ok_result();
    assert_eq!(lab.host().sysctl(&format!("ipv6/conf/{}/accept_ra", host_end(&result))), "0");
}

#[test]
fn the_host_ignores_router_advertisements_on_the_gateway_of_a_vlan() {
    needs!(BridgeVlanFiltering);
    beyond_reference!("bridge-accept-ra");
    let lab = Lab::new();
    let call = lab.plugin("bridge").config(dual_stack()).config(json!({"vlan": 10}));
    let accept_ra = || lab.host().sysctl("ipv6/conf/br0.10/accept_ra");
    call.clone().on(&lab.container("first")).add().ok_result();
    assert_eq!(accept_ra(), "0");
    // As a gateway interface that the reference created has it, or one of an administrator.
    for (number, (found, left)) in [("1", "0"), ("2", "2")].into_iter().enumerate() {
        lab.host().sh(&format!("echo {found} >/proc/sys/net/ipv6/conf/br0.10/accept_ra"));
        call.clone().on(&lab.container(&format!("next{number}"))).add().ok_result();
        assert_eq!(accept_ra(), left);
    }
}

#[test]
fn a_new_bridge_forwards_and_has_ipv6_also_if_new_links_of_the_host_do_not() {
    needs!(Ipv6);
    beyond_reference!("new-link-defaults");
    for (vlan, gateway) in [(0, "br0"), (10, "br0.10")] {
        if vlan != 0 {
            needs!(BridgeVlanFiltering);
        }
        let lab = Lab::new();
        let (_far, pod) = (lab.machine("far"), lab.container("pod"));
        new_links_neither_forward_nor_have_ipv6(&lab);
        let call = lab.plugin("bridge").config(dual_stack()).config(json!({"vlan": vlan}));
        call.clone().on(&pod).add().ok_result();
        for address in ["10.1.2.1", "fd00:1:2::1", "198.51.100.2", "2001:db8:51::2"] {
            assert!(pod.reaches(address), "{address} through {gateway}");
        }
        // An administrator's setting stays.
        let key = format!("ipv4/conf/{gateway}/forwarding");
        assert_eq!(lab.host().sysctl(&key), "1");
        lab.host().sh(&format!("echo 0 >/proc/sys/net/{key}"));
        call.on(&lab.container("other")).add().ok_result();
        assert_eq!(lab.host().sysctl(&key), "0");
    }
}

/// The command in the details of an error.
fn advised(error: &CniError) -> &str {
    error.details.split('`').nth(1).unwrap_or_default()
}

#[test]
fn the_error_for_a_bridge_without_ipv6_has_the_command_that_enables_it() {
    needs!(Ipv6);
    beyond_reference!("new-link-defaults");
    let lab = Lab::new();
    let pod = lab.container("pod");
    new_links_neither_forward_nor_have_ipv6(&lab);
    let v4 = json!({"isGateway": true, "name": "v4"});
    lab.plugin("bridge").config(plain()).config(v4).on(&lab.container("other")).add().ok_result();
    assert_eq!(lab.host().sysctl("ipv6/conf/br0/disable_ipv6"), "1");
    let call = lab.plugin("bridge").config(dual_stack()).on(&pod);
    let refused = call.add().refused(999, "fd00:1:2::1/64 to br0");
    let command = advised(&refused);
    assert_eq!(command, "sysctl -w net/ipv6/conf/br0/disable_ipv6=0", "{refused:?}");
    lab.host().sh(command);
    call.add().ok_result();
    assert!(pod.reaches("fd00:1:2::1"));
}

#[test]
fn on_a_host_without_ipv6_a_new_bridge_has_none_and_the_error_has_the_command_that_enables_it() {
    needs!(Ipv6);
    beyond_reference!("new-link-defaults");
    for (plugin, link) in [("bridge", "br0"), ("ptp", "veth")] {
        let lab = Lab::new();
        let pod = lab.container("pod");
        lab.host().sh("sysctl -qw net.ipv6.conf.all.disable_ipv6=1");
        let call = lab.plugin(plugin).config(dual_stack()).on(&pod);
        let refused = call.add().refused(999, link);
        assert_eq!(lab.host().sysctl("ipv6/conf/all/disable_ipv6"), "1", "{plugin}");
        let command = advised(&refused);
        assert_eq!(command, "sysctl -w net/ipv6/conf/all/disable_ipv6=0", "{plugin}: {refused:?}");
        lab.host().sh(command);
        call.add().ok_result();
    }
}

#[test]
fn the_bridges_own_addresses_of_the_link_do_not_conflict_with_a_gateway() {
    needs!(Ipv6);
    let lab = Lab::new();
    lab.host().sh("ip link add br0 address 02:00:00:00:00:07 type bridge; ip link set br0 up");
    lab.host().sh("ip addr add 169.254.0.1/16 scope link dev br0");
    for number in [7, 8] {
        let pod = lab.container(&format!("pod{number}"));
        let addresses = json!([
            {"address": format!("10.1.2.{number}/24"), "gateway": "10.1.2.1"},
            {"address": format!("fd00:7::{number}/64"), "gateway": "fe80::1"},
        ]);
        let ipam = json!({"type": "static", "addresses": addresses});
        let keys = json!({"bridge": "br0", "isDefaultGateway": true, "ipam": ipam});
        let call = lab.plugin("bridge").config(keys).on(&pod);
        let result = call.add().ok_result();
        assert!(pod.reaches("10.1.2.1") && pod.reaches("fe80::1%eth0"), "{number}");
        call.check(&result).ok();
    }
}

#[test]
fn the_bridge_may_be_given_by_an_alternative_name() {
    beyond_reference!("bridge-check");
    let lab = Lab::new();
    let pod = lab.container("pod");
    lab.host().sh("ip link add br0 type bridge; ip link property add dev br0 altname pods");
    let call = lab.plugin("bridge").config(dual_stack()).config(json!({"bridge": "pods"})).on(&pod);
    let before = lab.snapshot();
    let result = call.add().ok_result();
    assert_eq!(result["interfaces"][0]["name"], "br0");
    call.check(&result).ok();
    call.del().ok();
    assert!(lab.snapshot().since(&before).lines().all(|line| !line.contains("veth")));
}

#[test]
fn another_address_of_the_bridge_is_replaced_only_by_force() {
    let lab = Lab::new();
    let [a, b] = ["a", "b"].map(|id| lab.container(id));
    let call = lab.plugin("bridge").config(json!({"bridge": "br0", "isGateway": true}));
    call.clone().config(json!({"ipam": host_local(&[&["10.1.2.0/24"]])})).on(&a).add().ok_result();

    let other = call.config(json!({"name": "other", "ipam": host_local(&[&["10.9.0.0/24"]])})).on(&b);
    let refused = other.add().refused(7, "10.1.2.1");
    if !under_test().reference {
        for words in ["delete the network's containers and run `ip link del br0`", "cuts off the containers"]
        {
            assert!(refused.details.contains(words), "{refused:?}");
        }
    }
    other.clone().del().ok();
    other.config(json!({"forceAddress": true})).add().ok_result();
    assert_eq!(lab.host().addresses("br0"), ["10.9.0.1/24"]);
}

#[test]
fn ipv6_subnets_side_by_side_share_a_bridge() {
    let lab = Lab::new();
    let [a, b] = ["a", "b"].map(|id| lab.container(id));
    let call = lab.plugin("bridge").config(json!({"bridge": "br0", "isGateway": true}));
    call.clone().config(json!({"ipam": host_local(&[&["fd00:1::/64"]])})).on(&a).add().ok_result();
    call.config(json!({"name": "other", "ipam": host_local(&[&["fd00:2::/64"]])})).on(&b).add().ok_result();
    let mut addresses = lab.host().addresses("br0");
    addresses.sort();
    assert_eq!(addresses, ["fd00:1::1/64", "fd00:2::1/64"]);
}

#[test]
fn the_mtu_is_set_on_bridge_and_both_ends() {
    let lab = Lab::new();
    let pod = lab.container("pod");
    let result = lab.plugin("bridge").config(plain()).config(json!({"mtu": 1380})).on(&pod).add().ok_result();
    for (netns, link) in [(&pod.netns, "eth0"), (lab.host(), host_end(&result)), (lab.host(), "br0")] {
        assert_eq!(netns.link(link).unwrap()["mtu"], 1380, "{link}");
    }
}

#[test]
fn the_gateway_of_a_vlan_has_the_mtu_of_the_bridge() {
    needs!(BridgeVlanFiltering);
    beyond_1_1_1!("vlan-gateway");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let keys = json!({"isGateway": true, "vlan": 10, "mtu": 9000});
    lab.plugin("bridge").config(plain()).config(keys).on(&pod).add().ok_result();
    for link in ["br0", "br0.10"] {
        assert_eq!(lab.host().link(link).unwrap()["mtu"], 9000, "{link}");
    }
}

#[test]
fn a_port_is_in_hairpin_mode_if_configured() {
    let lab = Lab::new();
    let [a, b] = ["a", "b"].map(|id| lab.container(id));
    let call = lab.plugin("bridge").config(plain());
    let plain = call.clone().on(&a).add().ok_result();
    let hairpin = call.config(json!({"hairpinMode": true})).on(&b).add().ok_result();
    assert_eq!(port(&lab, host_end(&plain), "hairpin"), false);
    assert_eq!(port(&lab, host_end(&hairpin), "hairpin"), true);
}

#[test]
fn a_gateway_in_hairpin_mode_warns_if_bridged_traffic_does_not_pass_the_firewall() {
    beyond_reference!("errors");
    let lab = Lab::new();
    let file = "/proc/sys/net/bridge/bridge-nf-call-iptables";
    let add = |id: &str, keys: Value| {
        let added = lab.plugin("bridge").config(plain()).config(keys).on(&lab.container(id)).add();
        added.ok_result();
        added.stderr.contains("modprobe br_netfilter")
    };
    lab.host().sh(&format!("[ ! -e {file} ] || echo 0 >{file}"));
    assert!(add("warned", json!({"hairpinMode": true, "isGateway": true})));
    assert!(!add("no-gateway", json!({"hairpinMode": true})));
    assert!(!add("no-hairpin", json!({"isGateway": true})));
    if fs::exists(file).unwrap() {
        lab.host().sh(&format!("echo 1 >{file}"));
        assert!(!add("filtered", json!({"hairpinMode": true, "isGateway": true})));
    }
}

#[test]
fn the_bridge_is_promiscuous_if_configured() {
    let lab = Lab::new();
    let pod = lab.container("pod");
    lab.plugin("bridge").config(plain()).config(json!({"promiscMode": true})).on(&pod).add().ok_result();
    assert!(flag(lab.host(), "br0", "PROMISC"));
}

#[test]
fn isolated_ports_reach_the_gateway_but_not_each_other() {
    beyond_1_1_1!("newer-keys");
    let lab = Lab::new();
    let [a, b, c] = ["a", "b", "c"].map(|id| lab.container(id));
    let call = lab.plugin("bridge").config(dual_stack());
    call.clone().on(&c).add().ok_result();
    let call = call.config(json!({"portIsolation": true}));
    call.clone().on(&a).add().ok_result();
    call.on(&b).add().ok_result();
    for (open, shut) in
        [("10.1.2.1", "10.1.2.4"), ("fd00:1:2::1", "fd00:1:2::4"), ("10.1.2.2", "fd00:1:2::4")]
    {
        assert!(a.reaches(open), "{open}");
        assert!(a.is_cut_off_from(shut), "{shut}");
    }
}

#[test]
fn the_containers_end_stays_down_if_configured() {
    beyond_reference!("newer-keys");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call =
        lab.plugin("bridge").config(json!({"bridge": "br0", "disableContainerInterface": true})).on(&pod);
    let result = call.add().ok_result();
    assert!(!flag(&pod, "eth0", "UP"));
    assert!(flag(lab.host(), host_end(&result), "UP"));
    call.check(&result).ok();
    // A program may set it up later.
    let other = lab.container("other");
    call.config(json!({"acceptRa": false})).on(&other).add().ok_result();
    for key in ["accept_ra", "autoconf"] {
        assert_eq!(other.sysctl(&format!("ipv6/conf/eth0/{key}")), "0", "{key}");
    }
}

#[test]
fn addresses_are_tested_for_duplicates_only_if_configured() {
    // https://github.com/containernetworking/plugins/issues/680
    beyond_1_1_1!("newer-keys");
    let lab = Lab::new();
    let [squatter, a, b] = ["squatter", "a", "b"].map(|id| lab.container(id));
    let call = lab.plugin("bridge").config(dual_stack());
    call.clone().on(&squatter).add().ok_result();
    squatter.sh("ip addr add fd00:1:2::3/64 dev eth0 nodad; ip addr add fd00:1:2::4/64 dev eth0 nodad");
    call.clone().on(&a).add().ok_result();
    assert_eq!(a.addresses("eth0")[1], "fd00:1:2::3/64");
    assert!(a.ip("-6 addr show dev eth0 scope global tentative").is_empty(), "no test, and no wait for one");
    call.config(json!({"enabledad": true})).on(&b).add().refused(999, "fd00:1:2::4");
}

#[test]
fn a_mac_may_be_requested_in_three_ways_and_the_last_wins() {
    let lab = Lab::new();
    let mac = |id: &str, args: &str, keys: Value| {
        let pod = lab.container(id);
        let call = lab.plugin("bridge").config(plain()).args(args).config(keys).on(&pod);
        let result = call.add().ok_result();
        let mac = pod.link("eth0").unwrap()["address"].as_str().unwrap().to_owned();
        assert_eq!(container_interface(&result)["mac"], mac.as_str());
        mac
    };
    let args = "MAC=02:00:00:00:00:01;IgnoreUnknown=true";
    let cni = json!({"args": {"cni": {"mac": "02:00:00:00:00:02"}}});
    let mut both = cni.clone();
    both["runtimeConfig"] = json!({"mac": "02:00:00:00:00:03"});
    assert_eq!(mac("a", args, json!({})), "02:00:00:00:00:01");
    assert_eq!(mac("b", args, cni), "02:00:00:00:00:02");
    assert_eq!(mac("c", args, both), "02:00:00:00:00:03");
    // Go's net.ParseMAC accepts this form.
    assert_eq!(mac("d", "MAC=0200.0000.0004;IgnoreUnknown=true", json!({})), "02:00:00:00:00:04");
}

#[test]
fn without_ipam_it_is_only_a_link() {
    let lab = Lab::new();
    let [a, b] = ["a", "b"].map(|id| lab.container(id));
    let call = lab.plugin("bridge").config(json!({"bridge": "br0"}));
    let result = call.clone().on(&a).add().ok_result();
    call.on(&b).add().ok_result();
    assert!(ips(&result).is_empty());
    for (pod, address) in [(&a, "10.0.0.1/24"), (&b, "10.0.0.2/24")] {
        assert!(pod.addresses("eth0").is_empty());
        pod.exec(&["ip", "addr", "add", address, "dev", "eth0"]);
    }
    assert!(a.reaches("10.0.0.2"));
}

#[test]
fn check_works_without_ipam() {
    beyond_reference!("check-without-ipam");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = lab.plugin("bridge").config(json!({"bridge": "br0"})).on(&pod);
    let result = call.add().ok_result();
    call.check(&result).ok();
    pod.exec(&["ip", "link", "del", "eth0"]);
    call.check(&result).refused(999, "eth0");
}

#[test]
fn check_notices_a_removed_object() {
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = lab.plugin("bridge").config(dual_stack()).on(&pod);
    let result = call.add().ok_result();
    call.check(&result).ok();

    pod.sh("ip route del default via 10.1.2.1");
    call.check(&result).refused(999, "0.0.0.0/0");
    pod.sh("ip route add default via 10.1.2.1");
    call.check(&result).ok();

    pod.sh("ip addr del 10.1.2.2/24 dev eth0");
    call.check(&result).refused(999, "10.1.2.2");
    pod.sh("ip addr add 10.1.2.2/24 dev eth0; ip route add default via 10.1.2.1");
    call.check(&result).ok();

    lab.host().exec(&["ip", "link", "set", host_end(&result), "nomaster"]);
    call.check(&result).refused(999, host_end(&result));
    lab.host().exec(&["ip", "link", "set", host_end(&result), "master", "br0"]);
    call.check(&result).ok();

    pod.sh("ip link del eth0");
    call.check(&result).refused(999, "eth0");
}

/// Their plugins check them. Bandwidth's ifb, for example, may have been replaced.
#[test]
fn check_compares_no_interface_of_the_host_except_bridge_and_port() {
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = lab.plugin("bridge").config(dual_stack()).on(&pod);
    let mut result = call.add().ok_result();
    lab.host().sh("ip link add ifb7 type ifb");
    let others = [json!({"name": "net1"}), json!({"name": "ifb7", "mac": "02:00:00:00:00:07"})];
    result["interfaces"].as_array_mut().unwrap().extend(others);
    call.check(&result).ok();
    lab.host().sh(&format!("ip link set {} address 02:00:00:00:00:08", host_end(&result)));
    call.check(&result).refused(999, host_end(&result));
}

#[test]
fn check_notices_a_bridge_or_port_that_is_down_and_a_lost_gateway_address() {
    beyond_reference!("bridge-check");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = lab.plugin("bridge").config(dual_stack()).on(&pod);
    let result = call.add().ok_result();
    for (harm, remedy, culprit) in [
        ("ip link set br0 down", "ip link set br0 up", "link br0: state is down"),
        ("ip link set END down", "ip link set END up", "state is down"),
        ("ip addr del 10.1.2.1/24 dev br0", "ip addr add 10.1.2.1/24 dev br0", "gateway's address 10.1.2.1"),
        (
            "ip addr del fd00:1:2::1/64 dev br0",
            "ip addr add fd00:1:2::1/64 dev br0 nodad",
            "gateway's address fd00:1:2::1",
        ),
    ] {
        lab.host().sh(&harm.replace("END", host_end(&result)));
        call.check(&result).refused(999, culprit);
        lab.host().sh(&remedy.replace("END", host_end(&result)));
        // Setting a bridge down deletes its IPv6 addresses.
        lab.host().sh("ip addr replace fd00:1:2::1/64 dev br0 nodad");
        call.check(&result).ok();
    }
}

#[test]
fn check_notices_that_a_mode_of_the_bridge_or_the_port_is_off() {
    beyond_reference!("bridge-check");
    let lab = Lab::new();
    let pod = lab.container("pod");
    for (keys, off, mode) in [
        (json!({"promiscMode": true}), "ip link set br0 promisc off", "promiscuous mode is off"),
        (json!({"hairpinMode": true}), "bridge link set dev END hairpin off", "hairpin mode is off"),
        (json!({"portIsolation": true}), "bridge link set dev END isolated off", "isolation is off"),
    ] {
        let call = lab.plugin("bridge").config(plain()).config(keys).on(&pod);
        let result = call.add().ok_result();
        call.check(&result).ok();
        lab.host().sh(&off.replace("END", host_end(&result)));
        call.check(&result).refused(999, mode);
        call.del().ok();
    }
}

#[test]
fn check_accepts_a_bridge_without_the_gateway_address_if_the_host_is_not_the_gateway() {
    let lab = Lab::new();
    let pod = lab.container("pod");
    let mut conf = plain();
    conf["ipam"]["ranges"][0][0]["gateway"] = json!("10.1.2.254");
    let call = lab.plugin("bridge").config(conf).on(&pod);
    let result = call.add().ok_result();
    assert_eq!(result["ips"][0]["gateway"], "10.1.2.254");
    call.check(&result).ok();
}

#[test]
fn check_notices_a_lost_gateway_address_and_a_gateway_interface_of_a_vlan_that_is_down() {
    needs!(BridgeVlanFiltering);
    beyond_reference!("bridge-check");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = lab.plugin("bridge").config(plain()).config(json!({"isGateway": true, "vlan": 10})).on(&pod);
    let result = call.add().ok_result();
    call.check(&result).ok();
    lab.host().sh("ip link set br0.10 down");
    call.check(&result).refused(999, "link br0.10: state is down");
    lab.host().sh("ip link set br0.10 up; ip addr del 10.1.2.1/24 dev br0.10");
    call.check(&result).refused(999, "link br0.10: the gateway's address 10.1.2.1");
    lab.host().sh("ip link del br0.10");
    call.check(&result).refused(999, "link br0.10 does not exist");
}

#[test]
fn check_notices_that_vlans_are_no_longer_separate_or_have_no_gateway() {
    needs!(BridgeVlanFiltering);
    beyond_reference!("bridge-check");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let vlans = json!({"isGateway": true, "vlan": 10, "vlanTrunk": [{"minID": 20, "maxID": 21}, {"id": 22}]});
    let call = lab.plugin("bridge").config(plain()).config(vlans).on(&pod);
    let result = call.add().ok_result();
    let gateway = lab.host().link_names().into_iter().find(|name| {
        let all = lab.host().vlans(name);
        all == ["10 pvid untagged"]
    });
    let (end, gateway) = (host_end(&result), gateway.expect("the gateway's port"));
    for (harm, remedy, culprit) in [
        (
            "ip link set br0 type bridge vlan_filtering 0",
            "ip link set br0 type bridge vlan_filtering 1",
            "link br0: VLAN filtering is off",
        ),
        ("bridge vlan del dev END vid 21", "bridge vlan add dev END vid 21", "VLAN 21 is missing"),
        (
            "bridge vlan add dev END vid 22 untagged",
            "bridge vlan add dev END vid 22",
            "VLAN 22 is missing or different",
        ),
        ("bridge vlan add dev END vid 1", "bridge vlan del dev END vid 1", "VLAN 1 is set"),
        (
            "bridge vlan del dev GATEWAY vid 10",
            "bridge vlan add dev GATEWAY vid 10 pvid untagged",
            "native VLAN is missing",
        ),
        ("ip link set GATEWAY nomaster", "ip link set GATEWAY master br0", "link br0.10: bridge is missing"),
    ] {
        call.check(&result).ok();
        let sh = |line: &str| lab.host().sh(&line.replace("END", end).replace("GATEWAY", &gateway));
        sh(harm);
        call.check(&result).refused(999, culprit);
        sh(remedy);
    }
}

#[test]
fn check_accepts_more_vlans_of_a_port_that_stays_in_the_default_vlan() {
    needs!(BridgeVlanFiltering);
    beyond_1_1_1!("newer-keys");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let vlans = json!({"vlan": 10, "preserveDefaultVlan": true});
    let call = lab.plugin("bridge").config(plain()).config(vlans).on(&pod);
    let result = call.add().ok_result();
    lab.host().sh(&format!("bridge vlan add dev {} vid 30", host_end(&result)));
    call.check(&result).ok();
}

/// The reference's tuning sets an MTU without writing it to the result.
#[test]
fn check_compares_the_mtu_only_if_it_is_configured() {
    beyond_reference!("check-mtu");
    for plugin in ["bridge", "ptp"] {
        let lab = Lab::new();
        let pod = lab.container("pod");
        let call = lab.plugin(plugin).version("1.1.0").config(plain()).on(&pod);
        let result = call.add().ok_result();
        pod.sh("ip link set eth0 mtu 1400");
        lab.host().sh(&format!("ip link set {} mtu 1400", host_end(&result)));
        call.check(&result).ok();
        let configured = call.config(json!({"mtu": 1500}));
        configured.check(&result).refused(999, "MTU is 1400");
        // As after our tuning, which writes the MTU to the result.
        let mut changed = result;
        let container = container_interface(&changed).clone();
        let interfaces = changed["interfaces"].as_array_mut().unwrap();
        interfaces.iter_mut().find(|one| **one == container).unwrap()["mtu"] = json!(1400);
        configured.check(&changed).ok();
    }
}

#[test]
fn an_existing_bridge_is_used_unchanged() {
    let lab = Lab::new();
    let pod = lab.container("pod");
    lab.host().sh("ip link add br0 address 02:00:00:00:00:99 type bridge; ip addr add 10.1.2.1/24 dev br0");
    let call = lab.plugin("bridge").config(plain()).config(json!({"isGateway": true})).on(&pod);
    let result = call.add().ok_result();
    assert_eq!(lab.host().addresses("br0"), ["10.1.2.1/24"]);
    assert_eq!(result["interfaces"][0]["mac"], "02:00:00:00:00:99");
    assert!(pod.reaches("10.1.2.1"));
    call.del().ok();
    assert!(lab.host().link("br0").is_some());
}

#[test]
fn the_bridge_keeps_its_mac_when_containers_attach_and_detach() {
    // https://github.com/containernetworking/cni/issues/285
    // https://github.com/containernetworking/plugins/issues/620
    beyond_reference!("bridge-mac");
    let lab = Lab::new();
    let [a, b] = ["a", "b"].map(|id| lab.container(id));
    let call = lab.plugin("bridge").config(plain());
    let mac = || lab.host().link("br0").unwrap()["address"].clone();
    let result = call.clone().on(&a).add().ok_result();
    let first = mac();
    assert_ne!(first, "00:00:00:00:00:00");
    assert_eq!(result["interfaces"][0]["mac"], first, "the result tells the one that stays");
    call.clone().config(json!({"runtimeConfig": {"mac": "02:00:00:00:00:01"}})).on(&b).add().ok_result();
    assert_eq!(mac(), first);
    call.clone().on(&a).del().ok();
    call.on(&b).del().ok();
    assert_eq!(mac(), first);
}

#[test]
fn udev_replaces_no_mac_of_bridge_and_veth() {
    beyond_reference!("udev");
    let lab = Lab::new();
    udev_replaces_no_mac(&lab, &lab.plugin("bridge").config(dual_stack()), &lab.container("pod"));
}

#[test]
fn udev_replaces_no_mac_of_the_gateway_of_a_vlan() {
    needs!(BridgeVlanFiltering);
    beyond_reference!("udev");
    let lab = Lab::new();
    let call = lab.plugin("bridge").config(dual_stack()).config(json!({"vlan": 10}));
    udev_replaces_no_mac(&lab, &call, &lab.container("pod"));
}

/// Only /sys shows whether the MAC was set. In a user namespace with the host's /sys, as in rootless Podman, /sys is
/// another namespace's.
#[test]
fn an_existing_bridge_keeps_its_mac_even_if_sys_does_not_show_its_origin() {
    beyond_reference!("bridge-mac");
    let elsewhere = "ip netns add elsewhere
        ip -n elsewhere link add br0 address 02:00:00:00:00:99 type bridge
        nsenter --net=/run/netns/elsewhere mount -t sysfs sysfs /sys";
    let ports = "ip link add p0 address 02:00:00:00:00:01 type veth peer name p1; ip link set p0 master br0";
    for sys in ["true", elsewhere, "mount -t tmpfs none /sys"] {
        for before in ["true", ports] {
            let lab = Lab::new();
            let [a, b] = ["a", "b"].map(|id| lab.container(id));
            lab.host().sh(&format!("ip link add br0 type bridge; {before}\n{sys}"));
            let call = lab.plugin("bridge").config(plain());
            let first = call.clone().on(&a).add().ok_result()["interfaces"][0]["mac"].clone();
            let mac = || lab.host().link("br0").unwrap()["address"].clone();
            assert_eq!(mac(), first, "{sys}; {before}");
            lab.host().sh("ip link delete p0 2>/dev/null || true");
            lab.host().sh("ip neigh add 10.1.2.200 lladdr 02:00:00:00:00:02 dev br0 nud permanent");
            call.clone().on(&b).add().ok_result();
            call.clone().on(&a).del().ok();
            call.on(&b).del().ok();
            assert_eq!(mac(), first, "{sys}; {before}");
            // Setting an address, even the same one, flushes the bridge's neighbour entries.
            assert!(lab.host().sh("ip neigh").contains("10.1.2.200"), "{sys}; {before}");
        }
    }
}

#[test]
fn del_may_be_repeated_and_needs_neither_the_namespace_nor_a_result() {
    let lab = Lab::new();
    let [a, b, c] = ["a", "path-deleted", "path-not-passed"].map(|id| lab.container(id));
    // The reference's DEL leaves rules (P#810).
    let call = lab.plugin("bridge").config(dual_stack()).config(json!({"ipMasq": !under_test().reference}));
    for pod in [&a, &b, &c] {
        call.clone().on(pod).add().ok_result();
    }
    let has_rules = |id: &str| lab.host().ruleset().contains(&format!("net/{id}/eth0"));
    assert!(["a", "path-deleted", "path-not-passed"].into_iter().all(has_rules) || under_test().reference);
    let [del_a, del_b, del_c] = [&a, &b, &c].map(|pod| call.clone().on(pod));
    del_a.del().ok();
    del_a.del().ok();
    // The namespace is deleted before DEL, as at containerd's second DEL, or not passed at all, as after `ctr run
    // --rm`.
    b.vanish();
    del_b.del().ok();
    c.vanish();
    del_c.env("CNI_NETNS", "").del().ok();
    lab.host().wait_until("the veths are deleted with their namespaces", |host| host.link_names() == ["br0"]);
    assert!(leases().is_empty());
    assert!(!["a", "path-deleted", "path-not-passed"].into_iter().any(has_rules), "{}", lab.host().ruleset());
}

#[test]
fn a_config_that_add_would_refuse_can_be_deleted() {
    beyond_reference!("lenient-del");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = lab.plugin("bridge").config(plain()).on(&pod);
    call.add().ok_result();
    let broken = call.config(json!({"vlan": 5000, "mtu": 9, "hairpinMode": true, "promiscMode": true}));
    broken.add().refused(7, "hairpinMode");
    broken.del().ok();
    assert!(pod.link("eth0").is_none());
    assert!(leases().is_empty());
}

#[test]
fn an_address_plugin_that_fails_leaves_no_veth() {
    // https://github.com/containernetworking/plugins/issues/29
    beyond_reference!("rollback");
    let lab = Lab::new();
    let [a, b] = ["a", "b"].map(|id| lab.container(id));
    lab.plugin("bridge").config(plain()).on(&a).add().ok_result();
    lab.fake_plugin(
        "refuses",
        r#"echo '{"cniVersion":"1.0.0","code":120,"msg":"not today","details":"ask tomorrow"}'; exit 1"#,
    );
    let before = lab.snapshot();
    let call = lab.plugin("bridge").config(json!({"bridge": "br0", "ipam": {"type": "refuses"}})).on(&b);
    let error = call.add().refused(120, "not today");
    assert!(error.details.contains("ask tomorrow"), "{error:?}");
    lab.snapshot().assert_same(&before);
}

#[test]
fn a_gateway_address_that_cannot_be_set_leaves_nothing() {
    beyond_reference!("rollback");
    let lab = Lab::new();
    let pod = lab.container("pod");
    lab.host().sh("ip link add br0 address 02:00:00:00:00:99 type bridge; ip link set br0 up; ip addr add 10.9.0.1/24 dev br0");
    let before = lab.snapshot();
    lab.plugin("bridge").config(dual_stack()).on(&pod).add().refused(7, "10.9.0.1");
    lab.snapshot().assert_same(&before);
}

#[test]
fn gc_releases_leases_of_deleted_containers() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let [a, b] = ["a", "not-valid"].map(|id| lab.container(id));
    let call = lab.plugin("bridge").config(dual_stack());
    for pod in [&a, &b] {
        call.clone().on(pod).add().ok_result();
    }
    let before = lab.snapshot();
    call.gc(&[("a", "eth0"), ("not-valid", "eth0")]).ok();
    lab.snapshot().assert_same(&before);
    b.vanish();
    call.gc(&[("a", "eth0")]).ok();
    let gone = lab.snapshot().since(&before);
    assert!(gone.contains("- /var/lib/cni/networks/net/10.1.2.3"), "{gone}");
    assert!(gone.contains("- /var/lib/cni/networks/net/fd00:1:2::3"), "{gone}");
    assert!(!gone.contains("10.1.2.2"), "{gone}");
    assert!(a.reaches("10.1.2.1"));
}

#[test]
fn status_calls_the_ipam_plugin_too() {
    beyond_reference!("status");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let strict =
        json!({"type": "host-local", "statusFailsWhenFull": true, "ranges": [[{"subnet": "10.1.2.0/30"}]]});
    let call = lab.plugin("bridge").config(json!({"bridge": "br0", "ipam": strict}));
    let before = lab.snapshot();
    call.status().ok();
    lab.snapshot().assert_same(&before);
    call.clone().on(&pod).add().ok_result();
    call.status().refused(50, "10.1.2.1-10.1.2.2");
}

#[test]
fn dns_settings_of_the_network_are_in_the_result() {
    let lab = Lab::new();
    let pod = lab.container("pod");
    let dns = json!({"nameservers": ["192.0.2.53"], "search": ["test"]});
    let result = lab.plugin("bridge").config(plain()).config(json!({"dns": dns})).on(&pod).add().ok_result();
    assert_eq!(result["dns"], dns);
}

#[test]
fn an_empty_list_of_name_servers_replaces_the_dns_settings_of_the_ipam_plugin() {
    let ipam = json!({
        "type": "static", "addresses": [{"address": "10.1.2.7/24", "gateway": "10.1.2.1"}],
        "dns": {"nameservers": ["192.0.2.53"], "search": ["test"]},
    });
    for plugin in ["bridge", "ptp"] {
        let lab = Lab::new();
        let [silent, empty] = ["silent", "empty"].map(|id| lab.container(id));
        let call = lab.plugin(plugin).config(json!({"ipam": ipam}));
        assert_eq!(call.clone().on(&silent).add().ok_result()["dns"], ipam["dns"], "{plugin}");
        call.clone().on(&silent).del().ok();
        let call = call.config(json!({"dns": {"nameservers": []}})).on(&empty);
        let dns = &call.add().ok_result()["dns"];
        assert!(dns.as_object().is_none_or(serde_json::Map::is_empty), "{plugin}: {dns}");
    }
}

#[test]
fn the_oldest_version_s_result_has_one_address_of_each_family() {
    let lab = Lab::new();
    for (version, of_result) in [("", "0.1.0"), ("0.1.0", "0.1.0"), ("0.2.0", "0.2.0")] {
        let pod = lab.container(&format!("pod{version}"));
        let call = lab.plugin("bridge").config(dual_stack()).version(version).on(&pod);
        let result = call.add().ok_result();
        assert_eq!(result["cniVersion"], of_result);
        assert_eq!(json!(pod.addresses("eth0")), json!([result["ip4"]["ip"], result["ip6"]["ip"]]));
        assert_eq!(result["ip4"]["gateway"], "10.1.2.1");
        call.del().ok();
    }
}

#[test]
fn each_later_version_has_results_in_its_own_format() {
    let lab = Lab::new();
    for version in ["0.3.0", "0.3.1", "0.4.0", "1.0.0"] {
        let pod = lab.container(version);
        let call = lab.plugin("bridge").config(dual_stack()).version(version).on(&pod);
        let result = call.add().ok_result();
        assert_eq!(result["cniVersion"], version);
        assert_eq!(json!(pod.addresses("eth0")), json!(ips(&result)));
        let family = if version == "1.0.0" { Value::Null } else { json!("6") };
        assert_eq!(result["ips"][1]["version"], family);
        call.del().ok();
    }
}

#[test]
fn twenty_concurrent_containers_share_one_bridge_with_one_address() {
    let lab = Lab::new();
    let pods: Vec<_> = (0..20).map(|i| lab.container(&format!("pod{i}"))).collect();
    let call = lab.plugin("bridge").config(dual_stack());
    thread::scope(|scope| {
        let runs: Vec<_> =
            pods.iter().map(|pod| scope.spawn(|| call.clone().on(pod).add().ok_result())).collect();
        runs.into_iter().for_each(|run| drop(run.join().unwrap()));
    });
    assert_eq!(lab.host().ip("link show master br0").len(), 20);
    assert_eq!(lab.host().addresses("br0"), ["10.1.2.1/24", "fd00:1:2::1/64"]);
    for pod in &pods {
        assert!(pod.reaches("10.1.2.1"), "{}", pod.id);
        assert!(pod.reaches("fd00:1:2::1"), "{}", pod.id);
    }
    thread::scope(|scope| pods.iter().for_each(|pod| drop(scope.spawn(|| call.clone().on(pod).del().ok()))));
    assert!(lab.host().ip("link show master br0").is_empty());
}

/// Immediately: a neighbour that remembers the old container sends to its MAC address for 20 seconds and longer.
#[test]
fn a_new_container_with_a_reused_address_is_reached_immediately() {
    beyond_reference!("announce");
    let lab = Lab::new();
    // It keeps the bridge up. Otherwise the host would delete all neighbour entries there.
    let [stays, old, new] = ["stays", "old", "new"].map(|id| lab.container(id));
    let call = lab.plugin("bridge").config(dual_stack());
    call.clone().on(&stays).add().ok_result();
    let call = call.config(json!({"runtimeConfig": {"ips": ["10.1.2.50", "fd00:1:2::50"]}}));
    let mac_of = |result: &Value| container_interface(result)["mac"].as_str().unwrap().to_owned();
    let knows = |from: &Netns, address: &str, mac: &str| {
        from.ip(&format!("neigh show {address}")).iter().any(|known| known["lladdr"] == *mac)
    };
    let mac_of_old = mac_of(&call.clone().on(&old).add().ok_result());
    let neighbours: [(&Netns, &str); 2] = [(lab.host(), "br0"), (&stays, "eth0")];
    for (from, link) in neighbours {
        for address in ["10.1.2.50", "fd00:1:2::50"] {
            assert!(from.reaches(address) && knows(from, address, &mac_of_old), "{address}");
            // As some seconds later: with a stale entry, the kernel sends before it resolves the address again.
            from.sh(&format!("ip neigh replace {address} lladdr {mac_of_old} dev {link} nud stale"));
        }
    }
    call.clone().on(&old).del().ok();
    // The host receives no announcement, as if packets had been lost. ADD itself deletes the host's entries.
    lab.host().sh("nft 'table bridge deaf {
        chain input {
            type filter hook input priority 0
            ether type arp drop
            icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } drop
        }
    }'");
    let mac = mac_of(&call.on(&new).add().ok_result());
    for address in ["10.1.2.50", "fd00:1:2::50"] {
        assert!(!knows(lab.host(), address, &mac_of_old), "the host has an old entry for {address}");
    }
    lab.host().sh("nft delete table bridge deaf");
    for (from, _) in neighbours {
        for address in ["10.1.2.50", "fd00:1:2::50"] {
            // Nothing is sent meanwhile, and the kernel deletes no entry by itself.
            until_within(Duration::from_secs(10), "the old container is forgotten", || {
                !knows(from, address, &mac_of_old)
            });
            assert!(from.reaches(address) && knows(from, address, &mac), "{address}");
        }
    }
}

#[test]
fn in_a_chain_it_adopts_the_earlier_tap_as_its_port() {
    needs!(Tap);
    beyond_reference!("chained-bridge");
    let lab = Lab::new();
    let pod = lab.container("vm");
    lab.host().sh("ip tuntap add dev tap0 mode tap");
    let tap = lab.host().link("tap0").unwrap();
    let prev = json!({"cniVersion": "1.0.0", "interfaces": [{"name": "tap0", "mac": tap["address"]}]});
    let call = lab.plugin("bridge").config(json!({"bridge": "br0", "prevResult": prev})).on(&pod);
    let result = call.add().ok_result();
    let of_tap: Vec<&Value> =
        result["interfaces"].as_array().unwrap().iter().filter(|one| one["name"] == "tap0").collect();
    assert_eq!((of_tap.len(), &of_tap[0]["mac"]), (1, &tap["address"]), "{result}");
    assert_eq!(lab.host().link("tap0").unwrap()["master"], "br0");
    assert!(pod.link_names().is_empty(), "it makes no veth of its own");
    call.del().ok();
    assert!(lab.host().link("tap0").unwrap()["master"].is_null());
    assert_eq!(lab.host().sysctl("ipv6/conf/tap0/accept_ra"), "0", "as of a veth that has left the bridge");
}

/// Also if an administrator has made the tap a port.
#[test]
fn after_a_failed_add_the_earlier_tap_is_as_before() {
    needs!(Tap);
    beyond_reference!("chained-bridge");
    for state in ["up", "down", "up master br0", "down master br0"] {
        let lab = Lab::new();
        let pod = lab.container("vm");
        lab.host().sh("ip link add br0 type bridge; ip link set br0 up; ip tuntap add dev tap0 mode tap");
        lab.host().sh(&format!("ip link set tap0 {state}"));
        let before = lab.snapshot();
        let prev = json!({"cniVersion": "1.0.0", "interfaces": [{"name": "tap0"}]});
        let conf = json!({"bridge": "br0", "prevResult": prev, "ipam": host_local(&[&["10.1.2.0/24"]])});
        // The container has no interface that could have the address.
        let refused = lab.plugin("bridge").config(conf).on(&pod).add();
        assert!(!refused.succeeded(), "{state}: {refused:#?}");
        lab.snapshot().assert_same(&before);
    }
}

#[test]
fn an_earlier_tap_that_is_a_port_of_another_bridge_stays_there() {
    needs!(Tap);
    beyond_reference!("chained-bridge");
    let lab = Lab::new();
    let pod = lab.container("vm");
    lab.host()
        .sh("ip link add other type bridge; ip tuntap add dev tap0 mode tap; ip link set tap0 master other");
    let prev = json!({"cniVersion": "1.0.0", "interfaces": [{"name": "tap0"}]});
    let call = lab.plugin("bridge").config(json!({"bridge": "br0", "prevResult": prev})).on(&pod);
    call.add().refused(999, "link tap0 already has another master");
    call.del().ok();
    assert_eq!(lab.host().link("tap0").unwrap()["master"], "other");
}

#[test]
fn a_late_del_keeps_the_adopted_port_of_another_container_that_has_its_name() {
    needs!(Tap);
    beyond_reference!("chained-bridge");
    let lab = Lab::new();
    let adopt = |id: &str| {
        lab.host().sh("ip tuntap add dev tap0 mode tap");
        let mac = lab.host().link("tap0").unwrap()["address"].clone();
        let prev = json!({"cniVersion": "1.0.0", "interfaces": [{"name": "tap0", "mac": mac}]});
        let conf = json!({"bridge": "br0", "prevResult": prev});
        let call = lab.plugin("bridge").config(conf).on(&lab.container(id));
        let result = call.add().ok_result();
        (call, result)
    };
    let (first, _) = adopt("vm1");
    lab.host().sh("ip link del tap0");
    let (second, result) = adopt("vm2");
    first.del().ok();
    assert_eq!(lab.host().link("tap0").unwrap()["master"], "br0");
    second.check(&result).ok();
    second.del().ok();
    assert!(lab.host().link("tap0").unwrap()["master"].is_null());
}

#[test]
fn macspoofchk_is_refused_for_an_interface_of_an_earlier_plugin() {
    needs!(Tap);
    beyond_reference!("chained-bridge");
    let lab = Lab::new();
    let pod = lab.container("vm");
    lab.host().sh("ip tuntap add dev tap0 mode tap");
    let before = lab.snapshot();
    let prev = json!({"cniVersion": "1.0.0", "interfaces": [{"name": "tap0"}]});
    let conf = json!({"bridge": "br0", "prevResult": prev, "macspoofchk": true});
    lab.plugin("bridge").config(conf).on(&pod).add().refused(7, "macspoofchk");
    lab.snapshot().assert_same(&before);
}

#[test]
fn the_hosts_own_uplink_becomes_no_port_unless_a_key_allows_it() {
    beyond_reference!("chained-bridge");
    let lab = Lab::new();
    let (pod, far) = (lab.container("pod"), lab.machine("far"));
    lab.host().sh("ip route add default via 198.51.100.2");
    let before = lab.snapshot();
    let call = lab.plugin("bridge").config(json!({"bridge": "br0"})).on(&pod);
    let behind = |name| call.clone().config(json!({"prevResult": {"interfaces": [{"name": name}]}}));
    for (name, why) in [("uplink", "interface uplink has a default route"), ("lo", "lo is a physical device")]
    {
        let refused = behind(name).add().refused(7, why);
        assert!(refused.details.contains("allowUplinkPort"), "{refused:?}");
        lab.snapshot().assert_same(&before);
    }
    assert!(far.reaches("198.51.100.1"));
    behind("uplink").config(json!({"allowUplinkPort": true})).add().ok_result();
    assert_eq!(lab.host().link("uplink").unwrap()["master"], "br0");
}

#[test]
fn an_uplink_stays_in_the_bridge_for_the_containers_after_the_first_del() {
    needs!(Tap);
    beyond_reference!("chained-bridge");
    for is_port_before in [false, true] {
        let lab = Lab::new();
        lab.host().sh("ip link add br0 type bridge; ip link set br0 up; ip tuntap add dev tap0 mode tap
             ip link set tap0 up; ip route add default dev tap0");
        if is_port_before {
            lab.host().sh("ip link set tap0 master br0");
        }
        let prev = json!({"interfaces": [{"name": "tap0"}]});
        let conf = json!({"bridge": "br0", "allowUplinkPort": true, "prevResult": prev});
        let [a, b] = ["a", "b"].map(|id| lab.plugin("bridge").config(conf.clone()).on(&lab.container(id)));
        a.add().ok_result();
        let result = b.add().ok_result();
        a.clone().config(json!({"allowUplinkPort": false})).del().ok();
        a.del().ok();
        assert_eq!(lab.host().link("tap0").unwrap()["master"], "br0", "{is_port_before}");
        b.check(&result).ok();
    }
}

#[test]
fn the_containers_interface_behind_an_adopted_port_gets_the_addresses_and_is_listed() {
    beyond_reference!("chained-bridge");
    let lab = Lab::new();
    let pod = lab.container("pod");
    lab.host().sh("ip link add host0 type veth peer name eth0 netns pod");
    let prev = json!({"cniVersion": "1.0.0", "interfaces": [{"name": "host0"}]});
    let call =
        lab.plugin("bridge").config(plain()).config(json!({"isGateway": true, "prevResult": prev})).on(&pod);
    let result = call.add().ok_result();
    let place = result["ips"][0]["interface"].as_u64().unwrap();
    let listed = &result["interfaces"][usize::try_from(place).unwrap()];
    assert_eq!((&listed["name"], &listed["sandbox"]), (&json!("eth0"), &json!(pod.path())), "{result}");
    assert!(lab.host().reaches("10.1.2.2"));
    call.check(&result).ok();
    call.del().ok();
}

#[test]
fn addresses_that_an_earlier_plugin_gave_are_not_masqueraded_and_check_does_not_expect_it() {
    beyond_reference!("chained-bridge");
    let lab = Lab::new();
    let pod = lab.container("pod");
    lab.host().sh("ip link add host0 type veth peer name eth0 netns pod");
    pod.sh("ip link set eth0 up; ip address add 10.9.0.2/24 dev eth0");
    let prev = json!({
        "cniVersion": "1.0.0",
        "interfaces": [{"name": "host0"}, {"name": "eth0", "sandbox": pod.path()}],
        "ips": [{"address": "10.9.0.2/24", "interface": 1}],
    });
    let conf = json!({"bridge": "br0", "ipMasq": true, "prevResult": prev});
    let call = lab.plugin("bridge").config(conf).on(&pod);
    let result = call.add().ok_result();
    assert_eq!(result["ips"], prev["ips"]);
    assert!(!lab.host().ruleset().contains("10.9.0.2"), "{}", lab.host().ruleset());
    call.check(&result).ok();
    call.del().ok();
}

#[test]
fn containers_of_different_vlans_are_apart_and_those_of_one_are_together() {
    needs!(BridgeVlanFiltering);
    let lab = Lab::new();
    let [a, b, c] = ["a", "b", "c"].map(|id| lab.container(id));
    let attach = |pod, vlan| {
        let call = lab.plugin("bridge").config(plain()).config(json!({"vlan": vlan}));
        call.on(pod).add().ok_result()
    };
    let result = attach(&a, 10);
    attach(&b, 10);
    attach(&c, 20);
    assert!(lab.host().vlans(host_end(&result)).contains(&"10 pvid untagged".to_owned()));
    assert!(a.reaches("10.1.2.3"));
    assert!(a.is_cut_off_from("10.1.2.4"));
}

#[test]
fn no_default_vlan_leaks_into_a_port_with_a_vlan_of_its_own() {
    // https://github.com/containernetworking/plugins/issues/667
    needs!(BridgeVlanFiltering);
    beyond_1_1_1!("newer-keys");
    let lab = Lab::new();
    let [a, b] = ["a", "b"].map(|id| lab.container(id));
    let call = lab.plugin("bridge").config(plain()).config(json!({"vlan": 10, "preserveDefaultVlan": false}));
    let result = call.clone().on(&a).add().ok_result();
    assert_eq!(lab.host().vlans(host_end(&result)), ["10 pvid untagged"]);
    let result = call.config(json!({"preserveDefaultVlan": true})).on(&b).add().ok_result();
    assert_eq!(lab.host().vlans(host_end(&result)), ["1 untagged", "10 pvid untagged"]);
}

#[test]
fn a_trunk_passes_the_vlans_it_names_with_their_tag() {
    needs!(BridgeVlanFiltering, Vlan);
    beyond_1_1_1!("newer-keys");
    let lab = Lab::new();
    let [trunk, pod] = ["trunk", "pod"].map(|id| lab.container(id));
    let vlans = json!([{"id": 7}, {"minID": 20, "maxID": 21}]);
    let call = lab.plugin("bridge").config(json!({"bridge": "br0", "vlan": 5, "vlanTrunk": vlans}));
    let result = call.on(&trunk).add().ok_result();
    assert_eq!(
        lab.host().vlans(host_end(&result)).join(", ").replace("20, 21", "20-21"),
        "5 pvid untagged, 7, 20-21"
    );

    lab.plugin("bridge").config(plain()).config(json!({"vlan": 20})).on(&pod).add().ok_result();
    trunk.sh("ip link add link eth0 name eth0.20 type vlan id 20; ip link set eth0.20 up; ip addr add 10.1.2.99/24 dev eth0.20");
    assert!(trunk.reaches("10.1.2.2"));
}

#[test]
fn with_only_a_trunk_untagged_frames_are_in_vlan_1_with_the_bridge_as_their_gateway() {
    needs!(BridgeVlanFiltering);
    beyond_1_1_1!("newer-keys");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = lab.plugin("bridge").config(dual_stack()).config(json!({"vlanTrunk": [{"id": 7}]})).on(&pod);
    let result = call.add().ok_result();
    assert_eq!(lab.host().vlans(host_end(&result)), ["1 pvid untagged", "7"]);
    assert!(lab.host().link("br0.1").is_none() && pod.reaches("10.1.2.1"));
    call.check(&result).ok();
}

#[test]
fn in_a_trunk_that_contains_the_containers_vlan_its_frames_are_untagged() {
    needs!(BridgeVlanFiltering);
    beyond_reference!("vlan-in-trunk");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let vlans = json!({"vlan": 5, "vlanTrunk": [{"minID": 4, "maxID": 6}]});
    let call = lab.plugin("bridge").config(plain()).config(vlans).on(&pod);
    let result = call.add().ok_result();
    assert_eq!(lab.host().vlans(host_end(&result)), ["4", "5 pvid untagged", "6"]);
    call.check(&result).ok();
}

#[test]
fn a_failed_add_leaves_no_gateway_of_a_vlan_unless_it_has_another_user() {
    needs!(BridgeVlanFiltering);
    beyond_reference!("rollback");
    let lab = Lab::new();
    let [pod, other] = ["pod", "other"].map(|id| lab.container(id));
    lab.host()
        .sh("ip link add br0 address 02:00:00:00:00:07 type bridge vlan_filtering 1; ip link set br0 up");
    lab.host().sh("sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1");
    let call = lab.plugin("bridge").config(dual_stack()).config(json!({"vlan": 10}));
    let masqueraded = call.clone().config(json!({"ipMasq": true, "ipMasqBackend": "iptables"}));
    for has_user in [false, true] {
        if has_user {
            call.clone().on(&other).add().ok_result();
        }
        let before = lab.snapshot();
        // Without the tools of iptables.
        let failed = masqueraded.clone().on(&pod).env("PATH", "/run/lab").add();
        assert!(!failed.succeeded(), "{failed:?}");
        lab.snapshot().assert_same(&before);
        assert_eq!(lab.host().link("br0.10").is_some(), has_user);
    }
}

#[test]
fn the_gateway_of_a_vlan_is_reachable_and_is_deleted_with_its_last_user() {
    // https://github.com/containernetworking/plugins/issues/1175
    needs!(BridgeVlanFiltering);
    beyond_1_1_1!("vlan-gateway");
    let lab = Lab::new();
    let [a, b] = ["a", "b"].map(|id| lab.container(id));
    let call = lab.plugin("bridge").config(dual_stack()).config(json!({"vlan": 10}));
    for pod in [&a, &b] {
        call.clone().on(pod).add().ok_result();
        assert!(pod.reaches("10.1.2.1") && pod.reaches("fd00:1:2::1"), "{}", pod.id);
    }
    assert_eq!(lab.host().addresses("br0.10"), ["10.1.2.1/24", "fd00:1:2::1/64"]);
    call.clone().on(&a).del().ok();
    assert!(lab.host().link("br0.10").is_some());
    assert!(b.reaches("10.1.2.1"));
    call.on(&b).del().ok();
    assert_eq!(lab.host().link_names(), ["br0"]);
}

#[test]
fn the_gateway_of_a_vlan_is_deleted_with_its_last_user_even_if_the_configuration_has_another_vlan() {
    needs!(BridgeVlanFiltering);
    beyond_reference!("vlan-gateway");
    for later in [json!({"vlan": 20}), json!({"vlan": null})] {
        let lab = Lab::new();
        let [old, new] = ["old", "new"].map(|id| lab.container(id));
        let call = lab.plugin("bridge").config(dual_stack()).config(json!({"vlan": 10}));
        let result = call.clone().on(&old).add().ok_result();
        let call = call.config(later);
        call.clone().on(&new).add().ok_result();
        call.clone().on(&old).config(json!({"prevResult": result})).del().ok();
        assert!(lab.host().link("br0.10").is_none());
        assert!(new.reaches("10.1.2.1"));
    }
}

#[test]
fn an_uplink_in_a_vlan_does_not_keep_its_gateway_and_other_ports_do() {
    needs!(BridgeVlanFiltering, Dummy, Tap);
    beyond_reference!("vlan-gateway");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let gateway = || lab.host().link("br0.10").is_some();
    lab.host().sh("ip link add br0 type bridge vlan_filtering 1; ip link add up0 type dummy; ip link set up0 up master br0
         bridge vlan add dev up0 vid 10; ip tuntap add dev tap0 mode tap; ip link set tap0 up master br0");
    let call = lab.plugin("bridge").config(dual_stack()).config(json!({"vlan": 10})).on(&pod);
    call.add().ok_result();
    lab.host().sh("bridge vlan add dev tap0 vid 10");
    call.del().ok();
    assert!(gateway());
    // The representor of a card's function, whose other side is a container's.
    lab.host()
        .sh("bridge vlan del dev tap0 vid 10; ip link add rep0 type dummy; ip link set rep0 up master br0
         bridge vlan add dev rep0 vid 10 pvid untagged");
    call.clone().config(json!({"vlan": null})).gc(&[]).ok();
    assert!(gateway());
    lab.host().sh("ip link delete rep0");
    call.clone().config(json!({"vlan": null})).gc(&[]).ok();
    assert!(!gateway());
    call.add().ok_result();
    assert!(gateway());
    call.del().ok();
    assert!(!gateway());
}

#[test]
fn an_administrators_interface_of_a_vlan_is_not_deleted_with_its_last_user() {
    needs!(BridgeVlanFiltering);
    beyond_reference!("vlan-gateway");
    let lab = Lab::new();
    let pod = lab.container("pod");
    lab.host().sh(
        "ip link add br0 type bridge vlan_filtering 1; ip link add br0.10 type veth peer name host10
        ip link set host10 master br0; bridge vlan add dev host10 vid 10 pvid untagged
        for link in br0 br0.10 host10; do ip link set $link up; done",
    );
    let call = lab.plugin("bridge").config(dual_stack()).config(json!({"vlan": 10})).on(&pod);
    call.add().ok_result();
    call.del().ok();
    call.gc(&[]).ok();
    assert!(lab.host().link("br0.10").is_some());
}

#[test]
fn an_administrators_vlan_device_on_the_bridge_is_the_gateway_of_its_vlan() {
    needs!(BridgeVlanFiltering, Vlan);
    beyond_1_1_1!("vlan-gateway");
    let lab = Lab::new();
    let pod = lab.container("pod");
    lab.host().sh("ip link add br0 type bridge vlan_filtering 1; bridge vlan add dev br0 vid 10 self
        ip link add link br0 name br0.10 type vlan id 10; ip link set br0 up");
    let vlans = || lab.host().sh("bridge vlan show dev br0");
    let before = vlans();
    let call = lab.plugin("bridge").config(dual_stack()).config(json!({"vlan": 10})).on(&pod);
    let result = call.add().ok_result();
    assert!(pod.reaches("10.1.2.1") && pod.reaches("fd00:1:2::1"));
    assert_eq!(lab.host().addresses("br0.10"), ["10.1.2.1/24", "fd00:1:2::1/64"]);
    call.check(&result).ok();
    call.del().ok();
    assert_eq!((lab.host().link("br0.10").is_some(), vlans()), (true, before));
    lab.host().sh("ip link del br0.10; ip link add link br0 name br0.10 type vlan id 11");
    call.add().refused(7, "br0.10");
}

#[test]
fn vlan_filtering_of_an_existing_bridge_is_turned_on_when_a_vlan_is_configured() {
    // https://github.com/containernetworking/plugins/issues/231
    needs!(BridgeVlanFiltering);
    beyond_reference!("vlan-filtering");
    let lab = Lab::new();
    let [a, b] = ["a", "b"].map(|id| lab.container(id));
    lab.plugin("bridge").config(plain()).on(&a).add().ok_result();
    let filtering = || lab.host().link("br0").unwrap()["linkinfo"]["info_data"]["vlan_filtering"].clone();
    assert_eq!(filtering(), 0);
    let added = lab.plugin("bridge").config(plain()).config(json!({"vlan": 10})).on(&b).add();
    added.ok_result();
    assert!(added.stderr.contains("bridge br0 now filters VLANs"), "{added:?}");
    assert_eq!(filtering(), 1);
    assert!(a.is_cut_off_from("10.1.2.3"));
}

#[test]
fn an_address_that_moves_to_another_container_of_a_vlan_is_reached_immediately() {
    needs!(BridgeVlanFiltering);
    beyond_reference!("announce");
    let lab = Lab::new();
    let [old, new] = ["old", "new"].map(|id| lab.container(id));
    let call = lab.plugin("bridge").config(dual_stack()).config(json!({"vlan": 10, "macspoofchk": true}));
    // It keeps the VLAN's gateway interface.
    call.clone().on(&lab.container("stays")).add().ok_result();
    let call = call.args("IP=10.1.2.9");
    call.clone().on(&old).add().ok_result();
    assert!(lab.host().reaches("10.1.2.9"));
    let known = |host: &Netns| host.sh("ip neigh show 10.1.2.9 dev br0.10");
    let of_old = known(lab.host());
    let mac_of_old = of_old.split_whitespace().nth(2).unwrap();
    call.clone().on(&old).del().ok();
    call.on(&new).add().ok_result();
    // The announcement may still be in flight.
    lab.host().wait_until("the old neighbour is forgotten", |host| !known(host).contains(mac_of_old));
    assert!(lab.host().reaches("10.1.2.9"));
}

/// Mounts /proc/sys read-only, as if the plugin ran in a container.
pub fn make_sysctls_read_only(lab: &Lab) {
    lab.host().sh("mount --bind /proc/sys /proc/sys; mount -o remount,bind,ro /proc/sys");
    assert!(fs::write("/proc/sys/net/core/somaxconn", "7").is_err(), "it is read-only");
}

#[test]
fn optional_sysctls_that_cannot_be_set_are_logged() {
    beyond_reference!("best-effort-sysctls");
    for enabledad in [false, true] {
        let lab = Lab::new();
        let pod = lab.container("pod");
        lab.host()
            .sh("echo 1 >/proc/sys/net/ipv4/ip_forward; echo 1 >/proc/sys/net/ipv6/conf/all/forwarding");
        make_sysctls_read_only(&lab);
        let call = lab.plugin("bridge").config(dual_stack()).config(json!({"enabledad": enabledad})).on(&pod);
        let added = call.add();
        let result = added.ok_result();
        let said: Vec<_> = added.stderr.lines().collect();
        assert_eq!(said.len(), 3, "a line for each of bridge, port and the container's interface: {said:?}");
        assert!(said.iter().all(|line| line.starts_with("bridge: warning: cannot set ")), "{said:?}");
        assert!(said[0].contains("ipv6/conf/br0/accept_ra = 0, ipv6/conf/br0/accept_dad = 0"), "{said:?}");
        assert!(said[1].contains(&format!("ipv6/conf/{}/accept_ra = 0 in", host_end(&result))), "{said:?}");
        // The kernel's default is the right value for enabledad.
        let dad = if enabledad { "" } else { "ipv6/conf/eth0/accept_dad = 0, " };
        let expected = format!(
            "ipv4/conf/eth0/arp_notify = 1, ipv6/conf/eth0/ndisc_notify = 1, {dad}\
             ipv6/conf/eth0/keep_addr_on_down = 1 in /proc/sys/net of namespace /run/netns/pod: Read-only file system"
        );
        assert!(said[2].contains(&expected), "{said:?}");
        assert!(pod.reaches("10.1.2.1") && pod.reaches("fd00:1:2::1"));
        call.check(&result).ok();
        assert_eq!(call.del().stderr, "");
    }
}

#[test]
fn a_required_sysctl_that_cannot_be_set_makes_the_add_fail() {
    let lab = Lab::new();
    let pod = lab.container("pod");
    lab.host().sh("echo 0 >/proc/sys/net/ipv4/ip_forward");
    let call = lab.plugin("bridge").config(plain()).config(json!({"isGateway": true})).on(&pod);
    make_sysctls_read_only(&lab);
    call.add().refused(5, "/proc/sys/net/ipv4/ip_forward");
}

/// Also if only `lo` lacks it, so that the kernel adds the addresses of `eth0`.
#[test]
fn an_ipv6_address_turns_on_ipv6_of_its_interface_and_of_the_loopback_interface() {
    let lab = Lab::new();
    for off in ["lo", "default"] {
        let pod = lab.container(off);
        pod.sh(&format!("echo 1 >/proc/sys/net/ipv6/conf/{off}/disable_ipv6; ip link set lo up"));
        lab.plugin("bridge").config(dual_stack()).on(&pod).add().ok_result();
        for link in ["lo", "eth0"] {
            assert_eq!(pod.sysctl(&format!("ipv6/conf/{link}/disable_ipv6")), "0", "{link}, off for {off}");
        }
    }
}

#[test]
fn ipv6_addresses_outlive_a_moment_in_which_the_interface_is_down() {
    // Debian's release is older than the setting.
    beyond_1_1_1!("best-effort-sysctls");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let result = lab.plugin("bridge").config(dual_stack()).on(&pod).add().ok_result();
    assert_eq!(pod.sysctl("ipv6/conf/eth0/keep_addr_on_down"), "1");
    pod.sh("ip link set eth0 down; ip link set eth0 up");
    let addresses = pod.sh("ip -6 addr show dev eth0 scope global");
    assert!(addresses.contains("fd00:1:2::2/64"), "{addresses}\n{result}");
}
