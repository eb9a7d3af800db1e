//! The same tests on every host: what its kernel supports works, and everything else is reported, also by STATUS. `make
//! test-vm` boots kernels that lack something.

use lab::{Call, Chain, Container, Feature, Lab, Netns, Outcome, Snapshot, beyond_reference, skip, tcp_says};
use serde_json::{Value, json};

use crate::common::{cable, host_local, ips};

const POD: &str = "10.1.2.2";
const GATEWAY: &str = "10.1.2.1";
const HOST: &str = "198.51.100.1";
const FAR: &str = "198.51.100.2";

/// A host whose administrator uses what works there: without nf_tables, the legacy iptables tools.
fn host() -> Lab {
    let lab = Lab::new();
    if !Feature::Nftables.is_there() {
        lab.host().sh("mount --bind /usr/sbin/xtables-legacy-multi /usr/sbin/xtables-nft-multi");
    }
    lab
}

/// Whether any backend can do NAT here.
fn translates() -> bool {
    Feature::NftNat.is_there() || Feature::IptablesNat.is_there()
}

fn bridge(sets: &[&[&str]], keys: &Value) -> Value {
    let mut bridge =
        json!({"type": "bridge", "bridge": "br0", "isDefaultGateway": true, "hairpinMode": true});
    bridge["ipam"] = host_local(sets);
    bridge.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
    bridge
}

fn v4(keys: &Value) -> Value {
    bridge(&[&["10.1.2.0/24"]], keys)
}

fn web(lab: &Lab, keys: &Value) -> Chain {
    let mut portmap = json!({"type": "portmap", "runtimeConfig": {"portMappings": [
        {"hostPort": 8080, "containerPort": 80, "protocol": "tcp"},
    ]}});
    portmap.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
    lab.chain(json!({"cniVersion": "1.1.0", "name": "net", "plugins": [v4(&json!({})), portmap]}))
}

fn alone(lab: &Lab, pod: &Container, config: Value) -> Call {
    let name = config["type"].as_str().unwrap().to_owned();
    lab.plugin(&name).config(config).version("1.1.0").on(pod)
}

/// Asserts that STATUS agrees with ADD, and that both agree with what this host supports.
#[track_caller]
fn as_expected(works: bool, add: &Outcome, status: &Outcome) {
    assert_eq!((works, works), (add.succeeded(), status.succeeded()), "{add:#?}\n{status:#?}");
    if !works {
        add.error();
        status.refused(50, "");
    }
}

#[track_caller]
fn is_forgotten(lab: &Lab, before: &Snapshot) {
    let left = lab.snapshot().since(before);
    assert!(!is_known(&left), "{left}");
}

/// Whether a line of the state belongs to the container, or is an attachment's own chain.
fn is_known(state: &str) -> bool {
    let mut words = state.split(|c: char| !c.is_ascii_alphanumeric() && c != '.');
    words.any(|word| [POD, "pod", "HP", "MQ"].contains(&word))
}

#[test]
fn a_host_port_works_with_any_available_backend_and_status_agrees() {
    beyond_reference!("status");
    for (keys, works) in [
        (json!({}), translates as fn() -> bool),
        (json!({"backend": "nftables"}), || Feature::NftNat.is_there()),
        (json!({"backend": "iptables"}), || Feature::IptablesNat.is_there()),
    ] {
        let lab = host();
        let (pod, far) = (lab.container("pod"), lab.machine("far"));
        let (before, network) = (lab.snapshot(), web(&lab, &keys));
        let add = network.add(&pod, "eth0");
        as_expected(works(), &add, &lab.plugin("portmap").config(keys.clone()).status());
        if add.succeeded() {
            let result = add.ok_result();
            network.check(&pod, "eth0", &result).iter().for_each(Outcome::ok);
            is_reached(&lab, &pod, &far);
            assert!(is_known(&lab.snapshot().since(&before)), "or this shows nothing");
        }
        network.del(&pod, "eth0", &json!({})).iter().for_each(Outcome::ok);
        is_forgotten(&lab, &before);
    }
}

/// Other programs flush iptables' table mangle. So with any backend, the rules that protect the services on 127.0.0.1 are
/// also in nf_tables.
#[test]
fn the_hosts_loopback_services_are_protected_by_nftables_with_any_backend_also_after_a_repair() {
    beyond_reference!("repair");
    if !Feature::Nftables.is_there() || !translates() {
        return skip("this kernel has no nf_tables, or no NAT");
    }
    for keys in [json!({}), json!({"backend": "iptables"})] {
        if keys != json!({}) && !Feature::IptablesNat.is_there() {
            skip(&format!("{keys} is not tried: this kernel has no {}", Feature::IptablesNat));
            continue;
        }
        let lab = host();
        lab.container("pod");
        let mut portmap = keys.clone();
        portmap["type"] = json!("portmap");
        portmap["capabilities"] = json!({"portMappings": true});
        let plugins = json!([v4(&json!({})), portmap]);
        lab.configure("10-net.conflist", &json!({"cniVersion": "1.0.0", "name": "net", "plugins": plugins}));
        let ports = json!({"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]});
        let tool = lab.cnitool().env("CAP_ARGS", &ports.to_string());
        tool.says("add net pod --container-id pod");
        let guard = || lab.host().sh("nft list chain inet ferrule guard 2>/dev/null || true");
        assert!(guard().contains("127.0.0.0/8"), "{keys}: {}", guard());
        lab.host().sh("nft delete table inet ferrule");
        tool.says("repair net");
        assert!(guard().contains("127.0.0.0/8"), "{keys}: {}", guard());
        tool.says("del net pod --container-id pod");
        assert_eq!(guard(), "", "{keys}");
    }
}

/// From everywhere, also on the same bridge with and without br_netfilter.
fn is_reached(lab: &Lab, pod: &Container, far: &Netns) {
    let other = lab.container("other");
    alone(lab, &other, v4(&json!({}))).add().ok_result();
    let _server = pod.serve_tcp("web", &format!("{POD}:80"));
    for (from, to, seen_as) in [
        (far, HOST, FAR),
        (lab.host(), "127.0.0.1", GATEWAY),
        (pod, GATEWAY, GATEWAY),
        (&other, GATEWAY, GATEWAY),
    ] {
        let answer = tcp_says(from, &format!("{to}:8080"));
        assert_eq!(answer, Some(format!("web {seen_as}")), "{} to {to}", from.name());
    }
    alone(lab, &other, v4(&json!({}))).del().ok();
}

#[test]
fn containers_are_masqueraded_by_any_available_backend_and_status_agrees() {
    beyond_reference!("status");
    let lab = host();
    let (pod, far) = (lab.container("pod"), lab.machine("far"));
    let before = lab.snapshot();
    let call = alone(&lab, &pod, v4(&json!({"ipMasq": true})));
    let add = call.add();
    as_expected(translates(), &add, &call.status());
    if add.succeeded() {
        call.check(&add.ok_result()).ok();
        let _server = far.serve_tcp("far", &format!("{FAR}:7"));
        assert_eq!(tcp_says(&pod, &format!("{FAR}:7")), Some(format!("far {HOST}")));
    }
    call.del().ok();
    is_forgotten(&lab, &before);
}

#[test]
fn the_spoof_check_requires_nftables_and_status_reports_if_it_is_missing() {
    beyond_reference!("status");
    let lab = host();
    let pod = lab.container("pod");
    let before = lab.snapshot();
    let call = alone(&lab, &pod, v4(&json!({"macspoofchk": true})));
    as_expected(Feature::Nftables.is_there(), &call.add(), &call.status());
    call.del().ok();
    is_forgotten(&lab, &before);
}

#[test]
fn a_dual_stack_network_attaches_if_the_kernel_has_ipv6_and_otherwise_the_error_says_so() {
    beyond_reference!("rollback");
    let lab = host();
    let pod = lab.container("pod");
    let before = lab.snapshot();
    let call = alone(&lab, &pod, bridge(&[&["10.1.2.0/24"], &["fd00:1:2::/64"]], &json!({})));
    let add = call.add();
    assert_eq!(add.succeeded(), Feature::Ipv6.is_there(), "{add:#?}");
    if add.succeeded() {
        assert_eq!(ips(&add.ok_result()), ["10.1.2.2/24", "fd00:1:2::2/64"]);
        assert!(pod.reaches("fd00:1:2::1"));
    } else {
        let error = add.error();
        assert!(format!("{error:?}").contains("IPv6"), "{error:?}");
        is_forgotten(&lab, &before);
        alone(&lab, &pod, v4(&json!({}))).add().ok_result();
    }
    assert!(pod.reaches(GATEWAY));
    call.del().ok();
    is_forgotten(&lab, &before);
}

/// Without IPv6, the kernel answers a request for IPv6 routes with the IPv4 routes.
#[test]
fn each_route_of_a_device_is_in_the_result_once() {
    beyond_reference!("way-home");
    let lab = host();
    let pod = lab.container("pod");
    cable(&lab);
    lab.host().sh("ip addr add 192.0.2.7/24 dev cable; ip route add 203.0.113.0/24 via 192.0.2.1 dev cable");
    let device = json!({"type": "host-device", "device": "cable", "useInterfaceNetwork": true});
    let call = alone(&lab, &pod, device);
    let result = call.add().ok_result();
    let routes: Vec<_> = result["routes"].as_array().unwrap().iter().map(|route| &route["dst"]).collect();
    assert_eq!(ips(&result), ["192.0.2.7/24"]);
    assert_eq!(routes, ["203.0.113.0/24"]);
    call.del().ok();
}

#[test]
fn loopback_has_the_addresses_of_the_families_that_the_kernel_supports() {
    let lab = Lab::new();
    let pod = lab.container("pod");
    let result = lab.plugin("loopback").on(&pod).ifname("lo").add().ok_result();
    let all = if Feature::Ipv6.is_there() { &["127.0.0.1/8", "::1/128"][..] } else { &["127.0.0.1/8"] };
    assert_eq!(ips(&result), all);
}

#[test]
fn removing_rules_that_never_existed_succeeds_on_every_host() {
    beyond_reference!("gc");
    let lab = host();
    let pod = lab.container("pod");
    let before = lab.snapshot();
    for config in [
        v4(&json!({"ipMasq": true, "macspoofchk": true})),
        json!({"type": "portmap"}),
        json!({"type": "portmap", "backend": "iptables"}),
    ] {
        let call = alone(&lab, &pod, config);
        call.del().ok();
        call.gc(&[]).ok();
    }
    is_forgotten(&lab, &before);
}
