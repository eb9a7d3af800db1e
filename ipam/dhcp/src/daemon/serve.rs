//! The daemon's only loop: its socket, connections of plugins, sockets in containers, and timers.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::time::Duration;

use cni::{Error, Result};
use dhcp_client::Time;
use nix::sys::signalfd::SignalFd;
use rustix::event::{PollFd, PollFlags, poll};
use serde_json::Value;

use super::connection::{Connection, Event};
use super::listener::Listener;
use super::timer::Timer;
use crate::host::Host;
use crate::key::Key;
use crate::lease_client::PendingRelease;
use crate::log::{log, log_line};
use crate::managed_lease::{ManagedLease, Waiter};
use crate::wire;

/// Maximum number of connections. If more wait, connections without a complete request are soon closed.
const MAX_CONNECTIONS: usize = 1024;

/// How long no connection is accepted after accept(2) failed for lack of descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// Interval for checking whether messages have been sent. The kernel has no event for that.
const CHECK_INTERVAL: Duration = Duration::from_millis(1);

/// The daemon.
#[derive(Debug)]
pub struct Daemon {
    pub(super) host: Host,
    pub(super) attached: BTreeMap<Key, ManagedLease>,
    connections: BTreeMap<u64, Connection>,
    /// Number of the next connection.
    next: u64,
    pub(super) leaving: Vec<Leaving>,
    timer: Timer,
    /// When connections are accepted again.
    paused: Option<Time>,
}

/// Messages that are being sent, and the connections that are answered afterwards.
#[derive(Debug)]
pub(super) struct Leaving {
    pub connection: u64,
    pub departing: Vec<Box<dyn PendingRelease>>,
    pub until: Time,
    pub answer: Vec<u8>,
}

/// The result of poll(2).
#[derive(Debug, Default)]
struct Ready {
    end: bool,
    listener: bool,
    connections: Vec<u64>,
    attached: Vec<Key>,
}

impl Daemon {
    /// A daemon without leases.
    ///
    /// # Errors
    /// If there are no more descriptors.
    pub fn new(host: Host) -> Result<Self> {
        Ok(Self {
            timer: Timer::new()?,
            host,
            attached: BTreeMap::new(),
            connections: BTreeMap::new(),
            next: 0,
            leaving: Vec::new(),
            paused: None,
        })
    }

    /// Serves until a signal ends it. All leases stay.
    ///
    /// # Errors
    /// If poll(2) fails.
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
                self.with(&key, ManagedLease::receive);
            }
            self.run_due_timers();
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
        for (key, socket) in self.attached.iter().filter_map(|(key, one)| Some((key, one.client().socket()?)))
        {
            keys.push(key);
            polled.push(PollFd::from_borrowed_fd(socket, PollFlags::IN));
        }
        match poll(&mut polled, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(Error::io("wait for events", &e.into())),
        }
        let mut is_ready = polled.iter().skip(1).map(|one| !one.revents().is_empty());
        let (end, listener) = (is_ready.next() == Some(true), is_ready.next() == Some(true));
        let mut ready = Ready { end, listener, ..Ready::default() };
        ready.connections =
            numbers.into_iter().zip(&mut is_ready).filter(|(_, is)| *is).map(|(n, _)| n).collect();
        ready.attached =
            keys.into_iter().zip(&mut is_ready).filter(|(_, is)| *is).map(|(k, _)| k.clone()).collect();
        Ok(ready)
    }

    /// When the next timer is due.
    fn next(&self) -> Option<Time> {
        let clients = self.attached.values().filter_map(ManagedLease::deadline);
        let crowded = self.is_crowded();
        let connections = self.connections.values().filter_map(|one| one.deadline(crowded));
        let next_check = (!self.leaving.is_empty()).then(|| Time::now() + CHECK_INTERVAL);
        clients.chain(connections).chain(next_check).chain(self.paused).min()
    }

    /// Whether the maximum number of connections is reached.
    fn is_crowded(&self) -> bool {
        self.connections.len() >= MAX_CONNECTIONS
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
                    Err(refused) => log_line(&format!("dhcp daemon: {refused}")),
                },
                // The peer has closed the connection.
                Err(e) if matches!(e.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => {}
                Err(e) => {
                    log_line(&format!("dhcp daemon: accept a connection: {e}"));
                    self.paused = Some(Time::now() + PAUSE);
                    return;
                }
            }
        }
    }

    fn connection(&mut self, number: u64) {
        match self.connections.get_mut(&number).map(Connection::read_more) {
            Some(Event::Request(line, netns)) => {
                if let Some(outcome) = self.request(number, &line, netns) {
                    self.answer(number, &outcome);
                }
            }
            Some(Event::Ended) => self.close_connection(number),
            Some(Event::Nothing) | None => {}
        }
    }

    /// Closes a connection. If a server still grants an address for its request, that is released.
    fn close_connection(&mut self, number: u64) {
        self.connections.remove(&number);
        let waiting = self.attached.values().find(|one| one.waiter == Waiter::Connection(number));
        let Some(key) = waiting.map(|one| one.key.clone()) else { return };
        if let Some(one) = self.attached.remove(&key) {
            log(&key, "the plugin closed its connection");
            self.cancel(one);
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

    pub(super) fn poll_pending_releases(&mut self) {
        let now = Time::now();
        for mut one in std::mem::take(&mut self.leaving) {
            for mut departing in std::mem::take(&mut one.departing) {
                if one.until > now && !departing.is_done() {
                    one.departing.push(departing);
                } else {
                    departing.close(&self.host.closer);
                }
            }
            match one.departing.is_empty() {
                true => self.say_to(one.connection, one.answer),
                false => self.leaving.push(one),
            }
        }
    }

    fn run_due_timers(&mut self) {
        let now = Time::now();
        let is_due = |time: Option<Time>| time.is_some_and(|time| time <= now);
        self.paused = self.paused.filter(|paused| *paused > now);
        self.poll_pending_releases();
        let crowded = self.is_crowded();
        let late = self.connections.iter().filter(|(_, one)| is_due(one.deadline(crowded)));
        let late: Vec<u64> = late.map(|(number, _)| *number).collect();
        for number in late {
            if self.connections.get(&number).is_some_and(Connection::is_silent) {
                self.say_to(number, wire::busy());
            }
            self.close_connection(number);
        }
        let due = self.attached.iter().filter(|(_, one)| is_due(one.deadline()));
        let due: Vec<Key> = due.map(|(key, _)| key.clone()).collect();
        due.iter().for_each(|key| self.with(key, ManagedLease::tick));
    }
}
