//! DHCPv6 client (RFC 8415), for one non-temporary address (IA_NA) of a container's interface.
//!
//! It has the structure of the DHCPv4 client: [`Client`] is the state machine, without I/O and without a clock. [`Link`] is a socket in
//! the container's namespace, for one exchange. [`Lease`] is a lease in its form on disk. [`of_lease`] converts it to a CNI result.
//! DHCPv6 has neither routes nor the prefix of the subnet: the kernel reads both from router advertisements.

mod answer;
mod client;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod lease;
mod link;
mod message;
mod request;
mod retransmit;

pub use answer::is_usable;
pub use client::{Action, Client, State};
pub use lease::{Lease, of_lease};
pub use link::{Link, is_ready, link_local};
pub use message::{Kind, Message, Options};
pub use request::{Duid, Identity};
