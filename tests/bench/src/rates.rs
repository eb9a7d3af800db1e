//! The rate of a TCP flow that bandwidth limits: `scripts/bench --rates`.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lab::{Lab, Netns};
use serde_json::{Value, json};

const PORT: u16 = 5001;

/// Minimum duration of the measurement after the burst, and minimum number of bits: a packet may have 64 KiB.
const MEASURED: Duration = Duration::from_secs(4);
const MEASURED_BITS: u64 = 32_000_000;

/// Time to settle before the measurement.
const SETTLE: Duration = Duration::from_secs(2);

/// Bits per second.
const RATES: [u64; 4] = [1_000_000, 10_000_000, 100_000_000, 1_000_000_000];

/// kubelet's burst, in bits.
const KUBELETS: u64 = 2_147_483_647;

/// Prints a table: a row for each rate and burst.
pub fn table() {
    println!(
        "| rate | burst | received, with headers | received, payload | sent, with headers | sent, payload |\n|---|---|---|---|---|---|"
    );
    for rate in RATES {
        // One or two ticks of a timer, and room for some packets.
        for (burst, name) in
            [((rate / 50).max(200_000), "20 ms of the rate, at least 25 kB"), (KUBELETS, "kubelet's")]
        {
            let [ingress, egress] = [true, false].map(|ingress| flow(ingress, rate, burst));
            let cells = [ingress, egress].map(|measured| match measured {
                Ok((wire, payload)) => format!("{} | {}", percent(wire, rate), percent(payload, rate)),
                Err(e) => format!("{e} | "),
            });
            println!("| {} Mbit/s | {name} | {} |", rate / 1_000_000, cells.join(" | "));
        }
    }
}

fn percent(bits: f64, of: u64) -> String {
    format!("{:.1}%", bits / of as f64 * 100.0)
}

/// Bits per second of one TCP connection: with all headers, as the kernel counts them, and without.
fn flow(ingress: bool, rate: u64, burst: u64) -> io::Result<(f64, f64)> {
    let lab = Lab::new();
    let pod = lab.container("pod");
    lab.host().sh("ip link add eth0 netns pod type veth peer name cable; ip link set cable up; ip addr add 10.1.2.1/24 dev cable");
    pod.sh("ip link set eth0 up; ip addr add 10.1.2.2/24 dev eth0");
    let way = if ingress { "ingress" } else { "egress" };
    let limits = json!({format!("{way}Rate"): rate, format!("{way}Burst"): burst});
    let prev = json!({"cniVersion": "1.0.0", "interfaces": [{"name": "eth0", "sandbox": pod.path()}]});
    let result =
        lab.plugin("bandwidth").on(&pod).config(json!({"prevResult": prev})).config(limits).add().ok_result();
    let last = result["interfaces"].as_array().and_then(|all| all.last()).expect("an interface");
    let link = if ingress { "cable" } else { last["name"].as_str().expect("a name") };
    let (host, inside): (&Netns, &Netns) = (lab.host(), &pod);
    let (from, to, address) = if ingress { (host, inside, "10.1.2.2") } else { (inside, host, "10.1.2.1") };

    let listener = to.run(|| TcpListener::bind((address, PORT)))?;
    let sender = from.run(|| TcpStream::connect((address, PORT)))?;
    let (receiver, _) = listener.accept()?;
    let (received, end) = (AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| pump(&sender, &end));
        scope.spawn(|| drain(&receiver, &received));
        // When the first packet has to wait, the burst is used up.
        while counted(host, link, "overlimits") == 0 {
            thread::sleep(Duration::from_millis(50));
        }
        thread::sleep(SETTLE);
        let (start, wire, payload) =
            (Instant::now(), counted(host, link, "bytes"), received.load(Ordering::Relaxed));
        thread::sleep(MEASURED.max(Duration::from_secs(MEASURED_BITS / rate)));
        let wire = counted(host, link, "bytes") - wire;
        let payload = received.load(Ordering::Relaxed) - payload;
        let seconds = start.elapsed().as_secs_f64();
        end.store(true, Ordering::Relaxed);
        sender.shutdown(std::net::Shutdown::Both).ok();
        receiver.shutdown(std::net::Shutdown::Both).ok();
        Ok(((wire * 8) as f64 / seconds, (payload * 8) as f64 / seconds))
    })
}

fn pump(mut stream: &TcpStream, end: &AtomicBool) {
    let chunk = vec![0; 64 << 10];
    while !end.load(Ordering::Relaxed) && stream.write_all(&chunk).is_ok() {}
}

fn drain(mut stream: &TcpStream, received: &AtomicU64) {
    let mut chunk = vec![0; 64 << 10];
    while let Ok(count @ 1..) = stream.read(&mut chunk) {
        received.fetch_add(count as u64, Ordering::Relaxed);
    }
}

/// A counter of a link's queueing discipline.
fn counted(host: &Netns, link: &str, what: &str) -> u64 {
    let all: Vec<Value> =
        serde_json::from_str(&host.sh(&format!("tc -s -j qdisc show dev {link}"))).expect("JSON");
    all.iter().find(|qdisc| qdisc["root"] == true).and_then(|qdisc| qdisc[what].as_u64()).expect("a count")
}
