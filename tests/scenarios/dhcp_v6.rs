//! dhcp's addresses of IPv6, from a real server: Debian's dnsmasq, on a link of its own.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use lab::{Call, Container, Lab, Netns, PATH, beyond_reference, under_test};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use system::Patience;

use crate::common::ips;

const SERVER: &str = "/usr/sbin/dnsmasq";
const SERVER_LOG: &str = "/run/lab/server.log";
const DAEMON_LOG: &str = "/run/lab/daemon.log";
const RANGE: &str = "--dhcp-range=fd00::10,fd00::ff,64,2m";
const BOTH: &str =
    "--dhcp-range=fd00::10,fd00::ff,64,2m --dhcp-range=10.9.0.100,10.9.0.250,255.255.255.0,120";

fn said(log: &str) -> String {
    fs::read_to_string(log).unwrap_or_default()
}

/// Waits for what the kernel tells nobody of: a program's log, a file.
fn until(what: &str, condition: impl Fn() -> bool) {
    let came = Patience::new(Duration::from_secs(60)).wait_for(|| Ok(condition().then_some(()))).unwrap();
    assert!(came.is_some(), "still not after a minute: {what}; the daemon says {}", said(DAEMON_LOG));
}

/// Runs in the background until it is dropped.
struct Background(Child);

impl Background {
    fn start(machine: &Netns, mut command: Command, log: &str) -> Self {
        let log = || File::options().create(true).append(true).open(log).unwrap();
        command.stdin(Stdio::null()).stdout(log()).stderr(log()).env("PATH", PATH);
        Self(machine.run(|| command.spawn()).unwrap())
    }

    fn end(mut self, signal: Signal) {
        kill(Pid::from_raw(self.0.id().cast_signed()), signal).unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

fn executable() -> PathBuf {
    under_test().dir.join("dhcp")
}

fn daemon(lab: &Lab) -> Background {
    let mut command = Command::new(executable());
    command.arg("daemon");
    let daemon = Background::start(lab.host(), command, DAEMON_LOG);
    let listening = || lab.host().try_exec(&["sh", "-c", "ss -Hlx src /run/cni/dhcp.sock | grep -q ."]);
    until("the daemon listens", || listening().status.success());
    daemon
}

/// A machine with a bridge, and another one on it that servers run in. None: there is no dnsmasq here.
fn network(lab: &Lab) -> Option<Container> {
    if !Path::new(SERVER).exists() {
        lab::skip("dnsmasq is missing");
        return None;
    }
    let server = lab.container("server");
    lab.host().sh(
        "ip link add br0 type bridge; ip link set br0 up
         ip link add srv type veth peer name eth0 netns server; ip link set srv master br0; ip link set srv up",
    );
    server.sh("ip link set lo up; echo 0 >/proc/sys/net/ipv6/conf/eth0/accept_dad; ip link set eth0 up
         ip addr add fd00::1/64 dev eth0 nodad; ip addr add 10.9.0.1/24 dev eth0");
    Some(server)
}

fn serve(server: &Netns, options: &str) -> Background {
    let line = format!(
        "--keep-in-foreground --port=0 --user=root --conf-file=/dev/null --pid-file= --interface=eth0 --bind-interfaces --no-ping
         --log-dhcp --log-facility={SERVER_LOG} --dhcp-leasefile=/run/lab/server.leases --dhcp-option=option6:dns-server,[fd00::53]
         --dhcp-option=option6:domain-search,example.org {options}"
    );
    let mut command = Command::new(SERVER);
    command.args(line.split_whitespace());
    let process = Background::start(server, command, "/run/lab/server.err");
    until("the server listens", || !server.exec(&["ss", "-Hlun", "sport = 547"]).is_empty());
    process
}

fn bridge(lab: &Lab, pod: &Container, family: &str) -> Call {
    let ipam = json!({"type": "dhcp", "family": family});
    lab.plugin("bridge").config(json!({"bridge": "br0", "ipam": ipam})).on(pod)
}

fn list(lab: &Lab) -> Vec<Value> {
    let text = lab.host().exec(&[executable().to_str().unwrap(), "list", "-o", "json"]);
    serde_json::from_str(&text).unwrap()
}

/// The files of leases for IPv6.
fn files() -> Vec<PathBuf> {
    let entries = fs::read_dir("/run/cni/dhcp").into_iter().flatten().flatten().map(|entry| entry.path());
    entries.filter(|path| path.to_string_lossy().ends_with(".v6.json")).collect()
}

/// Changes a lease on disk while no daemon has it: servers give no shorter ones than of two minutes.
fn make_due(times: &[&str]) {
    let path = &files()[0];
    let mut record: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    times.iter().for_each(|time| record["lease"][*time] = json!(1));
    fs::write(path, record.to_string()).unwrap();
}

#[test]
fn an_ipv6_address_is_leased_renewed_after_a_kill_and_given_back() {
    beyond_reference!("dhcp-v6");
    let lab = Lab::new();
    let Some(server) = network(&lab) else { return };
    let serving = serve(&server, &format!("{RANGE} --enable-ra"));
    let first = daemon(&lab);
    let pod = lab.container("pod");
    let call = bridge(&lab, &pod, "ipv6");
    let result = call.add().ok_result();
    let address = ips(&result)[0].to_owned();
    assert!(address.starts_with("fd00::") && address.ends_with("/128"), "{result}");
    assert_eq!(
        (&result["dns"]["nameservers"], &result["dns"]["search"]),
        (&json!(["fd00::53"]), &json!(["example.org"]))
    );
    let times = || pod.sh("ip -6 addr show dev eth0 scope global dynamic");
    until("the address has its lifetimes", || times().contains(&address));
    let leased = list(&lab);
    assert_eq!(
        (leased.len(), &leased[0]["address"], &leased[0]["state"]),
        (1, &json!(address), &json!("BOUND"))
    );
    call.check(&result).ok();
    call.status().ok();
    // Routes come from routers.
    until("the router's route", || pod.sh("ip -6 route show default").contains("via fe80::"));
    assert!(pod.reaches("fd00::1"));
    // The next daemon carries on.
    first.end(Signal::SIGKILL);
    let second = daemon(&lab);
    until("the lease is confirmed", || {
        said(SERVER_LOG).contains("DHCPCONFIRM") && list(&lab)[0]["state"] == "BOUND"
    });
    second.end(Signal::SIGKILL);
    make_due(&["renew"]);
    let third = daemon(&lab);
    until("a renewal", || said(DAEMON_LOG).contains("renewed") && said(SERVER_LOG).contains("DHCPRENEW"));
    assert_eq!(list(&lab)[0]["address"], json!(address));
    // A server that is back has all it needs from the client.
    third.end(Signal::SIGTERM);
    serving.end(Signal::SIGTERM);
    make_due(&["renew", "rebind"]);
    let _fourth = daemon(&lab);
    until("all servers are asked", || list(&lab)[0]["state"] == "REBINDING");
    call.status().refused(51, "IPv6");
    let _serving = serve(&server, RANGE);
    until("any server extends it", || {
        said(SERVER_LOG).contains("DHCPREBIND") && list(&lab)[0]["state"] == "BOUND"
    });
    call.check(&result).ok();
    call.del().ok();
    assert!(said(SERVER_LOG).contains("DHCPRELEASE"), "{}", said(SERVER_LOG));
    assert!(list(&lab).is_empty() && files().is_empty());
    call.del().ok();
}

#[test]
fn both_families_are_leased_at_once_and_given_back_without_a_daemon() {
    beyond_reference!("dhcp-v6");
    let lab = Lab::new();
    let Some(server) = network(&lab) else { return };
    let _serving = serve(&server, BOTH);
    let process = daemon(&lab);
    let pod = lab.container("pod");
    let call = bridge(&lab, &pod, "both");
    let result = call.add().ok_result();
    let addresses = ips(&result);
    assert!(addresses[0].starts_with("10.9.0.") && addresses[1].starts_with("fd00::"), "{result}");
    call.check(&result).ok();
    assert_eq!(list(&lab).len(), 2);
    process.end(Signal::SIGTERM);
    call.del().ok();
    let log = said(SERVER_LOG);
    until("both are given back", || said(SERVER_LOG).matches("DHCPRELEASE").count() == 2);
    assert!(files().is_empty(), "{log}");
}

#[test]
fn an_ipv6_address_that_another_host_has_is_declined() {
    beyond_reference!("dhcp-v6");
    let lab = Lab::new();
    let Some(server) = network(&lab) else { return };
    // There is one address to give, and the server's machine has it already.
    let _serving = serve(&server, "--dhcp-range=fd00::10,fd00::10,64,2m");
    server.sh("ip addr add fd00::10/128 dev eth0 nodad");
    let _daemon = daemon(&lab);
    let pod = lab.container("pod");
    let keys = json!({"bridge": "br0", "enabledad": true, "ipam": {"type": "dhcp", "family": "ipv6"}});
    assert!(!lab.plugin("bridge").config(keys).on(&pod).add().succeeded());
    until("the server hears of it", || said(SERVER_LOG).contains("DHCPDECLINE"));
    assert!(list(&lab).is_empty() && files().is_empty());
}
