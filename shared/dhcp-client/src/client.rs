//! DHCPv4 client state machine (RFC 2131, section 4.4), without I/O.

mod action;
mod answer;
mod identity;
mod request;

use std::net::Ipv4Addr;
use std::time::Duration;

use cni::{Code, Error};

pub use action::{Action, Reason, To};
use answer::Offer;
pub use identity::{Identity, Timing};
use request::Transaction;

use crate::{Kind, Lease, Message, Random, Time, options};

/// The states of RFC 2131, figure 5, and a state for a client that has given up. There is no INIT, because the client
/// sends immediately.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names of RFC 2131")]
pub enum State {
    Selecting,
    Requesting,
    Rebooting,
    Bound,
    Renewing,
    Rebinding,
    Failed,
}

/// The reference's message when no server answers. Alerts search for it.
const NO_MORE_TRIES: &str = "error calling DHCP.Allocate: no more tries";

/// The number of DISCOVERs at the short interval.
const FAST_SENDS: u32 = 4;
/// The short interval, ±1 s.
const FAST: Duration = Duration::from_secs(2);
/// The first longer interval. It doubles with each message.
const SLOW: Duration = Duration::from_secs(4);
/// The minimum interval between two renewals (RFC 2131, section 4.4.5).
const EXTEND_AGAIN: Duration = Duration::from_secs(60);
/// A lease of a few minutes is renewed at shorter intervals: this many times, so that one lost packet does not cost the
/// address.
const EXTENSIONS: u32 = 4;
/// The minimum interval between two renewals of any lease.
const EXTEND_SOONEST: Duration = Duration::from_secs(1);

/// The client of one interface.
#[derive(Clone, Debug)]
pub struct Client {
    identity: Identity,
    timing: Timing,
    random: Random,
    phase: Phase,
    xid: u32,
    /// Start of the acquisition or renewal.
    began: Time,
    /// Until when the socket is needed, if it is.
    listens_until: Option<Time>,
    /// The DISCOVERs since the last lease.
    discovers: Sends,
    /// The field `secs` of the last DISCOVER. The REQUEST for the offer repeats it.
    discover_secs: u16,
    /// An address that the container had before.
    hint: Option<Ipv4Addr>,
    lease: Option<Lease>,
    /// Whether the interface has the lease's address, and so answers ARP requests for it.
    is_assigned: bool,
    /// An offer whose REQUEST had no answer. The server may have allocated the address.
    unanswered: Option<Offer>,
    /// Timeout of an acquisition that an ADD waits for.
    gives_up: Option<Time>,
    /// Why the last offer did not lead to a lease: the error of the ADD.
    refused: Option<Error>,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    Selecting,
    Requesting {
        offer: Offer,
        exchange: Exchange,
    },
    Rebooting {
        address: Ipv4Addr,
        exchange: Exchange,
    },
    Bound,
    /// RENEWING and REBINDING: when the last REQUEST was sent, and when the next one is due.
    Extending {
        state: State,
        sent_at: Time,
        again: Time,
    },
    Failed,
}

/// A REQUEST, repeated until there is an answer.
#[derive(Clone, Copy, Debug)]
struct Exchange {
    /// When it was first sent.
    sent_at: Option<Time>,
    sends: Sends,
    /// Its timeout.
    until: Time,
}

/// How many times a message was sent, and when it is due again.
#[derive(Clone, Copy, Debug)]
struct Sends {
    count: u32,
    due: Time,
}

impl Sends {
    /// Nothing was sent yet. The first message is due.
    fn none(now: Time) -> Self {
        Self { count: 0, due: now }
    }

    /// Counts a message. The next one is due after 2±1 s, four times, then after 4±1, 8±1, up to `longest`.
    fn sent(&mut self, now: Time, longest: Duration, random: &mut Random) {
        self.count = self.count.saturating_add(1);
        let gap = match self.count.checked_sub(FAST_SENDS + 1) {
            None => FAST,
            Some(doublings) => SLOW.saturating_mul(1_u32.checked_shl(doublings).unwrap_or(u32::MAX)),
        };
        self.due = now + random.around(gap.min(longest));
    }
}

impl Client {
    /// Requests any address (INIT). The first [`Client::tick`] sends.
    pub fn acquire(identity: Identity, timing: Timing, now: Time, random: Random) -> Self {
        let mut this = Self::new(identity, timing, now, random);
        this.gives_up = Some(now + timing.resend_timeout);
        this
    }

    /// Requests an address for a container that lost its lease (INIT). Never fails.
    pub fn reacquire(identity: Identity, timing: Timing, now: Time, random: Random) -> Self {
        Self::new(identity, timing, now, random)
    }

    /// Requests an address that the container already has from another daemon (INIT-REBOOT). Never fails: if no server
    /// confirms the address, any address is requested.
    pub fn reboot(identity: Identity, timing: Timing, address: Ipv4Addr, now: Time, random: Random) -> Self {
        let mut this = Self::new(identity, timing, now, random);
        this.hint = Some(address);
        this.phase = Phase::Rebooting { address, exchange: this.exchange(now) };
        this
    }

    /// Continues with a lease: BOUND, RENEWING or REBINDING, according to its times. An expired lease is lost at the
    /// first [`Client::tick`]. Never fails.
    pub fn resume(identity: Identity, timing: Timing, lease: Lease, now: Time, random: Random) -> Self {
        let mut this = Self::new(identity, timing, now, random);
        this.lease = Some(lease);
        this.phase = Phase::Bound;
        this
    }

    fn new(identity: Identity, timing: Timing, now: Time, mut random: Random) -> Self {
        Self {
            identity,
            timing,
            phase: Phase::Selecting,
            xid: random.xid(),
            random,
            began: now,
            listens_until: None,
            discovers: Sends::none(now),
            discover_secs: 0,
            hint: None,
            lease: None,
            is_assigned: true,
            unanswered: None,
            gives_up: None,
            refused: None,
        }
    }

    fn exchange(&self, now: Time) -> Exchange {
        Exchange { sent_at: None, sends: Sends::none(now), until: now + self.timing.timeout }
    }

    /// Sets the link's new hardware address. The client identifier stays the same.
    pub fn set_mac(&mut self, mac: [u8; 6]) {
        self.identity.mac = mac;
    }

    /// Sets whether the interface has the lease's address. Without it, a server's answer to that address would not arrive,
    /// so extensions are requested by broadcast and without ciaddr (RFC 2131, table 1). If the interface no longer has the
    /// address, such a request is due immediately.
    pub fn set_assigned(&mut self, is_assigned: bool) {
        let was_assigned = std::mem::replace(&mut self.is_assigned, is_assigned);
        if let Phase::Extending { again, .. } = &mut self.phase
            && was_assigned
            && !is_assigned
        {
            *again = Time::default();
        }
    }

    /// When [`Client::tick`] has to be called next. None: only a packet changes the state.
    pub fn deadline(&self) -> Option<Time> {
        let lease = self.lease.as_ref();
        let due = match self.phase {
            Phase::Selecting => Some(self.discovers.due),
            Phase::Requesting { exchange, .. } | Phase::Rebooting { exchange, .. } => {
                Some(exchange.sends.due.min(exchange.until))
            }
            // The times of a lease from disk may be out of order.
            Phase::Bound => lease.and_then(|lease| earliest([lease.renew, lease.rebind, lease.expiry])),
            Phase::Extending { state: State::Renewing, again, .. } => earliest([
                Some(again),
                lease.and_then(|lease| lease.rebind),
                lease.and_then(|lease| lease.expiry),
            ]),
            Phase::Extending { again, .. } => earliest([Some(again), lease.and_then(|lease| lease.expiry)]),
            Phase::Failed => None,
        };
        earliest([due, self.listens_until, self.gives_up])
    }

    /// Whether the socket must be open now. While it is closed, the client does not keep the container's namespace
    /// alive. The result does not change before [`Client::deadline`].
    pub fn awaits_packets(&self, now: Time) -> bool {
        self.listens_until.is_some_and(|until| now < until)
    }

    /// Does all that is due. May be called at any time.
    pub fn tick(&mut self, now: Time) -> Vec<Action> {
        let mut actions = Vec::new();
        if !self.awaits_packets(now) {
            self.listens_until = None;
        }
        if self.gives_up.is_some_and(|end| now >= end) {
            // The server may have allocated the address although its answer was lost.
            actions.extend(self.clone().release());
            self.fail(&mut actions);
        }
        // Each iteration but the last enters another state.
        while self.has_ended(now, &mut actions) {}
        self.send_due_messages(now, &mut actions);
        actions
    }

    /// Leaves the current state if its time is over. Returns whether it did.
    fn has_ended(&mut self, now: Time, actions: &mut Vec<Action>) -> bool {
        let is_past = |moment: Option<Time>| moment.is_some_and(|moment| now >= moment);
        let lease = self.lease.as_ref();
        match self.phase {
            Phase::Requesting { exchange, .. } | Phase::Rebooting { exchange, .. }
                if now >= exchange.until =>
            {
                if let Phase::Requesting { offer, .. } = self.phase {
                    self.unanswered = Some(offer);
                }
                // A new transaction, so that a late answer is not taken for an answer to the next request.
                self.xid = self.random.xid();
                self.phase = Phase::Selecting;
                self.discovers.due = self.discovers.due.max(now);
            }
            Phase::Bound | Phase::Extending { .. } if is_past(lease.and_then(|lease| lease.expiry)) => {
                self.lose(Reason::Expired, now, actions);
            }
            Phase::Bound | Phase::Extending { state: State::Renewing, .. }
                if is_past(lease.and_then(|lease| lease.rebind)) =>
            {
                self.begin_to_extend(State::Rebinding, now);
            }
            Phase::Bound if is_past(lease.and_then(|lease| lease.renew)) => {
                self.begin_to_extend(State::Renewing, now);
            }
            _ => return false,
        }
        true
    }

    fn begin_to_extend(&mut self, state: State, now: Time) {
        if matches!(self.phase, Phase::Bound) {
            self.began = now;
        }
        self.phase = Phase::Extending { state, sent_at: now, again: now };
    }

    /// The lease's address may no longer be used. Back to INIT.
    fn lose(&mut self, reason: Reason, now: Time, actions: &mut Vec<Action>) {
        let lost = self.lease.take();
        self.hint = lost.filter(|_| reason == Reason::Expired).map(|lease| lease.address);
        actions.push(Action::Lost(reason));
        self.began = now;
        self.xid = self.random.xid();
        self.listens_until = None;
        self.discovers = Sends::none(now);
        self.phase = Phase::Selecting;
    }

    fn fail(&mut self, actions: &mut Vec<Action>) {
        let error = self.refused.take().unwrap_or_else(|| {
            no_more_tries(format!(
                "no DHCP server has offered an address: {} DISCOVERs were sent in {} s; check that a server \
                 with a free address is on the link",
                self.discovers.count,
                self.timing.resend_timeout.as_secs()
            ))
        });
        actions.push(Action::Failed(error));
        (self.phase, self.listens_until, self.gives_up) = (Phase::Failed, None, None);
    }

    fn send_due_messages(&mut self, now: Time, actions: &mut Vec<Action>) {
        let from = Ipv4Addr::UNSPECIFIED;
        let transaction = self.transaction(now);
        let (to, message) = match &mut self.phase {
            Phase::Selecting if now >= self.discovers.due => {
                self.discovers.sent(now, self.timing.resend_max, &mut self.random);
                self.discover_secs = transaction.secs;
                (To::Broadcast { from }, request::discover(&self.identity, transaction, self.hint))
            }
            Phase::Requesting { offer, exchange } if now >= exchange.sends.due => {
                exchange.send(now, self.timing.resend_max, &mut self.random);
                let (address, server) = (offer.address, Some(offer.server));
                let transaction = Transaction { secs: self.discover_secs, ..transaction };
                (To::Broadcast { from }, request::select(&self.identity, transaction, address, server))
            }
            Phase::Rebooting { address, exchange } if now >= exchange.sends.due => {
                exchange.send(now, self.timing.resend_max, &mut self.random);
                (To::Broadcast { from }, request::select(&self.identity, transaction, *address, None))
            }
            Phase::Extending { again, .. } if now >= *again => match self.extend(now) {
                Some(sent) => sent,
                None => return,
            },
            _ => return,
        };
        self.listens_until = Some(now + self.timing.timeout);
        actions.push(Action::Send { to, message });
    }

    /// Sends a REQUEST to extend the lease, as a new transaction: the lease begins when that REQUEST was sent. The next
    /// REQUEST follows after half of the remaining time, but not before a minute, or a quarter of the whole time if
    /// that is shorter.
    fn extend(&mut self, now: Time) -> Option<(To, Vec<u8>)> {
        self.xid = self.random.xid();
        let transaction = self.transaction(now);
        let (lease, Phase::Extending { state, sent_at, again }) = (self.lease.as_ref()?, &mut self.phase)
        else {
            return None;
        };
        let (from, server) = (lease.address, lease.server);
        let (begin, end, to) = match state {
            State::Renewing => (lease.renew, lease.rebind, To::Server { server, from }),
            _ => (lease.rebind, lease.expiry, To::Broadcast { from }),
        };
        let until_end = |from: Time| end.map_or(Duration::ZERO, |end| end.since(from));
        let shortest = until_end(begin.unwrap_or(now)) / EXTENSIONS;
        let gap = (until_end(now) / 2).max(shortest.clamp(EXTEND_SOONEST, EXTEND_AGAIN));
        (*sent_at, *again) = (now, now + gap);
        if !self.is_assigned {
            let to = To::Broadcast { from: Ipv4Addr::UNSPECIFIED };
            return Some((to, request::select(&self.identity, transaction, from, None)));
        }
        Some((to, request::extend(&self.identity, transaction, from)))
    }

    fn transaction(&self, now: Time) -> Transaction {
        let secs = u16::try_from(now.since(self.began).as_secs()).unwrap_or(u16::MAX);
        Transaction { xid: self.xid, secs }
    }

    /// Handles a packet: the payload of a datagram to port 68. Packets for other clients, and unexpected ones, are ignored.
    pub fn receive(&mut self, now: Time, packet: &[u8]) -> Vec<Action> {
        let mut actions = Vec::new();
        if !self.awaits_packets(now) {
            return actions;
        }
        let Some(message) = Message::decode(packet).filter(|message| self.is_addressed(message)) else {
            return actions;
        };
        match (message.kind(), self.phase) {
            (Some(Kind::Offer), Phase::Selecting) => self.take_offer(&message, now),
            (Some(Kind::Ack), Phase::Requesting { offer, exchange }) if is_from(&message, offer.server) => {
                self.take_ack(message, exchange.sent_at.unwrap_or(now), now, &mut actions);
            }
            (Some(Kind::Ack), Phase::Rebooting { exchange, .. }) => {
                self.take_ack(message, exchange.sent_at.unwrap_or(now), now, &mut actions);
            }
            (Some(Kind::Ack), Phase::Extending { state, sent_at, .. })
                if self.may_extend(state, &message) =>
            {
                self.take_ack(message, sent_at, now, &mut actions);
            }
            (Some(Kind::Nak), phase) => self.take_nak(&message, phase, now, &mut actions),
            _ => {}
        }
        // Send the answer to the packet immediately. Nothing else is due, although a deadline may have passed.
        if !actions.iter().any(|action| matches!(action, Action::Bound(_) | Action::Failed(_))) {
            self.send_due_messages(now, &mut actions);
        }
        actions
    }

    /// Whether a message is a server's answer to this client. Clients that share a hardware address differ in option 61, which servers
    /// repeat (RFC 6842).
    fn is_addressed(&self, message: &Message) -> bool {
        let client_id = message.options.get(options::CLIENT_ID);
        message.is_reply
            && message.xid == self.xid
            && message.mac == self.identity.mac
            && client_id.is_none_or(|client_id| client_id == self.identity.client_id())
    }

    /// RENEWING accepts only the lease's server, REBINDING any server.
    fn may_extend(&self, state: State, message: &Message) -> bool {
        state == State::Rebinding || self.lease.as_ref().is_some_and(|lease| is_from(message, lease.server))
    }

    fn take_offer(&mut self, message: &Message, now: Time) {
        let offer = match answer::offer(message) {
            Ok(offer) => offer,
            Err(e) => return self.refused = Some(e),
        };
        if !self.accepts_options(message, "offered") {
            // Another server may send the missing option. The next DISCOVER need not wait long.
            let soon = now + self.timing.timeout;
            self.gives_up = self.gives_up.map(|end| end.min(soon));
            return;
        }
        self.refused = Some(no_more_tries(format!(
            "DHCP server {} offered {}, but did not answer the REQUEST",
            offer.server, offer.address
        )));
        self.phase = Phase::Requesting { offer, exchange: self.exchange(now) };
    }

    /// Whether the message has all required options. A running container keeps its address without them.
    fn accepts_options(&mut self, message: &Message, done: &str) -> bool {
        let missing = answer::missing(&self.identity.required, &message.options);
        if missing.is_empty() || self.gives_up.is_none() {
            return true;
        }
        let names: Vec<_> = missing.into_iter().map(options::name).collect();
        let (names, address) = (names.join(", "), message.yiaddr);
        let server = answer::server(message).map_or(String::new(), |server| format!(" {server}"));
        let text = format!(
            "DHCP server{server} {done} {address} without the required options of ipam.request: {names}"
        );
        self.refused = Some(Error::new(Code::Internal, text));
        false
    }

    /// Enters BOUND.
    fn take_ack(&mut self, message: Message, sent_at: Time, now: Time, actions: &mut Vec<Action>) {
        let is_complete = self.accepts_options(&message, "gave");
        if let Some(server) = self.ended_by(&message, sent_at, now) {
            return self.lose(Reason::Ended { server }, now, actions);
        }
        let lease = match answer::lease(message, sent_at, &mut self.random) {
            Ok(lease) if lease.expiry.is_some_and(|expiry| now >= expiry) => return,
            Ok(lease) => lease,
            Err(e) => return self.refused = Some(e),
        };
        if !is_complete {
            actions.push(self.release_message(lease.address, lease.server));
            return self.fail(actions);
        }
        self.lease = Some(lease.clone());
        (self.phase, self.listens_until, self.gives_up) = (Phase::Bound, None, None);
        (self.refused, self.unanswered) = (None, None);
        actions.push(Action::Bound(lease));
    }

    /// The server that ended the lease: its ACK has a lease time that is over, or too short.
    fn ended_by(&self, message: &Message, sent_at: Time, now: Time) -> Option<Ipv4Addr> {
        let lease = self.lease.as_ref()?;
        (message.yiaddr == lease.address && answer::is_over(message, sent_at, now))
            .then(|| answer::server(message))?
    }

    /// Handles a NAK: back to INIT. In SELECTING, it is ignored, because nothing was requested.
    fn take_nak(&mut self, message: &Message, phase: Phase, now: Time, actions: &mut Vec<Action>) {
        let server = answer::server(message);
        let text = options::text(message.options.get(options::MESSAGE).unwrap_or_default());
        let reason = Reason::Refused { server, message: text };
        match phase {
            // The next DISCOVER keeps its interval. Otherwise a server that offers an address and then refuses it would
            // cause an endless loop.
            Phase::Requesting { offer, .. } if server == Some(offer.server) => {
                (self.hint, self.unanswered) = (None, None);
                let text = format!("{} was offered, but {reason}", offer.address);
                self.refused = Some(no_more_tries(text));
                self.phase = Phase::Selecting;
            }
            Phase::Extending { state, .. } if !self.may_extend(state, message) => {}
            Phase::Rebooting { .. } | Phase::Extending { .. } => {
                self.lose(reason, now, actions);
            }
            _ => {}
        }
    }

    /// Releases the client's address. Also if a server may have allocated one whose ACK was lost. None: there is no address.
    pub fn release(mut self) -> Option<Action> {
        let Offer { address, server } = match (&self.lease, self.phase) {
            (_, Phase::Failed) => return None,
            (Some(lease), _) => Offer { address: lease.address, server: lease.server },
            (None, Phase::Requesting { offer, .. }) => offer,
            (None, _) => self.unanswered?,
        };
        self.xid = self.random.xid();
        Some(self.release_message(address, server))
    }

    fn release_message(&self, from: Ipv4Addr, server: Ipv4Addr) -> Action {
        let message = request::release(&self.identity, self.xid, from, server);
        Action::Send { to: To::Server { server, from }, message }
    }

    /// The state.
    pub fn state(&self) -> State {
        match self.phase {
            Phase::Selecting => State::Selecting,
            Phase::Requesting { .. } => State::Requesting,
            Phase::Rebooting { .. } => State::Rebooting,
            Phase::Bound => State::Bound,
            Phase::Extending { state, .. } => state,
            Phase::Failed => State::Failed,
        }
    }

    /// The lease that the container has.
    pub fn lease(&self) -> Option<&Lease> {
        self.lease.as_ref()
    }
}

impl Exchange {
    fn send(&mut self, now: Time, longest: Duration, random: &mut Random) {
        self.sent_at.get_or_insert(now);
        self.sends.sent(now, longest, random);
    }
}

/// The error if no server leased an address in time.
fn no_more_tries(detail: String) -> Error {
    Error::new(Code::TryAgainLater, NO_MORE_TRIES).detail(detail)
}

fn earliest<const N: usize>(moments: [Option<Time>; N]) -> Option<Time> {
    moments.into_iter().flatten().min()
}

fn is_from(message: &Message, server: Ipv4Addr) -> bool {
    answer::server(message) == Some(server)
}

#[cfg(test)]
mod tests;
