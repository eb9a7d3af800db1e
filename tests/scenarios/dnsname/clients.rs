//! The resolvers of containers.

use std::net::{Ipv4Addr, UdpSocket};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lab::{Lab, Netns, beyond_reference};
use serde_json::json;

use super::*;

#[test]
fn glibc_resolves_names_with_and_without_the_domain() {
    beyond_reference!("dnsname");
    let lab = Lab::new();
    let networks = Networks::new(&lab, &[network(&json!({}))]);
    let (web, own) = networks.attach(&lab, "web", &["www"]);
    let (db, result) = networks.attach(&lab, "db", &[]);
    for name in ["web", "www", "web.dns.test"] {
        let found = resolving(&db, &result, &format!("getent ahostsv4 {name}"));
        assert!(found.starts_with(&bare(&own)[0]), "{name}: {found}");
        let found = resolving(&db, &result, &format!("getent ahostsv6 {name}"));
        assert!(found.starts_with(&bare(&own)[1]), "{name}: {found}");
    }
    let found = resolving(&db, &result, &format!("getent hosts {}", bare(&own)[0]));
    assert!(found.contains("web.dns.test"), "{found}");
    networks.del_all(&[&web, &db]);
}

#[test]
fn busybox_resolves_names_as_alpines_containers_do() {
    beyond_reference!("dnsname");
    let Some(tree) = unpacked("dns-clients") else { return };
    let lab = Lab::new();
    let networks = Networks::new(&lab, &[network(&json!({}))]);
    let (web, own) = networks.attach(&lab, "web", &["www"]);
    let (db, result) = networks.attach(&lab, "db", &[]);
    for name in ["web.dns.test", "www.dns.test"] {
        let busybox = tree.join("bin/busybox");
        let found = resolving(&db, &result, &format!("{} nslookup {name}", busybox.display()));
        assert!(bare(&own).iter().all(|ip| found.contains(ip.as_str())), "{name}: {found}");
    }
    networks.del_all(&[&web, &db]);
}

#[test]
fn a_name_with_a_hundred_addresses_is_answered_in_full_over_tcp_and_with_edns() {
    beyond_reference!("dnsname");
    let Some(dig) = Dig::here() else { return };
    let lab = Lab::new();
    let networks = Networks::new(&lab, &[network(&json!({}))]);
    let pods: Vec<_> = (0..100).map(|n| lab.container(&format!("pod{n}"))).collect();
    let mut addresses =
        crate::crowd::by_workers(&pods, |pod| bare(&networks.add("net", pod, &pod.id, &["all"]))[0].clone());
    addresses.sort();
    for way in ["+tcp", "+bufsize=4096", "+bufsize=1232", "+noedns"] {
        assert_eq!(dig.ask(&pods[0], SERVERS[0], &format!("{way} all A")), addresses, "{way}");
    }
    let cut = dig.says(&pods[0], SERVERS[0], "+noedns +ignore all A");
    assert!(cut.contains("tc"), "it does not fit without EDNS: {cut}");
    crate::crowd::by_workers(&pods, |pod| networks.del("net", pod));
    assert_eq!((server_of("net"), hosts_of("net").as_str()), (None, ""));
}

/// A program with the resolver of musl, as the programs of Alpine's containers have it: Rust's target brings musl. It
/// prints the addresses of each name.
const MUSL_CLIENT: &str = r#"
use std::net::ToSocketAddrs;

fn main() {
    for name in std::env::args().skip(1) {
        match (name.as_str(), 53).to_socket_addrs() {
            Ok(found) => found.for_each(|address| println!("{}", address.ip())),
            Err(e) => println!("{name}: {e}"),
        }
    }
}
"#;

/// Builds the program. None: this machine has no Rust compiler for musl.
fn musl_client() -> Option<&'static str> {
    let program = "/run/lab/musl-client";
    fs::write("/run/lab/musl-client.rs", MUSL_CLIENT).unwrap();
    let target = format!("{}-unknown-linux-musl", std::env::consts::ARCH);
    let built = Command::new("rustc")
        .args(["--edition=2024", "--target", &target, "-o", program, "/run/lab/musl-client.rs"])
        .output();
    match built {
        Ok(built) if built.status.success() => Some(program),
        Ok(built) => {
            let errors = String::from_utf8_lossy(&built.stderr);
            assert!(errors.contains("may not be installed"), "{errors}");
            lab::skip("the Rust target for musl is missing");
            None
        }
        Err(_) => {
            lab::skip("rustc is missing");
            None
        }
    }
}

#[test]
fn musl_resolves_names_with_and_without_the_domain_and_many_addresses_of_one_name() {
    beyond_reference!("dnsname");
    let lab = Lab::new();
    let Some(client) = musl_client() else { return };
    let networks = Networks::new(&lab, &[network(&json!({}))]);
    let (web, own) = networks.attach(&lab, "web", &["www"]);
    let (db, result) = networks.attach(&lab, "db", &[]);
    let found = |name: &str| {
        let text = resolving(&db, &result, &format!("{client} {name}"));
        let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    for name in ["web", "www", "web.dns.test", "WWW.dns.test"] {
        assert_eq!(found(name), bare(&own), "{name}");
    }
    assert!(found("nobody.dns.test")[0].starts_with("nobody.dns.test: "));

    // 20 addresses of IPv6 do not fit into 512 bytes, the limit of musl over UDP. Since 1.2.4, musl then asks over TCP.
    // Earlier versions take the addresses that fit. A program gets 48 addresses of both families at most.
    let pods: Vec<_> = (0..20).map(|n| lab.container(&format!("pod{n}"))).collect();
    let addresses = crate::crowd::by_workers(&pods, |pod| bare(&networks.add("net", pod, &pod.id, &["all"])));
    let mut addresses: Vec<_> = addresses.into_iter().flatten().collect();
    addresses.sort();
    let found = found("all");
    assert!(found.iter().all(|ip| addresses.contains(ip)), "{found:?}");
    let of_v6 = found.iter().filter(|ip| ip.contains(':')).count();
    assert!(of_v6 > 0 && found.len() - of_v6 == pods.len(), "{found:?}");
    crate::crowd::by_workers(&pods, |pod| networks.del("net", pod));
    networks.del_all(&[&web, &db]);
}

/// What is answered wrongly while names come and go: the address of a name that stays must always be the one that it has, and a name that
/// comes and goes has an address of its own, or none.
#[test]
fn ten_thousand_questions_a_second_while_containers_come_and_go_get_no_wrong_answer() {
    beyond_reference!("dnsname");
    let lab = Lab::new();
    let networks = Networks::new(&lab, &[network(&json!({}))]);
    let (stays, own) = networks.attach(&lab, "stays", &[]);
    let own: Ipv4Addr = bare(&own)[0].parse().unwrap();
    let guests: Vec<_> = (0..4).map(|n| lab.container(&format!("guest{n}"))).collect();
    let (done, answers, rounds) = (AtomicBool::new(false), Answers::default(), AtomicUsize::new(0));
    thread::scope(|scope| {
        let asking = scope.spawn(|| asks_at_a_rate(&stays, 10_000, Duration::from_secs(10), own, &answers));
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                guests.iter().for_each(|guest| drop(networks.add("net", guest, "guest", &["guest-alias"])));
                guests.iter().for_each(|guest| networks.del("net", guest));
                rounds.fetch_add(1, Ordering::Relaxed);
            }
        });
        asking.join().unwrap();
        done.store(true, Ordering::Relaxed);
    });
    eprintln!("{answers:?}, {rounds:?} times {} containers", guests.len());
    let count = |counter: &AtomicUsize| counter.load(Ordering::Relaxed);
    assert!(count(&answers.of_stays) > 0 && count(&answers.of_guests) > 0 && count(&rounds) > 0);
    assert_eq!(count(&answers.wrong), 0, "{answers:?}");
    networks.del("net", &stays);
}

/// The answers, by kind.
#[derive(Debug, Default)]
struct Answers {
    of_stays: AtomicUsize,
    of_guests: AtomicUsize,
    wrong: AtomicUsize,
}

/// A query of the type A, with an id.
fn question(id: u8, name: &str) -> Vec<u8> {
    let mut packet = vec![id, id, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in [name, "dns", "test"] {
        packet.push(u8::try_from(label.len()).unwrap());
        packet.extend(label.as_bytes());
    }
    packet.extend([0, 0, 1, 0, 1]);
    packet
}

/// The addresses in an answer. `None`: the packet is no answer, or it reports a failure. A record is a pointer to the name, type and class,
/// lifetime, length, address.
fn addresses_of(packet: &[u8], asked: &[u8]) -> Option<Vec<Ipv4Addr>> {
    let (code, count) = (packet[3] & 0xf, usize::from(packet[7]));
    let records = packet.get(asked.len()..)?.chunks_exact(16).take(count);
    let addresses: Vec<_> =
        records.map(|record| Ipv4Addr::new(record[12], record[13], record[14], record[15])).collect();
    let is_whole = addresses.len() == count && packet[2] & 0x80 != 0;
    // Code 3 means that the name does not exist.
    (is_whole && (code == 0 || code == 3 && count == 0)).then_some(addresses)
}

/// Maximum number of queries before answers are read.
const MOST_AT_ONCE: u32 = 100;

/// Queries in turns the name of a running container and a name of containers that start and stop, for the whole time. Datagrams may be lost, but
/// no answer may be wrong.
fn asks_at_a_rate(from: &Netns, rate: u32, time: Duration, own: Ipv4Addr, answers: &Answers) {
    from.run(|| {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        socket.connect((SERVERS[0], 53)).unwrap();
        socket.set_nonblocking(true).unwrap();
        let questions = [question(0, "stays"), question(1, "guest-alias")];
        let (begun, mut sent) = (Instant::now(), 0);
        let take = || {
            let mut packet = [0; 512];
            while let Ok(length) = socket.recv(&mut packet) {
                let of_guests = packet[0] == 1;
                let found = addresses_of(&packet[..length], &questions[usize::from(of_guests)]);
                let is_right = match found {
                    Some(found) if of_guests => {
                        found.iter().all(|ip| *ip != own && ip.octets()[..3] == [10, 1, 2])
                    }
                    Some(found) => found == [own],
                    None => false,
                };
                let counter = if of_guests { &answers.of_guests } else { &answers.of_stays };
                counter.fetch_add(1, Ordering::Relaxed);
                answers.wrong.fetch_add(usize::from(!is_right), Ordering::Relaxed);
            }
        };
        // A slow machine sends fewer queries.
        while begun.elapsed() < time {
            for _ in 0..MOST_AT_ONCE {
                if f64::from(sent) >= begun.elapsed().as_secs_f64() * f64::from(rate) {
                    break;
                }
                // A full queue loses a query.
                socket.send(&questions[sent as usize % 2]).ok();
                sent += 1;
            }
            take();
            thread::sleep(Duration::from_millis(1));
        }
        thread::sleep(Duration::from_millis(200));
        take();
    });
}
