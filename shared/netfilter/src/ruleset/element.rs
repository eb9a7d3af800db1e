//! What belongs to an attachment: elements of sets and maps, and the records from which they follow.
//!
//! The records are in the set `attachments`, under a digest of the owner: they are all that a removal needs to know.

use std::fmt::{self, Display};
use std::net::IpAddr;

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

    /// The key of one of an attachment's records. 0 is for its label.
    pub(crate) fn record(digest: &str, index: u16) -> Self {
        Self::in_set(Set::attachments(), concatenated(&[&padded(digest), &index.to_be_bytes()]))
    }

    /// The digest in the key of a record.
    pub(crate) fn digest_of(key: &[u8]) -> Option<String> {
        netlink::wire::read_str(key.get(..16)?).map(str::to_owned)
    }
}

/// A name as the kernel compares it: padded with NULs to IFNAMSIZ.
pub(crate) fn padded(text: &str) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    bytes.resize(16, 0);
    bytes
}

/// Each part begins a new register of 4 bytes.
pub(crate) fn concatenated(parts: &[&[u8]]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for part in parts {
        bytes.extend_from_slice(part);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
    }
    bytes
}

/// The most records that an attachment can have: 16 bits of index.
pub(crate) const RECORDS_MAX: usize = u16::MAX as usize;

/// One fact about an attachment, and what follows from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// What an operator reads as the comment of an element of `attachments`. It says all that the elements are made of.
    pub(crate) text: String,
    /// The elements that follow from it.
    pub(crate) elements: Vec<Element>,
    /// The port of this host that leads to the container by UDP.
    pub(crate) udp: Option<UdpPort>,
    /// The chain that has rules for it: it has conditions, and fits no set.
    pub(crate) chain: Option<&'static str>,
    /// The bit of the packet's mark by which a chain of others accepts what it is about.
    pub(crate) bit: Option<u8>,
}

/// A port of this host that leads to a container by UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpPort {
    /// None: all addresses of the family of `to`.
    pub(crate) host_ip: Option<IpAddr>,
    pub(crate) port: u16,
    /// The container's address.
    pub(crate) to: IpAddr,
}

impl Record {
    /// A record from which elements follow, and nothing else.
    pub(crate) fn of(text: String, elements: impl Into<Vec<Element>>) -> Self {
        Self { text, elements: elements.into(), udp: None, chain: None, bit: None }
    }
}

impl Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
