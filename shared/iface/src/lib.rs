//! Steps that several interface plugins share.
//!
//! A recipe opens two [`Namespace`]s, the host's and the container's, reads the keys that all of them have
//! ([`InterfaceConf`]), makes its interface ([`veth`]), and attaches it ([`attach`]): addresses are leased, configured and, where a
//! neighbour may remember another owner, announced ([`announce`]). CHECK is [`verify`], DEL and GC are [`remove`], which finds
//! links by their [`ownership`]. What moves routes to another table does it by [`tables`].

#![warn(missing_docs)]

pub mod announce;
mod apply;
pub mod attach;
pub mod child;
pub mod conf;
pub mod forwarding;
pub mod host_end;
mod namespace;
pub mod ownership;
pub mod parent;
pub mod remove;
pub mod renew;
pub mod tables;
pub mod verify;
pub mod veth;

pub use apply::enable_ipv6;
pub use conf::{InterfaceConf, unicast_mac};
pub use namespace::Namespace;
