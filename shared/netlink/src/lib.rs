//! Blocking netlink sockets, one per namespace: links, addresses, routes, rules, neighbours, bridge VLANs, traffic control, offload
//! features.
//!
//! [`Netlink`] is rtnetlink(7), and works in the namespace in which it was opened. [`Socket`] and [`wire`] are the layer below, which
//! nf_tables and conntrack use as well. Requests are written attribute by attribute, with the names of the kernel's headers ([`uapi`]).
//! Replies are decoded defensively: malformed or unknown parts are skipped, and no input may cause a panic.

#![warn(missing_docs)]

mod address;
mod bridge;
mod error;
mod family;
mod features;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod link;
mod mac;
mod neigh;
mod netns_id;
pub mod packet;
mod route;
mod rule;
mod socket;
pub mod tc;
mod tun;
pub mod uapi;
mod wait;
pub mod wire;
pub mod xtables;

use std::fmt::Display;
use std::rc::Rc;

pub use address::Address;
pub use bridge::{BridgeVlan, PortChange};
pub use error::{Error, RequestError};
pub use family::Family;
pub use features::{Feature, Features};
pub use link::{
    IpvlanFlag, IpvlanMode, Link, LinkChange, LinkKind, MacvlanMode, NewLink, OperState, Peer, Target,
    TunKind, VlanProtocol,
};
pub use mac::{HardwareAddress, Mac, parse_hardware_address};
pub use packet::PacketSocket;
pub use route::{NextHop, RawAttributes, Route, RouteFilter, in_order_of_appending, in_order_of_restoring};
pub use rule::Rule;
pub use socket::{Protocol, Socket};
pub use tun::{DEVICE as TUN_DEVICE, Tun};
use wire::Message;

/// Result of an operation on a kernel object.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An rtnetlink socket, which works in the namespace in which it was opened. Clones share it.
#[derive(Clone, Debug)]
pub struct Netlink {
    socket: Rc<Socket>,
}

impl Netlink {
    /// Opens a socket in the calling thread's namespace.
    ///
    /// # Errors
    /// If no descriptor is free.
    pub fn open() -> Result<Self> {
        let socket = Socket::open(Protocol::Route).map_err(|r| r.during("open", "an rtnetlink socket"))?;
        Ok(Self { socket: Rc::new(socket) })
    }

    /// Limits each later list, as [`Socket::limit_dumps`] does.
    pub fn limit_dumps(&self, objects: usize, tries: u32) {
        self.socket.limit_dumps(objects, tries);
    }

    /// Sends a request and waits for its acknowledgement.
    fn order(&self, message: Message, operation: &'static str, subject: impl Display) -> Result<()> {
        self.socket.request(message, |_, _| {}).map_err(|r| r.during(operation, subject))
    }

    /// Like [`Netlink::order`]. Succeeds if the object does not exist.
    fn order_if_it_exists(
        &self,
        message: Message,
        operation: &'static str,
        subject: impl Display,
    ) -> Result<()> {
        match self.order(message, operation, subject) {
            Err(e) if e.is_missing() => Ok(()),
            other => other,
        }
    }
}
