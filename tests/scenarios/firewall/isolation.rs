//! Isolated containers (`ingressPolicy`).

use lab::{Chain, Echo, Lab, beyond_reference, needs, tcp_is_cut_off, tcp_says};
use serde_json::json;

use super::*;

fn serve(pod: &Container, addresses: &[String; 2]) -> [Echo; 2] {
    addresses.each_ref().map(|ip| pod.serve_tcp(&pod.id, &at(ip, 80)))
}

fn with_policy(lab: &Lab, number: u8, policy: &str) -> Chain {
    lab.chain(with_policy_list(number, policy))
}

fn with_policy_list(number: u8, policy: &str) -> Value {
    list(number, &json!({"ingressPolicy": policy}))
}

#[test]
fn networks_with_a_policy_do_not_talk_to_each_other_and_containers_of_one_bridge_do() {
    beyond_reference!("ingress-policy");
    let lab = Lab::new();
    let [one, other, open] = [(2, "same-bridge"), (3, "same-bridge"), (4, "open")]
        .map(|(number, policy)| with_policy(&lab, number, policy));
    let [a, b, c, d] = ["a", "b", "c", "d"].map(|id| lab.container(id));
    let at_one = [attach(&one, &a).1, attach(&one, &b).1];
    let (at_other, at_open) = (attach(&other, &c).1, attach(&open, &d).1);
    let _servers = [(&a, &at_one[0]), (&c, &at_other), (&d, &at_open)].map(|(pod, ips)| serve(pod, ips));
    for n in [0, 1] {
        assert!(tcp_says(&b, &at(&at_one[0][n], 80)).is_some(), "on one bridge");
        assert!(tcp_is_cut_off(&b, &at(&at_other[n], 80)), "from one to the other");
        assert!(tcp_is_cut_off(&c, &at(&at_one[0][n], 80)), "and back");
        assert!(tcp_says(&b, &at(&at_open[n], 80)).is_some(), "to a network without a policy");
        assert!(tcp_says(&d, &at(&at_one[0][n], 80)).is_some(), "and back");
    }
    assert!(tcp_says(&b, "10.1.3.1:8003").is_some(), "a host port of the other network");
}

#[test]
fn isolated_containers_of_one_bridge_cannot_reach_each_other_with_or_without_br_netfilter() {
    beyond_reference!("ingress-policy");
    for asks in [0, 1] {
        let lab = Lab::new();
        lab.host().sh(&format!(
            "for f in /proc/sys/net/bridge/bridge-nf-call-ip*tables; do [ ! -e $f ] || echo {asks} >$f; done"
        ));
        let far = lab.machine("far");
        let network = with_policy(&lab, 2, "isolated");
        let [a, b] = ["a", "b"].map(|id| lab.container(id));
        let ((kept, ips), (result, _)) = (attach(&network, &a), attach(&network, &b));
        let _servers = serve(&a, &ips);
        let _far = FAR.map(|ip| far.serve_tcp("far", &at(ip, 80)));
        for n in [0, 1] {
            assert!(b.is_cut_off_from(&ips[n]), "{}, {asks}", ips[n]);
            assert!(tcp_says(&b, &at(FAR[n], 80)).is_some(), "{}, {asks}", FAR[n]);
        }
        network.check(&b, "eth0", &result).iter().for_each(lab::Outcome::ok);
        network.del(&b, "eth0", &result).iter().for_each(lab::Outcome::ok);
        assert!(lab.host().ruleset().contains("fenced"), "the bridge has another user");
        network.del(&a, "eth0", &kept).iter().for_each(lab::Outcome::ok);
        assert_eq!(lab.host().ruleset(), "");
    }
}

#[test]
fn host_ports_lead_into_isolated_networks_also_from_the_same_bridge() {
    beyond_reference!("ingress-policy");
    for asks in [0, 1] {
        let lab = Lab::new();
        lab.host().sh(&format!(
            "for f in /proc/sys/net/bridge/bridge-nf-call-ip*tables; do [ ! -e $f ] || echo {asks} >$f; done"
        ));
        let far = lab.machine("far");
        let (one, other) = (with_policy(&lab, 2, "isolated"), with_policy(&lab, 3, "isolated"));
        let [beside, pod, third] = ["beside", "pod", "third"].map(|id| lab.container(id));
        attach(&one, &beside);
        // The newest attachment has the port.
        let (_, ips) = attach(&one, &pod);
        attach(&other, &third);
        let _servers = serve(&pod, &ips);
        for host in HOST {
            for from in [&far, &*beside, &*third] {
                assert!(tcp_says(from, &at(host, 8002)).is_some(), "{} to {host}, {asks}", from.name());
            }
        }
    }
}

/// Hosts with several uplinks save the packet's mark, or select source NAT by its exact value.
#[test]
fn packets_through_a_host_port_have_no_mark_after_the_filters() {
    beyond_reference!("ingress-policy");
    for (backend, bit) in [("nftables", 12), ("nftables", 20), ("iptables", 12)] {
        for policy in ["same-bridge", "isolated"] {
            let lab = Lab::new();
            let keys = json!({"ingressPolicy": policy, "backend": backend, "acceptMarkBit": bit});
            let network = network(&lab, 2, &keys);
            let [a, b] = ["a", "b"].map(|id| lab.container(id));
            attach(&network, &a);
            let (_, ips) = attach(&network, &b);
            let _servers = serve(&b, &ips);
            // No packet ever has another bit than the configured one.
            let mark = format!("0x{:x}/0x{0:x}", 1 << bit);
            let others = format!("0x0/0x{:x}", !(1_u32 << bit));
            lab.host().sh(&format!(
                "iptables -t mangle -A POSTROUTING -m mark --mark {mark}; iptables -t mangle -A FORWARD -m mark ! --mark {others}"
            ));
            assert!(tcp_says(&a, "10.1.2.1:8002").is_some());
            let rules =
                lab.host().sh("iptables -t mangle -S POSTROUTING -v; iptables -t mangle -S FORWARD -v");
            let mut counts = rules.lines().filter(|line| line.starts_with("-A"));
            assert!(counts.all(|rule| rule.ends_with("-c 0 0")), "{backend}, {bit}, {policy}: {rules}");
        }
    }
}

/// Like [`with_policy`], in a VLAN of a bridge that several networks use. VLAN 0: none.
fn in_vlan(lab: &Lab, number: u8, bridge: &str, vlan: u8, policy: &str) -> Chain {
    let mut list = with_policy_list(number, policy);
    list["plugins"][0]["bridge"] = json!(bridge);
    if vlan > 0 {
        list["plugins"][0]["vlan"] = json!(vlan);
    }
    lab.chain(list)
}

#[test]
fn if_networks_on_one_bridge_have_different_policies_the_stricter_one_applies() {
    beyond_reference!("ingress-policy");
    for first in ["same-bridge", "isolated"] {
        let lab = Lab::new();
        let mut other = with_policy_list(3, "isolated");
        other["plugins"][0]["bridge"] = json!("br2");
        other["plugins"][0]["ipam"]["ranges"] = json!([
            [{"subnet": "10.1.2.0/24", "rangeStart": "10.1.2.100"}],
            [{"subnet": "fd00:1:2::/64", "rangeStart": "fd00:1:2::100"}],
        ]);
        let (same, isolated) = (with_policy(&lab, 2, "same-bridge"), lab.chain(other));
        let [a, b] = ["a", "b"].map(|id| lab.container(id));
        let ((of_a, to_a), (of_b, to_b)) = if first == "same-bridge" {
            let at_a = attach(&same, &a);
            (at_a, attach(&isolated, &b))
        } else {
            let at_b = attach(&isolated, &b);
            (attach(&same, &a), at_b)
        };
        let _servers = [(&a, &to_a), (&b, &to_b)].map(|(pod, ips)| serve(pod, ips));
        for n in [0, 1] {
            assert!(tcp_is_cut_off(&a, &at(&to_b[n], 80)), "{first} first: to the isolated one");
            assert!(tcp_is_cut_off(&b, &at(&to_a[n], 80)), "{first} first: and back");
        }
        isolated.del(&b, "eth0", &of_b).iter().for_each(lab::Outcome::ok);
        same.check(&a, "eth0", &of_a).iter().for_each(lab::Outcome::ok);
        same.del(&a, "eth0", &of_a).iter().for_each(lab::Outcome::ok);
        assert_eq!(lab.host().ruleset(), "");
    }
}

#[test]
fn an_administrators_vlan_device_that_is_the_gateway_is_fenced_in_place_of_the_bridge() {
    needs!(BridgeVlanFiltering, Vlan);
    beyond_reference!("ingress-policy");
    let lab = Lab::new();
    lab.host().sh(
        "ip link add br0 type bridge vlan_filtering 1; ip link set br0 up; bridge vlan add dev br0 vid 3 self
         ip link add link br0 name br0.3 type vlan id 3; ip link set br0.3 up",
    );
    let (own, other) = (in_vlan(&lab, 3, "br0", 3, "same-bridge"), with_policy(&lab, 2, "same-bridge"));
    let [a, b] = ["a", "b"].map(|id| lab.container(id));
    let ((_, ips), _) = (attach(&own, &a), attach(&other, &b));
    let _servers = serve(&a, &ips);
    for ip in &ips {
        assert!(tcp_says(lab.host(), &at(ip, 80)).is_some(), "{ip}");
        assert!(tcp_is_cut_off(&b, &at(ip, 80)), "{ip}");
    }
}

#[test]
fn in_vlans_of_two_bridges_networks_with_a_policy_do_not_talk_and_reach_their_gateway() {
    needs!(BridgeVlanFiltering);
    beyond_reference!("ingress-policy");
    let lab = Lab::new();
    let far = lab.machine("far");
    let same = in_vlan(&lab, 2, "br0", 2, "same-bridge");
    let isolated = in_vlan(&lab, 3, "br0", 3, "isolated");
    let elsewhere = in_vlan(&lab, 5, "br1", 2, "same-bridge");
    let open = with_policy(&lab, 4, "open");
    let [a, b, c, d, e, f] = ["a", "b", "c", "d", "e", "f"].map(|id| lab.container(id));
    let of_same = [attach(&same, &a), attach(&same, &b)];
    let of_isolated = [attach(&isolated, &c), attach(&isolated, &d)];
    let (of_open, of_elsewhere) = (attach(&open, &e), attach(&elsewhere, &f));
    let ips = [&of_same[0].1, &of_isolated[0].1, &of_open.1, &of_elsewhere.1];
    // The newest isolated container has the host port.
    let serving = [(&a, ips[0]), (&c, ips[1]), (&d, &of_isolated[1].1), (&e, ips[2]), (&f, ips[3])];
    let _servers = serving.map(|(pod, ips)| serve(pod, ips));
    let _far = FAR.map(|ip| far.serve_tcp("far", &at(ip, 80)));
    for n in [0, 1] {
        assert!(tcp_says(&b, &at(&ips[0][n], 80)).is_some(), "within a VLAN");
        assert!(d.is_cut_off_from(&ips[1][n]), "within an isolated VLAN");
        for (from, to, what) in [
            (&b, ips[1], "from one VLAN to the other"),
            (&d, ips[0], "and back"),
            (&b, ips[3], "to the same VLAN of another bridge"),
            (&f, ips[0], "and back"),
            (&f, ips[1], "to an isolated VLAN of another bridge"),
        ] {
            assert!(tcp_is_cut_off(from, &at(&to[n], 80)), "{what}");
        }
        for pod in [&b, &d, &f] {
            assert!(tcp_says(pod, &at(FAR[n], 80)).is_some(), "{} to the far machine", pod.id);
            assert!(tcp_says(pod, &at(&ips[2][n], 80)).is_some(), "{} to an open network", pod.id);
        }
        assert!(tcp_says(&e, &at(&ips[1][n], 80)).is_some(), "from an open network");
        assert!(tcp_says(&far, &at(HOST[n], 8003)).is_some(), "a host port of the isolated network");
    }
    isolated.check(&d, "eth0", &of_isolated[1].0).iter().for_each(lab::Outcome::ok);
    isolated.del(&d, "eth0", &of_isolated[1].0).iter().for_each(lab::Outcome::ok);
    assert!(
        tcp_says(&c, &at(FAR[0], 80)).is_some(),
        "the gateway's port is still one of the VLAN's other container"
    );
    for (network, pod, (result, _)) in [
        (&isolated, &c, &of_isolated[0]),
        (&same, &a, &of_same[0]),
        (&same, &b, &of_same[1]),
        (&open, &e, &of_open),
        (&elsewhere, &f, &of_elsewhere),
    ] {
        network.del(pod, "eth0", result).iter().for_each(lab::Outcome::ok);
    }
    assert_eq!(lab.host().ruleset(), "");
}

/// The bridge itself is in VLAN 1, and so is each port without the key `vlan`.
#[test]
fn in_vlan_1_of_a_bridge_a_network_without_the_key_vlan_is_known_by_the_bridge() {
    needs!(BridgeVlanFiltering);
    beyond_reference!("ingress-policy");
    let lab = Lab::new();
    let tagged = in_vlan(&lab, 2, "br0", 1, "open");
    let plain = in_vlan(&lab, 3, "br0", 0, "same-bridge");
    let other = with_policy(&lab, 4, "same-bridge");
    let [a, b, c] = ["a", "b", "c"].map(|id| lab.container(id));
    attach(&tagged, &a);
    let (of_plain, of_other) = (attach(&plain, &b).1, attach(&other, &c).1);
    let _servers = [(&b, &of_plain), (&c, &of_other)].map(|(pod, ips)| serve(pod, ips));
    for n in [0, 1] {
        assert!(tcp_is_cut_off(&c, &at(&of_plain[n], 80)), "from another bridge");
        assert!(tcp_is_cut_off(&b, &at(&of_other[n], 80)), "and back");
    }
}

#[test]
fn without_a_bridge_a_policy_is_refused() {
    beyond_reference!("ingress-policy");
    let lab = Lab::new();
    let pod = lab.container("pod");
    pod.sh("ip link add eth0 type veth peer name host0 netns host && ip link set eth0 up");
    let prev = json!({
        "interfaces": [{"name": "host0"}, {"name": "eth0", "sandbox": pod.path()}],
        "ips": [{"address": "10.1.2.2/24", "interface": 1}],
    });
    let call =
        lab.plugin("firewall").on(&pod).config(json!({"prevResult": prev, "ingressPolicy": "isolated"}));
    call.add().refused(7, "ingressPolicy");
    assert_eq!(lab.host().ruleset(), "");
    call.clone().config(json!({"ingressPolicy": "open"})).add().ok_result();
    lab.host().sh("ip link add br9 type bridge && ip link set br9 up && ip link set host0 master br9 up");
    // Older versions have no interfaces in the result. The other end of the veth is used instead.
    let old = lab.plugin("firewall").version("0.2.0").on(&pod);
    let old = old.config(json!({"prevResult": {"ip4": {"ip": "10.1.2.2/24"}}, "ingressPolicy": "isolated"}));
    old.add().ok_result();
    assert!(lab.host().ruleset().contains("apart host0"));
    old.del().ok();
    assert_eq!(lab.host().ruleset(), "");
}
