//! Actions that the state machine returns to its caller.

use std::fmt;
use std::net::Ipv4Addr;

use cni::Error;

use crate::Lease;

/// The destination of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    /// Broadcast to all servers on the link, from 0.0.0.0 or (in REBINDING) from the lease's address.
    Broadcast {
        /// The source address.
        from: Ipv4Addr,
    },
    /// Unicast to one server, by the container's routes.
    Server {
        /// The server's address.
        server: Ipv4Addr,
        /// The source address. The container has it.
        from: Ipv4Addr,
    },
}

/// Actions for the caller of a [`Client`].
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Send a message from port 68 to port 67. A failure is treated as a lost message.
    Send {
        /// The destination.
        to: To,
        /// The datagram's payload.
        message: Vec<u8>,
    },
    /// The container has this lease now: a new one, a renewed one, or one with another address or other options.
    Bound(Lease),
    /// The container must stop using the address. The client requests a new one by itself.
    Lost(Reason),
    /// The acquisition failed. The client does nothing more.
    Failed(Error),
}

/// Why a lease was lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// A server refused to extend it.
    Refused {
        /// The server's identifier.
        server: Option<Ipv4Addr>,
        /// The server's text (option 56). May be empty.
        message: String,
    },
    /// No server extended it in time.
    Expired,
    /// A server's ACK ended it.
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
