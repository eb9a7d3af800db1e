//! Lost packets: forwarding, MTU, other programs' firewalls.

use lab::{Lab, beyond_reference};
use serde_json::json;

use super::{bridge, finds, finds_nothing, healthy, network};
use crate::common::host_local;

#[test]
fn a_host_that_does_not_forward_is_an_error_once_a_container_needs_it() {
    let lab = Lab::new();
    let _pod = lab.container("pod");
    lab.configure(
        "10-net.conflist",
        &network(&json!([
        {"type": "bridge", "bridge": "br0", "isGateway": true,
         "ipam": host_local(&[&["10.206.2.0/24"], &["fd00:206::/64"]])}])),
    );
    let tool = lab.cnitool();
    let off = |key: &str| lab.host().sh(&format!("sysctl -qw {key}=0"));
    let (v4, v6) = ("net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding");
    off(v4);
    finds_nothing(&tool, "forwarding");
    tool.says("add net pod");
    finds_nothing(&tool, "forwarding");
    for (key, family) in [(v4, "IPv4"), (v6, "IPv6")] {
        off(key);
        let remedy = format!("sysctl -w {key}=1");
        finds(&tool, "forwarding", &["error", "network net", &format!("does not forward {family}"), &remedy]);
        lab.host().sh(&format!("sysctl -qw {key}=1"));
        finds_nothing(&tool, "forwarding");
    }
}

#[test]
fn an_mtu_of_the_container_that_its_bridge_does_not_have_is_an_error() {
    let lab = Lab::new();
    let _pod = lab.container("pod");
    let tool = healthy(&lab);
    tool.says("add net pod --container-id web");
    finds_nothing(&tool, "mtu.bridge");
    lab.host().sh("ip link set br0 mtu 1400");
    let words = [
        "error",
        "attachment net/web/eth0",
        "MTU 1500",
        "br0 on the host has 1400",
        "ip link set br0 mtu 1500",
    ];
    finds(&tool, "mtu.bridge", &words);
    lab.host().sh("ip link set br0 mtu 1500");
    finds_nothing(&tool, "mtu.bridge");
}

#[test]
fn an_mtu_of_the_container_that_the_uplink_does_not_have_is_a_warning() {
    let lab = Lab::new();
    let (_pod, _far) = (lab.container("pod"), lab.machine("far"));
    lab.host().sh("ip route add default via 198.51.100.2");
    let tool = healthy(&lab);
    tool.says("add net pod --container-id web");
    finds_nothing(&tool, "mtu.uplink");
    lab.host().sh("ip link set uplink mtu 1420");
    let words = ["warning", "attachment net/web/eth0", "uplink uplink has 1420", "\"mtu\": 1420"];
    finds(&tool, "mtu.uplink", &words);
    tool.says("del net pod --container-id web");
    let mut small = bridge("10.206.2.0/24");
    small["mtu"] = json!(1420);
    lab.configure("10-net.conflist", &network(&json!([small])));
    tool.says("add net pod --container-id web");
    finds_nothing(&tool, "mtu.uplink");
}

#[test]
fn a_chain_of_nftables_that_drops_is_a_warning_for_networks_without_the_plugin_firewall() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let tool = lab.cnitool();
    let check = "firewalls.nftables";
    lab.configure("10-net.conflist", &network(&json!([bridge("10.206.2.0/24")])));
    finds_nothing(&tool, check);
    // By a policy, as with iptables, and by the last rule, as with firewalld.
    for (table, words) in [
        (
            "table ip filter { chain FORWARD { type filter hook forward priority 0; policy drop; }\n}",
            ["ip filter FORWARD", "Docker, ufw", "add the plugin `firewall`"],
        ),
        (
            "table inet firewalld { chain filter_FORWARD { type filter hook forward priority 10; \
          ct state established accept; reject with icmpx admin-prohibited; }\n}",
            ["inet firewalld filter_FORWARD", "(firewalld)", "zone trusted"],
        ),
        (
            "table inet mine { chain outwards { type filter hook forward priority 0; policy drop; }\n}",
            ["inet mine outwards", "the administrator", "test-connectivity"],
        ),
    ] {
        lab.host().sh(&format!("nft '{table}'"));
        finds(&tool, check, &["warning", "network net", words[0], words[1], words[2]]);
        lab.host().sh("nft flush ruleset");
        finds_nothing(&tool, check);
    }
    // RHEL's iptables-services reject with the last rule.
    let rules =
        ["-P FORWARD DROP", "-A FORWARD -j DROP", "-A FORWARD -j REJECT --reject-with icmp-host-prohibited"];
    for rule in rules {
        lab.host().sh("nft flush ruleset");
        lab.host().sh(&format!("iptables-nft {rule}"));
        finds(&tool, check, &["warning", "network net", "ip filter FORWARD"]);
    }
    healthy(&lab);
    finds_nothing(&tool, check);
    lab.host().sh("nft flush ruleset");
    lab.configure("10-net.conflist", &network(&json!([bridge("10.206.2.0/24")])));
    lab.host().sh("iptables-nft -A FORWARD -i other0 -j REJECT");
    finds_nothing(&tool, check);
}

#[test]
fn a_chain_of_legacy_iptables_that_drops_is_a_warning() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let tool = lab.cnitool();
    lab.configure("10-net.conflist", &network(&json!([bridge("10.206.2.0/24")])));
    if !lab.host().try_exec(&["iptables-legacy", "-S"]).status.success() {
        return lab::skip("iptables-legacy");
    }
    let words =
        ["warning", "network net", "FORWARD of table filter (iptables-legacy)", "add the plugin `firewall`"];
    lab.host().sh("iptables-legacy -A FORWARD -i other0 -j REJECT");
    finds_nothing(&tool, "firewalls.legacy");
    for (set, unset) in [
        ("-P FORWARD DROP", "-P FORWARD ACCEPT"),
        ("-A FORWARD -j DROP", "-F FORWARD"),
        ("-A FORWARD -j REJECT --reject-with icmp-host-prohibited", "-F FORWARD"),
    ] {
        lab.host().sh(&format!("iptables-legacy {set}"));
        finds(&tool, "firewalls.legacy", &words);
        lab.host().sh(&format!("iptables-legacy {unset}"));
        finds_nothing(&tool, "firewalls.legacy");
    }
}
