//! Two hours of 50 containers on two hosts, in simulated time, with 40 addresses: two containers never have the same
//! address, in either family. MACs change, daemons are killed, hosts sleep, the server restarts and refuses, packets
//! are lost, delayed and repeated.
//!
//! Each run has a seed, which a failure names. `DHCP_SEED=N` repeats a run, `DHCP_SEEDS=N` sets the number of runs.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests")]

mod v4;
mod v6;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::env;
use std::fmt::Debug;
use std::time::Duration;

use dhcp_client::{Random, Time};

use v4::V4;
use v6::V6;

const CONTAINERS: usize = 50;
const POOL: std::ops::Range<u8> = 100..140;
const HOURS: u64 = 2;
/// The number of runs without `DHCP_SEEDS`.
const SEEDS: u64 = 10;
/// How long the server reserves an offered address.
const OFFERED: u64 = 30;
/// Lease times in seconds.
const LENGTHS: [u64; 5] = [10, 60, 120, 600, 1200];
/// Timeout of an ADD.
const TIMEOUT: Duration = Duration::from_secs(208);

/// The client of one family. An address is an index into the pool.
trait Protocol: Debug {
    fn acquire(id: u64, mac: [u8; 6], now: Time, random: Random) -> Self;
    /// Starts again with the lease on disk. False: there is none.
    fn resume(&mut self, now: Time, random: Random) -> bool;
    fn set_mac(&mut self, mac: [u8; 6]);
    /// The lease's address and its end.
    fn lease(&self) -> Option<(u8, Option<Time>)>;
    fn deadline(&self) -> Option<Time>;
    fn tick(&mut self, now: Time) -> Vec<Act>;
    fn receive(&mut self, now: Time, packet: &[u8]) -> Vec<Act>;
    fn release(&mut self, now: Time) -> Vec<Act>;
    /// The server's answer to a message.
    fn answer(server: &mut Server, request: &[u8], now: Time, random: &mut Random) -> Option<Vec<u8>>;
}

/// An action of a client.
#[derive(Debug)]
enum Act {
    /// Send a message, to one server or to all.
    Send(Option<u8>, Vec<u8>),
    Bound(u8),
    Lost,
    Failed,
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Tick(usize),
    Packet(usize, Vec<u8>),
    /// The interface gets another MAC. The client keeps its identifier.
    ChangeMac(usize),
    /// The container is deleted, and another one is created.
    Replace(usize),
    /// The daemon is killed. It restarts at the second event.
    Kill(usize),
    Start(usize),
    /// The host sleeps, and sends no packet until the second event.
    Suspend(usize),
    WakeUp(usize),
    /// The server restarts with its leases, and with another address.
    RestartServer,
}

type MakeEvent = fn(usize) -> Event;

/// Random events, and how many of each happen in two hours.
const ACCIDENTS: [(MakeEvent, u64); 5] = [
    (|n| Event::ChangeMac(n % CONTAINERS), 40),
    (|n| Event::Replace(n % CONTAINERS), 60),
    (|n| Event::Kill(n % 2), 12),
    (|n| Event::Suspend(n % 2), 6),
    (|_| Event::RestartServer, 6),
];

/// A server that never allocates an address to two clients, so that every duplicate is the clients' fault.
struct Server {
    identifier: u8,
    up_at: Time,
    /// The client of each address, and until when no other client may get it.
    bindings: BTreeMap<u8, (Vec<u8>, Time)>,
}

impl Server {
    fn owner(&self, address: u8, now: Time) -> Option<&[u8]> {
        self.bindings.get(&address).filter(|(_, until)| *until > now).map(|(owner, _)| &owner[..])
    }

    fn address_of(&self, client: &[u8], now: Time) -> Option<u8> {
        POOL.into_iter().find(|address| self.owner(*address, now) == Some(client))
    }

    /// The client's address, otherwise a free one.
    fn address_for(&self, client: &[u8], now: Time) -> Option<u8> {
        let is_free = |address: &u8| self.owner(*address, now).is_none();
        self.address_of(client, now).or_else(|| POOL.into_iter().find(is_free))
    }

    fn bind(&mut self, address: u8, client: &[u8], until: Time) {
        let binding = self.bindings.entry(address).or_insert_with(|| (client.to_vec(), until));
        let same = binding.0 == client;
        *binding = (client.to_vec(), if same { binding.1.max(until) } else { until });
    }

    fn unbind(&mut self, address: u8, client: &[u8]) {
        self.bindings.retain(|one, (owner, _)| *one != address || *owner != client);
    }
}

struct Container<P> {
    client: P,
    /// When the client is called next.
    due: Time,
}

struct World<P> {
    now: Time,
    random: Random,
    server: Server,
    containers: Vec<Container<P>>,
    /// Whether each host's daemon runs, and since when the host is awake.
    runs: [bool; 2],
    awake: [bool; 2],
    queue: BinaryHeap<Reverse<(Time, u64, Event)>>,
    events: u64,
    /// The container that uses an address, and when the kernel deletes it.
    holders: HashMap<u8, (usize, Option<Time>)>,
    seen: BTreeMap<&'static str, u64>,
}

const fn host(number: usize) -> usize {
    number % 2
}

impl<P: Protocol> World<P> {
    fn new(seed: u64) -> Self {
        let now = Time::since_boot(seconds(100));
        let server = Server { identifier: 1, up_at: now, bindings: BTreeMap::new() };
        let mut this = Self {
            now,
            random: Random::seeded(seed),
            server,
            containers: Vec::new(),
            runs: [true; 2],
            awake: [true; 2],
            queue: BinaryHeap::new(),
            events: 0,
            holders: HashMap::new(),
            seen: BTreeMap::new(),
        };
        for number in 0..CONTAINERS {
            let container = this.container(number);
            this.containers.push(container);
            this.at(now, Event::Tick(number));
        }
        for (event, count) in ACCIDENTS {
            for _ in 0..count {
                let moment = now + seconds(this.random.number() % (HOURS * 3600));
                let event = event((this.random.number() % 1000) as usize);
                this.at(moment, event);
            }
        }
        this
    }

    /// A new container with a new client identifier.
    fn container(&mut self, number: usize) -> Container<P> {
        let (id, mac) = (self.random.number(), self.mac());
        let random = Random::seeded(self.random.number());
        // The ADD starts within the first seconds.
        let due = self.now + seconds(number as u64 % 5);
        Container { client: P::acquire(id, mac, due, random), due }
    }

    fn mac(&mut self) -> [u8; 6] {
        let [a, b, c, d, ..] = self.random.number().to_be_bytes();
        [2, 0, a, b, c, d]
    }

    fn at(&mut self, moment: Time, event: Event) {
        self.events += 1;
        self.queue.push(Reverse((moment, self.events, event)));
    }

    fn run(&mut self) {
        let end = self.now + seconds(HOURS * 3600);
        while let Some(Reverse((moment, _, event))) = self.queue.pop().filter(|next| next.0.0 <= end) {
            self.now = moment;
            self.happen(event);
        }
    }

    fn is_at_work(&self, number: usize) -> bool {
        self.runs[host(number)] && self.awake[host(number)]
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Tick(number) if self.is_at_work(number) && self.containers[number].due <= self.now => {
                let acts = self.containers[number].client.tick(self.now);
                self.carry_out(number, acts);
            }
            // As in the daemon's loop: first received packets, then timers.
            Event::Packet(number, packet) if self.is_at_work(number) => {
                let mut acts = self.containers[number].client.receive(self.now, &packet);
                acts.extend(self.containers[number].client.tick(self.now));
                self.carry_out(number, acts);
            }
            Event::Tick(_) | Event::Packet(..) => {}
            Event::ChangeMac(number) if self.is_at_work(number) => {
                self.count("MAC changed");
                let mac = self.mac();
                self.containers[number].client.set_mac(mac);
            }
            Event::Replace(number) if self.is_at_work(number) => {
                self.count("replaced");
                self.drop_address(number);
                for act in self.containers[number].client.release(self.now) {
                    if let Act::Send(to, message) = act {
                        self.send(number, to, &message);
                    }
                }
                self.replace(number);
            }
            Event::ChangeMac(_) | Event::Replace(_) => {}
            Event::Kill(one) => self.kill(one),
            Event::Start(one) => self.start(one),
            Event::Suspend(one) => self.suspend(one),
            Event::WakeUp(one) => self.wake_up(one),
            Event::RestartServer => {
                self.count("server restarted");
                self.server.up_at = self.now + seconds(self.random.number() % 900);
                self.server.identifier = 1 + (self.random.number() % 9) as u8;
            }
        }
    }

    fn replace(&mut self, number: usize) {
        self.containers[number] = self.container(number);
        let due = self.containers[number].due;
        self.at(due, Event::Tick(number));
    }

    fn on(&self, one: usize) -> Vec<usize> {
        (0..CONTAINERS).filter(|number| host(*number) == one).collect()
    }

    /// For a short time, or for so long that leases end.
    fn kill(&mut self, one: usize) {
        if !(self.runs[one] && self.awake[one]) {
            return;
        }
        self.count("killed");
        self.runs[one] = false;
        let longest = if self.random.number().is_multiple_of(2) { 20 } else { 1800 };
        let down = seconds(self.random.number() % longest);
        self.at(self.now + down, Event::Start(one));
    }

    fn start(&mut self, one: usize) {
        self.runs[one] = true;
        if self.awake[one] {
            self.on(one).into_iter().for_each(|number| self.resume(number));
        }
    }

    /// The client of a container that has or had a lease starts again with the record on disk. A running ADD fails.
    fn resume(&mut self, number: usize) {
        let random = Random::seeded(self.random.number());
        if !self.containers[number].client.resume(self.now, random) {
            return self.replace(number);
        }
        let acts = self.containers[number].client.tick(self.now);
        self.carry_out(number, acts);
    }

    fn suspend(&mut self, one: usize) {
        if !(self.awake[one] && self.runs[one]) {
            return;
        }
        self.count("suspended");
        self.awake[one] = false;
        self.holders.retain(|_, (holder, _)| host(*holder) != one);
        let until = self.now + seconds(self.random.number() % 1800);
        self.at(until, Event::WakeUp(one));
    }

    /// The daemon's timer includes the time of the sleep: all timers are due before a packet is sent.
    fn wake_up(&mut self, one: usize) {
        self.awake[one] = true;
        let numbers = self.on(one);
        for number in &numbers {
            if let Some((address, Some(expiry))) = self.containers[*number].client.lease()
                && expiry > self.now
            {
                self.hold(*number, address);
            }
        }
        for number in numbers {
            let actions = self.containers[number].client.tick(self.now);
            self.carry_out(number, actions);
        }
    }

    fn carry_out(&mut self, number: usize, acts: Vec<Act>) {
        for act in acts {
            match act {
                Act::Send(to, message) => self.send(number, to, &message),
                Act::Bound(address) => self.hold(number, address),
                Act::Lost => {
                    self.count("lost");
                    self.drop_address(number);
                }
                Act::Failed => {
                    self.count("failed");
                    return self.replace(number);
                }
            }
        }
        let lease = self.containers[number].client.lease();
        assert!(
            lease.is_none_or(|(_, expiry)| expiry.is_none_or(|expiry| self.now < expiry)),
            "container {number} uses its address after the lease's end: {lease:?}"
        );
        if let Some(due) = self.containers[number].client.deadline() {
            self.containers[number].due = due;
            self.at(due.max(self.now), Event::Tick(number));
        }
    }

    fn drop_address(&mut self, number: usize) {
        self.holders.retain(|_, (holder, _)| *holder != number);
    }

    /// The kernel deletes another container's address at the end of its lease, if no daemon has done so.
    fn hold(&mut self, number: usize, address: u8) {
        self.count("bound");
        self.drop_address(number);
        let expiry = self.containers[number].client.lease().and_then(|(_, expiry)| expiry);
        let other = self.holders.insert(address, (number, expiry));
        let is_deleted = |end: Option<Time>| end.is_some_and(|end| end <= self.now);
        let other = other.filter(|(other, end)| self.runs[host(*other)] || !is_deleted(*end));
        assert_eq!(other, None, "{address} is on container {number}, too, at {}", self.now);
    }

    /// A tenth of the packets is lost. Some are late, and some are duplicated.
    fn send(&mut self, number: usize, to: Option<u8>, message: &[u8]) {
        let is_lost = |random: &mut Random| random.number().is_multiple_of(10);
        let is_heard = self.now >= self.server.up_at && to.is_none_or(|to| to == self.server.identifier);
        if is_lost(&mut self.random) || !is_heard {
            return;
        }
        let answer = P::answer(&mut self.server, message, self.now, &mut self.random);
        let Some(answer) = answer else { return };
        let copies = 1 + u64::from(self.random.number().is_multiple_of(20));
        for _ in 0..copies {
            let slowest = if self.random.number().is_multiple_of(10) { 15_000 } else { 300 };
            let delay = Duration::from_millis(1 + self.random.number() % slowest);
            if !is_lost(&mut self.random) {
                self.at(self.now + delay, Event::Packet(number, answer.clone()));
            }
        }
    }

    fn count(&mut self, what: &'static str) {
        *self.seen.entry(what).or_default() += 1;
    }
}

#[test]
fn no_ipv4_address_is_ever_on_two_containers() {
    run_seeds::<V4>();
}

#[test]
fn no_ipv6_address_is_ever_on_two_containers() {
    run_seeds::<V6>();
}

fn run_seeds<P: Protocol>() {
    let number = |name: &str| env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let (first, count) = match number("DHCP_SEED") {
        Some(seed) => (seed, 1),
        None => (Random::from_kernel().number(), number("DHCP_SEEDS").unwrap_or(SEEDS)),
    };
    let mut seen = BTreeMap::<_, u64>::new();
    for seed in (0..count).map(|n| first.wrapping_add(n)) {
        println!("DHCP_SEED={seed}");
        let mut world = World::<P>::new(seed);
        world.run();
        world.seen.into_iter().for_each(|(what, count)| *seen.entry(what).or_default() += count);
    }
    // Every kind of event has happened, so that the test means something.
    println!("{count} seeds: {seen:?}");
    let accidents = ["MAC changed", "replaced", "killed", "suspended", "server restarted"];
    for expected in accidents.iter().chain(&["bound", "lost", "failed"]) {
        assert!(seen.contains_key(expected), "nothing was {expected}: {seen:?}");
    }
}
