//! The daemon's one loop: its socket, plugins' connections, containers' sockets and all times to keep.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::time::Duration;

use cni::{Error, Result, Version};
use dhcp_client::{Link, Time};
use nix::sys::signalfd::SignalFd;
use rustix::event::{PollFd, PollFlags, poll};
use serde_json::Value;

use super::connection::{Connection, Event};
use super::listener::Listener;
use super::timer::Timer;
use super::{Host, adopt};
use crate::attached::{Attached, Outcome, Waits};
use crate::log::{log, say};
use crate::place::{self, NotFound};
use crate::record::{Key, Record};
use crate::store::Kept;
use crate::v6::{self, RELEASING};
use crate::wire;

/// The most connections at a time. More wait until some of these have ended: those that say nothing are ended soon then.
const MOST_CONNECTIONS: usize = 1024;

/// How long no connection is taken after none could be, for lack of descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// How long a message that gives an address back may take to leave: the neighbour that it goes to is asked for its hardware address first.
const LEAVING: Duration = Duration::from_secs(1);
/// How often it is looked at meanwhile: the kernel tells nobody.
const LOOK: Duration = Duration::from_millis(1);

/// The daemon.
#[derive(Debug)]
pub struct Daemon {
    pub(super) host: Host,
    pub(super) attached: BTreeMap<Key, Attached>,
    pub(super) attached_v6: BTreeMap<Key, v6::Attached>,
    connections: BTreeMap<u64, Connection>,
    /// The number of the next connection.
    next: u64,
    leaving: Vec<Leaving>,
    timer: Timer,
    /// When connections are taken again.
    paused: Option<Time>,
}

/// Messages on their way out, and who is told when they are.
#[derive(Debug)]
pub(super) struct Leaving {
    pub connection: u64,
    pub departing: Vec<Departing>,
    pub until: Time,
    pub answer: Vec<u8>,
}

/// A message that gives an address back.
#[derive(Debug)]
pub enum Departing {
    /// Nobody answers it: it only has to leave.
    V4(Link),
    /// Its server answers.
    V6(Box<v6::Leaving>),
}

impl Departing {
    fn patience(&self) -> Duration {
        match self {
            Self::V4(_) => LEAVING,
            Self::V6(_) => RELEASING,
        }
    }

    /// Whether nothing is left to wait for.
    pub fn is_done(&mut self) -> bool {
        match self {
            Self::V4(link) => system::socket::unsent(link).is_ok_and(|bytes| bytes == 0),
            Self::V6(leaving) => leaving.is_done(),
        }
    }
}

/// How long messages may take that give addresses back.
pub fn patience(departing: &[Departing]) -> Duration {
    departing.iter().map(Departing::patience).max().unwrap_or_default()
}

/// What poll(2) has told.
#[derive(Debug, Default)]
struct Ready {
    end: bool,
    listener: bool,
    connections: Vec<u64>,
    attached: Vec<Key>,
    attached_v6: Vec<Key>,
}

impl Daemon {
    /// One without leases.
    ///
    /// # Errors
    /// If descriptors run out.
    pub fn new(host: Host) -> Result<Self> {
        Ok(Self {
            timer: Timer::new()?,
            host,
            attached: BTreeMap::new(),
            attached_v6: BTreeMap::new(),
            connections: BTreeMap::new(),
            next: 0,
            leaving: Vec::new(),
            paused: None,
        })
    }

    /// Takes up the leases on disk. One whose container has gone is forgotten.
    ///
    /// # Errors
    /// Code 5: the directory cannot be read.
    pub fn carry_on(&mut self) -> Result<()> {
        let (records, errors) = self.host.store.all()?;
        for error in self.host.store.tidy()?.into_iter().chain(errors) {
            say(&format!("dhcp daemon: {error}"));
        }
        // libcni's cache has an attachment until its DEL is done.
        let leaving = records.iter().filter(|record: &&Record| record.leaves).filter_map(Kept::key);
        let leaving: BTreeSet<Key> = leaving.collect();
        let known = records.len();
        let missing =
            records.into_iter().filter_map(|record| self.carry_on_with(record).then_some(())).count();
        if self.host.args.adopt {
            let is_known = |key: &Key| self.attached.contains_key(key) || leaving.contains(key);
            for record in adopt::unknown(&self.host, &is_known) {
                self.carry_on_with(record);
            }
        }
        let (known_v6, missing_v6) = self.carry_on_v6()?;
        let (known, missing) = (known + known_v6, missing + missing_v6);
        if missing > 0 {
            let none = if missing == known {
                format!("none of the {known} leases has")
            } else {
                format!("{missing} of the {known} leases have no")
            };
            say(&format!(
                "dhcp daemon: {none} a network namespace at its path. They are kept until they end. Does the daemon run in the host's mount namespace?"
            ));
        }
        let count = self.attached.len() + self.attached_v6.len();
        say(&format!("dhcp daemon: {count} leases, in {}", self.host.store.path().display()));
        Ok(())
    }

    /// Whether its namespace is missing.
    fn carry_on_with(&mut self, record: Record) -> bool {
        let Some(key) = record.key() else { return false };
        if record.leaves {
            let one = Attached::resume(key, record, self.host.timing);
            self.give_back(one, None);
            return false;
        }
        let found = place::find(&record, &self.host.args.host_prefix);
        let mut one = Attached::resume(key.clone(), record, self.host.timing);
        match found.and_then(|found| one.carry_on(&self.host, &found)) {
            Err(NotFound::Gone(what)) => one.forget(&self.host, &what),
            Err(NotFound::Unused(what)) => {
                log(&key, &what);
                self.give_back(one, None);
            }
            other => {
                // What cannot be looked at now is looked at again with the next message.
                if let Err(e) = &other {
                    log(&key, &e.to_string());
                }
                self.attached.insert(key, one);
                return matches!(other, Err(NotFound::Missing(_)));
            }
        }
        false
    }

    /// Serves until a signal ends it. Leases stay.
    ///
    /// # Errors
    /// If the kernel does not let it wait.
    pub fn serve(&mut self, listener: &Listener, signals: &SignalFd) -> Result<()> {
        loop {
            let ready = self.wait(listener, signals)?;
            if ready.end {
                return Ok(());
            }
            if ready.listener {
                self.accept(listener);
            }
            for number in ready.connections {
                self.connection(number);
            }
            for key in ready.attached {
                self.with(&key, Attached::receive);
            }
            for key in ready.attached_v6 {
                self.with_v6(&key, v6::Attached::receive);
            }
            self.keep_times();
        }
    }

    fn wait(&mut self, listener: &Listener, signals: &SignalFd) -> Result<Ready> {
        self.timer.set(self.next())?;
        let accepts = self.paused.is_none() && !self.is_crowded();
        let mut polled = vec![PollFd::new(&self.timer, PollFlags::IN), PollFd::new(signals, PollFlags::IN)];
        polled.push(PollFd::new(listener, if accepts { PollFlags::IN } else { PollFlags::empty() }));
        let (mut numbers, mut keys) = (Vec::new(), Vec::new());
        for (number, connection) in &self.connections {
            numbers.push(*number);
            polled.push(PollFd::from_borrowed_fd(connection.as_fd(), connection.interest()));
        }
        for (key, socket) in self.attached.iter().filter_map(|(key, one)| Some((key, one.socket()?))) {
            keys.push(key);
            polled.push(PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN));
        }
        let mut keys_v6 = Vec::new();
        for (key, socket) in self.attached_v6.iter().filter_map(|(key, one)| Some((key, one.socket()?))) {
            keys_v6.push(key);
            polled.push(PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN));
        }
        match poll(&mut polled, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(Error::io("wait for events", &e.into())),
        }
        let mut told = polled.iter().skip(1).map(|one| !one.revents().is_empty());
        let (end, listener) = (told.next() == Some(true), told.next() == Some(true));
        let mut ready = Ready { end, listener, ..Ready::default() };
        ready.connections =
            numbers.into_iter().zip(&mut told).filter(|(_, is)| *is).map(|(n, _)| n).collect();
        ready.attached =
            keys.into_iter().zip(&mut told).filter(|(_, is)| *is).map(|(k, _)| k.clone()).collect();
        ready.attached_v6 =
            keys_v6.into_iter().zip(&mut told).filter(|(_, is)| *is).map(|(k, _)| k.clone()).collect();
        Ok(ready)
    }

    /// When something is due next.
    fn next(&self) -> Option<Time> {
        let clients = self.attached.values().filter_map(|one| one.client().deadline());
        let clients = clients.chain(self.attached_v6.values().filter_map(v6::Attached::deadline));
        let crowded = self.is_crowded();
        let connections = self.connections.values().filter_map(|one| one.deadline(crowded));
        let looks = (!self.leaving.is_empty()).then(|| Time::now() + LOOK);
        clients.chain(connections).chain(looks).chain(self.paused).min()
    }

    /// Whether no more connections are taken.
    fn is_crowded(&self) -> bool {
        self.connections.len() >= MOST_CONNECTIONS
    }

    fn accept(&mut self, listener: &Listener) {
        while !self.is_crowded() {
            match listener.accept() {
                Ok(None) => return,
                Ok(Some(stream)) => match Connection::new(stream, Time::now()) {
                    Ok(connection) => {
                        self.connections.insert(self.next, connection);
                        self.next += 1;
                    }
                    Err(refused) => say(&format!("dhcp daemon: {refused}")),
                },
                // Whoever it was has gone.
                Err(e) if matches!(e.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => {}
                Err(e) => {
                    say(&format!("dhcp daemon: take a connection: {e}"));
                    self.paused = Some(Time::now() + PAUSE);
                    return;
                }
            }
        }
    }

    fn connection(&mut self, number: u64) {
        match self.connections.get_mut(&number).map(Connection::go_on) {
            Some(Event::Request(line, netns)) => {
                if let Some(outcome) = self.request(number, &line, netns) {
                    self.answer(number, &outcome);
                }
            }
            Some(Event::Ended) => self.hang_up(number),
            Some(Event::Nothing) | None => {}
        }
    }

    /// Ends a connection. The address that it waits for is given back as soon as it comes.
    fn hang_up(&mut self, number: u64) {
        self.connections.remove(&number);
        self.hang_up_v6(number);
        let waiting = self.attached.values_mut().find(|one| one.waits == Waits::Connection(number));
        let Some(key) = waiting.map(|one| one.key.clone()) else { return };
        if let Some(one) = self.attached.remove(&key) {
            log(&key, "the plugin hung up");
            self.abandon(one);
        }
    }

    pub(super) fn answer(&mut self, number: u64, outcome: &Result<Value>) {
        self.say_to(number, wire::reply(outcome));
    }

    fn say_to(&mut self, number: u64, answer: Vec<u8>) {
        let ended =
            self.connections.get_mut(&number).map(|connection| connection.answer(answer, Time::now()));
        if let Some(Event::Ended) = ended {
            self.connections.remove(&number);
        }
    }

    /// Has one attachment do something, and carries out what comes of it.
    pub(super) fn with(&mut self, key: &Key, act: impl FnOnce(&mut Attached, &Host) -> Outcome) {
        let Some(mut one) = self.attached.remove(key) else { return };
        match act(&mut one, &self.host) {
            Outcome::Carries => drop(self.attached.insert(key.clone(), one)),
            Outcome::First(result) => self.first(one, &result),
            Outcome::Failed(error) => self.failed(one, error),
            Outcome::Unused(what) => {
                log(key, &what);
                self.give_back(one, None);
            }
            Outcome::Gone(what) => match one.waits {
                Waits::Nobody => one.forget(&self.host, &what),
                _ => self.failed(one, Error::new(cni::Code::UnknownContainer, what)),
            },
        }
    }

    /// The first lease of an attachment goes to who waits for it.
    fn first(&mut self, mut one: Attached, result: &cni::AddResult) {
        let waits = std::mem::replace(&mut one.waits, Waits::Nobody);
        let Waits::Connection(number) = waits else { return self.give_back(one, None) };
        one.earlier = None;
        let json = result.to_json(Version::LATEST).and_then(|json| Ok(serde_json::from_str(&json)?));
        self.attached.insert(one.key.clone(), one);
        self.answer(number, &json);
    }

    fn failed(&mut self, one: Attached, error: Error) {
        log(&one.key, &format!("no lease: {error}"));
        match one.waits {
            Waits::Connection(number) => {
                self.end_acquisition(one);
                self.answer(number, &Err(error));
            }
            Waits::Abandoned => self.end_acquisition(one),
            // It has had one, and goes on asking for another.
            Waits::Nobody => {
                let Attached { key, record, .. } = one;
                self.attached.insert(key.clone(), Attached::ask_again(key, record, self.host.timing));
            }
        }
    }

    /// Ends an ADD that has no lease. What an earlier one has stays.
    pub(super) fn end_acquisition(&mut self, mut one: Attached) {
        match one.earlier.take() {
            Some(earlier) => drop(self.attached.insert(one.key, *earlier)),
            None => one.forget_quietly(&self.host),
        }
    }

    /// Gives a lease back, and tells a connection when that is done.
    pub(super) fn give_back(&mut self, one: Attached, connection: Option<u64>) {
        let (departing, outcome) = self.release(one);
        self.tell_when_left(connection, departing, &outcome);
    }

    /// Gives a lease back. What is not to be closed yet, and what failed.
    pub(super) fn release(&mut self, one: Attached) -> (Vec<Departing>, Result<Value>) {
        let key = one.key.clone();
        match one.release(&self.host) {
            Ok(link) => (link.into_iter().map(Departing::V4).collect(), Ok(Value::Null)),
            Err((one, e)) => {
                self.attached.insert(key, *one);
                (Vec::new(), Err(e))
            }
        }
    }

    pub(super) fn tell_when_left(
        &mut self,
        connection: Option<u64>,
        departing: Vec<Departing>,
        outcome: &Result<Value>,
    ) {
        // No connection has the last number.
        let leaving = Leaving {
            connection: connection.unwrap_or(u64::MAX),
            until: Time::now() + patience(&departing),
            departing,
            answer: wire::reply(outcome),
        };
        self.leaving.push(leaving);
        self.look_at_leaving();
    }

    fn look_at_leaving(&mut self) {
        let now = Time::now();
        for mut one in std::mem::take(&mut self.leaving) {
            for mut departing in std::mem::take(&mut one.departing) {
                if one.until > now && !departing.is_done() {
                    one.departing.push(departing);
                } else if let Departing::V4(link) = departing {
                    self.host.closer.close(link);
                }
            }
            match one.departing.is_empty() {
                true => self.say_to(one.connection, one.answer),
                false => self.leaving.push(one),
            }
        }
    }

    fn keep_times(&mut self) {
        let now = Time::now();
        let is_due = |time: Option<Time>| time.is_some_and(|time| time <= now);
        self.paused = self.paused.filter(|paused| *paused > now);
        self.look_at_leaving();
        let crowded = self.is_crowded();
        let late = self.connections.iter().filter(|(_, one)| is_due(one.deadline(crowded)));
        let late: Vec<u64> = late.map(|(number, _)| *number).collect();
        late.into_iter().for_each(|number| self.hang_up(number));
        let due: Vec<Key> = self
            .attached
            .iter()
            .filter(|(_, one)| is_due(one.client().deadline()))
            .map(|(k, _)| k.clone())
            .collect();
        due.iter().for_each(|key| self.with(key, Attached::tick));
        let due = self.attached_v6.iter().filter(|(_, one)| is_due(one.deadline()));
        let due: Vec<Key> = due.map(|(key, _)| key.clone()).collect();
        due.iter().for_each(|key| self.with_v6(key, v6::Attached::tick));
    }
}
