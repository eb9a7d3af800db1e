//! The messages that a client sends (RFC 2131, section 4.4.1, tables 4 and 5).

use std::net::Ipv4Addr;

use super::Identity;
use crate::options::{self, Number};
use crate::{Kind, Message, Options};

/// Option 57, the maximum size of an answer: an Ethernet frame's payload. Without it, servers omit options beyond 576
/// bytes.
const LONGEST_ANSWER: u16 = 1500;

/// Options of the protocol itself, which a configuration cannot replace.
const OWN: [Number; 4] =
    [options::REQUESTED_ADDRESS, options::OVERLOAD, options::MESSAGE_TYPE, options::SERVER_ID];

/// The transaction that a message belongs to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Transaction {
    pub xid: u32,
    pub secs: u16,
}

/// DISCOVER, with the preferred address.
pub(super) fn discover(identity: &Identity, transaction: Transaction, hint: Option<Ipv4Addr>) -> Vec<u8> {
    let mut message = asking(identity, transaction, Kind::Discover, Ipv4Addr::UNSPECIFIED);
    let provided = identity.provide.iter().find(|(number, _)| *number == options::REQUESTED_ADDRESS);
    let hint = hint.map(|hint| hint.octets().to_vec()).or_else(|| provided.map(|(_, value)| value.clone()));
    if let Some(hint) = hint {
        message.options.set(options::REQUESTED_ADDRESS, hint);
    }
    message.encode()
}

/// REQUEST for an address that the interface does not have: an offered one, or without a server the previous one
/// (INIT-REBOOT).
pub(super) fn select(
    identity: &Identity,
    transaction: Transaction,
    address: Ipv4Addr,
    server: Option<Ipv4Addr>,
) -> Vec<u8> {
    let mut message = asking(identity, transaction, Kind::Request, Ipv4Addr::UNSPECIFIED);
    message.options.set(options::REQUESTED_ADDRESS, address.octets());
    if let Some(server) = server {
        message.options.set(options::SERVER_ID, server.octets());
    }
    message.encode()
}

/// REQUEST to extend a lease.
pub(super) fn extend(identity: &Identity, transaction: Transaction, address: Ipv4Addr) -> Vec<u8> {
    asking(identity, transaction, Kind::Request, address).encode()
}

/// RELEASE. No other options are allowed in it.
pub(super) fn release(identity: &Identity, xid: u32, address: Ipv4Addr, server: Ipv4Addr) -> Vec<u8> {
    let mut message = message(identity, Transaction { xid, secs: 0 }, Kind::Release, address);
    message.options.set(options::SERVER_ID, server.octets());
    message.encode()
}

/// A message with the configuration's options and the list of requested options.
fn asking(identity: &Identity, transaction: Transaction, kind: Kind, ciaddr: Ipv4Addr) -> Message {
    let mut message = message(identity, transaction, kind, ciaddr);
    message.broadcast = identity.broadcast && ciaddr.is_unspecified();
    message.options.set(options::PARAMETER_REQUEST_LIST, identity.requested());
    message.options.set(options::MAX_MESSAGE_SIZE, LONGEST_ANSWER.to_be_bytes());
    for (number, value) in identity.provide.iter().filter(|(number, _)| !OWN.contains(number)) {
        message.options.set(*number, value.clone());
    }
    message
}

/// The part that all messages share.
fn message(identity: &Identity, transaction: Transaction, kind: Kind, ciaddr: Ipv4Addr) -> Message {
    let mut options = Options::default();
    options.set(options::MESSAGE_TYPE, [kind as u8]);
    if !identity.client_id().is_empty() {
        options.set(options::CLIENT_ID, identity.client_id());
    }
    Message {
        is_reply: false,
        xid: transaction.xid,
        secs: transaction.secs,
        broadcast: false,
        ciaddr,
        yiaddr: Ipv4Addr::UNSPECIFIED,
        giaddr: Ipv4Addr::UNSPECIFIED,
        mac: identity.mac,
        options,
    }
}
