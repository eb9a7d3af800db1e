//! Steps that interface plugins share.
//!
//! A recipe opens two [`Namespace`]s, the host's and the container's, reads the common keys ([`InterfaceConf`]), creates its interface
//! ([`veth`], [`child`], or [`stacked`] on a master), and attaches it ([`attach`]): addresses are leased, configured and announced
//! ([`announce`]). CHECK uses [`verify`]. DEL and GC use [`remove`], which finds links by their [`ownership`]. sbr and vrf move routes to
//! another table ([`tables`]). The keys that plugins share are described in [`keys`].

#![warn(missing_docs)]

pub mod announce;
mod apply;
pub mod attach;
pub mod child;
pub mod conf;
pub mod creation;
pub mod forwarding;
pub mod host_end;
pub mod keys;
mod namespace;
pub mod ownership;
pub mod parent;
pub mod remove;
pub mod renew;
pub mod stacked;
pub mod tables;
pub mod verify;
pub mod veth;

pub use apply::{enable_ipv6, enable_ipv6_of_new, ipv6_refused, mac_taken};
pub use conf::{InterfaceConf, MacKeys, unicast_mac};
pub use namespace::Namespace;
