//! DHCPv6 client state machine for one address (RFC 8415, section 18.2), without I/O.

use std::fmt;
use std::net::Ipv6Addr;
use std::time::Duration;

use cni::{Code, Error};

use super::answer::{self, Association, Given, ServerStatus, Status};
use super::lease::Lease;
use super::message::{Kind, Message, PREFERENCE, RAPID_COMMIT};
use super::request::{self, Identity};
use super::retransmit::{self, Exchange};
use crate::{Random, Time};

/// The state of a client. RFC 8415 does not name states: these are named after the messages that are sent, and after
/// RFC 2131.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names of messages")]
pub enum State {
    Soliciting,
    Requesting,
    Confirming,
    Bound,
    Renewing,
    Rebinding,
    /// The client is releasing its address.
    Releasing,
    /// The client has given up, or has released its address.
    Ended,
}

/// Actions for the caller of a [`Client`].
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Send a message to all servers on the link. A failure is treated as a lost message.
    Send(Vec<u8>),
    /// The container has this lease now: a new one, a renewed one, or one of another address.
    Bound(Lease),
    /// The container must stop using the address, for this reason. The client requests a new one by itself.
    Lost(String),
    /// The acquisition failed. The client releases an address that a server may have allocated, and does nothing else.
    Failed(Error),
    /// The address was released, or no server confirmed that in time. The client does nothing more.
    Released,
}

/// How long an answer is awaited after a message.
const ANSWERS: Duration = Duration::from_secs(10);
/// If a server has no binding for the lease and does not grant it again, all servers get a request after this time: the
/// first interval of REBIND (REB_TIMEOUT).
const REBIND_AGAIN: Duration = Duration::from_secs(10);
/// An offer with this preference is accepted immediately (RFC 8415, section 18.2.1).
const TAKE_AT_ONCE: u8 = 255;

/// The client of one interface.
#[derive(Clone, Debug)]
pub struct Client {
    identity: Identity,
    random: Random,
    state: State,
    /// The message that is repeated until there is an answer. None: there is nothing to send.
    exchange: Option<Exchange>,
    lease: Option<Lease>,
    /// SOLICITING: the best offer so far. REQUESTING: the requested one. RELEASING: the address to release, and its
    /// server.
    offer: Option<Offer>,
    /// RELEASING: when to request another address afterwards. None: the client ends.
    again: Option<Time>,
    /// A request without an answer. The server may have allocated the address.
    unanswered: Option<Offer>,
    /// Until when the socket is needed, if it is.
    listens_until: Option<Time>,
    /// Timeout of an acquisition that an ADD waits for: the time, and the duration.
    gives_up: Option<(Time, Duration)>,
    /// The server's refusal, for the error of the ADD.
    refused: Option<String>,
    sol_max_rt: Duration,
    /// An address that the container had before.
    hint: Option<Ipv6Addr>,
}

/// Why an answer contains no usable address.
enum Refusal {
    /// The server refused.
    Servers(ServerStatus),
    /// The client cannot use the address.
    Clients(&'static str),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Servers(server_status) => server_status.fmt(f),
            Self::Clients(why) => f.write_str(why),
        }
    }
}

/// A server's offer.
#[derive(Clone, Debug)]
struct Offer {
    address: Ipv6Addr,
    server: Vec<u8>,
    preference: u8,
}

impl Client {
    /// Requests any address. The first [`Client::tick`] sends. There is no random delay before it, as RFC 8415, section
    /// 18.2.1 requires for hosts, because containers do not all start at the same time after a power failure.
    pub fn acquire(identity: Identity, timeout: Duration, now: Time, random: Random) -> Self {
        let mut this = Self::reacquire(identity, None, now, random);
        this.gives_up = Some((now + timeout, timeout));
        this
    }

    /// Requests an address after a lease was lost. Never fails.
    pub fn reacquire(identity: Identity, hint: Option<Ipv6Addr>, now: Time, mut random: Random) -> Self {
        let exchange = Some(Exchange::begin(Kind::Solicit, now, &mut random));
        Self {
            identity,
            random,
            state: State::Soliciting,
            exchange,
            offer: None,
            again: None,
            lease: None,
            unanswered: None,
            listens_until: None,
            gives_up: None,
            refused: None,
            sol_max_rt: retransmit::SOL_MAX_RT,
            hint,
        }
    }

    /// Continues with a lease after a restart. The client asks the servers whether the address is still valid on the
    /// link (CONFIRM). If none answers, it uses the address to the end of the lease (RFC 8415, section 18.2.3). Never
    /// fails. The first message has the random delay of that section, because all clients of a daemon start at the same
    /// time.
    pub fn resume(identity: Identity, lease: Lease, now: Time, random: Random) -> Self {
        let mut this = Self::reacquire(identity, None, now, random);
        this.lease = Some(lease);
        this.begin(State::Confirming, Kind::Confirm, now);
        if let Some(exchange) = &mut this.exchange {
            exchange.delay(&mut this.random);
        }
        this
    }

    /// Enters a state in which a message is sent. The first message is due.
    fn begin(&mut self, state: State, kind: Kind, now: Time) {
        self.state = state;
        self.exchange = Some(Exchange::begin(kind, now, &mut self.random));
    }

    fn request(&mut self, offer: Offer, now: Time) {
        self.offer = Some(offer);
        self.begin(State::Requesting, Kind::Request, now);
    }

    fn rebind(&mut self, now: Time) {
        self.begin(State::Rebinding, Kind::Rebind, now);
    }

    /// Enters BOUND or ENDED, in which nothing is sent.
    fn rest(&mut self, state: State) {
        (self.state, self.exchange, self.listens_until) = (state, None, None);
    }

    /// When [`Client::tick`] has to be called next. None: there is nothing to do.
    pub fn deadline(&self) -> Option<Time> {
        let of = |time: fn(&Lease) -> Option<Time>| self.lease.as_ref().and_then(time);
        let (renew, rebind, expiry) = (of(|l| l.renew), of(|l| l.rebind), of(|l| l.expiry));
        let times = match self.state {
            State::Bound | State::Confirming => [renew, rebind, expiry],
            State::Renewing => [None, rebind, expiry],
            State::Releasing | State::Ended => [None; 3],
            _ => [None, None, expiry],
        };
        let exchange = self.exchange.as_ref();
        let due = [exchange.map(|e| e.due), exchange.and_then(Exchange::end)];
        let ends = [self.listens_until, self.gives_up.map(|(end, _)| end)];
        times.into_iter().chain(due).chain(ends).flatten().min()
    }

    /// Whether the socket must be open now. While it is closed, the client does not keep the container's namespace
    /// alive.
    pub fn awaits_packets(&self, now: Time) -> bool {
        self.listens_until.is_some_and(|until| now < until)
    }

    /// Does all that is due. May be called at any time.
    pub fn tick(&mut self, now: Time) -> Vec<Action> {
        let mut actions = Vec::new();
        if !self.awaits_packets(now) {
            self.listens_until = None;
        }
        if self.gives_up.is_some_and(|(end, _)| now >= end) {
            self.fail(now, &mut actions);
            return actions;
        }
        // Each iteration but the last enters another state.
        while self.moves_on(now, &mut actions) {}
        self.send_due_messages(now, &mut actions);
        actions
    }

    /// Leaves the current state if its time is over. Returns whether it did.
    fn moves_on(&mut self, now: Time, actions: &mut Vec<Action>) -> bool {
        let is_past = |time: fn(&Lease) -> Option<Time>| {
            self.lease.as_ref().and_then(time).is_some_and(|moment| now >= moment)
        };
        let (to_renew, to_rebind) = match self.state {
            State::Bound | State::Confirming => (true, true),
            State::Renewing => (false, true),
            _ => (false, false),
        };
        let (is_due, is_over) = self.exchange.map_or((false, false), |e| (now >= e.due, e.is_over(now)));
        if is_past(|lease| lease.expiry) {
            self.lose("it has expired: no server extended it in time".to_owned(), now, actions);
        } else if to_rebind && is_past(|lease| lease.rebind) {
            self.rebind(now);
        } else if to_renew && is_past(|lease| lease.renew) {
            self.begin(State::Renewing, Kind::Renew, now);
        } else if is_over {
            self.give_up_exchange(now, actions);
        } else if let (State::Soliciting, true, Some(offer)) = (self.state, is_due, &self.offer) {
            self.request(offer.clone(), now);
        } else {
            return false;
        }
        true
    }

    /// An exchange had no answer.
    fn give_up_exchange(&mut self, now: Time, actions: &mut Vec<Action>) {
        match (self.state, self.again) {
            (State::Confirming, _) => self.rest(State::Bound),
            (State::Releasing, Some(again)) => self.solicit(now.max(again)),
            (State::Releasing, None) => self.end(actions),
            _ => self.start_over(now),
        }
    }

    /// After a REQUEST without an answer: starts again with SOLICIT. With a lease that its server does not know any
    /// more, continues with REBIND.
    fn start_over(&mut self, now: Time) {
        if self.state == State::Requesting {
            self.unanswered = self.offer.clone();
        }
        match self.lease {
            Some(_) => self.rebind(now),
            None => self.solicit(now),
        }
    }

    fn solicit(&mut self, now: Time) {
        self.offer = None;
        self.begin(State::Soliciting, Kind::Solicit, now);
    }

    fn end(&mut self, actions: &mut Vec<Action>) {
        (self.gives_up, self.lease) = (None, None);
        self.rest(State::Ended);
        actions.push(Action::Released);
    }

    /// The address must not be used any more.
    fn lose(&mut self, why: String, now: Time, actions: &mut Vec<Action>) {
        self.hint = self.lease.take().map(|lease| lease.address);
        self.listens_until = None;
        actions.push(Action::Lost(why));
        self.solicit(now);
    }

    fn fail(&mut self, now: Time, actions: &mut Vec<Action>) {
        let timeout = self.gives_up.map_or(0, |(_, timeout)| timeout.as_secs());
        let count = self.exchange.map_or(0, |exchange| exchange.count);
        let error = match self.refused.take() {
            Some(refused) => Error::new(Code::TryAgainLater, refused),
            None => Error::new(Code::TryAgainLater, "no DHCPv6 server has offered an address").detail(format!(
                "{count} SOLICITs were sent in {timeout} s; check that a server with a free address is on \
                 the link"
            )),
        };
        actions.push(Action::Failed(error));
        self.release(now);
    }

    fn send_due_messages(&mut self, now: Time, actions: &mut Vec<Action>) {
        let (address, server) = self.about();
        let Some(exchange) = self.exchange.as_mut().filter(|exchange| now >= exchange.due) else { return };
        // The first message of an exchange has an elapsed time of zero, even if it is late.
        if exchange.count == 0 {
            exchange.began = now;
        }
        exchange.sent(now, self.sol_max_rt, &mut self.random);
        let (kind, xid, elapsed) = (exchange.kind, exchange.xid, now.since(exchange.began));
        let message = request::message(&self.identity, kind, xid, elapsed, (address, server.as_deref()));
        self.listens_until = Some(now + ANSWERS);
        actions.push(Action::Send(message.encode()));
    }

    /// The address in the next message, and the server to which it is addressed.
    fn about(&self) -> (Option<Ipv6Addr>, Option<Vec<u8>>) {
        let lease = self.lease.as_ref().map(|lease| (lease.address, lease.server.clone()));
        let offer = self.offer.as_ref().map(|offer| (offer.address, offer.server.clone()));
        match self.state {
            State::Soliciting => (self.hint, None),
            State::Requesting | State::Releasing => offer.unzip(),
            State::Renewing => lease.unzip(),
            _ => (lease.map(|(address, _)| address), None),
        }
    }

    /// Handles a packet: the payload of a datagram to port 546. Packets for other clients, and unexpected ones, are ignored.
    pub fn receive(&mut self, now: Time, packet: &[u8]) -> Vec<Action> {
        let mut actions = Vec::new();
        let xid = self.exchange.filter(|exchange| exchange.count > 0).map(|exchange| exchange.xid);
        let is_due = |message: &Message| Some(message.xid) == xid && answer::is_for(message, &self.identity);
        if !self.awaits_packets(now) {
            return actions;
        }
        let Some(message) = Message::decode(packet).filter(is_due) else { return actions };
        let Some(server) = answer::server(&message).map(<[u8]>::to_vec) else { return actions };
        if let Some(longest) = answer::sol_max_rt(&message.options) {
            self.sol_max_rt = longest;
        }
        match message.kind {
            Kind::Advertise => self.take_advertise(&message, server, now),
            Kind::Reply => self.take_reply(&message, &server, now, &mut actions),
            _ => return actions,
        }
        // Send the answer to the packet immediately. Nothing else is due, although a deadline may have passed.
        let ends =
            |action: &Action| matches!(action, Action::Bound(_) | Action::Failed(_) | Action::Released);
        if !actions.iter().any(ends) && self.exchange.is_some_and(|exchange| exchange.count == 0) {
            self.send_due_messages(now, &mut actions);
        }
        actions
    }

    /// Compares the offers of the first second. A later offer is accepted immediately (RFC 8415, section 18.2.1).
    fn take_advertise(&mut self, message: &Message, server: Vec<u8>, now: Time) {
        let offered = match self.offered(message) {
            Ok(offered) => offered,
            Err(refused) => {
                return self.refused =
                    Some(format!("a DHCPv6 server refused to allocate an address: {refused}"));
            }
        };
        let preference =
            message.options.get(PREFERENCE).and_then(|value| value.first()).copied().unwrap_or(0);
        let offer = Offer { address: offered.address, server, preference };
        if self.state != State::Soliciting {
            return;
        }
        if preference == TAKE_AT_ONCE || self.exchange.is_some_and(|exchange| exchange.count > 1) {
            self.request(offer, now);
        } else if self.offer.as_ref().is_none_or(|best| offer.preference > best.preference) {
            self.offer = Some(offer);
        }
    }

    /// The address in a message, or the reason why there is none.
    fn offered(&self, message: &Message) -> Result<Given, Refusal> {
        let server_status = answer::status(&message.options);
        if server_status.status != Status::Success {
            return Err(Refusal::Servers(server_status));
        }
        let association = answer::association(message, self.identity.iaid)
            .ok_or(Refusal::Clients("the answer has no IA_NA with the client's IAID"))?;
        if association.server_status.status != Status::Success {
            return Err(Refusal::Servers(association.server_status));
        }
        association
            .pick(self.about().0)
            .ok_or(Refusal::Clients("the answer has no usable address with valid lifetimes"))
    }

    fn take_reply(&mut self, message: &Message, server: &[u8], now: Time, actions: &mut Vec<Action>) {
        // Not since the first message of the exchange: if the server was down for long, that may be before the end of
        // the lease.
        let since = self.exchange.map_or(now, |exchange| exchange.first_sent);
        let is_requested = self.offer.as_ref().is_some_and(|offer| offer.server == server);
        match self.state {
            State::Soliciting if message.options.get(RAPID_COMMIT).is_some() => {
                self.take_first(message, server, since, now, actions);
            }
            State::Requesting if is_requested => self.take_first(message, server, since, now, actions),
            State::Confirming => match answer::status(&message.options).status {
                Status::NotOnLink => {
                    self.lose("a server reports that it is not valid on this link".to_owned(), now, actions);
                }
                // UnspecFail and other codes have no meaning for the address.
                _ => self.rest(State::Bound),
            },
            State::Renewing if self.lease.as_ref().is_some_and(|lease| lease.server == server) => {
                self.take_extension(message, server, since, now, actions);
            }
            State::Rebinding => self.take_extension(message, server, since, now, actions),
            State::Releasing if is_requested => match self.again {
                Some(again) => self.solicit(now.max(again)),
                None => self.end(actions),
            },
            _ => {}
        }
    }

    /// A reply to SOLICIT or REQUEST.
    fn take_first(
        &mut self,
        message: &Message,
        server: &[u8],
        since: Time,
        now: Time,
        actions: &mut Vec<Action>,
    ) {
        match self.offered(message) {
            Ok(given) => self.bind(message, given, since, now, actions),
            Err(refusal) => {
                self.refused = Some(format!("a DHCPv6 server refused to allocate an address: {refusal}"));
                self.unanswered.take_if(|offer| offer.server == server);
                let due = self.exchange.map_or(now, |exchange| exchange.due);
                match (self.state, self.offer.clone()) {
                    (State::Requesting, Some(offer)) => self.refuse(due, offer, message, &refusal, now),
                    // With rapid commit, the server may have allocated the address in its answer. Without an address in
                    // it, the client repeats its message at the next interval.
                    (State::Soliciting, _) if matches!(refusal, Refusal::Clients(_)) => {
                        if let Some(address) = answer::named(message) {
                            self.return_unusable(address, server.to_vec(), due, now);
                        }
                    }
                    _ => {}
                }
            }
        }
    }

    /// Handles a REPLY to REQUEST without a usable address. The client releases the address, because the server may
    /// have allocated it. It starts again at the next interval: otherwise a server that offers an address and then
    /// refuses it would cause an endless loop.
    fn refuse(&mut self, due: Time, offer: Offer, message: &Message, refusal: &Refusal, now: Time) {
        match (&self.lease, refusal) {
            // A server that has no binding and grants none answers the next REBIND in the same way.
            (Some(_), _) => {
                self.rebind(now);
                self.exchange.iter_mut().for_each(|exchange| exchange.due = now + REBIND_AGAIN);
            }
            (None, Refusal::Servers(_)) => self.solicit(due),
            (None, Refusal::Clients(_)) => {
                let address = answer::named(message).unwrap_or(offer.address);
                self.return_unusable(address, offer.server, due, now);
            }
        }
    }

    fn return_unusable(&mut self, address: Ipv6Addr, server: Vec<u8>, again: Time, now: Time) {
        self.offer = Some(Offer { address, server, preference: 0 });
        self.again = Some(again);
        self.begin(State::Releasing, Kind::Release, now);
    }

    fn bind(&mut self, message: &Message, given: Given, since: Time, now: Time, actions: &mut Vec<Action>) {
        let association = answer::association(message, self.identity.iaid);
        let lease = association.and_then(|association| association.lease(given, message, since));
        let Some(lease) = lease.filter(|lease| lease.expiry.is_none_or(|expiry| now < expiry)) else {
            return;
        };
        let moved = self.lease.as_ref().is_some_and(|before| before.address != lease.address);
        if moved {
            actions.push(Action::Lost("its server has replaced it with another address".to_owned()));
        }
        self.lease = Some(lease.clone());
        (self.gives_up, self.refused, self.hint, self.unanswered) = (None, None, None, None);
        self.rest(State::Bound);
        actions.push(Action::Bound(lease));
    }

    /// A reply to RENEW or REBIND (RFC 8415, section 18.2.10.1).
    fn take_extension(
        &mut self,
        message: &Message,
        server: &[u8],
        since: Time,
        now: Time,
        actions: &mut Vec<Action>,
    ) {
        let Some(lease) = &self.lease else { return };
        let address = lease.address;
        if answer::status(&message.options).status != Status::Success {
            // Repeated at the next interval.
            return;
        }
        let Some(Association { server_status, addresses, .. }) =
            answer::association(message, self.identity.iaid)
        else {
            return;
        };
        match server_status.status {
            // The server has no binding. The client requests the lease again, and may use the address meanwhile.
            Status::NoBinding => {
                self.request(Offer { address, server: server.to_vec(), preference: 0 }, now);
            }
            Status::Success => {
                let ended = addresses.iter().any(|given| given.address == address && !given.lasts());
                match self.offered(message) {
                    Ok(given) if given.address == address || ended => {
                        self.bind(message, given, since, now, actions);
                    }
                    _ if ended => {
                        self.lose("its server has ended it".to_owned(), now, actions);
                    }
                    // A lease that is not mentioned has not ended. It is requested again at the next interval.
                    _ => {}
                }
            }
            _ => {}
        }
    }

    /// Releases the client's address, or one that a server may have allocated although its REPLY was lost. Returns false if
    /// there is no address. Then the client does nothing more.
    pub fn release(&mut self, now: Time) -> bool {
        self.depart(Kind::Release, None, now)
    }

    /// Declines the address, because duplicate address detection found it on another host: servers must not allocate
    /// it. If the container `stays`, the client requests another one.
    pub fn decline(&mut self, stays: bool, now: Time) -> bool {
        self.depart(Kind::Decline, stays.then_some(now), now)
    }

    fn depart(&mut self, kind: Kind, again: Option<Time>, now: Time) -> bool {
        let is_releasing = self.state == State::Releasing;
        let held = self.held_of();
        (self.gives_up, self.again) = (None, again);
        // Otherwise a DECLINE is being sent already.
        if !is_releasing {
            (self.lease, self.unanswered) = (None, None);
            self.rest(State::Ended);
            if held.is_some() {
                self.offer = held;
                self.begin(State::Releasing, kind, now);
            }
        }
        self.state == State::Releasing
    }

    /// The address that a server has allocated or may have allocated, unless it was released.
    pub fn held(&self) -> Option<Ipv6Addr> {
        self.held_of().map(|offer| offer.address)
    }

    /// That address, with its server.
    fn held_of(&self) -> Option<Offer> {
        match (&self.lease, self.state) {
            (_, State::Releasing) => self.offer.clone(),
            (Some(Lease { address, server, .. }), _) => {
                Some(Offer { address: *address, server: server.clone(), preference: 0 })
            }
            (None, State::Requesting) => self.offer.clone(),
            (None, _) => self.unanswered.clone(),
        }
    }

    /// Whether a server may have allocated an address that was not reported yet.
    pub fn may_be_granted(&self) -> bool {
        self.lease.is_none() && self.state != State::Ended
    }

    /// Ends a cancelled acquisition as soon as no more answers can be expected.
    pub fn hurry(&mut self, now: Time) {
        self.gives_up = Some((now + ANSWERS, ANSWERS));
    }

    /// The state.
    pub fn state(&self) -> State {
        self.state
    }

    /// The lease that the container has.
    pub fn lease(&self) -> Option<&Lease> {
        self.lease.as_ref()
    }
}

#[cfg(test)]
mod tests;
