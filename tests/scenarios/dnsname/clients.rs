//! The resolvers of containers.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, UdpSocket};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
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
        let busybox = quoted(&tree.join("bin/busybox"));
        let found = resolving(&db, &result, &format!("{busybox} nslookup {name}"));
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
    // The addresses of "few" fit into a datagram with EDNS (dnsmasq sends at most 1232 bytes), but not without.
    let (few, _) = pods.split_at(60);
    let is_of_few = |pod: &Container| few.iter().any(|few| few.id == pod.id);
    let mut added = crate::field::crowd::by_workers(&pods, |pod| {
        let aliases = if is_of_few(pod) { &["all", "few"][..] } else { &["all"] };
        (bare(&networks.add("net", pod, &pod.id, aliases))[0].clone(), is_of_few(pod))
    });
    added.sort();
    let addresses: Vec<_> = added.iter().map(|(ip, _)| ip.clone()).collect();
    let addresses_of_few: Vec<_> =
        added.iter().filter(|(_, is_of_few)| *is_of_few).map(|(ip, _)| ip.clone()).collect();
    for way in ["+tcp", "+bufsize=4096", "+bufsize=1232", "+noedns"] {
        assert_eq!(dig.ask(&pods[0], SERVERS[0], &format!("{way} all A")), addresses, "{way}");
    }
    // Without a second query over TCP.
    let is_cut = |question: &str| {
        let said = dig.says(&pods[0], SERVERS[0], &format!("+ignore {question}"));
        said.lines().any(|line| line.starts_with(";; flags:") && line.contains(" tc"))
    };
    assert!(is_cut("+noedns few A") && is_cut("+noedns all A") && !is_cut("+bufsize=1232 few A"));
    assert_eq!(dig.ask(&pods[0], SERVERS[0], "+ignore +bufsize=1232 few A"), addresses_of_few);
    crate::field::crowd::by_workers(&pods, |pod| networks.del("net", pod));
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
    let addresses =
        crate::field::crowd::by_workers(&pods, |pod| bare(&networks.add("net", pod, &pod.id, &["all"])));
    let mut addresses: Vec<_> = addresses.into_iter().flatten().collect();
    addresses.sort();
    let found = found("all");
    assert!(found.iter().all(|ip| addresses.contains(ip)), "{found:?}");
    let of_v6 = found.iter().filter(|ip| ip.contains(':')).count();
    assert!(of_v6 > 0 && found.len() - of_v6 == pods.len(), "{found:?}");
    crate::field::crowd::by_workers(&pods, |pod| networks.del("net", pod));
    networks.del_all(&[&web, &db]);
}

/// A time span in which an answer may or must contain an address.
#[derive(Clone, Copy, Debug)]
struct Span {
    /// The call of ADD, and its return.
    add: [Instant; 2],
    /// The call of DEL, and its return. None: not yet.
    del: Option<[Instant; 2]>,
    ip: Ipv4Addr,
}

/// A query and its answer.
#[derive(Debug)]
struct Asked {
    name: usize,
    sent: Instant,
    received: Instant,
    /// None: the packet is no answer, or it reports a failure.
    found: Option<Vec<Ipv4Addr>>,
}

/// The verdict on an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    /// The name was registered all the time, and the answer is its address.
    Known,
    /// The name was not registered at any time, and the answer says so.
    Unknown,
    /// An ADD or a DEL ran meanwhile, and the answer is that of before or after.
    Changing,
    Wrong,
}

impl Asked {
    /// Compares the answer with the times at which the name had an address. ADD returns after the server resolves the
    /// name, and DEL after it no longer does.
    fn verdict(&self, spans: &[Span]) -> Verdict {
        let Some(found) = &self.found else { return Verdict::Wrong };
        let is_over = |span: &Span| span.del.is_some_and(|[_, end]| end <= self.sent);
        let meets = |span: &&Span| span.add[0] <= self.received && !is_over(span);
        let possible: Vec<&Span> = spans.iter().filter(meets).collect();
        let is_steady = |span: &Span| {
            span.add[1] <= self.sent && span.del.is_none_or(|[begin, _]| self.received <= begin)
        };
        match (&possible[..], &found[..]) {
            ([], []) => Verdict::Unknown,
            ([only], found) if is_steady(only) => {
                if found == [only.ip] {
                    Verdict::Known
                } else {
                    Verdict::Wrong
                }
            }
            (_, []) => Verdict::Changing,
            (all, found) if found.iter().all(|ip| all.iter().any(|span| span.ip == *ip)) => Verdict::Changing,
            _ => Verdict::Wrong,
        }
    }
}

/// The containers, by the index of their names in the queries. The first one stays.
const GUESTS: [&str; 5] = ["stays", "guest1", "guest2", "guest3", "guest4"];

#[test]
fn ten_thousand_questions_a_second_while_containers_come_and_go_get_no_wrong_answer() {
    beyond_reference!("dnsname");
    let lab = Lab::new();
    let networks = Networks::new(&lab, &[network(&json!({}))]);
    let pods = GUESTS.map(|name| lab.container(name));
    let mut spans: [Vec<Span>; 5] = Default::default();
    let add = |n: usize| {
        let begun = Instant::now();
        let result = networks.add("net", &pods[n], GUESTS[n], &[]);
        Span { add: [begun, Instant::now()], del: None, ip: bare(&result)[0].parse().unwrap() }
    };
    spans[0].push(add(0));
    let rounds = AtomicUsize::new(0);
    // A slow machine asks until one round is complete.
    let is_enough = |time: Duration| {
        let is_complete = rounds.load(Ordering::Relaxed) > 0;
        time >= Duration::from_secs(10) && is_complete || time >= Duration::from_secs(600)
    };
    let asked = thread::scope(|scope| {
        let asking = scope.spawn(|| asks_at_a_rate(&pods[0], 10_000, is_enough));
        while !asking.is_finished() {
            (1..pods.len()).for_each(|n| spans[n].push(add(n)));
            for n in 1..pods.len() {
                let begun = Instant::now();
                networks.del("net", &pods[n]);
                spans[n].last_mut().unwrap().del = Some([begun, Instant::now()]);
            }
            rounds.fetch_add(1, Ordering::Relaxed);
        }
        asking.join().unwrap()
    });
    let mut counts: BTreeMap<Verdict, usize> = BTreeMap::new();
    for one in &asked {
        let verdict = one.verdict(&spans[one.name]);
        assert_ne!(verdict, Verdict::Wrong, "{one:?} {:?}", spans[one.name]);
        *counts.entry(verdict).or_default() += 1;
    }
    eprintln!("{counts:?}, {rounds:?} times {} containers", pods.len() - 1);
    assert!(counts.contains_key(&Verdict::Known) && counts.contains_key(&Verdict::Unknown), "{counts:?}");
    networks.del("net", &pods[0]);
}

/// A query of the type A, with an id.
fn question(id: u16, name: &str) -> Vec<u8> {
    let [high, low] = id.to_be_bytes();
    let mut packet = vec![high, low, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
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

/// Queries each name in turn, until it is enough. Datagrams may be lost, but no answer may be wrong.
fn asks_at_a_rate(from: &Netns, rate: u32, is_enough: impl Fn(Duration) -> bool + Sync) -> Vec<Asked> {
    from.run(|| {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        socket.connect((SERVERS[0], 53)).unwrap();
        socket.set_nonblocking(true).unwrap();
        let (begun, mut sent, mut all) = (Instant::now(), 0_u32, Vec::new());
        // By the id of the query.
        let mut waiting: BTreeMap<u16, (usize, Instant)> = BTreeMap::new();
        let mut take = |waiting: &mut BTreeMap<u16, (usize, Instant)>| {
            let mut packet = [0; 512];
            while let Ok(length) = socket.recv(&mut packet) {
                let id = u16::from_be_bytes([packet[0], packet[1]]);
                let Some((name, sent)) = waiting.remove(&id) else { continue };
                let question = question(id, GUESTS[name]);
                // An id is used again after some seconds.
                if packet[12..question.len()] != question[12..] {
                    continue;
                }
                let found = addresses_of(&packet[..length], &question);
                all.push(Asked { name, sent, received: Instant::now(), found });
            }
        };
        // A slow machine sends fewer queries.
        while !is_enough(begun.elapsed()) {
            for _ in 0..MOST_AT_ONCE {
                if f64::from(sent) >= begun.elapsed().as_secs_f64() * f64::from(rate) {
                    break;
                }
                let (id, name) = (u16::try_from(sent % 65_536).unwrap(), sent as usize % GUESTS.len());
                waiting.insert(id, (name, Instant::now()));
                // A full queue loses a query.
                socket.send(&question(id, GUESTS[name])).ok();
                sent += 1;
            }
            take(&mut waiting);
            thread::sleep(Duration::from_millis(1));
        }
        thread::sleep(Duration::from_millis(200));
        take(&mut waiting);
        all
    })
}

#[test]
fn the_verdict_on_an_answer_needs_the_right_address_at_the_right_time() {
    let begun = Instant::now();
    let at = |second| begun + Duration::from_secs(second);
    let [own, other] = [Ipv4Addr::new(10, 1, 2, 3), Ipv4Addr::new(10, 1, 2, 4)];
    let spans = [Span { add: [at(10), at(12)], del: Some([at(20), at(22)]), ip: own }];
    for (sent, received, found, expected) in [
        (13, 14, vec![own], Verdict::Known),
        (13, 14, vec![], Verdict::Wrong),
        (13, 14, vec![other], Verdict::Wrong),
        (13, 14, vec![own, other], Verdict::Wrong),
        (1, 2, vec![], Verdict::Unknown),
        (23, 24, vec![], Verdict::Unknown),
        (23, 24, vec![own], Verdict::Wrong),
        (1, 11, vec![own], Verdict::Changing),
        (21, 30, vec![], Verdict::Changing),
        (21, 30, vec![other], Verdict::Wrong),
    ] {
        let asked = Asked { name: 0, sent: at(sent), received: at(received), found: Some(found) };
        assert_eq!(asked.verdict(&spans), expected, "{asked:?}");
    }
}
