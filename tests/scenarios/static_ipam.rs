//! static: addresses from the configuration or the call.

use lab::{Call, Lab, beyond_reference};
use serde_json::{Value, json};

use crate::common::{cable, ips, seen_as};

/// Only the plugin, called like a delegate. It never looks at the namespace.
fn alone(lab: &Lab, ipam: Value) -> Call {
    let call = lab.plugin("static").config(json!({"type": "bridge", "ipam": ipam}));
    call.env("CNI_CONTAINERID", "a").env("CNI_NETNS", "/run/netns/of-nobody")
}

/// An address of each family, with bridge's gateways.
fn fixed() -> Value {
    json!({
        "type": "static",
        "addresses": [
            {"address": "10.1.2.7/24", "gateway": "10.1.2.1"},
            {"address": "fd00:1:2::7/64", "gateway": "fd00:1:2::1"},
        ],
        "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}],
        "dns": {"nameservers": ["192.0.2.53"], "search": ["one.test"]},
    })
}

/// `ADDRESS GATEWAY` of each address of a result.
fn with_gateways(result: &Value) -> Vec<String> {
    let ips = result["ips"].as_array().unwrap().iter();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    ips.map(|ip| format!("{} {}", text(&ip["address"]), text(&ip["gateway"])).trim_end().to_owned()).collect()
}

#[test]
fn a_container_reaches_another_machine_with_the_addresses_of_the_configuration() {
    let lab = Lab::new();
    let [pod, first] = ["pod", "first"].map(|id| lab.container(id));
    let far = lab.machine("far");
    let call = lab.plugin("bridge").config(json!({"bridge": "br0", "isGateway": true, "ipam": fixed()}));
    let mut other = fixed();
    other["addresses"] = json!([{"address": "10.1.2.8/24"}, {"address": "fd00:1:2::8/64"}]);
    // The bridge exists before, so that only the attachment can be left.
    let first = call.clone().config(json!({"ipam": other})).on(&first);
    // The gateways are the bridge's.
    first.check(&first.add().ok_result()).ok();
    let before = lab.snapshot();
    let call = call.on(&pod);
    let result = call.add().ok_result();
    assert_eq!(with_gateways(&result), ["10.1.2.7/24 10.1.2.1", "fd00:1:2::7/64 fd00:1:2::1"]);
    assert_eq!(pod.addresses("eth0"), ["10.1.2.7/24", "fd00:1:2::7/64"]);
    let _server = far.serve_tcp("far", "[::]:80");
    assert_eq!(seen_as(&pod, "198.51.100.2:80"), "::ffff:10.1.2.7");
    assert_eq!(seen_as(&pod, "[2001:db8:51::2]:80"), "fd00:1:2::7");
    assert!(pod.reaches("10.1.2.8") && pod.reaches("fd00:1:2::8"));
    call.check(&result).ok();
    for _ in 0..2 {
        call.del().ok();
        lab.snapshot().assert_same(&before);
    }
}

#[test]
fn the_result_has_the_addresses_routes_and_settings_of_the_configuration_as_they_are_written() {
    let lab = Lab::new();
    let before = lab.snapshot();
    let result = alone(&lab, fixed()).add().ok_result();
    for key in ["routes", "dns"] {
        assert_eq!(result[key], fixed()[key]);
    }
    assert_eq!(result["ips"], fixed()["addresses"]);
    lab.snapshot().assert_same(&before);
}

#[test]
fn a_request_may_add_an_address_or_replace_all_addresses() {
    let lab = Lab::new();
    let call = alone(&lab, json!({"addresses": [{"address": "10.0.0.5/24"}]}));
    let call = call.args("IgnoreUnknown=1;K8S_POD_NAME=web;IP=10.0.0.6/24,fd00::6/64");
    let given = |keys: Value| with_gateways(&call.clone().config(keys).add().ok_result());
    assert_eq!(given(json!({})), ["10.0.0.5/24", "10.0.0.6/24", "fd00::6/64"]);
    let args = json!({"cni": {"ips": ["10.0.0.7/24"]}});
    assert_eq!(given(json!({"args": args})), ["10.0.0.7/24"]);
    let runtime = json!({"ips": ["10.0.0.8/24", "fd00::8/64"]});
    assert_eq!(given(json!({"args": args, "runtimeConfig": runtime})), ["10.0.0.8/24", "fd00::8/64"]);
    let alone = call.config(json!({"ipam": {"type": "static"}}));
    assert_eq!(ips(&alone.add().ok_result()), ["10.0.0.6/24", "fd00::6/64"]);
}

#[test]
fn a_gateway_in_the_arguments_applies_to_the_addresses_of_its_subnet() {
    let lab = Lab::new();
    let call = alone(&lab, fixed());
    let added = call.clone().args("IP=10.9.0.7/16;GATEWAY=10.9.0.1").add().ok_result();
    assert_eq!(with_gateways(&added)[2], "10.9.0.7/16 10.9.0.1");
    beyond_reference!("static-gateways");
    let call = call.args("IP=10.9.0.7/16;GATEWAY=10.9.0.1,fd00:1:2::2");
    let given = ["10.1.2.7/24 10.1.2.1", "fd00:1:2::7/64 fd00:1:2::2", "10.9.0.7/16 10.9.0.1"];
    assert_eq!(with_gateways(&call.add().ok_result()), given);
}

#[test]
fn an_address_requested_by_a_call_has_the_gateway_and_prefix_length_of_its_subnet() {
    // https://github.com/containernetworking/plugins/issues/406
    beyond_reference!("static-gateways");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let mut ipam = fixed();
    ipam["addresses"][1] = json!({"gateway": "fd00:1:2::1"});
    let requested = json!({"ips": ["10.1.2.9", "fd00:1:2::9/64"]});
    let keys = json!({"bridge": "br0", "isGateway": true, "ipam": ipam, "runtimeConfig": requested});
    let call = lab.plugin("bridge").config(keys).on(&pod);
    let result = call.add().ok_result();
    assert_eq!(with_gateways(&result), ["10.1.2.9/24 10.1.2.1", "fd00:1:2::9/64 fd00:1:2::1"]);
    let routes = pod.routes();
    for gateway in ["10.1.2.1", "fd00:1:2::1"] {
        assert!(
            routes.iter().any(|route| route.starts_with(&format!("default via {gateway} "))),
            "{routes:?}"
        );
    }
    call.check(&result).ok();
}

#[test]
fn check_requires_each_address_with_its_gateway_in_the_result() {
    let lab = Lab::new();
    let call = alone(&lab, fixed());
    let result = call.add().ok_result();
    call.check(&result).ok();
    let mut other = result.clone();
    other["ips"][0]["gateway"] = json!("10.1.2.9");
    assert!(!call.check(&other).succeeded());
    beyond_reference!("static-check");
    call.check(&other).refused(999, "gateway 10.1.2.9");
    other["ips"][0].as_object_mut().unwrap().remove("gateway");
    call.check(&other).refused(999, "no gateway");
    other["ips"].as_array_mut().unwrap().remove(0);
    call.check(&other).refused(999, "10.1.2.7/24 is missing");
}

#[test]
fn del_and_gc_accept_any_configuration_and_any_container() {
    let lab = Lab::new();
    let call = alone(&lab, json!({"addresses": [{"address": "nonsense"}]}));
    call.del().ok();
    call.clone().without("CNI_NETNS").del().ok();
    beyond_reference!("gc");
    call.gc(&[]).ok();
}

#[test]
fn status_accepts_a_network_whose_addresses_are_in_the_runtimes_requests() {
    beyond_reference!("status");
    let lab = Lab::new();
    alone(&lab, fixed()).status().ok();
    alone(&lab, json!({"type": "static"})).status().ok();
    alone(&lab, json!({"addresses": [{"address": "10.0.0.5"}]}))
        .status()
        .refused(6, "ipam.addresses[0].address");
    let with = |address: &str| json!({"addresses": [{"address": "10.0.0.5/24"}, {"address": address}]});
    for (address, culprit) in [
        ("10.0.0.5/24", "address 10.0.0.5 is given twice"),
        ("224.0.0.1/4", "address 224.0.0.1/4 cannot be assigned"),
        ("0.0.0.0/0", "address 0.0.0.0/0 cannot be assigned"),
    ] {
        alone(&lab, with(address)).status().refused(7, culprit);
        // The addresses of a request replace those of the entries.
        let requested = json!({"runtimeConfig": {"ips": ["10.0.0.9"]}});
        assert_eq!(ips(&alone(&lab, with(address)).config(requested).add().ok_result()), ["10.0.0.9/24"]);
    }
}

#[test]
fn an_interface_may_have_an_ipv4_address_with_two_prefix_lengths() {
    beyond_reference!("static-prefixes");
    let addresses = json!([
        {"address": "10.1.2.7/24", "gateway": "10.1.2.1"},
        {"address": "10.1.2.7/32", "gateway": "10.1.2.1"},
    ]);
    let ipam = json!({"type": "static", "addresses": addresses});
    let is_attached = |plugin: &str, keys: Value| {
        let lab = Lab::new();
        cable(&lab);
        let pod = lab.container("pod");
        let call = lab.plugin(plugin).config(keys).config(json!({"ipam": ipam})).on(&pod);
        let result = call.add().ok_result();
        assert_eq!(ips(&result), ["10.1.2.7/24", "10.1.2.7/32"]);
        assert_eq!(pod.addresses("eth0"), ["10.1.2.7/24", "10.1.2.7/32"]);
        call.check(&result).ok();
        call.del().ok();
        call.add().ok_result();
        call.del().ok();
    };
    is_attached("macvlan", json!({"master": "cable"}));
    for backend in ["nftables", "iptables"] {
        for plugin in ["bridge", "ptp"] {
            is_attached(plugin, json!({"ipMasq": true, "ipMasqBackend": backend}));
        }
    }
    // The kernel refuses an IPv6 address.
    let lab = Lab::new();
    let twice = json!([{"address": "fd00::5/64"}, {"address": "fd00::5/128"}]);
    let error = alone(&lab, json!({"addresses": twice})).add().error();
    assert_eq!((error.code, error.details.as_str()), (7, ""), "{}", error.msg);
    let once = alone(&lab, json!({"addresses": [{"address": "10.0.0.5/24"}]}));
    let error = once.args("IP=10.0.0.5/24").add().error();
    assert!(error.msg.contains("10.0.0.5 is given twice") && error.details.contains("IP of CNI_ARGS"));
}

#[test]
fn before_0_3_0_one_address_of_each_family_is_all() {
    let lab = Lab::new();
    let result = alone(&lab, fixed()).version("0.2.0").add().ok_result();
    assert_eq!(
        (&result["ip4"]["ip"], &result["ip6"]["ip"]),
        (&json!("10.1.2.7/24"), &json!("fd00:1:2::7/64"))
    );
    let second = alone(&lab, fixed()).version("0.2.0").args("IP=10.1.2.8/24").add();
    assert!(second.error().msg.contains("CNI version 0.2.0 does not support more than 1 address per family"));
}

#[test]
fn a_gateway_outside_of_the_subnet_is_reached_over_the_link() {
    beyond_reference!("gateway-outside");
    for (address, gateway, far) in [
        ("10.1.2.7/32", "169.254.1.1", "198.51.100.2"),
        ("10.1.2.7/24", "10.9.0.1", "198.51.100.2"),
        ("fd00:1:2::7/128", "fd00:9::1", "2001:db8:51::2"),
    ] {
        let lab = Lab::new();
        let pod = lab.container("pod");
        lab.machine("far");
        let default = if far.contains(':') { "::/0" } else { "0.0.0.0/0" };
        let ipam = json!({
            "type": "static", "addresses": [{"address": address, "gateway": gateway}], "routes": [{"dst": default}],
        });
        let call = lab.plugin("bridge").config(json!({"bridge": "br0", "ipam": ipam})).on(&pod);
        let result = call.add().ok_result();
        assert_eq!(with_gateways(&result), [format!("{address} {gateway}")]);
        let bare = address.split('/').next().unwrap();
        lab.host().sh(&format!(
            "sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1
             ip addr add {gateway} dev br0 nodad; ip route replace {bare} dev br0"
        ));
        assert!(pod.reaches(far), "{address} via {gateway}: {:?}", pod.routes());
        call.check(&result).ok();
        call.del().ok();
    }
}
