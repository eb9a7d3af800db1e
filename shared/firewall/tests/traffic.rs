//! What the rules do to packets.

#![allow(clippy::unwrap_used)]

mod common;

use std::net::{IpAddr, TcpListener};

use common::*;
use firewall::{Backend, Firewall, Rules, SourceNat};

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn server(machine: &Machine, at: &str) -> TcpListener {
    machine.open(|| TcpListener::bind(at)).unwrap()
}

const ADDRESSES: &[&str] = &["10.1.0.5/24", "fd00:1::5/64"];

#[test]
fn a_host_port_leads_to_the_container_from_everywhere() {
    let lab = Lab::new();
    let firewall = Firewall::open(Some(Backend::Nftables)).unwrap();
    install(&firewall, &owner("cbr0", "c1"), &Rules::HostPorts(host_ports(ADDRESSES, &["tcp 8080 80"])));
    for (server_at, host, client, pod_sees, gateway) in [
        ("10.1.0.5:80", "192.0.2.1:8080", "192.0.2.9", "10.1.0.1:8080", "10.1.0.1"),
        ("[fd00:1::5]:80", "[fd00:2::1]:8080", "fd00:2::9", "[fd00:1::1]:8080", "fd00:1::1"),
    ] {
        let server = server(&lab.pod, server_at);
        assert_eq!(seen_source(&server, || lab.client.open(|| connect(host))), ip(client), "a client");
        assert_eq!(seen_source(&server, || lab.pod.open(|| connect(host))), ip(gateway), "hairpin");
        assert_eq!(seen_source(&server, || lab.pod2.open(|| connect(pod_sees))), ip(gateway), "a neighbour");
        seen_source(&server, || connect(host));
    }
    let server = server(&lab.pod, "10.1.0.5:80");
    assert_eq!(seen_source(&server, || connect("127.0.0.1:8080")), ip("10.1.0.1"), "the host's loopback");
}

#[test]
fn a_host_port_is_reached_by_the_hosts_ipv6_loopback() {
    let lab = Lab::new();
    let firewall = Firewall::open(Some(Backend::Nftables)).unwrap();
    install(&firewall, &owner("cbr0", "c1"), &Rules::HostPorts(host_ports(ADDRESSES, &["tcp 8080 80"])));
    let server = server(&lab.pod, "[fd00:1::5]:80");
    // The answer comes in by the bridge for ::1, which is routed by its interface: there must be a route for this one,
    // as IPv4 needs route_localnet. ip6_rcv() drops what comes from outside for ::1; with br_netfilter, which rewrites
    // the answer before, it drops the answer too.
    run("sysctl -qw net.bridge.bridge-nf-call-ip6tables=0");
    run("ip -6 route add local ::1 dev cni0 table local metric 4096");
    assert_eq!(seen_source(&server, || connect("[::1]:8080")), ip("fd00:1::1"));
}

#[test]
fn source_nat_is_for_nobody_or_for_all_if_so_asked() {
    let lab = Lab::new();
    let firewall = Firewall::open(Some(Backend::Nftables)).unwrap();
    let mut rules = host_ports(ADDRESSES, &["tcp 8080 80"]);
    rules.source_nat = SourceNat::All;
    install(&firewall, &owner("cbr0", "c1"), &Rules::HostPorts(rules.clone()));
    let server = server(&lab.pod, "10.1.0.5:80");
    assert_eq!(seen_source(&server, || lab.client.open(|| connect("192.0.2.1:8080"))), ip("10.1.0.1"));
    rules.source_nat = SourceNat::None;
    install(&firewall, &owner("cbr0", "c1"), &Rules::HostPorts(rules));
    assert_eq!(seen_source(&server, || lab.client.open(|| connect("192.0.2.1:8080"))), ip("192.0.2.9"));
    assert!(is_unreachable("127.0.0.1:8080"));
}

#[test]
fn traffic_to_others_is_not_taken() {
    let lab = Lab::new();
    let firewall = Firewall::open(Some(Backend::Nftables)).unwrap();
    install(&firewall, &owner("cbr0", "c1"), &Rules::HostPorts(host_ports(ADDRESSES, &["tcp 8080 80"])));
    let elsewhere = server(&lab.client, "192.0.2.9:8080");
    assert_eq!(seen_source(&elsewhere, || lab.pod2.open(|| connect("192.0.2.9:8080"))), ip("10.1.0.6"));
}

#[test]
fn only_what_leaves_the_subnet_is_masqueraded() {
    let lab = Lab::new();
    let firewall = Firewall::open(Some(Backend::Nftables)).unwrap();
    install(&firewall, &owner("cbr0", "c1"), &masquerade(ADDRESSES));
    for (outside, host, inside, pod) in [
        ("192.0.2.9:80", "192.0.2.1", "10.1.0.6:80", "10.1.0.5"),
        ("[fd00:2::9]:80", "fd00:2::1", "[fd00:1::6]:80", "fd00:1::5"),
    ] {
        let far = server(&lab.client, outside);
        assert_eq!(seen_source(&far, || lab.pod.open(|| connect(outside))), ip(host), "from the container");
        assert_ne!(seen_source(&far, || lab.pod2.open(|| connect(outside))), ip(host), "from another one");
        let near = server(&lab.pod2, inside);
        assert_eq!(seen_source(&near, || lab.pod.open(|| connect(inside))), ip(pod), "within the subnet");
    }
}

#[test]
fn loopback_addresses_are_not_reached_from_outside() {
    let lab = Lab::new();
    let local = TcpListener::bind("127.0.0.1:7000").unwrap();
    for line in [
        "ip route add 127.0.0.1/32 via 192.0.2.1 dev eth0 table 9",
        "ip rule add pref 0 to 127.0.0.1 table 9",
    ] {
        lab.client.run(line);
    }
    lab.client.run("ip rule del pref 0 table local");
    lab.client.run("ip rule add pref 5 table local");
    lab.client.run("sysctl -qw net.ipv4.conf.all.route_localnet=1");
    run("sysctl -qw net.ipv4.conf.all.route_localnet=1");
    let probe = || lab.client.open(|| Ok(is_unreachable("127.0.0.1:7000"))).unwrap();
    assert!(!probe(), "without the guard it is reached, or this test shows nothing");
    let firewall = Firewall::open(Some(Backend::Nftables)).unwrap();
    install(&firewall, &owner("cbr0", "c1"), &Rules::HostPorts(host_ports(ADDRESSES, &["tcp 8080 80"])));
    assert!(probe());
    drop(local);
}
