//! The rules' effect on packets.

#![allow(clippy::unwrap_used)]

mod common;

use std::net::{IpAddr, TcpListener, UdpSocket};
use std::process::Command;
use std::time::Duration;

use cni::IfName;
use common::*;
use netfilter::{
    Backend, ChainName, Conditions, Firewall, Forward, HostPorts, Mark, Opening, Removal, SourceNat,
    SpoofCheck,
};

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn server(machine: &Machine, at: &str) -> TcpListener {
    machine.open(|| TcpListener::bind(at)).unwrap()
}

/// Runs a scenario with each backend.
fn with_both(scenario: impl Fn(&Lab, &Firewall)) {
    for backend in [Backend::Nftables, Backend::Iptables] {
        scenario(&Lab::new(), &Firewall::open(Some(backend)).unwrap());
    }
}

const ADDRESSES: &[&str] = &["10.1.0.5/24", "fd00:1::5/64"];

/// How many times an unanswered datagram is sent.
const TRIES: u32 = 60;

#[test]
fn a_host_port_leads_to_the_container_from_everywhere() {
    with_both(|lab, firewall| {
        install(firewall, &owner("cbr0", "c1"), &host_ports(ADDRESSES, &["tcp 8080 80"]));
        let servers = ["10.1.0.5:80", "[fd00:1::5]:80"].map(|at| server(&lab.pod, at));
        for (server, host, client, pod_sees, gateway) in [
            (&servers[0], "192.0.2.1:8080", "192.0.2.9", "10.1.0.1:8080", "10.1.0.1"),
            (&servers[1], "[fd00:2::1]:8080", "fd00:2::9", "[fd00:1::1]:8080", "fd00:1::1"),
        ] {
            assert_eq!(seen_source(server, || lab.client.open(|| connect(host))), ip(client), "a client");
            assert_eq!(seen_source(server, || lab.pod.open(|| connect(host))), ip(gateway), "hairpin");
            assert_eq!(
                seen_source(server, || lab.pod2.open(|| connect(pod_sees))),
                ip(gateway),
                "a neighbour"
            );
            seen_source(server, || connect(host));
        }
        assert_eq!(
            seen_source(&servers[0], || connect("127.0.0.1:8080")),
            ip("10.1.0.1"),
            "the host's loopback"
        );
    });
}

#[test]
fn a_host_port_is_reached_by_the_hosts_ipv6_loopback() {
    with_both(|lab, firewall| {
        install(firewall, &owner("cbr0", "c1"), &host_ports(ADDRESSES, &["tcp 8080 80"]));
        let server = server(&lab.pod, "[fd00:1::5]:80");
        // The answer to ::1 arrives on the bridge. There must be a route for it, as IPv4 needs route_localnet.
        // ip6_rcv() drops packets to ::1 from outside. With br_netfilter, which rewrites the answer before that, it
        // drops the answer too.
        let br_netfilter = "/proc/sys/net/bridge/bridge-nf-call-ip6tables";
        if std::path::Path::new(br_netfilter).exists() {
            std::fs::write(br_netfilter, "0").unwrap();
        }
        run("ip -6 route add local ::1 dev cni0 table local metric 4096");
        assert_eq!(seen_source(&server, || connect("[::1]:8080")), ip("fd00:1::1"));
    });
}

#[test]
fn source_nat_is_off_or_for_all_if_configured() {
    with_both(|lab, firewall| {
        let mut rules = host_ports(ADDRESSES, &["tcp 8080 80"]);
        rules.source_nat = SourceNat::All;
        install(firewall, &owner("cbr0", "c1"), &rules);
        let server = server(&lab.pod, "10.1.0.5:80");
        assert_eq!(seen_source(&server, || lab.client.open(|| connect("192.0.2.1:8080"))), ip("10.1.0.1"));
        rules.source_nat = SourceNat::None;
        install(firewall, &owner("cbr0", "c1"), &rules);
        assert_eq!(seen_source(&server, || lab.client.open(|| connect("192.0.2.1:8080"))), ip("192.0.2.9"));
        assert!(is_unreachable("127.0.0.1:8080"));
    });
}

#[test]
fn a_mapping_of_one_address_precedes_one_of_all_addresses() {
    for bit in [13, 20] {
        with_both(|lab, firewall| {
            let mut rules = host_ports(ADDRESSES, &["tcp 192.0.2.1 8080 80", "tcp 8080 81"]);
            rules.mark = Mark::bit(bit).unwrap();
            install(firewall, &owner("cbr0", "c1"), &rules);
            let of_one = server(&lab.pod, "10.1.0.5:80");
            assert_eq!(
                seen_source(&of_one, || lab.client.open(|| connect("192.0.2.1:8080"))),
                ip("192.0.2.9")
            );
            let of_all = server(&lab.pod, "10.1.0.5:81");
            assert_eq!(seen_source(&of_all, || lab.pod.open(|| connect("10.1.0.1:8080"))), ip("10.1.0.1"));
        });
    }
}

/// A host with several uplinks routes each answer by the mark of its connection.
#[test]
fn a_connection_keeps_the_mark_that_another_program_sets() {
    for (bit, mark) in [(13, "0x2"), (20, "0x2002")] {
        with_both(|lab, firewall| {
            let rules =
                HostPorts { mark: Mark::bit(bit).unwrap(), ..host_ports(ADDRESSES, &["tcp 8080 80"]) };
            install(firewall, &owner("cbr0", "c1"), &rules);
            for line in [
                "add table inet uplinks".to_owned(),
                "add counter inet uplinks kept".to_owned(),
                "add counter inet uplinks changed".to_owned(),
                "add chain inet uplinks prerouting { type filter hook prerouting priority -150; }".to_owned(),
                "add chain inet uplinks output { type route hook output priority -150; }".to_owned(),
                format!("add rule inet uplinks prerouting iif up0 ct state new ct mark set {mark}"),
                format!(
                    "add rule inet uplinks prerouting ct direction reply ct mark {mark} counter name kept"
                ),
                format!(
                    "add rule inet uplinks prerouting ct direction reply ct mark != {mark} counter name changed"
                ),
                format!("add rule inet uplinks output ct direction reply ct mark {mark} counter name kept"),
                format!(
                    "add rule inet uplinks output ct direction reply ct mark != {mark} counter name changed"
                ),
            ] {
                assert!(Command::new("nft").arg(&line).status().unwrap().success(), "{line}");
            }
            let has_counted =
                |counter| !run(&format!("nft reset counter inet uplinks {counter}")).contains("packets 0 ");
            let pod = server(&lab.pod, "10.1.0.5:80");
            assert_eq!(seen_source(&pod, || lab.client.open(|| connect("192.0.2.1:8080"))), ip("192.0.2.9"));
            assert!(has_counted("kept") && !has_counted("changed"), "through a host port");
            let host = TcpListener::bind("192.0.2.1:7070").unwrap();
            assert_eq!(seen_source(&host, || lab.client.open(|| connect("192.0.2.1:7070"))), ip("192.0.2.9"));
            assert!(has_counted("kept") && !has_counted("changed"), "to the host");
        });
    }
}

/// Such a host saves the packet's mark in POSTROUTING, or selects source NAT by its exact value.
#[test]
fn packets_that_pass_forward_keep_the_mark_that_another_program_sets() {
    let lab = Lab::new();
    let opening = Opening::of_forward(Opening::DEFAULT_BIT, ChainName::parse("CNI-ADMIN").unwrap());
    let forward = Forward {
        addresses: ADDRESSES.iter().map(|a| ip(a.split('/').next().unwrap())).collect(),
        opening,
        may_be_of_reference: false,
    };
    run("iptables -P FORWARD DROP");
    run("ip6tables -P FORWARD DROP");
    install(&Firewall::open(Some(Backend::Nftables)).unwrap(), &owner("cbr0", "c1"), &forward);
    for line in [
        "add table inet uplinks",
        "add counter inet uplinks kept",
        "add counter inet uplinks changed",
        "add chain inet uplinks prerouting { type filter hook prerouting priority -150; }",
        "add rule inet uplinks prerouting mark set 0x2",
        "add chain inet uplinks postrouting { type filter hook postrouting priority -150; }",
        "add rule inet uplinks postrouting tcp sport != 0 iif != 0 mark 0x2 counter name kept",
        "add rule inet uplinks postrouting tcp sport != 0 iif != 0 mark != 0x2 counter name changed",
    ] {
        assert!(Command::new("nft").arg(line).status().unwrap().success(), "{line}");
    }
    for (there, here) in [("192.0.2.9:80", "10.1.0.5"), ("[fd00:2::9]:80", "fd00:1::5")] {
        let far = server(&lab.client, there);
        assert_eq!(seen_source(&far, || lab.pod.open(|| connect(there))), ip(here));
        for (counter, has_counted) in [("kept", true), ("changed", false)] {
            let counted = run(&format!("nft reset counter inet uplinks {counter}"));
            assert_eq!(!counted.contains("packets 0 "), has_counted, "{there}: {counted}");
        }
    }
}

#[test]
fn traffic_to_others_is_not_redirected() {
    with_both(|lab, firewall| {
        install(firewall, &owner("cbr0", "c1"), &host_ports(ADDRESSES, &["tcp 8080 80"]));
        let elsewhere = server(&lab.client, "192.0.2.9:8080");
        assert_eq!(seen_source(&elsewhere, || lab.pod2.open(|| connect("192.0.2.9:8080"))), ip("10.1.0.6"));
    });
}

#[test]
fn only_packets_that_leave_the_subnet_are_masqueraded() {
    with_both(|lab, firewall| {
        install(firewall, &owner("cbr0", "c1"), &masquerade(ADDRESSES));
        for (outside, host, inside, pod) in [
            ("192.0.2.9:80", "192.0.2.1", "10.1.0.6:80", "10.1.0.5"),
            ("[fd00:2::9]:80", "fd00:2::1", "[fd00:1::6]:80", "fd00:1::5"),
        ] {
            let far = server(&lab.client, outside);
            assert_eq!(
                seen_source(&far, || lab.pod.open(|| connect(outside))),
                ip(host),
                "from the container"
            );
            assert_ne!(
                seen_source(&far, || lab.pod2.open(|| connect(outside))),
                ip(host),
                "from another one"
            );
            let near = server(&lab.pod2, inside);
            assert_eq!(seen_source(&near, || lab.pod.open(|| connect(inside))), ip(pod), "within the subnet");
        }
    });
}

#[test]
fn loopback_addresses_are_not_reached_from_outside() {
    with_both(|lab, firewall| {
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
        lab.client.open(|| connect("127.0.0.1:7000")).expect("without the guard it is reached");
        install(firewall, &owner("cbr0", "c1"), &host_ports(ADDRESSES, &["tcp 8080 80"]));
        assert!(lab.client.open(|| Ok(is_unreachable("127.0.0.1:7000"))).unwrap());
        drop(local);
    });
}

#[test]
fn a_udp_flow_to_an_older_container_reaches_the_new_one() {
    with_both(|lab, firewall| {
        let ports = |address: &str| host_ports(&[address], &["udp 5353 53"]);
        let [old, new] = [(&lab.pod, "10.1.0.5:53"), (&lab.pod2, "10.1.0.6:53")]
            .map(|(machine, at)| machine.open(|| UdpSocket::bind(at)).unwrap());
        let client = lab.client.open(|| UdpSocket::bind("192.0.2.9:4000")).unwrap();
        // The client sent a packet before the mapping existed, so the kernel has an entry of this flow to the host.
        let host = UdpSocket::bind("192.0.2.1:5353").unwrap();
        let asks = |what: &str, server: &UdpSocket| asks(&client, what, "192.0.2.1:5353", server);
        asks("?", &host);
        drop(host);
        install(firewall, &owner("cbr0", "old"), &ports("10.1.0.5/24"));
        asks("old", &old);
        install(firewall, &owner("cbr0", "new"), &ports("10.1.0.6/24"));
        asks("new", &new);
    });
}

/// A container has exited, and another one already has its address when its DEL comes.
#[test]
fn a_late_del_keeps_the_udp_flows_of_the_container_that_has_the_address_now() {
    for old_port in ["udp 5000 53", "udp 5353 53"] {
        with_both(|lab, firewall| {
            install(firewall, &owner("cbr0", "old"), &host_ports(&["10.1.0.5/24"], &[old_port]));
            install(firewall, &owner("cbr0", "new"), &host_ports(&["10.1.0.5/24"], &["udp 5353 53"]));
            let server = lab.pod.open(|| UdpSocket::bind("10.1.0.5:53")).unwrap();
            let client = lab.client.open(|| UdpSocket::bind("192.0.2.9:4000")).unwrap();
            client.set_read_timeout(Some(TIMEOUT)).unwrap();
            asks(&client, "?", "192.0.2.1:5353", &server);
            Removal::start().remove(&owner("cbr0", "old"), &[HostPorts::KIND]).unwrap();
            // Only the kernel's entry of the flow gives the datagram the host's address.
            server.send_to(b"!", "192.0.2.9:4000").unwrap();
            let (_, from) = client.recv_from(&mut [0; 16]).unwrap();
            assert_eq!(from.to_string(), "192.0.2.1:5353", "{old_port}, {firewall:?}");
        });
    }
}

#[test]
fn conditions_hold_for_their_own_mappings_only() {
    for (backend, words) in [(Backend::Nftables, "ip saddr 192.0.2.8"), (Backend::Iptables, "-s 192.0.2.8")] {
        let (lab, firewall) = (Lab::new(), Firewall::open(Some(backend)).unwrap());
        let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
        let mut rules = host_ports(ADDRESSES, &["tcp 8080 80"]);
        rules.conditions = Conditions::parse(&words, &[]).unwrap();
        install(&firewall, &owner("a", "c1"), &rules);
        install(&firewall, &owner("b", "c2"), &host_ports(&["10.1.0.6/24"], &["tcp 8081 80"]));
        let _servers = (server(&lab.pod, "10.1.0.5:80"), server(&lab.pod2, "10.1.0.6:80"));
        let reaches = |to: &str| lab.client.open(|| connect(to)).is_ok();
        assert!(reaches("192.0.2.1:8081"), "from 192.0.2.9, {backend}");
        assert!(
            lab.client.open(|| Ok(is_unreachable("192.0.2.1:8080"))).unwrap(),
            "from 192.0.2.9, {backend}"
        );
        lab.client.run("ip addr flush dev eth0 scope global");
        lab.client.run("ip addr add 192.0.2.8/24 dev eth0");
        assert!(reaches("192.0.2.1:8081") && reaches("192.0.2.1:8080"), "from 192.0.2.8, {backend}");
    }
}

#[test]
fn frames_with_a_foreign_source_do_not_pass_the_bridge() {
    let lab = Lab::new();
    let firewall = Firewall::open(None).unwrap();
    let rules = SpoofCheck { port: IfName::parse("pod").unwrap(), mac: "02:00:00:00:00:05".parse().unwrap() };
    install(&firewall, &owner("cbr0", "c1"), &rules);
    let server = server(&lab.pod2, "10.1.0.6:80");
    lab.pod.open(|| connect("10.1.0.6:80")).expect("as itself");
    lab.pod.run("ip link set eth0 address 02:00:00:00:00:66");
    assert!(lab.pod.open(|| Ok(is_unreachable("10.1.0.6:80"))).unwrap(), "as somebody else");
    Removal::start().remove(&owner("cbr0", "c1"), &[SpoofCheck::KIND]).unwrap();
    seen_source(&server, || lab.pod.open(|| connect("10.1.0.6:80")));
}

/// Sends until the server receives it: a datagram may be lost while a neighbour is resolved.
fn asks(client: &UdpSocket, what: &str, to: &str, server: &UdpSocket) {
    server.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let mut buffer = [0; 16];
    let heard = (0..TRIES).find_map(|_| {
        client.send_to(what.as_bytes(), to).unwrap();
        server.recv(&mut buffer).ok()
    });
    assert_eq!(heard.map(|length| &buffer[..length]), Some(what.as_bytes()));
}
