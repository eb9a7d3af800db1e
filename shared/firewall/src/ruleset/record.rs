//! What is recorded of an attachment. The records are in the set `attachments`, under a digest of the owner: they are all that
//! a removal needs to know.

use std::fmt::{self, Display};
use std::net::IpAddr;

use super::element::Element;

/// The most records that an attachment can have: 16 bits of index.
pub(crate) const RECORDS_MAX: usize = u16::MAX as usize;

/// One fact about an attachment, and what follows from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// What an operator reads as the comment of an element of `attachments`. It says all that the elements are made of.
    pub(crate) text: String,
    /// The elements that follow from it.
    pub(crate) elements: Vec<Element>,
    /// The container's address that UDP flows are led to.
    pub(crate) udp_target: Option<IpAddr>,
    /// The chain that has rules for it: it has conditions, and fits no set.
    pub(crate) chain: Option<&'static str>,
}

impl Record {
    /// A record from which elements follow, and nothing else.
    pub(crate) fn of(text: String, elements: impl Into<Vec<Element>>) -> Self {
        Self { text, elements: elements.into(), udp_target: None, chain: None }
    }
}

impl Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
