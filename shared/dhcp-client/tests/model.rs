//! Two days of many containers, in simulated time. Servers and the network fail at random. All conditions of RFC 2131's
//! state table hold.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::net::Ipv4Addr;
use std::time::Duration;

use dhcp_client::{
    Action, Client, Identity, Kind, Lease, Message, Options, Random, State, Time, Timing, To, options,
};

const CLIENTS: usize = 200;
const HOURS: u64 = 48;
const NOBODY: Ipv4Addr = Ipv4Addr::UNSPECIFIED;
/// They share their bindings, like a failover pair.
const SERVERS: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2)];
/// How long a server reserves an offered address.
const OFFERED: Duration = Duration::from_secs(60);
/// Nothing fails after this time.
const CALM: Duration = Duration::from_secs((HOURS - 3) * 3600);

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn chance(random: &mut Random, percent: u64) -> bool {
    random.number() % 100 < percent
}

/// The servers' bindings.
#[derive(Default)]
struct Servers {
    /// The client of each address, and until when no other client may get it.
    bindings: BTreeMap<Ipv4Addr, (usize, Time)>,
    /// Clients that are refused, or moved to another address.
    moved: HashMap<usize, Ipv4Addr>,
}

impl Servers {
    /// An address for a client: its own, otherwise a free one.
    fn address_for(&mut self, client: usize, now: Time) -> Ipv4Addr {
        let avoided = self.moved.get(&client).copied();
        let is_its = |address: &Ipv4Addr, owner: usize| owner == client && Some(*address) != avoided;
        let its = self.bindings.iter().find(|(address, (owner, _))| is_its(address, *owner));
        let pool = || (10..u32::try_from(3 * CLIENTS).unwrap()).map(|n| Ipv4Addr::from(0x0a00_0000 + n));
        let is_free = |address: &Ipv4Addr| self.bindings.get(address).is_none_or(|(_, until)| *until < now);
        its.map(|(address, _)| *address).or_else(|| pool().find(is_free)).unwrap()
    }

    /// The binding lasts at least as long as the client may use the address.
    fn bind(&mut self, address: Ipv4Addr, client: usize, until: Time) {
        let binding = self.bindings.entry(address).or_insert((client, until));
        assert!(binding.0 == client || binding.1 < until);
        *binding = (client, if binding.0 == client { binding.1.max(until) } else { until });
    }

    /// The answer of the server with this identifier.
    fn answer(
        &mut self,
        server: Ipv4Addr,
        client: usize,
        request: &Message,
        now: Time,
        random: &mut Random,
    ) -> Option<Message> {
        let length = 120 + random.number() % 7200;
        let requested = request.options.address(options::REQUESTED_ADDRESS);
        let owner = |this: &Self, address: Ipv4Addr| this.bindings.get(&address).map(|(owner, _)| *owner);
        let wants = if request.ciaddr.is_unspecified() { requested } else { Some(request.ciaddr) };
        match request.kind()? {
            Kind::Discover => {
                let address = self.address_for(client, now);
                self.bind(address, client, now + OFFERED);
                Some(reply(server, request, Kind::Offer, address, length))
            }
            Kind::Request
                if request.options.address(options::SERVER_ID).is_some_and(|named| named != server) =>
            {
                None
            }
            Kind::Request if wants.is_some_and(|wants| self.moved.get(&client) == Some(&wants)) => {
                if chance(random, 50) {
                    return Some(reply(server, request, Kind::Nak, NOBODY, 0));
                }
                let address = self.address_for(client, now);
                self.bind(address, client, now + seconds(length));
                Some(reply(server, request, Kind::Ack, address, length))
            }
            Kind::Request => {
                let wants = wants?;
                match owner(self, wants) {
                    Some(owner) if owner == client => {
                        self.bind(wants, client, now + seconds(length));
                        Some(reply(server, request, Kind::Ack, wants, length))
                    }
                    Some(_) => Some(reply(server, request, Kind::Nak, NOBODY, 0)),
                    None => None,
                }
            }
            Kind::Release => {
                self.bindings.retain(|address, (owner, _)| *address != request.ciaddr || *owner != client);
                None
            }
            other => panic!("no client sends {other:?}"),
        }
    }
}

fn reply(server: Ipv4Addr, request: &Message, kind: Kind, yiaddr: Ipv4Addr, length: u64) -> Message {
    let mut all = Options::default();
    all.set(options::MESSAGE_TYPE, [kind as u8]);
    all.set(options::SERVER_ID, server.octets());
    all.set(options::SUBNET_MASK, [255, 255, 0, 0]);
    all.set(options::LEASE_TIME, u32::try_from(length).unwrap().to_be_bytes());
    Message { is_reply: true, yiaddr, ciaddr: NOBODY, options: all, ..request.clone() }
}

/// Events of a client.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Tick,
    Packet(Vec<u8>),
    /// The container is deleted, and another one is created.
    Replace,
    /// The daemon restarts.
    Restart,
}

struct World {
    random: Random,
    now: Time,
    clients: Vec<Client>,
    servers: Servers,
    queue: BinaryHeap<Reverse<(Time, usize, Event)>>,
    /// The container that uses an address.
    holders: HashMap<Ipv4Addr, usize>,
    /// When each client is to be called next.
    due: Vec<Time>,
    /// When each client sent recently.
    sends: Vec<Vec<Time>>,
    /// How many of 100 packets are lost, and which servers are down.
    loss: u64,
    silent: [bool; 2],
    seen: BTreeMap<String, u64>,
}

fn identity(client: usize) -> Identity {
    let [.., high, low] = client.to_be_bytes();
    Identity {
        mac: [2, 0, 0, 0, high, low],
        client_id: format!("\0pod-{client}").into_bytes(),
        broadcast: client.is_multiple_of(2),
        provide: Vec::new(),
        request: Vec::new(),
        required: Vec::new(),
    }
}

impl World {
    fn new(seed: u64) -> Self {
        let now = Time::since_boot(seconds(100));
        let mut random = Random::seeded(seed);
        let clients = (0..CLIENTS).map(|n| start(n, now, &mut random)).collect();
        let mut queue = BinaryHeap::new();
        for client in 0..CLIENTS {
            queue.push(Reverse((now, client, Event::Tick)));
            for _ in 0..3 {
                let at = now + seconds(random.number() % CALM.as_secs());
                let event = if chance(&mut random, 50) { Event::Replace } else { Event::Restart };
                queue.push(Reverse((at, client, event)));
            }
        }
        Self {
            random,
            now,
            clients,
            servers: Servers::default(),
            queue,
            holders: HashMap::new(),
            due: vec![now; CLIENTS],
            sends: vec![Vec::new(); CLIENTS],
            loss: 0,
            silent: [false; 2],
            seen: BTreeMap::new(),
        }
    }

    fn run(&mut self) {
        let end = self.now + seconds(HOURS * 3600);
        let calm = self.now + CALM;
        let mut weather = self.now;
        while let Some(Reverse((at, client, event))) = self.queue.pop() {
            if at > end {
                break;
            }
            self.now = at;
            if at >= weather {
                weather = at + seconds(600);
                self.change_weather(at >= calm);
            }
            self.happen(client, event);
        }
        for (client, one) in self.clients.iter().enumerate() {
            assert!(
                one.lease().is_some(),
                "client {client} has no lease after hours without a fault: {:?}",
                one.state()
            );
        }
    }

    fn change_weather(&mut self, is_calm: bool) {
        self.loss = if is_calm { 0 } else { [0, 5, 30, 80][(self.random.number() % 4) as usize] };
        self.silent = [0, 1].map(|_| !is_calm && chance(&mut self.random, 40));
        self.servers.moved.clear();
        for (address, (client, _)) in &self.servers.bindings {
            if !is_calm && chance(&mut self.random, 3) {
                self.servers.moved.insert(*client, *address);
            }
        }
    }

    fn call_at(&mut self, number: usize, moment: Time) {
        self.due[number] = moment;
        self.queue.push(Reverse((moment, number, Event::Tick)));
    }

    fn happen(&mut self, number: usize, event: Event) {
        if event == Event::Tick && self.due[number] != self.now {
            return;
        }
        let (now, before) = (self.now, self.clients[number].state());
        let client = &mut self.clients[number];
        let (actions, what) = match event {
            Event::Tick => (client.tick(now), "tick".to_owned()),
            Event::Packet(bytes) => {
                let kind = Message::decode(&bytes).unwrap().kind().unwrap();
                // Without a socket, the packet is lost.
                let heard = if client.awaits_packets(now) { client.receive(now, &bytes) } else { Vec::new() };
                (heard, format!("{kind:?}"))
            }
            Event::Replace => return self.replace(number),
            Event::Restart => return self.restart(number),
        };
        let after = self.clients[number].state();
        assert!(is_allowed(before, &what, after), "{before:?} -> {after:?} by {what}");
        *self.seen.entry(format!("{before:?} -> {after:?} by {what}")).or_default() += 1;
        self.carry_out(number, actions);
        self.check(number);
    }

    fn replace(&mut self, number: usize) {
        let fresh = start(number, self.now, &mut self.random);
        let old = std::mem::replace(&mut self.clients[number], fresh);
        self.holders.retain(|_, holder| *holder != number);
        if let Some(Action::Send { to, message }) = old.release() {
            self.send(number, to, &message, true);
        }
        self.call_at(number, self.now);
    }

    /// Restarts with the lease on disk.
    fn restart(&mut self, number: usize) {
        let Some(lease) = self.clients[number].lease() else { return self.replace(number) };
        let lease: Lease = serde_json::from_str(&serde_json::to_string(lease).unwrap()).unwrap();
        // The daemon was down for a while: packets were lost, and no address was removed.
        let later = self.now + seconds(self.random.number() % 1200);
        if lease.expiry.is_some_and(|expiry| expiry <= later) {
            self.holders.remove(&lease.address);
        }
        let random = Random::seeded(self.random.number());
        self.clients[number] = Client::resume(identity(number), Timing::default(), lease, later, random);
        self.call_at(number, later);
    }

    fn carry_out(&mut self, number: usize, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Send { to, message } => {
                    self.is_as_the_table_says(number, to, &Message::decode(&message).unwrap());
                    self.sends[number].push(self.now);
                    self.send(number, to, &message, false);
                }
                Action::Bound(lease) => self.hold(number, &lease),
                Action::Lost(_) => self.holders.retain(|_, holder| *holder != number),
                Action::Failed(_) => {
                    self.clients[number] = start(number, self.now, &mut self.random);
                    return self.call_at(number, self.now + seconds(30));
                }
            }
        }
        if let Some(deadline) = self.clients[number].deadline() {
            assert!(deadline >= self.now, "the deadline of {:?} is past", self.clients[number].state());
            self.call_at(number, deadline);
        }
    }

    /// No two containers have the same address, and no container has one longer than granted.
    fn hold(&mut self, number: usize, lease: &Lease) {
        self.holders.retain(|_, holder| *holder != number);
        assert_eq!(
            self.holders.insert(lease.address, number),
            None,
            "{} is on two containers",
            lease.address
        );
        let (owner, until) = self.servers.bindings[&lease.address];
        assert!(owner == number && lease.expiry.unwrap() <= until, "{lease:?}, bound until {until}");
        assert!(
            lease.since <= lease.renew.unwrap() && lease.renew < lease.rebind && lease.rebind < lease.expiry
        );
    }

    /// RFC 2131, tables 4 and 5.
    fn is_as_the_table_says(&self, number: usize, to: To, message: &Message) {
        let client = &self.clients[number];
        let has = |option| message.options.get(option).is_some();
        let asks =
            (message.ciaddr.is_unspecified(), has(options::REQUESTED_ADDRESS), has(options::SERVER_ID));
        let lease = client.lease().map(|lease| (lease.server, lease.address));
        let fits = match (client.state(), message.kind().unwrap()) {
            (State::Selecting, Kind::Discover) => to == To::Broadcast { from: NOBODY } && asks.0 && !asks.2,
            (State::Requesting, Kind::Request) => {
                to == To::Broadcast { from: NOBODY } && asks == (true, true, true)
            }
            (State::Renewing, Kind::Request) => {
                let (server, from) = lease.unwrap();
                to == To::Server { server, from } && message.ciaddr == from && asks == (false, false, false)
            }
            (State::Rebinding, Kind::Request) => {
                let (_, from) = lease.unwrap();
                to == To::Broadcast { from } && message.ciaddr == from && asks == (false, false, false)
            }
            // The release of an offer whose REQUEST had no answer. It has no answer either.
            (State::Failed, Kind::Release) => {
                matches!(to, To::Server { from, .. } if message.ciaddr == from)
                    && asks == (false, false, true)
            }
            _ => false,
        };
        let awaits = client.awaits_packets(self.now) == (client.state() != State::Failed);
        assert!(fits && awaits, "{:?}: {to:?} {message:?}", client.state());
        assert_eq!(message.options.get(options::CLIENT_ID), Some(&identity(number).client_id[..]));
    }

    /// The network, with losses in both directions.
    fn send(&mut self, number: usize, to: To, message: &[u8], surely: bool) {
        let request = Message::decode(message).unwrap();
        for (index, server) in SERVERS.into_iter().enumerate() {
            let is_for_it = !matches!(to, To::Server { server: named, .. } if named != server);
            let is_lost = !surely && (self.silent[index] || chance(&mut self.random, self.loss));
            if !is_for_it || is_lost {
                continue;
            }
            let Some(answer) = self.servers.answer(server, number, &request, self.now, &mut self.random)
            else {
                continue;
            };
            let copies = 1 + u64::from(chance(&mut self.random, 5));
            for _ in 0..copies {
                let slow = if chance(&mut self.random, 5) { 20_000 } else { 500 };
                let delay = Duration::from_millis(self.random.number() % slow);
                if !chance(&mut self.random, self.loss) {
                    self.queue.push(Reverse((self.now + delay, number, Event::Packet(answer.encode()))));
                }
            }
        }
    }

    fn check(&mut self, number: usize) {
        let (now, client) = (self.now, &self.clients[number]);
        assert!(
            client.lease().is_none_or(|lease| now < lease.expiry.unwrap()),
            "a lease is used after its end"
        );
        assert_eq!(
            client.lease().is_some(),
            matches!(client.state(), State::Bound | State::Renewing | State::Rebinding)
        );
        assert!(
            client.state() != State::Bound || !client.awaits_packets(now),
            "a socket is open for nothing"
        );
        let sends = &mut self.sends[number];
        sends.retain(|sent| now.since(*sent) < seconds(60));
        assert!(sends.len() <= 30, "client {number} sends without end");
    }
}

fn start(number: usize, now: Time, random: &mut Random) -> Client {
    Client::acquire(identity(number), Timing::default(), now, Random::seeded(random.number()))
}

/// RFC 2131, figure 5.
fn is_allowed(before: State, event: &str, after: State) -> bool {
    use State::{Bound, Failed, Rebinding, Rebooting, Renewing, Requesting, Selecting};
    let moves = match event {
        "tick" => matches!(
            (before, after),
            (Requesting | Rebooting, Selecting)
                | (Selecting | Requesting, Failed)
                | (Bound, Renewing)
                // After a pause of the daemon.
                | (Bound, Rebinding | Selecting)
                | (Renewing, Rebinding)
                | (Rebinding, Selecting)
        ),
        "Offer" => (before, after) == (Selecting, Requesting),
        "Ack" => after == Bound && matches!(before, Requesting | Rebooting | Renewing | Rebinding),
        "Nak" => after == Selecting && matches!(before, Requesting | Rebooting | Renewing | Rebinding),
        _ => false,
    };
    before == after || moves
}

#[test]
fn all_conditions_hold_for_two_days_of_two_hundred_leases_with_failing_servers() {
    let mut world = World::new(2131);
    world.run();
    // Every kind of event has happened, so that the test means something.
    for expected in [
        "Selecting -> Requesting by Offer",
        "Requesting -> Bound by Ack",
        "Requesting -> Selecting by tick",
        "Selecting -> Failed by tick",
        "Bound -> Renewing by tick",
        "Renewing -> Bound by Ack",
        "Renewing -> Selecting by Nak",
        "Renewing -> Rebinding by tick",
        "Rebinding -> Bound by Ack",
        "Rebinding -> Selecting by tick",
        "Bound -> Bound by Ack",
        "Requesting -> Requesting by Offer",
    ] {
        assert!(world.seen.contains_key(expected), "{expected}: {:#?}", world.seen);
    }
}
