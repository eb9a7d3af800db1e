//! An attachment's parts: elements of sets and maps, and the records that describe them.
//!
//! The records are in the set `attachments`, under a digest of the owner. A removal needs only them.

use std::fmt::{self, Display};
use std::net::{IpAddr, SocketAddr};

use netlink::Family;

use super::set::Set;

/// An element of a set, or of a map if it has data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Element {
    pub(crate) set: Set,
    pub(crate) key: Vec<u8>,
    pub(crate) data: Vec<u8>,
}

impl Element {
    pub(crate) fn in_set(set: Set, key: Vec<u8>) -> Self {
        Self { set, key, data: Vec::new() }
    }

    /// The key of one of an attachment's records. Index 0 is its label.
    pub(crate) fn record(digest: &str, index: u16) -> Self {
        Self::in_set(Set::attachments(), concatenated(&[&padded(digest), &index.to_be_bytes()]))
    }

    /// Marks the set of records as incomplete: another program has deleted records, so that other attachments may need what no
    /// record names. DEL then deletes neither shared elements, mark bits nor the table.
    pub(crate) fn incomplete() -> Self {
        Self::record("incomplete", 0)
    }

    /// The digest in the key of a record.
    pub(crate) fn digest_of(key: &[u8]) -> Option<String> {
        netlink::wire::read_str(key.get(..16)?).map(str::to_owned)
    }
}

/// A name padded with NULs to IFNAMSIZ, as the kernel compares it.
pub(crate) fn padded(text: &str) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    bytes.resize(16, 0);
    bytes
}

/// A concatenation: each part starts a new register of 4 bytes.
pub(crate) fn concatenated(parts: &[&[u8]]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for part in parts {
        bytes.extend_from_slice(part);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
    }
    bytes
}

/// Maximum number of an attachment's records: the index has 16 bits.
pub(crate) const RECORDS_MAX: usize = u16::MAX as usize;

/// One property of an attachment, with its elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The text that operators see as the comment of an element of `attachments`. The elements can be derived from it.
    pub(crate) text: String,
    /// The elements.
    pub(crate) elements: Vec<Element>,
    /// The host port that is forwarded to the container, if the kernel may keep its flows after the container was deleted.
    pub(crate) tracked: Option<TrackedPort>,
    /// The chain with its rules, if it has conditions and cannot be in a set.
    pub(crate) chain: Option<&'static str>,
    /// The bit of the packet's mark that another program's chain accepts for it.
    pub(crate) bit: Option<u8>,
    /// The packets that it redirects to the container.
    pub(crate) redirects: Option<Redirected>,
    /// The container's address to which it redirects them.
    pub(crate) to: Option<IpAddr>,
}

/// Packets to a port of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Redirected {
    pub(crate) family: Family,
    /// The number of the transport protocol.
    pub(crate) protocol: u8,
    /// None: all addresses of the family.
    pub(crate) host_ip: Option<IpAddr>,
    pub(crate) port: u16,
}

impl Redirected {
    /// Whether all packets of the other kind are among these.
    pub(crate) fn includes(&self, other: &Self) -> bool {
        let of_all = Self { host_ip: self.host_ip.and(other.host_ip), ..*other };
        *self == of_all
    }
}

impl From<&TrackedPort> for Redirected {
    fn from(TrackedPort { protocol, host_ip, port, to }: &TrackedPort) -> Self {
        Self { family: Family::from(*to), protocol: *protocol, host_ip: *host_ip, port: *port }
    }
}

/// A host port that is forwarded to a container by one of the [`super::uapi::TRACKED_PROTOCOLS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrackedPort {
    /// The number of the transport protocol.
    pub(crate) protocol: u8,
    /// None: all addresses of the family of `to`.
    pub(crate) host_ip: Option<IpAddr>,
    pub(crate) port: u16,
    /// The container's address and port.
    pub(crate) to: SocketAddr,
}

impl Record {
    /// A record with only elements.
    pub(crate) fn of(text: String, elements: impl Into<Vec<Element>>) -> Self {
        let elements = elements.into();
        Self { text, elements, tracked: None, chain: None, bit: None, redirects: None, to: None }
    }
}

impl Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
