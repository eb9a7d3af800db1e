//! IPv6 addresses from dhcp: with Debian's dnsmasq and ISC's server, and with a server that the test scripts.

mod server;

use std::fs;
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use lab::dhcp::{
    DhcpNetwork, RANGE_V6 as RANGE, RANGE_V6_FOR_A_DAY, SOON, STATE, leases_on_disk, start_running,
};
use lab::{Call, Container, beyond_reference, needs};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::common::{cable, ips, is_up};
use crate::dhcp::daemon::ask;
use crate::dhcp::lifecycle::{Family, until_settled};
use server::{RELEASE, REQUEST, SOLICIT, Server, is_one};

const BOTH: &str =
    "--dhcp-range=fd00::10,fd00::ff,64,2m --dhcp-range=10.9.0.100,10.9.0.250,255.255.255.0,120";
const NAMES: &str =
    "--dhcp-option=option6:dns-server,[fd00::53] --dhcp-option=option6:domain-search,example.org";

/// Only prevents a hanging test.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A network with dnsmasq and the daemon. None: there is no dnsmasq here.
fn network(options: &str) -> Option<DhcpNetwork> {
    DhcpNetwork::with_v6(&format!("{options} {NAMES}"))
}

fn bridge(net: &DhcpNetwork, pod: &Container, family: &str) -> Call {
    let ipam = json!({"type": "dhcp", "family": family});
    net.lab.plugin("bridge").config(json!({"bridge": "br0", "ipam": ipam})).on(pod)
}

/// The lease files of IPv6.
fn files() -> Vec<PathBuf> {
    let entries = fs::read_dir(STATE).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.filter(|path| path.to_string_lossy().ends_with(".v6.json")).collect()
}

/// Moves a lease's times into the past while no daemon runs, because dnsmasq's shortest lease is two minutes.
fn make_due(times: &[&str]) {
    let path = &files()[0];
    let mut record: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    times.iter().for_each(|time| record["lease"][*time] = json!(1));
    fs::write(path, record.to_string()).unwrap();
}

/// Waits until the daemon has seen the address on the link, and has set its lifetimes.
fn until_it_has_times(net: &DhcpNetwork, pod: &Container, address: &str) {
    let times = || pod.sh("ip -6 addr show dev eth0 scope global dynamic");
    net.until("the address has its lifetimes", || times().contains(address));
}

#[test]
fn an_ipv6_address_is_leased_renewed_after_a_kill_and_released() {
    beyond_reference!("dhcp-v6");
    let Some(mut net) = network(&format!("{RANGE} --enable-ra")) else { return };
    let pod = net.pod("pod");
    let call = bridge(&net, &pod, "ipv6");
    let result = call.add().ok_result();
    let address = ips(&result)[0].to_owned();
    assert!(address.starts_with("fd00::") && address.ends_with("/128"), "{result}");
    assert_eq!(
        (&result["dns"]["nameservers"], &result["dns"]["search"]),
        (&json!(["fd00::53"]), &json!(["example.org"]))
    );
    until_it_has_times(&net, &pod, &address);
    let leased = net.list();
    assert_eq!(
        (leased.len(), &leased[0]["address"], &leased[0]["state"]),
        (1, &json!(address), &json!("BOUND"))
    );
    call.check(&result).ok();
    call.status().ok();
    // Routes come from router advertisements.
    net.until("the router's route", || pod.sh("ip -6 route show default").contains("via fe80::"));
    assert!(pod.reaches("fd00::1"));
    // The next daemon continues with the lease.
    net.end_daemon(Signal::SIGKILL);
    net.start_daemon("");
    net.until("the lease is confirmed", || {
        net.server_log().contains("DHCPCONFIRM") && net.list()[0]["state"] == "BOUND"
    });
    net.end_daemon(Signal::SIGKILL);
    make_due(&["renew"]);
    net.start_daemon("");
    net.until("a renewal", || net.daemon_log().contains("renewed") && net.server_log().contains("DHCPRENEW"));
    assert_eq!(net.list()[0]["address"], json!(address));
    // A restarted server gets everything that it needs from the client.
    net.end_daemon(Signal::SIGTERM);
    net.stop_server();
    make_due(&["renew", "rebind"]);
    net.start_daemon("");
    net.until("all servers get requests", || net.list()[0]["state"] == "REBINDING");
    net.serve(RANGE);
    net.until("any server extends it", || {
        net.server_log().contains("DHCPREBIND") && net.list()[0]["state"] == "BOUND"
    });
    call.check(&result).ok();
    call.del().ok();
    net.until("the release is seen", || net.released() == 1);
    assert!(net.list().is_empty() && files().is_empty());
    call.del().ok();
}

#[test]
fn both_families_are_leased_concurrently_and_released_without_a_daemon() {
    beyond_reference!("dhcp-v6");
    let Some(mut net) = network(BOTH) else { return };
    let pod = net.pod("pod");
    let call = bridge(&net, &pod, "both");
    let result = call.add().ok_result();
    let addresses = ips(&result);
    assert!(addresses[0].starts_with("10.9.0.") && addresses[1].starts_with("fd00::"), "{result}");
    call.check(&result).ok();
    assert_eq!(net.list().len(), 2);
    net.end_daemon(Signal::SIGTERM);
    call.del().ok();
    net.until("both are released", || net.released() == 2);
    assert!(files().is_empty());
}

/// With both families, the plugin adds the IPv4 address after it also has an IPv6 lease.
#[test]
fn an_ipv4_lease_is_renewed_while_its_add_waits_for_ipv6() {
    beyond_reference!("dhcp-v6");
    let Some(mut net) = DhcpNetwork::with_v6(&format!("{} {SOON}", lab::dhcp::RANGE)) else { return };
    let pod = net.pod("pod");
    let call = bridge(&net, &pod, "both");
    let adding = start_running(&call, "ADD");
    net.until("T1 is past", || net.daemon_log().contains("renewed 10.9.0."));
    assert!(net.list().iter().all(|lease| lease["adding"] == true), "{:?}", net.list());
    // The lists of stale and of valid attachments are older than the ADD. The plugin does not name this attachment.
    let gc = json!({"v": 3, "op": "gc", "network": "net", "stale": [["pod", "eth0"]]});
    let answer = ask(&format!("{gc}\n"));
    assert!(answer.contains("result"), "{answer}");
    net.lab.plugin("dhcp").config(json!({"ipam": {"type": "dhcp"}})).gc(&[]).ok();
    net.serve(BOTH);
    let output = adding.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    call.check(&result).ok();
    assert!(ips(&result).iter().all(|address| net.list().iter().any(|lease| lease["address"] == **address)));
    assert_eq!(net.released(), 0, "{}", net.server_log());
    until_settled(&net, &pod, Family::V4);
    call.del().ok();
    net.until("both are released", || net.released() == 2);
}

#[test]
fn an_add_fails_if_it_loses_its_ipv4_lease_while_it_waits_for_ipv6() {
    beyond_reference!("dhcp-v6");
    let Some(mut net) = DhcpNetwork::with_v6(&format!("{} {SOON}", lab::dhcp::RANGE)) else { return };
    let pod = net.pod("pod");
    let call = bridge(&net, &pod, "both");
    let adding = start_running(&call, "ADD");
    net.until("IPv4 is leased", || leases_on_disk() == 1);
    // The server refuses to renew an address of another subnet.
    net.server.sh("ip addr flush dev eth0 scope global; ip addr add 10.10.0.1/24 dev eth0; ip addr add fd00::1/64 dev eth0 nodad");
    net.serve("--dhcp-range=10.10.0.100,10.10.0.250,255.255.255.0,120");
    net.until("the lease is lost", || net.daemon_log().contains("lost 10.9.0."));
    net.serve(&format!("{RANGE} --dhcp-range=10.10.0.100,10.10.0.250,255.255.255.0,120"));
    let output = adding.wait_with_output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(!output.status.success() && said.contains("lost"), "{said}");
    net.until("nothing is left", || net.list().is_empty() && leases_on_disk() == 0);
    // The next ADD gets addresses of both.
    let result = call.add().ok_result();
    assert!(ips(&result)[0].starts_with("10.10.0."), "{result}");
    call.del().ok();
}

/// When a link is set down, the kernel deletes its IPv6 addresses. The daemon would add only its own again.
#[test]
fn a_container_that_loses_its_ipv4_lease_keeps_its_ipv6_addresses() {
    beyond_reference!("dhcp-v6");
    let ranges = format!("{} {RANGE_V6_FOR_A_DAY} {SOON}", lab::dhcp::RANGE);
    let Some(mut net) = DhcpNetwork::with_v6(&ranges) else { return };
    let pod = net.pod("pod");
    let result = bridge(&net, &pod, "both").add().ok_result();
    until_settled(&net, &pod, Family::V4);
    until_settled(&net, &pod, Family::V6);
    pod.sh("ip addr add fd00:99::99/128 dev eth0 nodad valid_lft 86400 preferred_lft 86400");
    // The server refuses to renew an address of another subnet.
    net.move_to_another_subnet();
    net.until("another IPv4 address", || pod.addresses("eth0").iter().any(|one| one.starts_with("10.10.0.")));
    assert!(net.daemon_log().contains("lost 10.9.0."), "{}", net.daemon_log());
    let addresses = pod.addresses("eth0");
    for address in [ips(&result)[1], "fd00:99::99/128"] {
        assert!(addresses.iter().any(|one| one == address), "{address} was deleted: {addresses:?}");
    }
    assert!(is_up(&pod, "eth0"));
}

#[test]
fn a_second_add_that_fails_for_one_family_keeps_the_leases_of_both() {
    beyond_reference!("dhcp-v6");
    let Some(mut net) = network(BOTH) else { return };
    net.end_daemon(Signal::SIGTERM);
    net.start_daemon("-resendtimeout 3s");
    let (pod, call) = net.plugged("pod");
    let call = call.config(json!({"ipam": {"type": "dhcp", "family": "both"}}));
    let result = call.add().ok_result();
    let addresses: Vec<String> = ips(&result).into_iter().map(str::to_owned).collect();
    addresses.iter().for_each(|address| drop(pod.sh(&format!("ip addr add {address} dev eth0"))));
    until_it_has_times(&net, &pod, "fd00::");
    for served in [lab::dhcp::RANGE, RANGE] {
        net.serve(served);
        call.add().refused(11, "");
        call.check(&result).ok();
        let listed = net.list();
        assert!(
            addresses.iter().all(|address| listed.iter().any(|one| one["address"] == **address)),
            "{listed:?}"
        );
    }
    assert_eq!((net.released(), leases_on_disk()), (0, 2), "{}", net.server_log());
    // The next daemon has them, too.
    net.end_daemon(Signal::SIGKILL);
    net.start_daemon("");
    call.check(&result).ok();
    net.serve(BOTH);
    call.del().ok();
    net.until("both are released", || net.released() == 2);
}

#[test]
fn an_ipv6_address_that_another_host_has_is_declined() {
    beyond_reference!("dhcp-v6");
    // The server has one address, which its machine has already.
    let Some(net) = network("--dhcp-range=fd00::10,fd00::10,64,2m") else { return };
    net.server.sh("ip addr add fd00::10/128 dev eth0 nodad");
    let pod = net.pod("pod");
    let keys = json!({"bridge": "br0", "enabledad": true, "ipam": {"type": "dhcp", "family": "ipv6"}});
    assert!(!net.lab.plugin("bridge").config(keys).on(&pod).add().succeeded());
    net.until("the server hears of it", || net.server_log().contains("DHCPDECLINE"));
    net.until("it is forgotten", || net.list().is_empty() && files().is_empty());
}

#[test]
fn a_lease_whose_add_was_killed_is_released_by_the_next_daemon() {
    beyond_reference!("dhcp-v6");
    let Some(mut net) = network(RANGE) else { return };
    let pod = net.pod("pod");
    net.plug("pod");
    let ipam = json!({"ipam": {"type": "dhcp", "family": "ipv6"}});
    // The address is not put on the link.
    net.lab.plugin("dhcp").config(ipam).on(&pod).add().ok_result();
    net.end_daemon(Signal::SIGKILL);
    make_due(&["since"]);
    net.start_daemon("");
    net.until("it is released", || net.released() == 1);
    net.until("it is forgotten", || net.list().is_empty() && files().is_empty());
}

/// The address is never on the link, because its plugin was killed, or is called alone, as here. The next daemon waits
/// for a minute before it releases such a lease. Meanwhile a server moves the container to another subnet.
#[test]
fn a_daemon_that_moved_an_unused_ipv6_lease_to_another_subnet_sleeps() {
    beyond_reference!("dhcp-v6");
    let Some(mut net) = network(RANGE) else { return };
    let (pod, call) = net.plugged("pod");
    let call = call.config(json!({"ipam": {"type": "dhcp", "family": "ipv6"}}));
    call.add().ok_result();
    net.end_daemon(Signal::SIGKILL);
    net.stop_server();
    net.server.sh("ip addr flush dev eth0 scope global; ip addr add fd01::1/64 dev eth0 nodad");
    net.serve("--dhcp-range=fd01::10,fd01::ff,64,2m");
    // 15 seconds of that minute are left.
    let path = &files()[0];
    let mut record: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    let since = record["lease"]["since"].as_u64().unwrap() - 45_000;
    record["lease"]["since"] = json!(since);
    fs::write(path, record.to_string()).unwrap();
    net.start_daemon("");
    net.until("another address", || pod.sh("ip addr show dev eth0").contains("fd01::"));
    let uptime =
        || fs::read_to_string("/proc/uptime").unwrap().split('.').next().unwrap().parse::<u64>().unwrap();
    net.until("the minute is over", || uptime() > since / 1000 + 61);
    let calls = net.system_calls(Duration::from_secs(2));
    assert!(calls < 200, "{calls} system calls in two seconds; {}", net.daemon_log());
    assert_eq!(net.list()[0]["state"], "BOUND");
    call.del().ok();
}

#[test]
fn an_ipv6_address_that_was_deleted_with_its_links_state_is_noticed_and_restored() {
    beyond_reference!("dhcp-v6");
    // No renewal follows meanwhile.
    let Some(mut net) = network("--dhcp-range=fd00::10,fd00::ff,64,1h") else { return };
    let pod = net.pod("pod");
    let call = bridge(&net, &pod, "ipv6");
    let result = call.add().ok_result();
    let address = ips(&result)[0].to_owned();
    until_it_has_times(&net, &pod, &address);
    pod.sh("ip link set eth0 down; ip link set eth0 up");
    call.check(&result).refused(999, "is missing");
    net.end_daemon(Signal::SIGTERM);
    make_due(&["since"]);
    net.start_daemon("");
    until_it_has_times(&net, &pod, &address);
    call.check(&result).ok();
}

#[test]
fn check_reports_an_ipv6_address_that_another_host_has() {
    beyond_reference!("dhcp-v6");
    let Some(net) = network(RANGE) else { return };
    let pod = net.pod("pod");
    let call = bridge(&net, &pod, "ipv6").config(json!({"enabledad": true}));
    let result = call.add().ok_result();
    let address = ips(&result)[0].to_owned();
    until_it_has_times(&net, &pod, &address);
    net.server.sh(&format!("ip addr add {address} dev eth0 nodad"));
    pod.sh(&format!("ip addr del {address} dev eth0; ip addr add {address} dev eth0"));
    net.until("the kernel finds it", || pod.sh("ip -6 addr show dev eth0 dadfailed").contains(&address));
    let check = net.lab.plugin("dhcp").config(json!({"ipam": {"type": "dhcp", "family": "ipv6"}})).on(&pod);
    check.check(&result).refused(999, "another host has it");
}

#[test]
fn gc_releases_ipv6_leases_with_and_without_a_daemon() {
    beyond_reference!("dhcp-v6");
    let Some(mut net) = network(RANGE) else { return };
    let pods = ["one", "two", "three"].map(|name| net.pod(name));
    for pod in &pods {
        bridge(&net, pod, "ipv6").add().ok_result();
    }
    let ipam = json!({"ipam": {"type": "dhcp", "family": "ipv6"}});
    let collect = |valid: &[(&str, &str)]| net.lab.plugin("dhcp").config(ipam.clone()).gc(valid).ok();
    collect(&[("one", "eth0"), ("two", "eth0")]);
    let containers: Vec<_> = net.list().iter().map(|one| one["containerId"].clone()).collect();
    assert_eq!((containers, files().len()), (vec![json!("one"), json!("two")], 2));
    net.until("one is released", || net.released() == 1);
    net.end_daemon(Signal::SIGTERM);
    let collect = |valid: &[(&str, &str)]| net.lab.plugin("dhcp").config(ipam.clone()).gc(valid).ok();
    collect(&[("one", "eth0")]);
    net.until("another is released", || net.released() == 2);
    assert_eq!(files().len(), 1);
}

/// The request of `cnitool gc`.
#[test]
fn gc_of_named_attachments_waits_for_the_answers_to_all_releases_together() {
    beyond_reference!("dhcp-v6");
    let mut net = DhcpNetwork::silent_v6();
    let server = Server::start(&net.server.netns, |request, before| match request.kind {
        SOLICIT => vec![request.reply(&format!("fd00::7{before}"))],
        _ => vec![],
    });
    net.start_daemon("");
    let names = ["one", "two"];
    let pods = names.map(|name| net.pod(name));
    for pod in &pods {
        bridge(&net, pod, "ipv6").add().ok_result();
    }
    let collect = ["sh", "-c", "exec \"$0\" collect"].map(str::to_owned);
    let stale = names.map(|name| json!({"containerID": name, "ifname": "eth0"}));
    let config = json!({"cniVersion": "1.1.0", "name": "net", "type": "dhcp", "ipam": {"type": "dhcp"}});
    let request = json!({"dryRun": false, "stale": stale, "config": config}).to_string();
    let started = Instant::now();
    let collected = net.lab.plugin("dhcp").under(&collect).stdin(request).run_as_is();
    assert!(collected.succeeded() && files().is_empty(), "{collected:#?}");
    // The daemon stops waiting after four seconds. On a busy machine, it may have sent no repetition by then.
    assert!(started.elapsed() >= Duration::from_secs(3), "GC did not wait for the answers");
    net.until("both releases arrive", || server.received(RELEASE).len() >= 2);
    // The third message is the first repetition.
    let released = server.received(RELEASE);
    assert_ne!(released[0].duid, released[1].duid, "{released:?}");
}

#[test]
fn macvlan_gets_its_ipv6_address_from_the_same_server() {
    needs!(Macvlan);
    beyond_reference!("dhcp-v6");
    let Some(net) = network(RANGE) else { return };
    cable(&net.lab);
    net.lab.host().sh("ip link set far master br0");
    let pods = ["one", "two"].map(|name| net.pod(name));
    let keys = json!({"master": "cable", "ipam": {"type": "dhcp", "family": "ipv6"}});
    let calls = pods.each_ref().map(|pod| net.lab.plugin("macvlan").config(keys.clone()).on(pod));
    let addresses = calls.each_ref().map(|call| ips(&call.add().ok_result())[0].to_owned());
    assert_ne!(addresses[0], addresses[1]);
    for (n, (pod, call)) in pods.iter().zip(&calls).enumerate() {
        until_it_has_times(&net, pod, &addresses[n]);
        call.del().ok();
        net.until("the release is seen", || net.released() == n + 1);
    }
}

#[test]
fn iscs_server_leases_and_releases_ipv6_addresses() {
    beyond_reference!("dhcp-v6");
    let mut net = DhcpNetwork::silent_v6();
    let server = net.server.netns.clone();
    let configuration = "subnet6 fd00::/64 { range6 fd00::10 fd00::ff; option dhcp6.name-servers fd00::53; }";
    if !net.serve_isc("-6", &server, "eth0", configuration) {
        return;
    }
    net.start_daemon("");
    let pod = net.pod("pod");
    let call = bridge(&net, &pod, "ipv6");
    let result = call.add().ok_result();
    let address = ips(&result)[0].to_owned();
    assert!(address.starts_with("fd00::") && result["dns"]["nameservers"] == json!(["fd00::53"]), "{result}");
    until_it_has_times(&net, &pod, &address);
    net.end_daemon(Signal::SIGKILL);
    make_due(&["renew"]);
    net.start_daemon("");
    net.until("a renewal", || net.daemon_log().contains("renewed"));
    call.del().ok();
    let released = |line: &str| line.contains("elease") && line.contains(address.trim_end_matches("/128"));
    net.until("the release is seen", || net.server_log().lines().any(released));
    assert!(net.list().is_empty() && files().is_empty());
}

#[test]
fn answers_of_a_hostile_ipv6_server_are_ignored() {
    beyond_reference!("dhcp-v6");
    let mut net = DhcpNetwork::silent_v6();
    let server = Server::start(&net.server.netns, |request, _| {
        if request.kind != SOLICIT {
            return vec![request.acknowledge()];
        }
        let good = request.reply("fd00::77");
        let (mut other_xid, mut other_client) = (request.reply("fd00::66"), request.reply("fd00::66"));
        other_xid[3] ^= 1;
        other_client[12] ^= 1;
        let garbage = vec![vec![], vec![0], vec![0xff; 4000], good[..good.len() / 2].to_vec()];
        let refused = ["ff02::1", "::1", "::", "fe80::1", "::ffff:10.9.0.1"].map(|bad| request.reply(bad));
        [garbage, vec![other_xid, other_client], refused.to_vec(), vec![good]].concat()
    });
    net.start_daemon("");
    let pod = net.pod("pod");
    let call = bridge(&net, &pod, "ipv6");
    assert_eq!(ips(&call.add().ok_result()), ["fd00::77/128"]);
    // All have the same transaction id: a client repeats its message if the answer is late.
    assert!(is_one(&server.received(SOLICIT)), "{:?}", server.received(SOLICIT));
    call.del().ok();
    assert!(files().is_empty());
}

#[test]
fn an_unusable_ipv6_lease_is_released_immediately() {
    beyond_reference!("dhcp-v6");
    let mut net = DhcpNetwork::silent_v6();
    let server = Server::start(&net.server.netns, |request, before| {
        vec![match request.kind {
            SOLICIT if before == 0 => request.advertise("fd00::66"),
            SOLICIT => request.reply("fd00::77"),
            REQUEST => request.unusable("fd00::66"),
            _ => request.acknowledge(),
        }]
    });
    net.start_daemon("");
    let pod = net.pod("pod");
    let call = bridge(&net, &pod, "ipv6");
    assert_eq!(ips(&call.add().ok_result()), ["fd00::77/128"]);
    assert!(is_one(&server.received(RELEASE)), "{:?}", server.received(RELEASE));
    call.del().ok();
}

#[test]
fn an_address_that_a_server_may_have_allocated_is_released_after_the_plugins_death() {
    beyond_reference!("dhcp-v6");
    let mut net = DhcpNetwork::silent_v6();
    // The server's answer to a REQUEST is lost.
    let server = Server::start(&net.server.netns, |request, _| match request.kind {
        SOLICIT => vec![request.advertise("fd00::77")],
        REQUEST => vec![],
        _ => vec![request.acknowledge()],
    });
    net.start_daemon("");
    let pod = net.pod("pod");
    net.plug("pod");
    let ipam = json!({"ipam": {"type": "dhcp", "family": "ipv6"}});
    let mut plugin = start_running(&net.lab.plugin("dhcp").config(ipam).on(&pod), "ADD");
    net.until("the server gets the request", || !server.received(REQUEST).is_empty());
    plugin.kill().unwrap();
    plugin.wait().unwrap();
    net.until("it is released", || !server.received(RELEASE).is_empty());
    net.until("no request is pending", || net.list().is_empty() && files().is_empty());
}

#[test]
fn an_unusable_address_that_arrives_after_the_plugins_death_is_released() {
    beyond_reference!("dhcp-v6");
    let mut net = DhcpNetwork::silent_v6();
    let (says_died, died) = mpsc::channel::<()>();
    let server = Server::start(&net.server.netns, move |request, _| match request.kind {
        SOLICIT => vec![request.advertise("fd00::77")],
        REQUEST => {
            died.recv_timeout(TIMEOUT).ok();
            vec![request.unusable("fd00::77")]
        }
        _ => vec![request.acknowledge()],
    });
    net.start_daemon("");
    let pod = net.pod("pod");
    net.plug("pod");
    let ipam = json!({"ipam": {"type": "dhcp", "family": "ipv6"}});
    let mut plugin = start_running(&net.lab.plugin("dhcp").config(ipam).on(&pod), "ADD");
    net.until("the server gets the request", || {
        net.list().iter().any(|entry| entry["state"] == "REQUESTING")
    });
    plugin.kill().unwrap();
    plugin.wait().unwrap();
    net.until("the daemon knows", || net.daemon_log().contains("the plugin closed its connection"));
    drop(says_died);
    net.until("it is released", || !server.received(RELEASE).is_empty());
}

#[test]
fn a_release_that_the_network_loses_is_sent_again() {
    beyond_reference!("dhcp-v6");
    let mut net = DhcpNetwork::silent_v6();
    let server = Server::start(&net.server.netns, |request, before| match request.kind {
        SOLICIT => vec![request.reply("fd00::77")],
        // All but the last are lost.
        RELEASE if before < 2 => vec![],
        _ => vec![request.acknowledge()],
    });
    net.start_daemon("");
    let pod = net.pod("pod");
    let call = bridge(&net, &pod, "ipv6");
    call.add().ok_result();
    call.del().ok();
    let released = server.received(RELEASE);
    assert!(released.len() >= 3 && is_one(&released), "{released:?}");
}
