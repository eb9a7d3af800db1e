//! The client's side of DHCP for IPv6 (RFC 8415): one address that is not temporary (IA_NA) for a container's interface.
//!
//! It is made as the client for IPv4 is: [`Client`] is the state machine, without I/O and without a clock; [`Link`] a socket in
//! the container's namespace for one exchange; [`Lease`] what a server gave, as it is kept on disk; [`of_lease`] the same in CNI's terms.
//! Routes and the subnet's prefix come from routers' advertisements, which the kernel reads: DHCPv6 has neither.

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
