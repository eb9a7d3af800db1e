//! dhcp with its daemon and real servers: Debian's dnsmasq, on a link of its own.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use lab::{Call, Container, Feature, Lab, Netns, PATH, beyond_reference, under_test};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use system::Patience;

use crate::common::ips;

const SERVER: &str = "/usr/sbin/dnsmasq";
const STATE: &str = "/run/cni/dhcp";

/// Waits for what the kernel tells nobody of: a program's log, a file.
fn until(what: &str, condition: impl Fn() -> bool) {
    let came = Patience::new(Duration::from_secs(60)).wait_for(|| Ok(condition().then_some(()))).unwrap();
    assert!(came.is_some(), "still not after a minute: {what}; the daemon says {}", daemon_log());
}

/// Runs in the background until it is dropped.
struct Background(Child);

impl Background {
    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.0.id().cast_signed()), signal).unwrap();
    }

    /// Ends it, and waits until it has ended.
    fn end(mut self, signal: Signal) {
        self.signal(signal);
        self.0.wait().unwrap();
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// A daemon of whoever is under test, ready to be asked.
fn daemon(lab: &Lab, flags: &str) -> Background {
    let log = File::options().create(true).append(true).open("/run/lab/daemon.log").unwrap();
    let mut command = Command::new(under_test().dir.join("dhcp"));
    command
        .arg("daemon")
        .args(flags.split_whitespace())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log);
    let daemon = Background(command.spawn().unwrap());
    let listening = || lab.host().try_exec(&["sh", "-c", "ss -Hlx src /run/cni/dhcp.sock | grep -q ."]);
    until("the daemon listens", || listening().status.success());
    daemon
}

fn daemon_log() -> String {
    fs::read_to_string("/run/lab/daemon.log").unwrap_or_default()
}

/// A server on br0, with leases of a range of 10.9.0.0/24. `options`: more of its command line.
fn serve(server: &Netns, options: &str) -> Background {
    let line = format!(
        "{SERVER} --keep-in-foreground --port=0 --user=root --conf-file=/dev/null --pid-file= --interface=eth0 --bind-interfaces
         --no-ping --dhcp-authoritative --dhcp-broadcast --log-dhcp --log-facility=/run/lab/server.log --dhcp-leasefile=/run/lab/server.leases
         --dhcp-option=option:dns-server,10.9.0.53 --domain=example.org {options}"
    );
    let words: Vec<_> = line.split_whitespace().collect();
    let child = server.run(|| {
        Command::new(words[0])
            .args(&words[1..])
            .env("PATH", PATH)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
    });
    let server_process = Background(child.unwrap());
    until("the server listens", || !server.exec(&["ss", "-Hlun", "sport = 67"]).is_empty());
    server_process
}

const RANGE: &str =
    "--dhcp-range=10.9.0.100,10.9.0.250,255.255.255.0,120 --dhcp-option=option:router,10.9.0.1";

/// A machine with a bridge, and another one on it that servers run in.
fn network(lab: &Lab) -> Container {
    let server = lab.container("server");
    lab.host().sh(
        "ip link add br0 type bridge; ip link set br0 up
         ip link add srv type veth peer name eth0 netns server; ip link set srv master br0; ip link set srv up",
    );
    server.sh("ip link set lo up; ip link set eth0 up; ip addr add 10.9.0.1/24 dev eth0");
    server
}

fn bridge(lab: &Lab, pod: &Container) -> Call {
    lab.plugin("bridge").config(json!({"bridge": "br0", "ipam": {"type": "dhcp"}})).on(pod)
}

fn server_log() -> String {
    fs::read_to_string("/run/lab/server.log").unwrap_or_default()
}

fn list(lab: &Lab) -> Vec<Value> {
    let dhcp = under_test().dir.join("dhcp");
    let text = lab.host().exec(&[dhcp.to_str().unwrap(), "list", "-o", "json"]);
    serde_json::from_str(&text).unwrap()
}

/// The files of leases.
pub fn files() -> usize {
    let entries = fs::read_dir(STATE).into_iter().flatten().flatten();
    entries.filter(|entry| entry.path().extension().is_some_and(|extension| extension == "json")).count()
}

/// Whether the server can be had here; if not, the test is counted as skipped.
pub fn can_be_had() -> bool {
    let is_there = Path::new(SERVER).exists();
    if !is_there {
        lab::skip("dnsmasq is missing");
    }
    is_there
}

macro_rules! needs_server {
    () => {
        if !can_be_had() {
            return;
        }
    };
}

/// A server on br0, and a daemon, until this is dropped.
pub fn start(lab: &Lab) -> impl Drop + use<> {
    struct Running {
        _server: Background,
        _daemon: Background,
    }
    impl Drop for Running {
        fn drop(&mut self) {}
    }
    let server = network(lab);
    Running { _server: serve(&server, RANGE), _daemon: daemon(lab, "") }
}

#[test]
fn an_address_is_leased_and_given_back_when_the_container_goes() {
    needs_server!();
    let lab = Lab::new();
    let server = network(&lab);
    let _serving = serve(&server, RANGE);
    let _daemon = daemon(&lab, "");
    let pod = lab.container("pod");
    let call = bridge(&lab, &pod);
    let result = call.add().ok_result();
    assert!(ips(&result)[0].starts_with("10.9.0."), "{result}");
    assert_eq!(result["ips"][0]["gateway"], "10.9.0.1");
    assert!(pod.reaches("10.9.0.1"));
    if under_test().reference {
        return;
    }
    assert_eq!(result["dns"]["nameservers"], json!(["10.9.0.53"]));
    assert!(pod.routes().iter().any(|route| route.starts_with("default via 10.9.0.1")), "{:?}", pod.routes());
    let leased = list(&lab);
    assert_eq!(
        (leased.len(), &leased[0]["address"], &leased[0]["state"]),
        (1, &json!(ips(&result)[0]), &json!("BOUND"))
    );
    call.check(&result).ok();
    call.status().ok();
    call.del().ok();
    until("the release is seen", || server_log().contains("DHCPRELEASE"));
    assert!(list(&lab).is_empty() && files() == 0);
    call.del().ok();
}

/// T1 comes after seconds, though the lease is as long as the server lets it be.
const SOON: &str = "--dhcp-option=option:T1,2 --dhcp-option=option:T2,4";

#[test]
fn a_lease_is_renewed_by_the_daemon_that_comes_after_one_that_was_killed() {
    beyond_reference!("dhcp-restart");
    needs_server!();
    let lab = Lab::new();
    let server = network(&lab);
    let serving = serve(&server, &format!("{RANGE} {SOON}"));
    let first = daemon(&lab, "");
    let pod = lab.container("pod");
    let call = bridge(&lab, &pod);
    let result = call.add().ok_result();
    first.end(Signal::SIGKILL);
    let second = daemon(&lab, "");
    assert_eq!(list(&lab)[0]["address"], json!(ips(&result)[0]));
    let renewed = || server_log().matches("DHCPACK").count();
    let before = renewed();
    until("a renewal", || renewed() > before);
    until("the daemon knows", || daemon_log().contains("renewed"));
    call.check(&result).ok();
    // Nothing is lost by an orderly end either.
    second.end(Signal::SIGTERM);
    assert!(!Path::new("/run/cni/dhcp.sock").exists() && files() == 1);
    // No daemon: no ADD, but a DEL.
    call.status().refused(50, "dhcp.sock");
    call.del().ok();
    until("the release is seen", || server_log().contains("DHCPRELEASE"));
    assert_eq!(files(), 0);
    let other = lab.container("other");
    bridge(&lab, &other).add().refused(11, "dhcp.sock");
    drop(serving);
}

#[test]
fn a_server_that_comes_back_with_another_subnet_moves_the_container_there() {
    beyond_reference!("dhcp-change");
    needs_server!();
    let lab = Lab::new();
    let server = network(&lab);
    let serving = serve(&server, &format!("{RANGE} {SOON}"));
    let _daemon = daemon(&lab, "");
    let pod = lab.container("pod");
    let call = bridge(&lab, &pod);
    call.add().ok_result();
    serving.end(Signal::SIGTERM);
    fs::remove_file("/run/lab/server.leases").unwrap();
    server.sh("ip addr flush dev eth0; ip addr add 10.10.0.1/24 dev eth0");
    let _serving = serve(
        &server,
        "--dhcp-range=10.10.0.100,10.10.0.250,255.255.255.0,120 --dhcp-option=option:router,10.10.0.1",
    );
    until("the new address", || pod.addresses("eth0").iter().any(|address| address.starts_with("10.10.0.")));
    until("the new route", || pod.routes().iter().any(|route| route.starts_with("default via 10.10.0.1")));
    assert!(!pod.addresses("eth0").iter().any(|address| address.starts_with("10.9.0.")));
    assert!(pod.reaches("10.10.0.1"));
    call.del().ok();
    assert_eq!(files(), 0);
}

#[test]
fn a_container_that_vanishes_is_forgotten_and_nothing_keeps_its_namespace() {
    beyond_reference!("dhcp-restart");
    needs_server!();
    let lab = Lab::new();
    let server = network(&lab);
    let _serving = serve(&server, &format!("{RANGE} {SOON}"));
    let daemon_process = daemon(&lab, "");
    let pod = lab.container("pod");
    let call = bridge(&lab, &pod);
    call.add().ok_result();
    let links = || lab.host().link_names().iter().filter(|name| name.starts_with("veth")).count();
    assert_eq!(links(), 1);
    pod.vanish();
    until("the namespace dies", || links() == 0);
    until("the lease is forgotten", || files() == 0);
    call.without("CNI_NETNS").del().ok();
    daemon_process.end(Signal::SIGTERM);
}

#[test]
fn gc_gives_back_what_is_not_valid() {
    beyond_reference!("gc");
    needs_server!();
    let lab = Lab::new();
    let server = network(&lab);
    let _serving = serve(&server, RANGE);
    let _daemon = daemon(&lab, "");
    let pods = ["one", "two"].map(|id| lab.container(id));
    let results = pods.each_ref().map(|pod| bridge(&lab, pod).add().ok_result());
    lab.plugin("dhcp").config(json!({"ipam": {"type": "dhcp"}})).gc(&[("one", "eth0")]).ok();
    until("the release is seen", || server_log().contains("DHCPRELEASE"));
    assert_eq!(list(&lab).len(), 1);
    bridge(&lab, &pods[0]).check(&results[0]).ok();
    bridge(&lab, &pods[1]).check(&results[1]).refused(999, "no lease");
}

#[test]
fn many_containers_at_once_each_get_an_address_of_their_own() {
    needs_server!();
    let lab = Lab::new();
    let server = network(&lab);
    let _serving = serve(&server, RANGE);
    let _daemon = daemon(&lab, "");
    let pods: Vec<_> = (0..20).map(|n| lab.container(&format!("pod{n}"))).collect();
    let calls: Vec<_> = pods.iter().map(|pod| bridge(&lab, pod)).collect();
    let running: Vec<_> = calls.iter().map(start_adding).collect();
    let mut addresses: Vec<String> = running
        .into_iter()
        .map(|child| {
            let output = child.wait_with_output().unwrap();
            let result: Value = serde_json::from_slice(&output.stdout).unwrap();
            ips(&result)[0].to_owned()
        })
        .collect();
    addresses.sort();
    addresses.dedup();
    assert_eq!(addresses.len(), pods.len());
}

/// Starts an ADD, and does not wait for it.
fn start_adding(call: &Call) -> Child {
    use std::io::Write;
    let mut command = call.process();
    command.env("CNI_COMMAND", "ADD").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(&call.input()).unwrap();
    child
}

#[test]
fn macvlan_gets_its_address_from_the_same_server() {
    if !Feature::Macvlan.is_there() {
        return lab::skip("this kernel has no macvlan");
    }
    needs_server!();
    let lab = Lab::new();
    let server = network(&lab);
    let _serving = serve(&server, RANGE);
    let _daemon = daemon(&lab, "");
    let pod = lab.container("pod");
    lab.host().sh("ip link add cable type veth peer name port; ip link set port master br0; ip link set port up; ip link set cable up");
    let call = lab.plugin("macvlan").config(json!({"master": "cable", "ipam": {"type": "dhcp"}})).on(&pod);
    let result = call.add().ok_result();
    assert!(ips(&result)[0].starts_with("10.9.0."));
    assert!(pod.reaches("10.9.0.1"));
    call.del().ok();
}

#[test]
fn the_addresses_of_a_daemon_that_forgot_them_are_adopted() {
    beyond_reference!("dhcp-restart");
    needs_server!();
    let lab = Lab::new();
    let server = network(&lab);
    let _serving = serve(&server, RANGE);
    let first = daemon(&lab, "");
    let pod = lab.container("pod");
    let plugin = json!({"type": "bridge", "bridge": "br0", "ipam": {"type": "dhcp"}});
    lab.configure("lan.conflist", &json!({"cniVersion": "1.0.0", "name": "lan", "plugins": [plugin]}));
    lab.cnitool().says("add lan pod");
    let address = pod.addresses("eth0")[0].clone();
    first.end(Signal::SIGKILL);
    fs::remove_dir_all(STATE).unwrap();
    let _second = daemon(&lab, "-adopt");
    until("the address is confirmed", || list(&lab).first().is_some_and(|lease| lease["state"] == "BOUND"));
    assert_eq!(
        (list(&lab)[0]["address"].as_str(), pod.addresses("eth0")),
        (Some(&*address), vec![address.clone()])
    );
}

#[test]
fn a_plugin_that_hangs_up_leaves_no_lease() {
    beyond_reference!("dhcp-restart");
    needs_server!();
    let lab = Lab::new();
    // Nobody answers.
    let _server = network(&lab);
    let _daemon = daemon(&lab, "");
    let pod = lab.container("pod");
    lab.host().sh("ip link add port type veth peer name eth0 netns pod; ip link set port master br0 up");
    let mut adding = start_adding(&lab.plugin("dhcp").config(json!({"ipam": {"type": "dhcp"}})).on(&pod));
    until("the daemon asks", || list(&lab).len() == 1);
    adding.kill().unwrap();
    adding.wait().unwrap();
    until("the daemon gives up", || list(&lab).is_empty());
    assert_eq!(files(), 0);
}

#[test]
fn whatever_is_sent_to_the_daemon_it_serves_on_and_its_memory_does_not_grow() {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    beyond_reference!("dhcp-restart");
    let lab = Lab::new();
    let process = daemon(&lab, "");
    let connect = || UnixStream::connect("/run/cni/dhcp.sock").unwrap();
    let ask = |text: &str| {
        let mut stream = connect();
        stream.write_all(text.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).map(|_| answer).unwrap_or_default()
    };
    assert!(ask("CONNECT /_goRPC_ HTTP/1.0\n\n").starts_with("HTTP/1.0 426 Ferrule daemon"));
    for request in ["garbage\n", "{}\n", "{\"v\":1,\"op\":\"acquire\"}\n", "{\"v\":2,\"op\":\"list\"}\n"] {
        assert!(ask(request).contains("error"), "{request}");
    }
    let mut halves: Vec<_> = (0..200).map(|_| connect()).collect();
    halves.iter_mut().for_each(|half| half.write_all(b"{").unwrap());
    // Bytes of the heap, in the kernel's count.
    let size = || {
        let status = fs::read_to_string(format!("/proc/{}/status", process.0.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmData:")).unwrap().to_owned();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap()
    };
    let many = || {
        for n in 0..5000 {
            assert!(ask("{\"v\":1,\"op\":\"list\"}\n").contains("result"));
            assert!(ask(&format!("{{\"v\":1,\"op\":\"status\",\"network\":\"n{n}\"}}\n")).contains("result"));
        }
    };
    many();
    let before = size();
    many();
    assert!(size() <= before, "{before} kB, and then {} kB", size());
}
