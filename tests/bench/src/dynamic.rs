//! Addresses from a DHCP server, and how long the server itself takes.

use std::net::UdpSocket;
use std::time::{Duration, Instant};
use std::{fs, mem, thread};

use lab::dhcp::{DhcpSite, RANGE};
use lab::{Lab, Netns};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::machine::Prepare;
use crate::networks::{dynamic, nothing};
use crate::process::{How, Spent, run};
use crate::rounds::chain;
use crate::side::Side;

/// A DHCP server, and the side's daemon.
pub fn with_daemon(lab: &Lab, side: Side) -> DhcpSite {
    let mut site = DhcpSite::new(lab, side.directory("dhcp"));
    site.serve(RANGE);
    site.start_daemon("");
    site
}

/// ADD and DEL with dnsmasq, compared with the same four messages by a minimal client.
pub fn leased() -> Box<Prepare> {
    let whole = chain(dynamic, nothing, None);
    Box::new(move |lab, side| {
        let site = with_daemon(lab, side);
        let mut whole = whole(lab, side);
        site.plug("pod");
        let bare = lab.container("bare");
        site.plug(&bare.id);
        bare.sh(
            "ip addr add 10.9.0.2/24 dev eth0; ip link set eth0 up; ip route add 255.255.255.255 dev eth0",
        );
        Box::new(move |how| {
            // The server runs as long as there are rounds.
            let _running = &site;
            let mut phases = whole(how);
            phases.push(exchange(&bare));
            phases
        })
    })
}

/// How long the idle daemon is measured.
const IDLE: Duration = Duration::from_secs(3);

/// A daemon with 1 000 leases: the time from its start to its first answer, and its CPU time while it is idle.
pub fn idle_daemon() -> Box<Prepare> {
    Box::new(move |lab, side| {
        let mut site = with_daemon(lab, side);
        let pod = lab.container("pod");
        site.plug(&pod.id);
        let call = side.plugin(lab, "dhcp").config(json!({"name": "net", "ipam": {"type": "dhcp"}})).on(&pod);
        let (added, result) = run(&call, "ADD", How::Timed);
        let result: Value = serde_json::from_str(&result).unwrap_or_default();
        pod.sh(&format!("ip addr add {} dev eth0", result["ips"][0]["address"].as_str().unwrap_or_default()));
        site.end_daemon(Signal::SIGTERM);
        site.multiply_lease(1_000);
        let mut failures = added.failures;
        Box::new(move |how| {
            let start = Instant::now();
            site.start_daemon("");
            let leases = site.list().len();
            let mut started =
                Spent { took: start.elapsed(), failures: mem::take(&mut failures), ..Spent::default() };
            if leases != 1_000 {
                started.failures.push(format!("the daemon has {leases} leases"));
            }
            let pid = site.daemon().expect("a daemon runs").id();
            let mut idle = Spent::default();
            match how {
                How::Timed => {
                    let before = processor_time(pid);
                    thread::sleep(IDLE);
                    idle.took = processor_time(pid) - before;
                }
                How::Traced => {
                    idle.cost.system_calls = site.system_calls(IDLE) as u64;
                    idle.cost.peak = peak(pid);
                }
            }
            site.end_daemon(Signal::SIGTERM);
            vec![started, idle]
        })
    })
}

/// CPU time of a process (proc_pid_schedstat, in nanoseconds).
fn processor_time(pid: u32) -> Duration {
    let text = fs::read_to_string(format!("/proc/{pid}/schedstat")).expect("read a process's times");
    let first = text.split_whitespace().next().and_then(|time| time.parse().ok());
    Duration::from_nanos(first.expect("a number of nanoseconds"))
}

/// Peak resident set of a process in KiB (proc_pid_status(5)).
fn peak(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).expect("read a process's status");
    let peak =
        text.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse().ok());
    peak.expect("a number of KiB")
}

const DISCOVER: u8 = 1;
const REQUEST: u8 = 3;

/// DISCOVER, OFFER, REQUEST, ACK.
fn exchange(netns: &Netns) -> Spent {
    let took = netns.run(|| {
        let socket = UdpSocket::bind("0.0.0.0:68")?;
        socket.set_broadcast(true)?;
        socket.set_read_timeout(Some(Duration::from_secs(10)))?;
        let start = Instant::now();
        let mut answer = [0; 1500];
        socket.send_to(&message(DISCOVER, &[]), "255.255.255.255:67")?;
        socket.recv(&mut answer)?;
        // The offered address, and the server's address.
        let offered = [[50, 4].as_slice(), &answer[16..20], &[54, 4, 10, 9, 0, 1]].concat();
        socket.send_to(&message(REQUEST, &offered), "255.255.255.255:67")?;
        socket.recv(&mut answer)?;
        std::io::Result::Ok(start.elapsed())
    });
    let failures = took.as_ref().err().map(ToString::to_string).into_iter().collect();
    Spent { took: took.unwrap_or_default(), failures, ..Spent::default() }
}

/// A client's message (RFC 2131, figure 1) with the broadcast flag.
fn message(kind: u8, options: &[u8]) -> Vec<u8> {
    let mut message = vec![0; 236];
    message[..12].copy_from_slice(&[1, 1, 6, 0, 1, 2, 3, 4, 0, 0, 0x80, 0]);
    message[28..34].copy_from_slice(&[2, 0, 0, 0, 0, 9]);
    // The magic cookie and the message type.
    message.extend([99, 130, 83, 99, 53, 1, kind]);
    message.extend_from_slice(options);
    message.push(255);
    message.resize(300, 0);
    message
}
