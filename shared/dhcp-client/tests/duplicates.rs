//! Two hours of 50 containers on two hosts, in simulated time, with 40 addresses for them: no two containers ever have one address. MACs
//! change, daemons are killed, hosts sleep, the server restarts and refuses, packets are lost, delayed and repeated.
//!
//! Each run is one seed, which a failure names. `DHCP_SEED=N` runs that one, `DHCP_SEEDS=N` runs so many.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::env;
use std::net::Ipv4Addr;
use std::time::Duration;

use dhcp_client::{
    Action, Client, Identity, Kind, Lease, Message, Options, Random, Time, Timing, To, options,
};

const CONTAINERS: usize = 50;
const POOL: std::ops::Range<u8> = 100..140;
const HOURS: u64 = 2;
/// The seeds of a run without `DHCP_SEEDS`.
const SEEDS: u64 = 10;
/// How long the server keeps an address that it offered.
const OFFERED: u64 = 30;

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Tick(usize),
    Packet(usize, Vec<u8>),
    /// The interface gets another MAC. The client keeps its identifier.
    ChangeMac(usize),
    /// The container is deleted, and another one is made.
    Replace(usize),
    /// The daemon is killed, and has started again at the second event.
    Kill(usize),
    Start(usize),
    /// The host sleeps, and no packet leaves it until the second event.
    Suspend(usize),
    WakeUp(usize),
    /// The server keeps its leases, and has another address.
    RestartServer,
}

type MakeEvent = fn(usize) -> Event;

/// Events from outside, and how often each of them happens to somebody in two hours.
const ACCIDENTS: [(MakeEvent, u64); 5] = [
    (|n| Event::ChangeMac(n % CONTAINERS), 40),
    (|n| Event::Replace(n % CONTAINERS), 60),
    (|n| Event::Kill(n % 2), 12),
    (|n| Event::Suspend(n % 2), 6),
    (|_| Event::RestartServer, 6),
];

/// A server that never gives an address to two clients: whatever goes wrong is the clients' fault.
struct Server {
    identifier: Ipv4Addr,
    up_at: Time,
    /// Whose an address is, and until when nobody else may get it.
    bindings: BTreeMap<Ipv4Addr, (Vec<u8>, Time)>,
}

impl Server {
    fn owner(&self, address: Ipv4Addr, now: Time) -> Option<&[u8]> {
        self.bindings.get(&address).filter(|(_, until)| *until > now).map(|(owner, _)| &owner[..])
    }

    /// The client's address, else a free one.
    fn address_for(&self, client: &[u8], now: Time) -> Option<Ipv4Addr> {
        let mut pool = POOL.map(|host| Ipv4Addr::new(10, 0, 0, host));
        let its = pool.clone().find(|address| self.owner(*address, now) == Some(client));
        its.or_else(|| pool.find(|address| self.owner(*address, now).is_none()))
    }

    fn bind(&mut self, address: Ipv4Addr, client: &[u8], until: Time) {
        let binding = self.bindings.entry(address).or_insert_with(|| (client.to_vec(), until));
        let same = binding.0 == client;
        *binding = (client.to_vec(), if same { binding.1.max(until) } else { until });
    }

    fn answer(&mut self, asked: &Message, now: Time, random: &mut Random) -> Option<Message> {
        let client = asked.options.get(options::CLIENT_ID)?.to_vec();
        let named = asked.options.address(options::SERVER_ID);
        let requested = asked.options.address(options::REQUESTED_ADDRESS);
        let wants = if asked.ciaddr.is_unspecified() { requested } else { Some(asked.ciaddr) };
        let length = [10, 60, 120, 600, 1200][(random.number() % 5) as usize];
        if now < self.up_at || named.is_some_and(|named| named != self.identifier) {
            return None;
        }
        match asked.kind()? {
            Kind::Discover => {
                let address = self.address_for(&client, now)?;
                self.bind(address, &client, now + seconds(OFFERED));
                Some(self.reply(asked, Kind::Offer, address, length))
            }
            Kind::Request => {
                let address = wants.filter(|wants| self.owner(*wants, now) == Some(&client));
                let Some(address) = address.filter(|_| !random.number().is_multiple_of(50)) else {
                    return Some(self.reply(asked, Kind::Nak, Ipv4Addr::UNSPECIFIED, 0));
                };
                self.bind(address, &client, now + seconds(length));
                Some(self.reply(asked, Kind::Ack, address, length))
            }
            Kind::Release => {
                self.bindings.retain(|address, (owner, _)| *address != asked.ciaddr || *owner != client);
                None
            }
            other => panic!("no client sends {other:?}"),
        }
    }

    fn reply(&self, asked: &Message, kind: Kind, yiaddr: Ipv4Addr, length: u64) -> Message {
        let mut all = Options::default();
        all.set(options::MESSAGE_TYPE, [kind as u8]);
        all.set(options::SERVER_ID, self.identifier.octets());
        all.set(options::CLIENT_ID, asked.options.get(options::CLIENT_ID).unwrap());
        all.set(options::LEASE_TIME, u32::try_from(length).unwrap().to_be_bytes());
        Message { is_reply: true, yiaddr, ciaddr: Ipv4Addr::UNSPECIFIED, options: all, ..asked.clone() }
    }
}

struct Container {
    client: Client,
    identity: Identity,
    /// When the client is called next.
    due: Time,
}

struct World {
    now: Time,
    random: Random,
    server: Server,
    containers: Vec<Container>,
    /// Whether a host's daemon runs, and since the host is awake.
    runs: [bool; 2],
    awake: [bool; 2],
    queue: BinaryHeap<Reverse<(Time, u64, Event)>>,
    events: u64,
    /// The container that uses an address.
    holders: HashMap<Ipv4Addr, usize>,
    seen: BTreeMap<&'static str, u64>,
}

const fn host(number: usize) -> usize {
    number % 2
}

impl World {
    fn new(seed: u64) -> Self {
        let now = Time::since_boot(seconds(100));
        let server = Server { identifier: Ipv4Addr::new(10, 0, 0, 1), up_at: now, bindings: BTreeMap::new() };
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

    /// A new container, which has an identifier of its own.
    fn container(&mut self, number: usize) -> Container {
        let id = self.random.number();
        let client_id = [&[0], &id.to_be_bytes()[..]].concat();
        let (broadcast, none) = (false, Vec::new);
        let mac = self.mac();
        let identity =
            Identity { mac, client_id, broadcast, provide: none(), request: vec![], required: vec![] };
        let random = Random::seeded(self.random.number());
        // The ADD begins within the first seconds.
        let due = self.now + seconds(number as u64 % 5);
        let client = Client::acquire(identity.clone(), Timing::default(), due, random);
        Container { client, identity, due }
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
                let actions = self.containers[number].client.tick(self.now);
                self.carry_out(number, actions);
            }
            Event::Packet(number, packet) if self.is_at_work(number) => {
                let actions = self.containers[number].client.receive(self.now, &packet);
                self.carry_out(number, actions);
            }
            Event::Tick(_) | Event::Packet(..) => {}
            Event::ChangeMac(number) if self.is_at_work(number) => {
                self.count("MAC changed");
                let mac = self.mac();
                self.containers[number].identity.mac = mac;
                self.containers[number].client.set_mac(mac);
            }
            Event::Replace(number) if self.is_at_work(number) => {
                self.count("replaced");
                self.holders.retain(|_, holder| *holder != number);
                if let Some(Action::Send { to, message }) = self.containers[number].client.clone().release() {
                    self.send(number, to, &message);
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
                self.server.identifier = Ipv4Addr::new(10, 0, 0, 1 + (self.random.number() % 9) as u8);
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

    /// The daemon is back before the first of its leases ends, as systemd has it: while none runs, nobody takes an address off.
    fn kill(&mut self, one: usize) {
        if !(self.runs[one] && self.awake[one]) {
            return;
        }
        self.count("killed");
        self.runs[one] = false;
        let leases =
            self.on(one).into_iter().filter_map(|number| self.containers[number].client.lease()?.expiry);
        let first = leases.map(|expiry| expiry.since(self.now)).min();
        let down = seconds(self.random.number() % 20).min(first.unwrap_or(seconds(20)));
        self.at(self.now + down, Event::Start(one));
    }

    fn start(&mut self, one: usize) {
        self.runs[one] = true;
        if self.awake[one] {
            self.on(one).into_iter().for_each(|number| self.resume(number));
        }
    }

    /// The client of a container that has a lease, or had one, begins again from what is on disk. An ADD that was under way has failed.
    fn resume(&mut self, number: usize) {
        let Container { client, identity, .. } = &self.containers[number];
        let Some(lease) = client.lease() else { return self.replace(number) };
        let lease: Lease = serde_json::from_str(&serde_json::to_string(lease).unwrap()).unwrap();
        let random = Random::seeded(self.random.number());
        let client = Client::resume(identity.clone(), Timing::default(), lease, self.now, random);
        self.containers[number].client = client;
        let actions = self.containers[number].client.tick(self.now);
        self.carry_out(number, actions);
    }

    fn suspend(&mut self, one: usize) {
        if !(self.awake[one] && self.runs[one]) {
            return;
        }
        self.count("suspended");
        self.awake[one] = false;
        self.holders.retain(|_, holder| host(*holder) != one);
        let until = self.now + seconds(self.random.number() % 1800);
        self.at(until, Event::WakeUp(one));
    }

    /// The daemon's timer counts the time of the sleep, too: all that is due happens before any packet leaves.
    fn wake_up(&mut self, one: usize) {
        self.awake[one] = true;
        let numbers = self.on(one);
        for number in &numbers {
            if let Some(lease) = self.containers[*number].client.lease().cloned()
                && lease.expiry.is_some_and(|expiry| expiry > self.now)
            {
                self.hold(*number, &lease);
            }
        }
        for number in numbers {
            let actions = self.containers[number].client.tick(self.now);
            self.carry_out(number, actions);
        }
    }

    fn carry_out(&mut self, number: usize, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Send { to, message } => self.send(number, to, &message),
                Action::Bound(lease) => self.hold(number, &lease),
                Action::Lost(_) => {
                    self.count("lost");
                    self.holders.retain(|_, holder| *holder != number);
                }
                Action::Failed(_) => {
                    self.count("failed");
                    return self.replace(number);
                }
            }
        }
        let has_lease = self.containers[number].client.lease();
        assert!(
            has_lease.is_none_or(|lease| lease.expiry.is_none_or(|expiry| self.now < expiry)),
            "container {number} uses its address after the lease's end: {has_lease:?}"
        );
        if let Some(due) = self.containers[number].client.deadline() {
            self.containers[number].due = due;
            self.at(due.max(self.now), Event::Tick(number));
        }
    }

    fn hold(&mut self, number: usize, lease: &Lease) {
        self.count("bound");
        self.holders.retain(|_, holder| *holder != number);
        let other = self.holders.insert(lease.address, number);
        assert_eq!(other, None, "{} is on container {number}, too, at {}", lease.address, self.now);
    }

    /// A tenth of the packets are lost, some are late, and some come twice.
    fn send(&mut self, number: usize, to: To, message: &[u8]) {
        let is_lost = |random: &mut Random| random.number().is_multiple_of(10);
        let is_for_it = !matches!(to, To::Server { server, .. } if server != self.server.identifier);
        if is_lost(&mut self.random) || !is_for_it {
            return;
        }
        let asked = Message::decode(message).unwrap();
        let Some(answer) = self.server.answer(&asked, self.now, &mut self.random) else { return };
        let copies = 1 + u64::from(self.random.number().is_multiple_of(20));
        for _ in 0..copies {
            let slowest = if self.random.number().is_multiple_of(10) { 15_000 } else { 300 };
            let delay = Duration::from_millis(1 + self.random.number() % slowest);
            if !is_lost(&mut self.random) {
                self.at(self.now + delay, Event::Packet(number, answer.encode()));
            }
        }
    }

    fn count(&mut self, what: &'static str) {
        *self.seen.entry(what).or_default() += 1;
    }
}

#[test]
fn no_address_is_ever_on_two_containers() {
    let number = |name: &str| env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let (first, count) = match number("DHCP_SEED") {
        Some(seed) => (seed, 1),
        None => (Random::from_kernel().number(), number("DHCP_SEEDS").unwrap_or(SEEDS)),
    };
    let mut seen = BTreeMap::<_, u64>::new();
    for seed in (0..count).map(|n| first.wrapping_add(n)) {
        println!("DHCP_SEED={seed}");
        let mut world = World::new(seed);
        world.run();
        world.seen.into_iter().for_each(|(what, count)| *seen.entry(what).or_default() += count);
    }
    // All that may happen has happened, so that the test means something.
    println!("{count} seeds: {seen:?}");
    let accidents = ["MAC changed", "replaced", "killed", "suspended", "server restarted"];
    for wanted in accidents.iter().chain(&["bound", "lost", "failed"]) {
        assert!(seen.contains_key(wanted), "nothing was {wanted}: {seen:?}");
    }
}
