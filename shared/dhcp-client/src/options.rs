//! Options (RFC 2132 and others): their numbers, names and values.

mod hex;
mod names;
mod value;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

pub use names::{name, parse};
use serde::{Deserialize, Serialize};
pub(crate) use value::is_of_a_name;
pub use value::{
    ClasslessRoute, class_prefix, classful_routes, classless_routes, display, domains, encode, text,
};

/// The number of an option.
pub type Number = u8;

/// The subnet's mask.
pub const SUBNET_MASK: Number = 1;
/// Routers, by preference.
pub const ROUTERS: Number = 3;
/// Name servers, by preference.
pub const DNS_SERVERS: Number = 6;
/// The container's name.
pub const HOST_NAME: Number = 12;
/// The local domain.
pub const DOMAIN_NAME: Number = 15;
/// The link's MTU in bytes.
pub const INTERFACE_MTU: Number = 26;
/// Routes to networks of address classes.
pub const STATIC_ROUTES: Number = 33;
/// The requested address.
pub const REQUESTED_ADDRESS: Number = 50;
/// The lease's length in seconds.
pub const LEASE_TIME: Number = 51;
/// Which of the fields `file` and `sname` contain options.
pub const OVERLOAD: Number = 52;
/// The message type, see [`crate::Kind`].
pub const MESSAGE_TYPE: Number = 53;
/// The server's identifier: its address.
pub const SERVER_ID: Number = 54;
/// The requested options.
pub const PARAMETER_REQUEST_LIST: Number = 55;
/// The reason for a NAK, as text.
pub const MESSAGE: Number = 56;
/// The maximum message size in bytes.
pub const MAX_MESSAGE_SIZE: Number = 57;
/// T1 in seconds.
pub const RENEWAL_TIME: Number = 58;
/// T2 in seconds.
pub const REBINDING_TIME: Number = 59;
/// The client identifier.
pub const CLIENT_ID: Number = 61;
/// Domains to search for short names (RFC 3397).
pub const DOMAIN_SEARCH: Number = 119;
/// Routes (RFC 3442).
pub const CLASSLESS_ROUTES: Number = 121;

/// The options that are always requested, in this order. Option 121 must come before option 3 (RFC 3442), and not every
/// message has room for all.
pub const ALWAYS_REQUESTED: [Number; 8] = [
    CLASSLESS_ROUTES,
    SUBNET_MASK,
    ROUTERS,
    DNS_SERVERS,
    DOMAIN_NAME,
    INTERFACE_MTU,
    STATIC_ROUTES,
    DOMAIN_SEARCH,
];

/// The options of a message, by number. Split options are joined (RFC 3396). On disk they are hexadecimal digits, by
/// number.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Options(#[serde(with = "hex")] BTreeMap<Number, Vec<u8>>);

impl Options {
    /// The value of an option.
    pub fn get(&self, number: Number) -> Option<&[u8]> {
        self.0.get(&number).map(Vec::as_slice)
    }

    /// Sets an option, replacing an earlier value.
    pub fn set(&mut self, number: Number, value: impl Into<Vec<u8>>) {
        self.0.insert(number, value.into());
    }

    /// Appends to an option.
    pub fn append(&mut self, number: Number, value: &[u8]) {
        self.0.entry(number).or_default().extend_from_slice(value);
    }

    /// All options, by number.
    pub fn iter(&self) -> impl Iterator<Item = (Number, &[u8])> {
        self.0.iter().map(|(number, value)| (*number, value.as_slice()))
    }

    /// An option that is one address.
    pub fn address(&self, number: Number) -> Option<Ipv4Addr> {
        self.get(number).and_then(|value| <[u8; 4]>::try_from(value).ok()).map(Ipv4Addr::from)
    }

    /// An option that is a list of addresses. Empty if it is malformed.
    pub fn addresses(&self, number: Number) -> Vec<Ipv4Addr> {
        let value = self.get(number).unwrap_or_default();
        let (addresses, rest) = value.as_chunks::<4>();
        if rest.is_empty() {
            addresses.iter().map(|bytes| Ipv4Addr::from(*bytes)).collect()
        } else {
            Vec::new()
        }
    }

    /// An option that is a 32-bit number.
    pub fn number(&self, number: Number) -> Option<u32> {
        self.get(number).and_then(|value| value.try_into().ok()).map(u32::from_be_bytes)
    }
}

/// Whether a host can have the address: not loopback, multicast or reserved.
pub(crate) fn is_unicast(address: Ipv4Addr) -> bool {
    let first = address.octets()[0];
    first != 0 && first < 224 && !address.is_loopback()
}
