//! The state machine of RFC 2131, section 4.4, without I/O.

use std::fmt;
use std::net::Ipv4Addr;
use std::time::Duration;

use cni::Error;

use crate::options::Number;
use crate::{Lease, Random, Time};

/// Who asks, and for what. It stays the same for an attachment's whole life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The interface's hardware address.
    pub mac: [u8; 6],
    /// Option 61, in all messages.
    pub client_id: Vec<u8>,
    /// Whether servers are asked to answer by broadcast. An interface that shares its hardware address with others, such as ipvlan, gets no other answers.
    pub broadcast: bool,
    /// Options to send besides, in DISCOVER and REQUEST. One that the client would send itself replaces that; a client id does so in all
    /// messages. The message's kind, the server's identifier and the requested address cannot be replaced.
    pub provide: Vec<(Number, Vec<u8>)>,
    /// Options to ask for, besides [`crate::options::ALWAYS_REQUESTED`], which come first.
    pub request: Vec<Number>,
    /// Those without which an offer is not taken.
    pub required: Vec<Number>,
}

/// How long to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// How long a server that made an offer may take to confirm it before all servers are asked again, and how long a socket stays open for an answer
    /// to a renewal. The daemon's flag -timeout.
    pub timeout: Duration,
    /// The longest time between two DISCOVERs, give or take a second. The daemon's flag -resendmax.
    pub resend_max: Duration,
    /// How long an acquisition may take as a whole. The daemon's flag -resendtimeout.
    pub resend_timeout: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { timeout: seconds(10), resend_max: seconds(62), resend_timeout: seconds(208) }
    }
}

/// How a message is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    /// From 0.0.0.0 (or from the lease's address, in REBINDING) to all servers on the link.
    Broadcast {
        /// The source address.
        from: Ipv4Addr,
    },
    /// To one server, by the container's routes.
    Server {
        /// Its address.
        server: Ipv4Addr,
        /// The source address, which the container has.
        from: Ipv4Addr,
    },
}

/// What who drives a [`Client`] has to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Send a message, from port 68 to port 67. A failure is the same as a message that is lost.
    Send {
        /// To whom.
        to: To,
        /// The datagram's payload.
        message: Vec<u8>,
    },
    /// The container has this lease now: a first one, the same with new times, or one of another address or other options.
    Bound(Lease),
    /// The container may no longer use its lease's address. The client asks for a new one by itself.
    Lost(Reason),
    /// The acquisition failed. The client does nothing any more.
    Failed(Error),
}

/// Why a lease was lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// A server refused it.
    Refused {
        /// The server's identifier.
        server: Option<Ipv4Addr>,
        /// What it says to it (option 56); may be empty.
        message: String,
    },
    /// No server extended it in time.
    Expired,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Expired => f.write_str("it has expired: no server extended it in time"),
            Self::Refused { server, message } => {
                match server {
                    Some(server) => write!(f, "server {server} refused it")?,
                    None => f.write_str("a server refused it")?,
                }
                if message.is_empty() { Ok(()) } else { write!(f, ": {message:?}") }
            }
        }
    }
}

/// The states of RFC 2131, figure 5, and one for a client that has given up. INIT is the moment before SELECTING.
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

/// The client of one interface.
#[derive(Debug)]
pub struct Client {
    identity: Identity,
    timing: Timing,
    random: Random,
    state: State,
    lease: Option<Lease>,
}

impl Client {
    /// Asks for any address (INIT). The first [`Client::tick`] sends.
    pub fn acquire(identity: Identity, timing: Timing, now: Time, random: Random) -> Self {
        let _ = now;
        Self { identity, timing, random, state: State::Selecting, lease: None }
    }

    /// Asks for an address that the container already has, of which no lease is known (INIT-REBOOT): what another daemon had leased. It never fails: if no
    /// server confirms the address, any address is asked for.
    pub fn reboot(identity: Identity, timing: Timing, address: Ipv4Addr, now: Time, random: Random) -> Self {
        let _ = (now, address);
        Self { identity, timing, random, state: State::Rebooting, lease: None }
    }

    /// Carries on with a lease: BOUND, RENEWING or REBINDING, as the clock says. One that is past is lost at the first [`Client::tick`].
    pub fn resume(identity: Identity, timing: Timing, lease: Lease, now: Time, random: Random) -> Self {
        let _ = now;
        Self { identity, timing, random, state: State::Bound, lease: Some(lease) }
    }

    /// When [`Client::tick`] has to be called next. None: only a packet changes anything.
    pub fn deadline(&self) -> Option<Time> {
        None
    }

    /// Does what is due. May be called at any time.
    pub fn tick(&mut self, now: Time) -> Vec<Action> {
        let _ = (now, &self.timing, &mut self.random, &self.identity);
        Vec::new()
    }

    /// Takes a packet: the payload of a datagram to port 68. What is not for this client, or not due now, is passed over.
    pub fn receive(&mut self, now: Time, packet: &[u8]) -> Vec<Action> {
        let _ = (now, packet);
        Vec::new()
    }

    /// Gives the lease back. None: there is none to give back.
    pub fn release(self) -> Option<Action> {
        None
    }

    /// Whether a socket must be open now. As long as it is not, nothing of this client keeps the container's namespace. [`Client::deadline`] is not later than
    /// the moment at which this changes.
    pub fn awaits_packets(&self, now: Time) -> bool {
        let _ = now;
        false
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
