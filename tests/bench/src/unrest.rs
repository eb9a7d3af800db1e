//! Other load on a busy host: tracked connections, and changes of the ruleset.

use std::io::Write;
use std::net::UdpSocket;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lab::Lab;

use crate::process::Spent;
use crate::side::Side;

/// Connections: 200 000, of the default limit of 262 144.
const SOURCES: u16 = 4;
const PORTS_EACH: u16 = 50_000;

/// Creates connections that belong to no container. They stay for an hour.
pub fn with_connections(lab: &Lab, _: Side) -> Spent {
    lab.host().sh("nft 'table inet others {
            chain out { type filter hook output priority 0; ct state new counter; }
            chain in { type filter hook input priority 0; iif lo udp sport 1-4 drop; }
            set busy { type inet_service; }; }'
        echo 3600 >/proc/sys/net/netfilter/nf_conntrack_udp_timeout");
    for source in 1..=SOURCES {
        let socket = UdpSocket::bind(("127.0.0.1", source)).expect("a port of the lab's host");
        for port in 10_000..10_000 + PORTS_EACH {
            // Dropped packets do not matter, because the connection is already tracked.
            socket.send_to(b"?", ("127.0.0.1", port)).ok();
        }
    }
    let tracked = lab.host().sh("cat /proc/sys/net/netfilter/nf_conntrack_count");
    let tracked: u32 = tracked.trim().parse().expect("a number");
    let expected = u32::from(SOURCES) * u32::from(PORTS_EACH);
    let failures = (tracked < expected).then(|| format!("only {tracked} connections are tracked"));
    Spent { failures: failures.into_iter().collect(), ..Spent::default() }
}

/// Runs `work` while another process changes the ruleset after each `pause`, as kube-proxy's `nft` does.
pub fn with_a_writer<T>(pause: Duration, work: impl FnOnce() -> T) -> T {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut next = Instant::now();
            for n in 0_u32.. {
                if done.load(Ordering::Relaxed) {
                    break;
                }
                change(if n.is_multiple_of(2) { "add" } else { "delete" });
                next += pause;
                thread::sleep(next.saturating_duration_since(Instant::now()));
            }
        });
        let outcome = work();
        done.store(true, Ordering::Relaxed);
        outcome
    })
}

fn change(command: &str) {
    let mut nft = Command::new("nft");
    let nft = nft.args(["-f", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let Ok(mut nft) = nft.spawn() else { return };
    if let Some(mut input) = nft.stdin.take() {
        writeln!(input, "{command} element inet others busy {{ 80, 443 }}").ok();
    }
    nft.wait().ok();
}
