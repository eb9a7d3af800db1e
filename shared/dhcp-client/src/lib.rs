//! DHCPv4 client (RFC 2131). The daemon of the dhcp plugin runs one for each container.
//!
//! [`Client`] is the state machine. It does no I/O and knows no clock: who drives it tells it the time and what has arrived, and does what it
//! answers. [`Link`] is the I/O: a socket in the container's namespace, for one exchange. [`Lease`] is what a server gave, as it is
//! kept on disk; [`result::of_lease`] is the same in CNI's terms.
//!
//! What comes from the network is not trusted: it is read with bounds checked, what is malformed in it is passed over, and what no server
//! may say is not believed.

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
pub use link::Link;
pub use message::{Kind, Message, set_mac};
pub use options::Options;
pub use random::Random;
pub use time::Time;
