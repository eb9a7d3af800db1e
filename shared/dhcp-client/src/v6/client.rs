//! DHCPv6 client state machine for one address (RFC 8415, section 18.2), without I/O.

use std::fmt;
use std::net::Ipv6Addr;
use std::time::Duration;

use cni::{Code, Error};

use super::answer::{self, Association, Given, Said, Status};
use super::lease::Lease;
use super::message::{Kind, Message, PREFERENCE, RAPID_COMMIT};
use super::request::{self, Identity};
use super::retransmit::{self, Exchange};
use crate::{Random, Time};

/// What a client is at. RFC 8415 has no names of states: they are those of the messages that are sent, and RFC 2131's for the time in between.
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
    Leaving,
    /// It has given up, or has given all back.
    Ended,
}

/// What who drives a [`Client`] has to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Send a message to all servers on the link. A failure is the same as a message that is lost.
    Send(Vec<u8>),
    /// The container has this lease now: a first one, the same with new times, or one of another address.
    Bound(Lease),
    /// The container may no longer use its lease's address, for this reason. The client asks for a new one by itself.
    Lost(String),
    /// The acquisition failed. The client releases an address that a server may have allocated, and does nothing else.
    Failed(Error),
    /// What the client had is given back, or no server says so in time. The client does nothing any more.
    Left,
}

/// For how long an answer is awaited after a message.
const ANSWERS: Duration = Duration::from_secs(10);
/// How long no other server is asked for a lease that one forgot and does not give again: the first time of REBIND (REB_TIMEOUT).
const REBIND_AGAIN: Duration = Duration::from_secs(10);
/// A server of this preference is not to be compared with others (RFC 8415, section 18.2.1).
const TAKE_AT_ONCE: u8 = 255;

/// The client of one interface.
#[derive(Debug)]
pub struct Client {
    identity: Identity,
    random: Random,
    state: State,
    /// The message that is sent until there is an answer. None: there is nothing to send.
    exchange: Option<Exchange>,
    lease: Option<Lease>,
    /// SOLICITING: the best offer by now. REQUESTING: the one that is asked for. LEAVING: what is given back, and to whom.
    offer: Option<Offer>,
    /// LEAVING: from when on another address is asked for then. None: the client ends.
    again: Option<Time>,
    /// What a server was asked for and gave no answer to. It may have noted it.
    unanswered: Option<Offer>,
    /// As long as a socket is needed, until when.
    listens_until: Option<Time>,
    /// For an acquisition that somebody waits for: when it has failed, and how long it may take.
    gives_up: Option<(Time, Duration)>,
    /// What a server refused, for whom waits.
    refused: Option<String>,
    sol_max_rt: Duration,
    /// An address that the container had.
    hint: Option<Ipv6Addr>,
}

/// Why a message gives the client no address.
enum Refusal {
    /// The server says so.
    Servers(Said),
    /// What it gives cannot be used.
    Clients(&'static str),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Servers(said) => said.fmt(f),
            Self::Clients(why) => f.write_str(why),
        }
    }
}

/// An address that a server offers.
#[derive(Clone, Debug)]
struct Offer {
    address: Ipv6Addr,
    server: Vec<u8>,
    preference: u8,
}

impl Client {
    /// Asks for any address. The first [`Client::tick`] sends: there is no random delay before it (RFC 8415, section 18.2.1),
    /// since containers do not all start at one moment, as hosts do when their power comes back.
    pub fn acquire(identity: Identity, timeout: Duration, now: Time, random: Random) -> Self {
        let mut this = Self::ask_again(identity, None, now, random);
        this.gives_up = Some((now + timeout, timeout));
        this
    }

    /// Asks for an address in the place of one that was lost. It never fails.
    pub fn ask_again(identity: Identity, hint: Option<Ipv6Addr>, now: Time, mut random: Random) -> Self {
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

    /// Carries on with a lease after a restart: servers are asked whether it is still good on the link (CONFIRM). If none
    /// answers, it is used to its end (RFC 8415, section 18.2.3). It never fails. The first message is delayed at random, as that
    /// section demands: all of a daemon's clients start at one moment.
    pub fn resume(identity: Identity, lease: Lease, now: Time, random: Random) -> Self {
        let mut this = Self::ask_again(identity, None, now, random);
        this.lease = Some(lease);
        this.begin(State::Confirming, Kind::Confirm, now);
        if let Some(exchange) = &mut this.exchange {
            exchange.delay(&mut this.random);
        }
        this
    }

    /// Goes to a state in which a message is sent. Its first one is due.
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

    /// BOUND or ENDED: there is nothing to send.
    fn rest(&mut self, state: State) {
        (self.state, self.exchange, self.listens_until) = (state, None, None);
    }

    /// When [`Client::tick`] has to be called next. None: nothing is left to do.
    pub fn deadline(&self) -> Option<Time> {
        let of = |time: fn(&Lease) -> Option<Time>| self.lease.as_ref().and_then(time);
        let (renew, rebind, expiry) = (of(|l| l.renew), of(|l| l.rebind), of(|l| l.expiry));
        let times = match self.state {
            State::Bound | State::Confirming => [renew, rebind, expiry],
            State::Renewing => [None, rebind, expiry],
            State::Leaving | State::Ended => [None; 3],
            _ => [None, None, expiry],
        };
        let exchange = self.exchange.as_ref();
        let due = [exchange.map(|e| e.due), exchange.and_then(Exchange::end)];
        let ends = [self.listens_until, self.gives_up.map(|(end, _)| end)];
        times.into_iter().chain(due).chain(ends).flatten().min()
    }

    /// Whether a socket must be open now. As long as it is not, nothing of this client keeps the container's namespace.
    pub fn awaits_packets(&self, now: Time) -> bool {
        self.listens_until.is_some_and(|until| now < until)
    }

    /// Does what is due. May be called at any time.
    pub fn tick(&mut self, now: Time) -> Vec<Action> {
        let mut actions = Vec::new();
        if !self.awaits_packets(now) {
            self.listens_until = None;
        }
        if self.gives_up.is_some_and(|(end, _)| now >= end) {
            self.fail(now, &mut actions);
            return actions;
        }
        // Each turn but the last moves on to another state.
        while self.moves_on(now, &mut actions) {}
        self.send_what_is_due(now, &mut actions);
        actions
    }

    /// Leaves a state whose time is over. Says whether there was one.
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
            (State::Leaving, Some(again)) => self.solicit(now.max(again)),
            (State::Leaving, None) => self.end(actions),
            _ => self.start_over(now),
        }
    }

    /// After a REQUEST in vain: from the start, or, as long as there is a lease that a server forgot, by asking all others.
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
        actions.push(Action::Left);
    }

    /// The lease's address may no longer be used.
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

    fn send_what_is_due(&mut self, now: Time, actions: &mut Vec<Action>) {
        let (address, server) = self.about();
        let Some(exchange) = self.exchange.as_mut().filter(|exchange| now >= exchange.due) else { return };
        // The first one of an exchange says that no time has passed, whenever it is sent.
        if exchange.count == 0 {
            exchange.began = now;
        }
        exchange.sent(now, self.sol_max_rt, &mut self.random);
        let (kind, xid, elapsed) = (exchange.kind, exchange.xid, now.since(exchange.began));
        let message = request::message(&self.identity, kind, xid, elapsed, (address, server.as_deref()));
        self.listens_until = Some(now + ANSWERS);
        actions.push(Action::Send(message.encode()));
    }

    /// The address that the next message is about, and the one server that it is for.
    fn about(&self) -> (Option<Ipv6Addr>, Option<Vec<u8>>) {
        let lease = self.lease.as_ref().map(|lease| (lease.address, lease.server.clone()));
        let offer = self.offer.as_ref().map(|offer| (offer.address, offer.server.clone()));
        match self.state {
            State::Soliciting => (self.hint, None),
            State::Requesting | State::Leaving => offer.unzip(),
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
        let ends = |action: &Action| matches!(action, Action::Bound(_) | Action::Failed(_) | Action::Left);
        if !actions.iter().any(ends) && self.exchange.is_some_and(|exchange| exchange.count == 0) {
            self.send_what_is_due(now, &mut actions);
        }
        actions
    }

    /// The offers of the first second or so are compared; one that comes later is taken at once (RFC 8415, section 18.2.1).
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

    /// The address of a message, or why there is none.
    fn offered(&self, message: &Message) -> Result<Given, Refusal> {
        let said = answer::status(&message.options);
        if said.status != Status::Success {
            return Err(Refusal::Servers(said));
        }
        let association = answer::association(message, self.identity.iaid)
            .ok_or(Refusal::Clients("the answer has no IA_NA with the client's IAID"))?;
        if association.said.status != Status::Success {
            return Err(Refusal::Servers(association.said));
        }
        association
            .pick(self.about().0)
            .ok_or(Refusal::Clients("the answer has no usable address with valid lifetimes"))
    }

    fn take_reply(&mut self, message: &Message, server: &[u8], now: Time, actions: &mut Vec<Action>) {
        // Not since the exchange began: that may be longer ago than a lease lasts, where a server was away for long.
        let since = self.exchange.map_or(now, |exchange| exchange.asked);
        let is_asked = self.offer.as_ref().is_some_and(|offer| offer.server == server);
        match self.state {
            State::Soliciting if message.options.get(RAPID_COMMIT).is_some() => {
                self.take_first(message, server, since, now, actions);
            }
            State::Requesting if is_asked => self.take_first(message, server, since, now, actions),
            State::Confirming => match answer::status(&message.options).status {
                Status::NotOnLink => {
                    self.lose("a server reports that it is not valid on this link".to_owned(), now, actions);
                }
                // UnspecFail and others say nothing about the address.
                _ => self.rest(State::Bound),
            },
            State::Renewing if self.lease.as_ref().is_some_and(|lease| lease.server == server) => {
                self.take_extension(message, server, since, now, actions);
            }
            State::Rebinding => self.take_extension(message, server, since, now, actions),
            State::Leaving if is_asked => match self.again {
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
                self.unanswered.take_if(|asked| asked.server == server);
                let due = self.exchange.map_or(now, |exchange| exchange.due);
                match (self.state, self.offer.clone()) {
                    (State::Requesting, Some(offer)) => self.refuse(due, offer, message, &refusal, now),
                    // With rapid commit a server may have noted what it names. Who names nothing is asked again in its time.
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

    /// After a REPLY to REQUEST that gives nothing, or nothing that can be used: that is given back, since its server may have noted it.
    /// Then an address is asked for from the start, in its time: a server that offers what it then refuses would be asked without end.
    fn refuse(&mut self, due: Time, offer: Offer, message: &Message, refusal: &Refusal, now: Time) {
        match (&self.lease, refusal) {
            // A server that forgot a lease and gives none either answers the next REBIND in the same way.
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
        self.begin(State::Leaving, Kind::Release, now);
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
            // Sent again in its time.
            return;
        }
        let Some(Association { said, addresses, .. }) = answer::association(message, self.identity.iaid)
        else {
            return;
        };
        match said.status {
            // The server has forgotten the lease, and is asked for it anew. The address may be used meanwhile.
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
                    // What is not named there is not ended: it is asked for again in its time.
                    _ => {}
                }
            }
            _ => {}
        }
    }

    /// Releases the client's address, also if a server may have allocated one whose REPLY was lost. Returns false if there is no
    /// address; then the client does nothing more.
    pub fn release(&mut self, now: Time) -> bool {
        self.depart(Kind::Release, None, now)
    }

    /// The address is another host's, as duplicate address detection found: no server is to give it to anybody. If the
    /// container `stays`, it asks for another one.
    pub fn decline(&mut self, stays: bool, now: Time) -> bool {
        self.depart(Kind::Decline, stays.then_some(now), now)
    }

    fn depart(&mut self, kind: Kind, again: Option<Time>, now: Time) -> bool {
        let is_leaving = self.state == State::Leaving;
        let held = self.held_of();
        (self.gives_up, self.again) = (None, again);
        // Else it is on its way already.
        if !is_leaving {
            (self.lease, self.unanswered) = (None, None);
            self.rest(State::Ended);
            if held.is_some() {
                self.offer = held;
                self.begin(State::Leaving, kind, now);
            }
        }
        self.state == State::Leaving
    }

    /// The address that a server has or may have allocated, and that is not released yet.
    pub fn held(&self) -> Option<Ipv6Addr> {
        self.held_of().map(|offer| offer.address)
    }

    /// That address, and its server.
    fn held_of(&self) -> Option<Offer> {
        match (&self.lease, self.state) {
            (_, State::Leaving) => self.offer.clone(),
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

    /// Ends an acquisition that nobody waits for any more, when answers to what was sent can no longer be expected.
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
