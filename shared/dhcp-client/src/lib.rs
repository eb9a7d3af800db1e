//! DHCPv4 client (RFC 2131). The daemon of the dhcp plugin runs one for each container.
//!
//! [`Client`] is the state machine, without I/O and without a clock. Its caller passes the time and received packets, and performs the
//! returned actions. [`Link`] does the I/O: a socket in the container's namespace, for one exchange. [`Lease`] is a lease in its form
//! on disk. [`result::of_lease`] converts it to a CNI result.
//!
//! Packets from the network are not trusted. They are parsed with bounds checks. Malformed parts and invalid values are ignored.

#![warn(missing_docs)]

mod client;
mod datagram;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod lease;
mod link;
mod message;
pub mod options;
mod random;
pub mod result;
mod time;
pub mod v6;

pub use client::{Action, Client, Identity, Reason, State, Timing, To};
pub use lease::Lease;
pub use link::{Link, MOST_ADDRESSES};
pub use message::{Kind, Message, set_mac};
pub use options::Options;
pub use random::Random;
pub use time::Time;
