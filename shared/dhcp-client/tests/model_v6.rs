//! Two days of many containers, in simulated time, with two servers. Servers and the network fail at random. All
//! conditions of RFC 8415 for addresses hold.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::net::Ipv6Addr;
use std::time::Duration;

use dhcp_client::v6::{Action, Client, Duid, Identity, Kind, Lease, Message, Options, State};
use dhcp_client::{Random, Time};

const CLIENTS: usize = 30;
const HOURS: u64 = 48;
/// Nothing fails after this time.
const CALM: Duration = Duration::from_secs((HOURS - 6) * 3600);
/// The servers' DUIDs. The servers share their bindings.
const SERVERS: [&[u8]; 2] = [b"server-one", b"server-two"];

const CLIENT_ID: u16 = 1;
const SERVER_ID: u16 = 2;
const IA_NA: u16 = 3;
const IA_ADDR: u16 = 5;
const STATUS: u16 = 13;
const RAPID_COMMIT: u16 = 14;
const NO_BINDING: u16 = 3;

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn identity(client: usize) -> Identity {
    Identity { duid: Duid::of_digest((client as u128).to_be_bytes()), iaid: 1 }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Tick,
    Packet(Vec<u8>),
    /// The container is deleted, and another one is created.
    Replace,
    /// The daemon restarts with the lease on disk.
    Restart,
}

struct World {
    random: Random,
    now: Time,
    clients: Vec<Client>,
    /// The leases on disk.
    disk: Vec<Option<Lease>>,
    /// The client of each address for the servers, and until when.
    bindings: BTreeMap<Ipv6Addr, (usize, Time)>,
    /// The container that uses an address.
    holders: HashMap<Ipv6Addr, usize>,
    queue: BinaryHeap<Reverse<(Time, usize, Event)>>,
    due: Vec<Time>,
    seen: HashMap<&'static str, usize>,
}

impl World {
    fn chance(&mut self, percent: u64) -> bool {
        self.now < Time::since_boot(CALM) && self.random.number() % 100 < percent
    }

    fn after(&mut self, gap: Duration, client: usize, event: Event) {
        self.queue.push(Reverse((self.now + gap, client, event)));
    }

    fn schedule(&mut self, client: usize) {
        let Some(due) = self.clients[client].deadline() else { return };
        let due = due.max(self.now);
        if self.due[client] != due {
            self.due[client] = due;
            self.queue.push(Reverse((due, client, Event::Tick)));
        }
    }

    fn act(&mut self, client: usize, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Send(bytes) => self.sent(client, &bytes),
                Action::Bound(lease) => {
                    *self.seen.entry("bound").or_default() += 1;
                    assert!(lease.expiry.is_none_or(|end| self.now < end));
                    assert!(lease.renew <= lease.rebind && lease.rebind <= lease.expiry);
                    let holder = self.holders.insert(lease.address, client);
                    assert!(holder.is_none_or(|holder| holder == client), "{} is used twice", lease.address);
                    self.disk[client] = Some(lease);
                }
                Action::Lost(_) => {
                    *self.seen.entry("lost").or_default() += 1;
                    self.drop_address(client);
                }
                Action::Released => *self.seen.entry("released").or_default() += 1,
                Action::Failed(e) => panic!("{e}"),
            }
        }
        // Leases end in time.
        if let Some(lease) = self.clients[client].lease() {
            assert!(lease.expiry.is_none_or(|end| self.now < end), "client {client} uses what has expired");
            assert_eq!(self.holders.get(&lease.address), Some(&client));
        }
        self.schedule(client);
    }

    fn drop_address(&mut self, client: usize) {
        if let Some(lease) = self.disk[client].take() {
            self.holders.remove(&lease.address);
        }
    }

    fn sent(&mut self, client: usize, bytes: &[u8]) {
        if (10..14).contains(&(self.now.since(Time::default()).as_secs() / 3600)) {
            // No server runs, for longer than any lease.
            return;
        }
        let message = Message::decode(bytes).unwrap();
        for server in SERVERS {
            let times = if self.chance(20) { 0 } else { 1 + usize::from(self.chance(10)) };
            for _ in 0..times {
                let Some(answer) = self.answer(server, client, &message) else { continue };
                if !self.chance(20) {
                    let gap = Duration::from_millis(
                        1 + self.random.number() % if self.chance(10) { 20_000 } else { 50 },
                    );
                    self.after(gap, client, Event::Packet(answer.encode()));
                }
            }
        }
    }

    fn answer(&mut self, server: &[u8], client: usize, request: &Message) -> Option<Message> {
        let named = request.options.get(SERVER_ID);
        if named.is_some_and(|named| named != server) {
            return None;
        }
        let is_its = |(_, (owner, _)): &(&Ipv6Addr, &(usize, Time))| *owner == client;
        let its = self.bindings.iter().find(is_its).map(|(address, _)| *address);
        let asked_for = requested(request);
        let mut options =
            Options::default().with(SERVER_ID, server).with(CLIENT_ID, identity(client).duid.bytes());
        let kind = match request.kind {
            Kind::Solicit if self.chance(50) => {
                options = options.with(RAPID_COMMIT, []).with(IA_NA, self.give(client, its));
                Kind::Reply
            }
            Kind::Solicit => {
                options = options.with(IA_NA, self.give(client, its));
                Kind::Advertise
            }
            Kind::Request => {
                options = options.with(IA_NA, self.give(client, its));
                Kind::Reply
            }
            Kind::Renew | Kind::Rebind if its.is_none() || its != asked_for || self.chance(5) => {
                options = options.with(IA_NA, status(NO_BINDING));
                Kind::Reply
            }
            Kind::Renew | Kind::Rebind => {
                options = options.with(IA_NA, self.give(client, its));
                Kind::Reply
            }
            Kind::Confirm => Kind::Reply,
            Kind::Release => {
                self.bindings.retain(|address, (owner, _)| *owner != client || Some(*address) != asked_for);
                Kind::Reply
            }
            other => panic!("no client sends {other:?}"),
        };
        Some(Message { kind, xid: request.xid, options })
    }

    /// The IA_NA for a client: with its own address, otherwise a free one.
    fn give(&mut self, client: usize, its: Option<Ipv6Addr>) -> Vec<u8> {
        let now = self.now;
        let is_free = |address: &Ipv6Addr| self.bindings.get(address).is_none_or(|(_, until)| *until < now);
        let mut pool = (1..1000_u16).map(|n| Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 1, n));
        let address = its.or_else(|| pool.find(is_free)).unwrap();
        let valid = 120 + u32::try_from(self.random.number() % 7200).unwrap();
        let until = now + seconds(valid.into());
        let until = self
            .bindings
            .get(&address)
            .filter(|(owner, _)| *owner == client)
            .map_or(until, |b| b.1.max(until));
        self.bindings.insert(address, (client, until));
        let value = [&address.octets()[..], &(valid / 2).to_be_bytes(), &valid.to_be_bytes()].concat();
        [&[0, 0, 0, 1][..], &[0; 8], &Options::default().with(IA_ADDR, value).encode()].concat()
    }

    fn turn(&mut self, client: usize, event: Event) {
        let now = self.now;
        match event {
            Event::Tick if self.due[client] == now => {
                self.due[client] = Time::default();
                let actions = self.clients[client].tick(now);
                self.act(client, actions);
            }
            Event::Tick => {}
            Event::Packet(bytes) => {
                let actions = self.clients[client].receive(now, &bytes);
                self.act(client, actions);
            }
            Event::Restart => {
                let (lease, seed) = (self.disk[client].clone(), Random::seeded(self.random.number()));
                self.clients[client] = match lease {
                    Some(lease) => Client::resume(identity(client), lease, now, seed),
                    None => Client::reacquire(identity(client), None, now, seed),
                };
                self.again(client, Event::Restart, 5);
            }
            Event::Replace => {
                let leaves = self.clients[client].release(now);
                self.drop_address(client);
                if leaves {
                    let actions = self.clients[client].tick(now);
                    self.act(client, actions);
                }
                let seed = Random::seeded(self.random.number());
                self.clients[client] = Client::reacquire(identity(client), None, now, seed);
                self.again(client, Event::Replace, 9);
            }
        }
    }

    fn again(&mut self, client: usize, event: Event, hours: u64) {
        let actions = self.clients[client].tick(self.now);
        self.act(client, actions);
        let gap = seconds(self.random.number() % (hours * 7200));
        if self.now + gap < Time::since_boot(CALM) {
            self.after(gap, client, event);
        }
    }
}

/// The address in a message.
fn requested(request: &Message) -> Option<Ipv6Addr> {
    let options = Options::decode(request.options.get(IA_NA)?.get(12..)?)?;
    let octets: [u8; 16] = options.get(IA_ADDR)?.get(..16)?.try_into().ok()?;
    Some(octets.into())
}

/// An IA_NA with only a status.
fn status(number: u16) -> Vec<u8> {
    [&[0, 0, 0, 1][..], &[0; 8], &Options::default().with(STATUS, number.to_be_bytes()).encode()].concat()
}

#[test]
fn no_address_is_used_twice_or_past_its_end_and_in_the_end_all_have_one() {
    for seed in 0..1 {
        let start = Time::default();
        let client = |n| Client::reacquire(identity(n), None, start, Random::seeded(seed * 1000 + n as u64));
        let mut world = World {
            random: Random::seeded(seed),
            now: start,
            clients: (0..CLIENTS).map(client).collect(),
            disk: vec![None; CLIENTS],
            bindings: BTreeMap::new(),
            holders: HashMap::new(),
            queue: BinaryHeap::new(),
            due: vec![Time::since_boot(seconds(1 << 40)); CLIENTS],
            seen: HashMap::new(),
        };
        for client in 0..CLIENTS {
            world.schedule(client);
            let gap = seconds(world.random.number() % 30_000);
            world.after(gap, client, if client % 2 == 0 { Event::Restart } else { Event::Replace });
        }
        while let Some(Reverse((now, client, event))) = world.queue.pop() {
            if now > Time::since_boot(seconds(HOURS * 3600)) {
                break;
            }
            world.now = now;
            world.turn(client, event);
        }
        let states = || world.clients.iter().map(Client::state);
        let has_lease = |state| matches!(state, State::Bound | State::Renewing | State::Rebinding);
        assert!(states().all(has_lease), "{:?}", states().collect::<Vec<_>>());
        assert!(world.seen["bound"] > CLIENTS * 20 && world.seen["lost"] > 0, "{:?}", world.seen);
    }
}
