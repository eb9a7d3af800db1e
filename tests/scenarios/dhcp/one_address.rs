//! dhcp with Kea's servers and udhcpd, which have only one address.

use std::fs;

use lab::beyond_reference;
use lab::dhcp::{DhcpNetwork, OneAddress, STATE};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::common::ips;

#[test]
fn kea_leases_renews_and_releases_its_only_ipv4_address() {
    with(OneAddress::Kea4);
}

#[test]
fn kea_leases_renews_and_releases_its_only_ipv6_address() {
    with(OneAddress::Kea6);
}

#[test]
fn udhcpd_leases_renews_and_releases_its_only_address() {
    with(OneAddress::Udhcpd);
}

fn with(server: OneAddress) {
    beyond_reference!("dhcp-restart");
    let mut net = DhcpNetwork::silent_v6();
    if !net.serve_one_address(server) {
        return;
    }
    net.start_daemon("");
    let ipam = json!({"type": "dhcp", "family": server.family()});
    let bridge = |pod| net.lab.plugin("bridge").config(json!({"bridge": "br0", "ipam": ipam})).on(pod);
    let pods = ["one", "two"].map(|name| net.pod(name));
    let calls = pods.each_ref().map(bridge);
    let result = calls[0].add().ok_result();
    assert!(ips(&result)[0].starts_with(server.address()), "{result}");
    // T1 is past, so the next daemon renews it.
    net.end_daemon(Signal::SIGKILL);
    make_due();
    net.start_daemon("");
    net.until("a renewal", || net.daemon_log().contains("renewed"));
    calls[0].check(&result).ok();
    calls[0].del().ok();
    // Only after a release does the server have an address for another container.
    let result = calls[1].add().ok_result();
    assert!(ips(&result)[0].starts_with(server.address()), "{result}");
    calls[1].del().ok();
    assert!(net.list().is_empty());
}

/// Moves T1 of the leases on disk into the past.
fn make_due() {
    for path in fs::read_dir(STATE).unwrap().flatten().map(|entry| entry.path()) {
        if path.extension().is_some_and(|extension| extension == "json") {
            let mut record: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
            record["lease"]["renew"] = json!(1);
            fs::write(path, record.to_string()).unwrap();
        }
    }
}
