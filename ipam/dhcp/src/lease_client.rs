//! The part of a lease that depends on the address family: a protocol client with its socket, and the address on the link.

use std::fmt::{Debug, Display};
use std::os::fd::BorrowedFd;
use std::time::Duration;

use cni::{AddResult, Error, Result};
use dhcp_client::{Time, To};
use ipnetwork::IpNetwork;
use serde_json::Value;

use crate::closer::Closer;
use crate::host::Host;
use crate::location::{InterfaceError, OpenInterface};
use crate::parameters::LeaseParameters;
use crate::record::LeasedAttachment;

/// How many packets one client reads in a turn. Any host on the link can send to the port without end, and the other
/// clients need their turns.
pub const PACKETS_PER_TURN: usize = 64;

/// The kernel counts lifetimes in whole seconds: it deletes an address up to this long before the end of its lease.
const LIFETIME_ROUNDING: Duration = Duration::from_secs(1);

/// Requests of a [`LeaseClient`] to its owner.
#[derive(Debug)]
pub enum Action {
    /// Send a message.
    Send(Message),
    /// There is a new lease, a renewed one, or one of another address. With a line for the log.
    Bound(String),
    /// The address may no longer be used, for this reason.
    Lost(String),
    /// The acquisition failed.
    Failed(Error),
}

/// A message and its destination. None: all servers, as in DHCPv6.
#[derive(Debug)]
pub struct Message {
    pub to: Option<To>,
    pub bytes: Vec<u8>,
}

/// The state of a client.
#[derive(Debug)]
pub struct State {
    /// Its name in the RFCs.
    pub name: String,
    /// The client has a lease that servers extend, or waits for the first confirmation of an address.
    pub is_served: bool,
    /// A server may still grant a lease to the client.
    pub may_be_granted: bool,
    /// All further messages release an address.
    pub is_releasing: bool,
}

/// The client of one attachment and family.
pub trait LeaseClient: Debug {
    /// Configuration and lease, for the record.
    fn parameters(&self) -> LeaseParameters;
    /// Adds its part to an entry of `dhcp list`.
    fn describe(&self, entry: &mut Value);
    fn state(&self) -> State;
    /// The lease's address.
    fn address(&self) -> Option<IpNetwork>;
    /// The start of the lease.
    fn since(&self) -> Option<Time>;
    /// The ends of the preferred lifetime and of the valid lifetime. None: unlimited.
    fn ends(&self) -> [Option<Time>; 2];
    /// Whether the kernel may have deleted the address at the end of its valid lifetime.
    fn may_have_ended(&self, now: Time) -> bool {
        let [_, end] = self.ends();
        end.is_some_and(|end| end <= now + LIFETIME_ROUNDING)
    }
    /// The lease as the result of an ADD.
    fn result(&self) -> AddResult;

    /// When [`LeaseClient::tick`] has to be called next.
    fn deadline(&self) -> Option<Time>;
    /// `is_assigned`: the address was on the link at some time, and no other program has removed it.
    fn tick(&mut self, now: Time, is_assigned: bool) -> Vec<Action>;
    /// Another program has removed the address from the link (IPv4 only).
    fn note_removed(&mut self) {}
    /// The plugin no longer waits for a lease. The client waits a little longer for an answer, to release its address.
    fn cancel(&mut self, _now: Time) {}
    /// Whether a server has allocated an address, or may have.
    fn holds(&self) -> bool;

    /// The socket, if it is open: only while the client waits for an answer.
    fn socket(&self) -> Option<BorrowedFd<'_>>;
    /// Receives a packet. None: there is none.
    ///
    /// # Errors
    /// If the interface is down or was deleted.
    fn receive(&mut self, now: Time) -> Result<Option<Vec<Action>>>;
    /// Closes the socket unless the client waits for an answer.
    fn close_idle(&mut self, host: &Host, now: Time);
    fn close(&mut self, host: &Host);
    /// Whether the message needs another socket than the open one.
    fn needs_socket(&self, message: &Message) -> bool;
    /// Opens the socket for a message. Returns false if the link is not ready.
    ///
    /// # Errors
    /// If the kernel refuses, or if the message's source address is not on the link.
    fn open(
        &mut self,
        host: &Host,
        attachment: &mut LeasedAttachment,
        found: &OpenInterface,
        message: &Message,
    ) -> Result<bool, InterfaceError>;
    /// # Errors
    /// If the kernel refuses.
    fn send(&mut self, attachment: &LeasedAttachment, message: Message) -> Result<()>;

    /// Whether the link differs from the lease. Lifetimes are not compared.
    fn is_outdated(&self, on_link: Option<IpNetwork>) -> bool;
    /// Sets up the link for a first lease, except for its address, which the plugin adds. Returns a line for the log if
    /// an option is missing.
    ///
    /// # Errors
    /// If the kernel refuses.
    fn take_first(&mut self, attachment: &LeasedAttachment, found: &OpenInterface) -> Result<Option<String>>;
    /// Replaces the link's old address by the lease's.
    ///
    /// # Errors
    /// If the kernel refuses.
    fn put_on_link(&mut self, on_link: Option<IpNetwork>, found: &OpenInterface) -> Result<()>;
    /// The link has the client's lease.
    fn note_applied(&mut self) {}
    /// Another host has the address, as the kernel reported (IPv6 only).
    fn decline(&mut self, _now: Time) {}

    /// Sends the message that releases the address. Returns a line for the log, and the message while it must be waited
    /// for.
    ///
    /// # Errors
    /// If the kernel refuses.
    fn release(
        &mut self,
        attachment: &LeasedAttachment,
        found: &OpenInterface,
    ) -> Result<(String, Option<Box<dyn PendingRelease>>)>;
}

/// A message that releases an address and is being sent.
pub trait PendingRelease: Debug {
    /// How long sending may take.
    fn timeout(&self) -> Duration;
    /// Whether it was sent, or no longer needs to be waited for.
    fn is_done(&mut self) -> bool;
    /// Called when it is done, or after its timeout. Removes the address from the link if that had to wait.
    fn close(self: Box<Self>, closer: &Closer);
}

/// How long sending these messages may take.
pub fn timeout(releases: &[Box<dyn PendingRelease>]) -> Duration {
    releases.iter().map(|one| one.timeout()).max().unwrap_or_default()
}

/// A lease as it is logged: `renewed ADDRESS for 120 s`.
pub fn described<A: PartialEq + Display>(
    address: A,
    before: Option<A>,
    since: Time,
    expiry: Option<Time>,
) -> String {
    let what = if before.as_ref() == Some(&address) { "renewed" } else { "leased" };
    match expiry {
        Some(expiry) => format!("{what} {address} for {} s", expiry.since(since).as_secs()),
        None => format!("{what} {address} without an end"),
    }
}

/// The number of seconds left.
pub fn left(time: Option<Time>) -> Option<u64> {
    time.map(|time| time.after(Time::now()).as_secs())
}
