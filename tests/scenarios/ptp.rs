//! ptp with host-local: routes between container and host, and cleanup.

use lab::{Container, Lab, beyond_1_1_1, beyond_reference, needs, tcp_says};
use serde_json::{Value, json};

use crate::bridge::make_sysctls_read_only;
use crate::common::{
    container_interface, del_removes_rules_without_the_namespace, has_learned_default_route, host_end,
    host_local, ips, learn_default_route, leases, new_links_neither_forward_nor_have_ipv6, seen_as,
    udev_replaces_no_mac,
};

/// Both families, with the host as the default gateway.
fn dual_stack() -> Value {
    let mut ipam = host_local(&[&["10.1.2.0/24"], &["fd00:1:2::/64"]]);
    ipam["routes"] = json!([{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]);
    json!({"ipam": ipam})
}

/// An IPAM plugin that returns these addresses and routes.
fn fixed(lab: &Lab, ips: &Value, routes: &Value) -> Value {
    let result = json!({"cniVersion": "1.0.0", "ips": ips, "routes": routes});
    lab.fake_plugin("fixed", &format!("[ \"$CNI_COMMAND\" != ADD ] || echo '{result}'"));
    json!({"ipam": {"type": "fixed"}})
}

fn attach(lab: &Lab, pod: &Container, config: Value) -> Value {
    lab.plugin("ptp").config(config).on(pod).add().ok_result()
}

#[test]
fn the_hosts_end_resolves_neighbours_without_testing_its_link_local_address() {
    beyond_reference!("bridge-dad");
    let lab = Lab::new();
    let result = attach(&lab, &lab.container("pod"), dual_stack());
    assert_eq!(lab.host().sysctl(&format!("ipv6/conf/{}/accept_dad", host_end(&result))), "0");
}

#[test]
fn udev_replaces_no_mac_of_the_veth() {
    beyond_reference!("udev");
    let lab = Lab::new();
    udev_replaces_no_mac(&lab, &lab.plugin("ptp").config(dual_stack()), &lab.container("pod"));
}

#[test]
fn two_containers_reach_each_other_through_the_host_in_both_families() {
    let lab = Lab::new();
    let [a, b] = ["a", "b"].map(|id| lab.container(id));
    for pod in [&a, &b] {
        attach(&lab, pod, dual_stack());
    }
    assert_eq!(a.addresses("eth0"), ["10.1.2.2/24", "fd00:1:2::2/64"]);
    for address in ["10.1.2.1", "fd00:1:2::1", "10.1.2.3", "fd00:1:2::3"] {
        assert!(a.reaches(address), "{address}");
    }
    for address in ["10.1.2.2", "10.1.2.3", "fd00:1:2::2", "fd00:1:2::3"] {
        assert!(lab.host().reaches(address), "{address}");
    }
    let _server = b.serve_tcp("b", "[::]:80");
    assert_eq!(tcp_says(&a, "[fd00:1:2::3]:80").as_deref(), Some("b fd00:1:2::2"));
    assert_eq!(tcp_says(&a, "10.1.2.3:80").as_deref(), Some("b ::ffff:10.1.2.2"));
}

#[test]
fn the_container_sends_everything_to_its_gateway_and_the_host_has_a_route_to_each_address() {
    let lab = Lab::new();
    let pod = lab.container("pod");
    let result = attach(&lab, &pod, dual_stack());
    let routes = pod.routes();
    for expected in [
        "10.1.2.0/24 via 10.1.2.1 dev eth0",
        "10.1.2.1 dev eth0",
        "default via 10.1.2.1 dev eth0",
        "default via fd00:1:2::1 dev eth0",
        "fd00:1:2::/64 via fd00:1:2::1 dev eth0",
        "fd00:1:2::1 dev eth0",
    ] {
        assert!(routes.contains(&expected.to_owned()), "{expected}: {routes:?}");
    }
    assert!(!routes.contains(&"10.1.2.0/24 dev eth0".to_owned()), "{routes:?}");
    let end = host_end(&result);
    assert_eq!(lab.host().addresses(end), ["10.1.2.1/32", "fd00:1:2::1/128"]);
    for expected in ["10.1.2.2", "fd00:1:2::2"] {
        assert!(lab.host().routes().contains(&format!("{expected} dev {end}")), "{:?}", lab.host().routes());
    }
}

#[test]
fn the_result_lists_the_hosts_end_and_the_containers_which_has_the_addresses() {
    let lab = Lab::new();
    let pod = lab.container("pod");
    let result = attach(&lab, &pod, dual_stack());
    let interfaces = result["interfaces"].as_array().unwrap();
    assert_eq!(interfaces.len(), 2);
    assert_eq!(interfaces[0]["name"], host_end(&result));
    assert_eq!(interfaces[1], *container_interface(&result));
    assert_eq!(ips(&result), ["10.1.2.2/24", "fd00:1:2::2/64"]);
    assert!(result["ips"].as_array().unwrap().iter().all(|ip| ip["interface"] == 1));
    for (netns, interface) in [(lab.host(), &interfaces[0]), (&*pod, &interfaces[1])] {
        let link = netns.link(interface["name"].as_str().unwrap()).unwrap();
        assert_eq!(interface["mac"], link["address"]);
    }
}

#[test]
fn nothing_is_left_after_del_even_if_the_namespace_was_deleted() {
    let lab = Lab::new();
    let [stays, goes] = ["stays", "of-ptp"].map(|id| lab.container(id));
    attach(&lab, &stays, dual_stack());
    let before = lab.snapshot();
    let call = lab.plugin("ptp").config(dual_stack()).on(&goes);
    call.add().ok_result();
    call.del().ok();
    call.del().ok();
    lab.snapshot().assert_same(&before);
    call.add().ok_result();
    goes.vanish();
    call.without("CNI_NETNS").del().ok();
    assert_eq!(leases(), ["10.1.2.2", "fd00:1:2::2"]);
}

#[test]
fn a_container_reaches_another_machine_with_strict_reverse_path_filters() {
    // https://github.com/containernetworking/plugins/issues/134
    let lab = Lab::new();
    let pod = lab.container("pod");
    let far = lab.machine("far");
    lab.host().sh("for key in all default; do echo 1 >/proc/sys/net/ipv4/conf/$key/rp_filter; done");
    attach(&lab, &pod, dual_stack());
    pod.sh("echo 1 >/proc/sys/net/ipv4/conf/all/rp_filter");
    let _server = far.serve_tcp("far", "[::]:80");
    assert_eq!(seen_as(&pod, "198.51.100.2:80"), "::ffff:10.1.2.2");
    assert_eq!(seen_as(&pod, "[2001:db8:51::2]:80"), "fd00:1:2::2");
    assert!(far.reaches("10.1.2.2") && far.reaches("fd00:1:2::2"));
}

#[test]
fn an_address_without_a_subnet_around_it_has_its_gateway_all_the_same() {
    // https://github.com/containernetworking/plugins/issues/150
    beyond_reference!("ptp-alone");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let far = lab.machine("far");
    let ips = json!([
        {"address": "10.7.7.7/32", "gateway": "169.254.1.1"},
        {"address": "fd00:7::7/128", "gateway": "fe80::1"},
    ]);
    let config = fixed(&lab, &ips, &json!([{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]));
    let call = lab.plugin("ptp").config(config).on(&pod);
    let result = call.add().ok_result();
    call.check(&result).ok();
    let _server = far.serve_tcp("far", "[::]:80");
    assert_eq!(seen_as(&pod, "198.51.100.2:80"), "::ffff:10.7.7.7");
    assert_eq!(seen_as(&pod, "[2001:db8:51::2]:80"), "fd00:7::7");
    assert!(far.reaches("10.7.7.7") && far.reaches("fd00:7::7"));
    assert!(pod.routes().contains(&"default via fe80::1 dev eth0".to_owned()), "{:?}", pod.routes());
}

#[test]
fn several_addresses_of_a_subnet_share_its_routes() {
    let lab = Lab::new();
    let pod = lab.container("pod");
    let address = |address: &str| json!({"address": address, "gateway": "10.1.2.1"});
    let ips = json!([address("10.1.2.2/24"), address("10.1.2.3/24")]);
    beyond_reference!("ptp-alone");
    let call = lab.plugin("ptp").config(fixed(&lab, &ips, &json!([]))).on(&pod);
    let result = call.add().ok_result();
    call.check(&result).ok();
    assert_eq!(pod.routes(), ["10.1.2.0/24 via 10.1.2.1 dev eth0", "10.1.2.1 dev eth0"]);
    for address in ["10.1.2.2", "10.1.2.3"] {
        assert!(lab.host().reaches(address), "{address}");
    }
}

#[test]
fn a_next_hop_that_is_another_address_of_the_host_is_on_the_link_too() {
    beyond_reference!("ptp-alone");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let far = lab.machine("far");
    let ips = json!([{"address": "10.1.2.2/24", "gateway": "10.1.2.1"}]);
    let routes = json!([{"dst": "198.51.100.0/24", "gw": "198.51.100.1"}]);
    let call = lab.plugin("ptp").config(fixed(&lab, &ips, &routes)).on(&pod);
    let result = call.add().ok_result();
    call.check(&result).ok();
    let _server = far.serve_tcp("far", "[::]:80");
    assert_eq!(seen_as(&pod, "198.51.100.2:80"), "::ffff:10.1.2.2");
}

#[test]
fn a_route_with_an_unspecified_gateway_is_on_the_link_and_adds_no_other_route() {
    beyond_reference!("unspecified-gateway");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let routes = json!([{"dst": "192.0.2.0/24", "gw": "0.0.0.0"}, {"dst": "2001:db8::/32", "gw": "::"}]);
    let mut conf = dual_stack();
    conf["ipam"]["routes"] = routes;
    let call = lab.plugin("ptp").config(conf).on(&pod);
    let result = call.add().ok_result();
    let routes = pod.sh("ip route; ip -6 route");
    for line in ["192.0.2.0/24 dev eth0", "2001:db8::/32 dev eth0"] {
        assert!(routes.contains(line), "{routes}");
    }
    assert!(!routes.lines().any(|line| line.starts_with("0.0.0.0 ") || line.starts_with(":: ")), "{routes}");
    call.check(&result).ok();
}

#[test]
fn a_container_without_addresses_gets_a_pair_that_is_up() {
    // https://github.com/containernetworking/plugins/issues/987
    beyond_reference!("ipam-optional");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = lab.plugin("ptp").on(&pod);
    let before = lab.snapshot();
    let result = call.add().ok_result();
    assert!(result["ips"].as_array().is_none_or(Vec::is_empty));
    call.check(&result).ok();
    for (netns, name) in [(lab.host(), host_end(&result)), (&*pod, "eth0")] {
        assert_eq!(netns.link(name).unwrap()["operstate"], "UP", "{name}");
    }
    call.del().ok();
    lab.snapshot().assert_same(&before);
}

#[test]
fn packets_that_leave_the_subnet_have_the_hosts_address_with_either_backend() {
    for backend in ["nftables", "iptables"] {
        let lab = Lab::new();
        let far = lab.machine("far");
        let _servers = [far.serve_tcp("far", "198.51.100.2:80"), far.serve_tcp("far", "[2001:db8:51::2]:80")];
        let [pod, neighbour] = ["pod", "neighbour"].map(|id| lab.container(id));
        let masqueraded = json!({"ipMasq": true, "ipMasqBackend": backend});
        let call = lab.plugin("ptp").config(dual_stack()).config(masqueraded);
        let on_pod = call.clone().on(&pod);
        let result = on_pod.add().ok_result();
        call.on(&neighbour).add().ok_result();
        let _near = neighbour.serve_tcp("near", "10.1.2.3:80");
        assert_eq!(seen_as(&pod, "198.51.100.2:80"), "198.51.100.1", "{backend}");
        assert_eq!(seen_as(&pod, "[2001:db8:51::2]:80"), "2001:db8:51::1", "{backend}");
        assert_eq!(seen_as(&pod, "10.1.2.3:80"), "10.1.2.2", "{backend}");
        on_pod.check(&result).ok();
    }
}

#[test]
fn with_iptables_a_later_rule_of_an_administrator_does_not_masquerade_packets_within_the_subnet() {
    let lab = Lab::new();
    let [pod, neighbour] = ["pod", "neighbour"].map(|id| lab.container(id));
    let call = lab.plugin("ptp").config(dual_stack());
    let call = call.config(json!({"ipMasq": true, "ipMasqBackend": "iptables"}));
    for container in [&pod, &neighbour] {
        call.clone().on(container).add().ok_result();
    }
    let _near = neighbour.serve_tcp("near", "10.1.2.3:80");
    lab.host().sh("iptables -t nat -A POSTROUTING -s 10.1.2.0/24 -j MASQUERADE");
    assert_eq!(seen_as(&pod, "10.1.2.3:80"), "10.1.2.2");
}

#[test]
fn rules_are_removed_with_their_attachment_even_without_a_namespace() {
    // https://github.com/containernetworking/plugins/issues/810
    beyond_reference!("rules-by-attachment");
    for backend in ["nftables", "iptables"] {
        let masqueraded = json!({"ipMasq": true, "ipMasqBackend": backend});
        del_removes_rules_without_the_namespace("ruled-by-ptp", "ptp", dual_stack(), masqueraded);
    }
}

#[test]
fn gc_removes_links_rules_and_leases_of_deleted_containers() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let [stays, goes] = ["stays", "goes"].map(|id| lab.container(id));
    let config = dual_stack();
    let call = lab.plugin("ptp").version("1.1.0").config(config).config(json!({"ipMasq": true}));
    call.clone().on(&stays).add().ok_result();
    let before = lab.snapshot();
    call.clone().on(&goes).add().ok_result();
    call.gc(&[("stays", "eth0")]).ok();
    lab.snapshot().assert_same(&before);
}

#[test]
fn check_names_a_removed_object() {
    beyond_reference!("ptp-check");
    for (harm, culprit) in [
        ("ip route del 10.1.2.2", "the host's route to 10.1.2.2/32"),
        ("ip -6 route del fd00:1:2::2", "the host's route to fd00:1:2::2/128"),
        ("ip addr del 10.1.2.1/32 dev END", "gateway's address 10.1.2.1"),
        ("ip link set END down", "state is down"),
        ("nft flush ruleset", "nftables rules of net/pod/eth0"),
        ("ip -n pod route del default", "route to 0.0.0.0/0"),
        ("ip -n pod addr del fd00:1:2::2/64 dev eth0", "address fd00:1:2::2/64"),
        ("ip -n pod link set eth0 mtu 1400", "MTU"),
        ("ip link del END", "eth0"),
    ] {
        let lab = Lab::new();
        let pod = lab.container("pod");
        let keys = json!({"ipMasq": true, "ipMasqBackend": "nftables", "mtu": 1500});
        let call = lab.plugin("ptp").version("1.1.0").config(dual_stack()).config(keys).on(&pod);
        let result = call.add().ok_result();
        call.check(&result).ok();
        lab.host().sh(&harm.replace("END", host_end(&result)));
        call.check(&result).refused(999, culprit);
    }
}

#[test]
fn the_mac_is_the_requested_one_and_the_mtu_is_set_on_both_ends() {
    beyond_reference!("mac-of-ptp");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let config = json!({"mtu": 1400, "mac": "02:00:00:00:00:01"});
    let call = lab.plugin("ptp").config(dual_stack()).config(config).on(&pod);
    let requesting = call.clone().args("IgnoreUnknown=true;MAC=02:00:00:00:00:02");
    for (call, mac) in [(call, "02:00:00:00:00:01"), (requesting, "02:00:00:00:00:02")] {
        let result = call.add().ok_result();
        assert_eq!(pod.link("eth0").unwrap()["address"], mac);
        for (netns, name) in [(lab.host(), host_end(&result)), (&*pod, "eth0")] {
            assert_eq!(netns.link(name).unwrap()["mtu"], 1400, "{name}");
        }
        call.del().ok();
    }
}

#[test]
fn unknown_arguments_are_ignored() {
    let lab = Lab::new();
    let pod = lab.container("pod");
    lab.plugin("ptp")
        .config(json!({"ipam": host_local(&[&["10.1.2.0/24"]])}))
        .args("IgnoreUnknown=1;COLOUR=red")
        .on(&pod)
        .add()
        .ok_result();
    beyond_reference!("mac-of-ptp");
    lab.fake_plugin("fixed", "[ $CNI_COMMAND != ADD ] || echo '{\"cniVersion\": \"1.0.0\", \"ips\": [{\"address\": \"10.9.9.2/24\", \"gateway\": \"10.9.9.1\"}]}'");
    lab.plugin("ptp")
        .config(json!({"ipam": {"type": "fixed"}}))
        .ifname("eth1")
        .args("COLOUR=red")
        .on(&pod)
        .add()
        .ok_result();
}

#[test]
fn the_resolvers_settings_are_the_configurations_else_those_of_the_address_plugin() {
    let lab = Lab::new();
    let pod = lab.container("pod");
    let mut config = dual_stack();
    lab.host().sh("echo 'nameserver 9.9.9.9' >/run/lab/resolv.conf");
    config["ipam"]["resolvConf"] = json!("/run/lab/resolv.conf");
    let call = lab.plugin("ptp").config(config).on(&pod);
    assert_eq!(call.add().ok_result()["dns"]["nameservers"], json!(["9.9.9.9"]));
    call.del().ok();
    let own = call.clone().config(json!({"dns": {"nameservers": ["192.0.2.53"]}}));
    assert_eq!(own.add().ok_result()["dns"]["nameservers"], json!(["192.0.2.53"]));
}

#[test]
fn after_another_plugin_of_the_chain_its_interfaces_addresses_and_routes_are_passed_on() {
    beyond_reference!("prev-result-kept");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let first = lab.plugin("bridge").config(crate::common::dual_stack()).on(&pod).add().ok_result();
    let other = json!({"ipam": host_local(&[&["10.9.0.0/24"]]), "name": "other", "prevResult": first});
    let call = lab.plugin("ptp").config(other).ifname("eth1").on(&pod);
    let result = call.add().ok_result();
    assert_eq!(ips(&result), ["10.9.0.2/24", "10.1.2.2/24", "fd00:1:2::2/64"]);
    assert_eq!(result["interfaces"].as_array().unwrap().len(), 5);
    assert!(!pod.routes().iter().any(|route| route.starts_with("default") && route.contains("eth1")));
    call.check(&result).ok();
    call.del().ok();
    assert!(pod.link("eth0").is_some() && pod.link("eth1").is_none());
}

#[test]
fn addresses_that_an_earlier_plugin_gave_are_not_masqueraded() {
    beyond_reference!("ipam-optional");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let prev = json!({"cniVersion": "1.0.0", "ips": [{"address": "10.9.0.2/24"}]});
    let call = lab.plugin("ptp").config(json!({"ipMasq": true, "prevResult": prev})).on(&pod);
    let before = lab.host().ruleset();
    assert_eq!(call.add().ok_result()["ips"], prev["ips"]);
    assert_eq!(lab.host().ruleset(), before);
    call.del().ok();
}

#[test]
fn del_keeps_an_interface_of_another_kind_or_network_with_the_same_name() {
    beyond_reference!("own-kind");
    let lab = Lab::new();
    let pod = lab.container("pod");
    lab.host().sh("ip -n pod link add eth0 type bridge");
    let call = lab.plugin("ptp").config(dual_stack()).on(&pod);
    let before = lab.snapshot();
    call.add().refused(4, "CNI_IFNAME");
    call.del().ok();
    lab.snapshot().assert_same(&before);
    pod.sh("ip link del eth0");
    let other = lab.plugin("ptp").config(dual_stack()).config(json!({"name": "other"})).on(&pod);
    let result = other.add().ok_result();
    call.add().refused(4, "CNI_IFNAME");
    call.del().ok();
    other.check(&result).ok();
}

/// A runtime calls DEL after an ADD that failed.
#[test]
fn del_keeps_a_link_between_two_containers() {
    beyond_reference!("own-kind");
    for plugin in ["ptp", "bridge"] {
        let lab = Lab::new();
        let [pod, _other] = ["pod", "other"].map(|id| lab.container(id));
        lab.host().sh("ip -n pod link add eth0 type veth peer name far netns other");
        let call = lab.plugin(plugin).config(dual_stack()).on(&pod);
        let before = lab.snapshot();
        call.add().refused(4, "CNI_IFNAME");
        call.del().ok();
        lab.snapshot().assert_same(&before);
    }
}

#[test]
fn status_reports_what_an_add_would_lack() {
    beyond_1_1_1!("status");
    let lab = Lab::new();
    let call = lab.plugin("ptp").version("1.1.0").config(dual_stack()).config(json!({"ipMasq": true}));
    call.status().ok();
    let nowhere = json!({"ipam": {"type": "nowhere"}});
    call.clone().config(nowhere).status().refused(7, "nowhere");
}

#[test]
fn the_host_ignores_router_advertisements_of_the_container() {
    let lab = Lab::new();
    let pod = lab.container("pod");
    let result = attach(&lab, &pod, dual_stack());
    assert_eq!(lab.host().sysctl(&format!("ipv6/conf/{}/accept_ra", host_end(&result))), "0");
}

#[test]
fn a_default_route_from_router_advertisements_survives_the_first_add() {
    needs!(Ipv6);
    beyond_reference!("silenced-routers");
    let lab = Lab::new();
    let far = lab.machine("far");
    learn_default_route(&lab, &far, "uplink");
    let add = |id| lab.plugin("ptp").config(dual_stack()).on(&lab.container(id)).add();
    let first = add("first");
    assert!(first.stderr.contains("It set net/ipv6/conf/uplink/accept_ra to 2"), "{first:#?}");
    assert_eq!(first.stderr.lines().count(), 1, "{first:#?}");
    assert_eq!(lab.host().sysctl("ipv6/conf/all/forwarding"), "1");
    assert!(has_learned_default_route(lab.host(), "uplink"), "{first:#?}");
    let second = add("second");
    assert!(second.succeeded() && second.stderr.is_empty(), "{second:#?}");
    // The host still accepts advertisements.
    assert_eq!(lab.host().sysctl("ipv6/conf/uplink/accept_ra"), "2");
    lab.host().sh("ip -6 route del default");
    learn_default_route(&lab, &far, "uplink");
}

#[test]
fn links_without_a_learned_default_route_keep_accept_ra() {
    needs!(Ipv6);
    for (accept_ra, protocol) in [("1", "static"), ("2", "ra"), ("0", "ra")] {
        let lab = Lab::new();
        let _far = lab.machine("far");
        let accept = format!("echo {accept_ra} >/proc/sys/net/ipv6/conf/uplink/accept_ra");
        lab.host()
            .sh(&format!("{accept}; ip route add default via 2001:db8:51::2 dev uplink proto {protocol}"));
        let added = lab.plugin("ptp").config(dual_stack()).on(&lab.container("pod")).add();
        assert!(added.succeeded() && !added.stderr.contains("accept_ra"), "{added:#?}");
        assert_eq!(lab.host().sysctl("ipv6/conf/uplink/accept_ra"), accept_ra);
    }
}

#[test]
fn if_accept_ra_cannot_be_set_the_warning_has_the_commands_that_restore_the_default_route() {
    needs!(Ipv6);
    beyond_reference!("silenced-routers");
    let lab = Lab::new();
    let far = lab.machine("far");
    learn_default_route(&lab, &far, "uplink");
    let gateway = || lab.host().ip("-6 route show default")[0]["gateway"].clone();
    let (learned, key) = (gateway(), "/proc/sys/net/ipv6/conf/uplink/accept_ra");
    lab.host().sh(&format!("mount --bind {key} {key}; mount -o remount,bind,ro {key}"));
    let added = lab.plugin("ptp").config(dual_stack()).on(&lab.container("pod")).add();
    assert!(added.succeeded() && added.stderr.lines().count() == 1, "{added:#?}");
    assert!(!has_learned_default_route(lab.host(), "uplink"));
    lab.host().sh(&format!("umount {key}"));
    let commands: Vec<&str> = added.stderr.split('`').skip(1).step_by(2).collect();
    assert_eq!(commands.len(), 2, "{added:#?}");
    commands.iter().for_each(|command| drop(lab.host().sh(command)));
    assert_eq!((gateway(), lab.host().sysctl("ipv6/conf/uplink/accept_ra")), (learned, "2".to_owned()));
}

#[test]
fn the_hosts_end_forwards_and_has_ipv6_also_if_new_links_of_the_host_do_not() {
    needs!(Ipv6);
    beyond_reference!("new-link-defaults");
    let lab = Lab::new();
    let (_far, pod) = (lab.machine("far"), lab.container("pod"));
    new_links_neither_forward_nor_have_ipv6(&lab);
    let result = attach(&lab, &pod, dual_stack());
    assert_eq!(lab.host().sysctl(&format!("ipv4/conf/{}/forwarding", host_end(&result))), "1");
    for address in ["10.1.2.1", "fd00:1:2::1", "198.51.100.2", "2001:db8:51::2"] {
        assert!(pod.reaches(address), "{address}");
    }
    let v4 = json!({"name": "v4", "ipam": host_local(&[&["10.1.3.0/24"]])});
    let result = attach(&lab, &lab.container("other"), v4);
    assert_eq!(lab.host().sysctl(&format!("ipv6/conf/{}/disable_ipv6", host_end(&result))), "1");
}

#[test]
fn with_proxy_arp_the_container_reaches_addresses_that_it_searches_for_on_its_link() {
    // https://github.com/containernetworking/plugins/issues/157
    beyond_reference!("proxy-arp");
    let lab = Lab::new();
    let [without, with] = ["without", "with"].map(|id| lab.container(id));
    let _far = lab.machine("far");
    attach(&lab, &without, dual_stack());
    let before = lab.snapshot();
    let call = lab.plugin("ptp").config(dual_stack()).config(json!({"proxyArp": true})).on(&with);
    let result = call.add().ok_result();
    for pod in [&without, &with] {
        pod.sh("ip route add 198.51.100.0/24 dev eth0");
    }
    assert!(with.reaches("198.51.100.2"));
    assert!(without.is_cut_off_from("198.51.100.2"));
    without.sh("ip route del 198.51.100.0/24 dev eth0");
    let end = host_end(&result);
    assert_eq!(lab.host().sysctl(&format!("ipv4/neigh/{end}/proxy_delay")), "0");
    call.check(&result).ok();
    lab.host().sh(&format!("echo 0 >/proc/sys/net/ipv4/conf/{end}/proxy_arp"));
    call.check(&result).refused(999, "proxy_arp is 0");
    call.del().ok();
    lab.snapshot().assert_same(&before);
}

#[test]
fn proxy_arp_that_cannot_be_set_makes_the_add_fail_and_leaves_nothing() {
    beyond_reference!("proxy-arp");
    let lab = Lab::new();
    let pod = lab.container("pod");
    lab.host().sh("echo 1 >/proc/sys/net/ipv4/ip_forward; echo 1 >/proc/sys/net/ipv6/conf/all/forwarding");
    make_sysctls_read_only(&lab);
    let call = lab.plugin("ptp").config(dual_stack()).on(&pod);
    let before = lab.snapshot();
    call.clone().config(json!({"proxyArp": true})).add().refused(5, "/proxy_arp");
    lab.snapshot().assert_same(&before);
    call.add().ok_result();
}
