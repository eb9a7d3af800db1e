//! Steps that several interface plugins share.
//!
//! A recipe opens two [`Namespace`]s, the host's and the container's, makes its interface ([`veth`]), gives it what the
//! IPAM plugin leased ([`apply`]), and tells the neighbours ([`announce`]). CHECK is [`verify`], DEL is [`remove`].

#![warn(missing_docs)]

pub mod announce;
pub mod apply;
mod mac;
mod namespace;
pub mod remove;
pub mod verify;
pub mod veth;

pub use mac::unicast_mac;
pub use namespace::Namespace;
