//! The daemon's only loop: its socket, connections of plugins, sockets in containers, and timers.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::time::Duration;

use cni::{Error, Failures, Result};
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

/// How long the daemon accepts no connection after accept(2) failed for lack of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Interval for checking whether messages have been sent. The kernel has no event for that.
const CHECK_INTERVAL: Duration = Duration::from_millis(1);

/// The daemon.
#[derive(Debug)]
pub struct Daemon {
    pub(super) host: Host,
    /// The leases of all attachments, and requests for leases. An attachment has up to one for each family.
    pub(super) leases: BTreeMap<Key, ManagedLease>,
    connections: BTreeMap<u64, Connection>,
    /// Number of the next connection.
    next_number: u64,
    pub(super) pending_answers: Vec<PendingAnswer>,
    timer: Timer,
    /// No connection is accepted before this time.
    accept_after: Option<Time>,
}

/// An answer that waits until the kernel has sent the messages of releases.
#[derive(Debug)]
pub(super) struct PendingAnswer {
    /// None: no plugin waits for the answer.
    pub connection: Option<u64>,
    pub releases: Vec<Box<dyn PendingRelease>>,
    /// The answer is sent then, even if messages have not been sent.
    pub deadline: Time,
    /// Leases to release after these messages.
    pub stale: Vec<Key>,
    /// The failures so far. Without one, the answer is a success.
    pub failures: Failures,
}

/// The result of poll(2).
#[derive(Debug, Default)]
struct Ready {
    end: bool,
    listener: bool,
    connections: Vec<u64>,
    readable_leases: Vec<Key>,
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
            leases: BTreeMap::new(),
            connections: BTreeMap::new(),
            next_number: 0,
            pending_answers: Vec::new(),
            accept_after: None,
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
                self.handle_connection(number);
            }
            for key in ready.readable_leases {
                self.run_action(&key, ManagedLease::receive);
            }
            self.run_due_timers();
        }
    }

    fn wait(&mut self, listener: &Listener, signals: &SignalFd) -> Result<Ready> {
        self.timer.set(self.next_deadline())?;
        let accepts = self.accept_after.is_none() && !self.is_crowded();
        let mut polled = vec![PollFd::new(&self.timer, PollFlags::IN), PollFd::new(signals, PollFlags::IN)];
        polled.push(PollFd::new(listener, if accepts { PollFlags::IN } else { PollFlags::empty() }));
        let (mut numbers, mut keys) = (Vec::new(), Vec::new());
        for (number, connection) in &self.connections {
            numbers.push(*number);
            polled.push(PollFd::from_borrowed_fd(connection.as_fd(), connection.interest()));
        }
        for (key, socket) in
            self.leases.iter().filter_map(|(key, lease)| Some((key, lease.client().socket()?)))
        {
            keys.push(key);
            polled.push(PollFd::from_borrowed_fd(socket, PollFlags::IN));
        }
        match poll(&mut polled, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(Error::io("wait for events", &e.into())),
        }
        let mut is_ready = polled.iter().skip(1).map(|polled| !polled.revents().is_empty());
        let (end, listener) = (is_ready.next() == Some(true), is_ready.next() == Some(true));
        let mut ready = Ready { end, listener, ..Ready::default() };
        ready.connections =
            numbers.into_iter().zip(&mut is_ready).filter(|(_, is)| *is).map(|(n, _)| n).collect();
        ready.readable_leases =
            keys.into_iter().zip(&mut is_ready).filter(|(_, is)| *is).map(|(k, _)| k.clone()).collect();
        Ok(ready)
    }

    /// When the next timer is due.
    fn next_deadline(&self) -> Option<Time> {
        let clients = self.leases.values().filter_map(ManagedLease::deadline);
        let crowded = self.is_crowded();
        let connections = self.connections.values().filter_map(|connection| connection.deadline(crowded));
        let next_check = (!self.pending_answers.is_empty()).then(|| Time::now() + CHECK_INTERVAL);
        clients.chain(connections).chain(next_check).chain(self.accept_after).min()
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
                        self.connections.insert(self.next_number, connection);
                        self.next_number += 1;
                    }
                    Err(refused) => log_line(&format!("dhcp daemon: {refused}")),
                },
                // The peer has closed the connection.
                Err(e) if matches!(e.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => {}
                Err(e) => {
                    log_line(&format!("dhcp daemon: accept a connection: {e}"));
                    self.accept_after = Some(Time::now() + ACCEPT_PAUSE);
                    return;
                }
            }
        }
    }

    fn handle_connection(&mut self, number: u64) {
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
        let waiting = self.leases.values().find(|lease| lease.waiter == Waiter::Connection(number));
        let Some(key) = waiting.map(|lease| lease.key.clone()) else { return };
        if let Some(lease) = self.leases.remove(&key) {
            log(&key, "the plugin closed its connection");
            self.cancel(lease);
        }
    }

    pub(super) fn answer(&mut self, number: u64, outcome: &Result<Value>) {
        self.send_answer(number, wire::reply(outcome));
    }

    fn send_answer(&mut self, number: u64, answer: Vec<u8>) {
        let ended =
            self.connections.get_mut(&number).map(|connection| connection.answer(answer, Time::now()));
        if let Some(Event::Ended) = ended {
            self.connections.remove(&number);
        }
    }

    pub(super) fn poll_pending_releases(&mut self) {
        let now = Time::now();
        for mut pending in std::mem::take(&mut self.pending_answers) {
            for mut release in std::mem::take(&mut pending.releases) {
                if pending.deadline > now && !release.is_done() {
                    pending.releases.push(release);
                } else {
                    release.close(&self.host.closer);
                }
            }
            if pending.releases.is_empty() {
                self.release_stale(&mut pending);
            }
            if !pending.releases.is_empty() || !pending.stale.is_empty() {
                self.pending_answers.push(pending);
            } else if let Some(number) = pending.connection {
                self.answer(number, &pending.failures.into_result().map(|()| Value::Null));
            }
        }
    }

    fn run_due_timers(&mut self) {
        let now = Time::now();
        let is_due = |time: Option<Time>| time.is_some_and(|time| time <= now);
        self.accept_after = self.accept_after.filter(|time| *time > now);
        self.poll_pending_releases();
        let crowded = self.is_crowded();
        let late = self.connections.iter().filter(|(_, connection)| is_due(connection.deadline(crowded)));
        let late: Vec<u64> = late.map(|(number, _)| *number).collect();
        for number in late {
            if self.connections.get(&number).is_some_and(Connection::is_silent) {
                self.send_answer(number, wire::busy());
            }
            self.close_connection(number);
        }
        let due = self.leases.iter().filter(|(_, lease)| is_due(lease.deadline()));
        let due: Vec<Key> = due.map(|(key, _)| key.clone()).collect();
        due.iter().for_each(|key| self.run_action(key, ManagedLease::tick));
    }
}
