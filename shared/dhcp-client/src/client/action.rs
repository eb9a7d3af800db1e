//! Actions that the state machine asks its caller to perform.

use std::fmt;
use std::net::Ipv4Addr;

use cni::Error;

use crate::Lease;

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
    /// A server ended it: its ACK gives no more time.
    Ended {
        /// The server's identifier.
        server: Ipv4Addr,
    },
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Expired => f.write_str("it has expired: no server extended it in time"),
            Self::Ended { server } => write!(f, "server {server} ended it: its ACK has no lease time left"),
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
