//! A UDP client keeps sending from the same port. It must reach the container that has the host port now.

use std::fs;
use std::net::UdpSocket;
use std::time::Duration;

use lab::{Netns, Outcome, beyond_reference};
use serde_json::json;

use super::*;

/// A UDP client that keeps its source port, as a resolver or a VPN does.
struct Client(UdpSocket);

impl Client {
    fn new(from: &Netns) -> Self {
        let socket = from.run(|| UdpSocket::bind("0.0.0.0:4000")).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(15))).unwrap();
        Self(socket)
    }

    /// Sends a request. Returns the name of the server that answers.
    fn asks(&self, server: &str) -> Option<String> {
        let mut answer = [0; 64];
        let (length, _) = (0..5).find_map(|_| {
            self.0.send_to(b"who is there?", server).ok()?;
            self.0.recv_from(&mut answer).ok()
        })?;
        let answer = String::from_utf8_lossy(&answer[..length]).into_owned();
        answer.split(' ').next().map(str::to_owned)
    }

    /// Sends, without waiting for an answer.
    fn calls(&self, server: &str) {
        self.0.send_to(b"is anybody there?", server).unwrap();
    }
}

/// On a host that does not forget flows: an unanswered one would end by itself after 30 seconds, before the client's last attempt.
fn with_each_backend(scenario: impl Fn(&Lab, &Value)) {
    super::with_each_backend(|lab, keys| {
        for key in ["nf_conntrack_udp_timeout", "nf_conntrack_udp_timeout_stream"] {
            lab.host().sh(&format!("sysctl -qw net.netfilter.{key}=86400"));
        }
        scenario(lab, keys);
    });
}

#[test]
fn a_udp_client_reaches_the_new_container_after_the_old_one_was_deleted() {
    with_each_backend(|lab, keys| {
        let ([old, new, other], far) =
            (["old", "new", "other"].map(|id| lab.container(id)), lab.machine("far"));
        let network = network(lab, keys, json!([port("udp", 5353, 53)]));
        let server = at(HOST[0], 5353);
        let client = Client::new(&far);
        let result = network.add(&old, "eth0").ok_result();
        // Without rules of another container, the kernel would stop tracking flows at the DEL.
        self::network(lab, keys, json!([port("udp", 9090, 53)])).add(&other, "eth0").ok_result();
        let old_server = old.serve_udp("old", "10.1.2.2:53");
        assert_eq!(client.asks(&server).as_deref(), Some("old"));
        network.del(&old, "eth0", &result).iter().for_each(Outcome::ok);
        drop(old_server);
        // Nothing answers, but the kernel now tracks this flow as one to the host itself.
        client.calls(&server);
        network.add(&new, "eth0").ok_result();
        let _server = new.serve_udp("new", "10.1.2.4:53");
        assert_eq!(client.asks(&server).as_deref(), Some("new"));
    });
}

/// As the address of a load balancer that forwards packets without changing their destination.
#[test]
fn a_udp_client_of_an_address_that_is_local_by_a_route_reaches_the_new_container() {
    beyond_reference!("conntrack-on-del");
    with_each_backend(|lab, keys| {
        let ([other, pod], far) = (["other", "pod"].map(|id| lab.container(id)), lab.machine("far"));
        let address = "203.0.113.7:5353";
        lab.host().sh("ip route add local 203.0.113.7 dev lo");
        far.sh("ip route replace 203.0.113.7 via 198.51.100.1");
        // Its rules let the kernel track connections.
        network(lab, keys, web()).add(&other, "eth0").ok_result();
        let client = Client::new(&far);
        client.calls(address);
        network(lab, keys, json!([port("udp", 5353, 53)])).add(&pod, "eth0").ok_result();
        let _server = pod.serve_udp("pod", "10.1.2.3:53");
        assert_eq!(client.asks(address).as_deref(), Some("pod"));
    });
}

#[test]
fn a_udp_client_reaches_the_newer_of_two_containers() {
    // https://github.com/containernetworking/plugins/issues/1190
    beyond_reference!("newest-wins");
    with_each_backend(|lab, keys| {
        let ([old, new], far) = (["old", "new"].map(|id| lab.container(id)), lab.machine("far"));
        let network = network(lab, keys, json!([port("udp", 5353, 53)]));
        let client = Client::new(&far);
        network.add(&old, "eth0").ok_result();
        let _old = old.serve_udp("old", "10.1.2.2:53");
        assert_eq!(client.asks(&at(HOST[0], 5353)).as_deref(), Some("old"));
        network.add(&new, "eth0").ok_result();
        let _new = new.serve_udp("new", "10.1.2.3:53");
        assert_eq!(client.asks(&at(HOST[0], 5353)).as_deref(), Some("new"));
    });
}

#[test]
fn a_udp_client_reaches_the_host_again_after_del() {
    beyond_reference!("conntrack-on-del");
    with_each_backend(|lab, keys| {
        let (pod, far) = (lab.container("pod"), lab.machine("far"));
        let result = network(lab, keys, json!([port("udp", 5353, 53)])).add(&pod, "eth0").ok_result();
        let client = Client::new(&far);
        let _pod = pod.serve_udp("pod", "10.1.2.2:53");
        assert_eq!(client.asks(&at(HOST[0], 5353)).as_deref(), Some("pod"));
        // The container still exists, and would still answer.
        lab.plugin("portmap").config(json!({"prevResult": result})).on(&pod).del().ok();
        let _host = lab.host().serve_udp("host", &at(HOST[0], 5353));
        assert_eq!(client.asks(&at(HOST[0], 5353)).as_deref(), Some("host"));
    });
}

/// As `podman network connect`, while the server sends: a new flow of its packets would have the server's port 53.
#[test]
fn a_flow_to_a_container_that_keeps_its_port_survives_the_add_of_a_second_network() {
    with_each_backend(|lab, keys| {
        let (pod, far) = (lab.container("pod"), lab.machine("far"));
        let ports = || json!([port("udp", 5353, 53)]);
        network(lab, keys, ports()).add(&pod, "eth0").ok_result();
        let client = Client::new(&far);
        let _pod = pod.serve_udp("pod", "10.1.2.2:53");
        assert_eq!(client.asks(&at(HOST[0], 5353)).as_deref(), Some("pod"));
        let flow = || {
            let flows = lab.host().sh("cat /proc/net/nf_conntrack; true");
            flows.lines().any(|flow| flow.contains("dport=5353 ") && flow.contains("src=10.1.2.2 "))
        };
        assert!(flow());
        second_network(lab, keys, ports()).add(&pod, "eth1").ok_result();
        assert!(flow(), "{keys}");
        assert_eq!(client.asks(&at(HOST[0], 5353)).as_deref(), Some("pod"));
    });
}

/// Runs a DEL. The kernel refuses all of its conntrack requests, as without permission or without the module.
fn del_without_conntrack(call: &Call, lab: &Lab, error: &str) -> Outcome {
    let log = lab.dir().join("requests").display().to_string();
    let strace = |expression: &str| {
        let words = ["strace", "-qq", "-e", expression, "-e", "signal=none", "-o", &log];
        call.clone().under(&words.map(str::to_owned)).del()
    };
    call.add().ok_result();
    strace("trace=sendto").ok();
    let requests = fs::read_to_string(&log).unwrap();
    let about_connections = requests.lines().enumerate().filter(|(_, line)| line.contains("CTNETLINK"));
    let (first, last) =
        about_connections.fold((usize::MAX, 0), |(first, last), (n, _)| (first.min(n), last.max(n)));
    assert!(first <= last, "no request is about connections: {requests}");
    call.add().ok_result();
    // Each of them is tried twice.
    let outcome = strace(&format!("inject=sendto:error={error}:when={}..{}", first + 1, first + 2));
    let refused = fs::read_to_string(&log).unwrap();
    assert_eq!(refused.matches("(INJECTED)").count(), 2, "{refused}");
    outcome
}

#[test]
fn a_del_without_access_to_connections_removes_the_rules_and_warns() {
    beyond_reference!("conntrack-on-del");
    with_each_backend(|lab, keys| {
        let pod = lab.container("pod");
        let call = portmap(lab, &pod, 2).config(keys.clone()).config(mapped(json!([port("udp", 5353, 53)])));
        portmap(lab, &lab.container("other"), 3).config(keys.clone()).add().ok_result();
        let before = lab.host().ruleset();
        for error in ["EPERM", "ENOBUFS", "EOPNOTSUPP"] {
            let outcome = del_without_conntrack(&call, lab, error);
            outcome.ok();
            assert!(
                outcome.stderr.contains("warning: delete the connection tracking entries of"),
                "{outcome:?}"
            );
            assert_eq!(lab.host().ruleset(), before, "{error}");
        }
    });
}

/// Listing connections walks through a table of thousands of buckets, and so does each request that lets the kernel
/// delete the IPv4 connections of a port.
#[test]
fn connections_to_several_ports_are_listed_once() {
    beyond_reference!("conntrack-on-del");
    are_listed_once("fd00:1:2::2/64", 3);
    are_listed_once("10.1.2.2/24", 20);
}

fn are_listed_once(address: &str, count: u16) {
    let lab = Lab::new();
    let pod = lab.container("pod");
    // With the first rules, the kernel begins to track connections. Without any, nothing is listed.
    portmap(&lab, &lab.container("other"), 3).add().ok_result();
    lab.host().sh("ping -c 1 127.0.0.1");
    let prev = json!({
        "cniVersion": "1.0.0", "interfaces": [{"name": "eth0", "sandbox": "/run/netns/pod"}],
        "ips": [{"address": address, "interface": 0}],
    });
    let ports: Vec<_> = (0..count).map(|n| port("udp", 5353 + n, 53)).collect();
    let trace = "/run/lab/trace";
    let strace = ["strace", "-f", "-qq", "-o", trace, "-e", "trace=sendto,sendmsg"].map(str::to_owned);
    let call = lab.plugin("portmap").on(&pod).under(&strace);
    let call = call.config(json!({"prevResult": prev, "runtimeConfig": {"portMappings": ports}}));
    let is_listed_once = |command: &str| {
        let trace = fs::read_to_string(trace).unwrap();
        let lists = |line: &&str| line.contains("IPCTNL_MSG_CT_GET") && line.contains("NLM_F_DUMP");
        assert_eq!(trace.lines().filter(lists).count(), 1, "{command}: {trace}");
        assert!(!trace.contains("IPCTNL_MSG_CT_DELETE"), "{command}: {trace}");
    };
    call.add().ok_result();
    is_listed_once("ADD");
    call.del().ok();
    is_listed_once("DEL");
    call.add().ok_result();
    call.gc(&[("other", "eth0")]).ok();
    is_listed_once("GC");
}
