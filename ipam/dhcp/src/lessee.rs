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
use crate::location::{NotFound, OpenInterface};
use crate::record::About;
use crate::terms::Terms;

/// How many packets are taken before others have their turn: any host on the link can send to the port, and never stop.
pub const AT_ONCE: usize = 64;

/// The kernel counts the lifetimes of addresses in whole seconds: it deletes an address within this time before its lease ends.
pub const LAST: Duration = Duration::from_secs(1);

/// What the owner of a [`Lessee`] has to do.
#[derive(Debug)]
pub enum Action {
    /// Send a message.
    Send(Message),
    /// There is a lease now: a first one, or the same with other times, or of another address. With a line for the log.
    Bound(String),
    /// The address may no longer be used, for this reason.
    Lost(String),
    /// The acquisition failed.
    Failed(Error),
}

/// A message, and how it is sent. None: to all servers, as DHCPv6 does.
#[derive(Debug)]
pub struct Message {
    pub to: Option<To>,
    pub bytes: Vec<u8>,
}

/// What a client is at.
#[derive(Debug)]
pub struct State {
    /// As the RFCs name it.
    pub name: String,
    /// It has a lease that servers extend.
    pub is_served: bool,
    /// A server may answer with a lease that nobody knows of yet.
    pub may_be_granted: bool,
    /// What is sent from now on releases an address.
    pub is_releasing: bool,
}

/// The client of one attachment in one family.
pub trait Lessee: Debug {
    /// As it is kept on disk, with the lease.
    fn terms(&self) -> Terms;
    /// For `dhcp list`.
    fn describe(&self, entry: &mut Value);
    fn state(&self) -> State;
    /// The lease's address.
    fn address(&self) -> Option<IpNetwork>;
    /// When the lease began.
    fn since(&self) -> Option<Time>;
    /// When the address is no longer preferred, and when it may no longer be used. None: never.
    fn ends(&self) -> [Option<Time>; 2];
    /// Whether the address may no longer be used after this time.
    fn ends_within(&self, now: Time, time: Duration) -> bool {
        let [_, end] = self.ends();
        end.is_some_and(|end| end <= now + time)
    }
    /// The lease as the result of an ADD.
    fn result(&self) -> AddResult;

    /// When [`Lessee::tick`] has to be called next.
    fn deadline(&self) -> Option<Time>;
    fn tick(&mut self, now: Time) -> Vec<Action>;
    /// The plugin no longer waits for a lease. The client waits a little longer for an answer, to release its address.
    fn cancel(&mut self, _now: Time) {}
    /// Whether a server has given an address, or may have.
    fn holds(&self) -> bool;

    /// Open while an answer is waited for.
    fn socket(&self) -> Option<BorrowedFd<'_>>;
    /// Takes a packet. None: there is none.
    ///
    /// # Errors
    /// The interface is down, or has gone.
    fn receive(&mut self, now: Time) -> Result<Option<Vec<Action>>>;
    /// Closes the socket, unless an answer is waited for.
    fn close_idle(&mut self, host: &Host, now: Time);
    fn close(&mut self, host: &Host);
    /// Whether a message needs another socket.
    fn needs_socket(&self, message: &Message) -> bool;
    /// Opens the socket for a message. False: the link is not ready.
    ///
    /// # Errors
    /// What the kernel refuses. The lease is not used.
    fn open(
        &mut self,
        host: &Host,
        about: &mut About,
        found: &OpenInterface,
        message: &Message,
    ) -> Result<bool, NotFound>;
    /// # Errors
    /// What the kernel refuses.
    fn send(&mut self, about: &About, message: Message) -> Result<()>;

    /// Whether the link, lifetimes apart, is not as the lease says.
    fn is_outdated(&self, on_link: Option<IpNetwork>) -> bool;
    /// A first lease: its address is the plugin's to put on the link, the rest is the daemon's. A line for the log, if something is missing.
    ///
    /// # Errors
    /// What the kernel refuses.
    fn take_first(&mut self, about: &About, found: &OpenInterface) -> Result<Option<String>>;
    /// Puts the lease in the place of what was on the link before.
    ///
    /// # Errors
    /// What the kernel refuses.
    fn put_on_link(&mut self, on_link: Option<IpNetwork>, found: &OpenInterface) -> Result<()>;
    /// Another host has the address, as the kernel found (IPv6 only).
    fn decline(&mut self, _now: Time) {}

    /// Sends the message that releases the address, with a line for the log. None: there is nothing to wait for.
    ///
    /// # Errors
    /// What the kernel refuses.
    fn release(&mut self, about: &About, found: &OpenInterface) -> Result<(String, Sent)>;
}

/// A message on its way that releases an address.
pub trait Departing: Debug {
    /// How long it may take.
    fn timeout(&self) -> Duration;
    /// Whether nothing is left to wait for.
    fn is_done(&mut self) -> bool;
    fn close(self: Box<Self>, closer: &Closer);
}

/// What is on its way. None: nothing is left to wait for.
pub type Sent = Option<Box<dyn Departing>>;

/// How long messages may take that release addresses.
pub fn timeout(departing: &[Box<dyn Departing>]) -> Duration {
    departing.iter().map(|one| one.timeout()).max().unwrap_or_default()
}

/// A lease for the log: `renewed ADDRESS for 120 s`.
pub fn described<A: PartialEq + Display>(
    address: A,
    before: Option<A>,
    since: Time,
    expiry: Option<Time>,
) -> String {
    let what = if before.as_ref() == Some(&address) { "renewed" } else { "leased" };
    match expiry {
        Some(expiry) => format!("{what} {address} for {} s", expiry.since(since).as_secs()),
        None => format!("{what} {address} for ever"),
    }
}

/// How many seconds are left.
pub fn left(time: Option<Time>) -> Option<u64> {
    time.map(|time| time.after(Time::now()).as_secs())
}
