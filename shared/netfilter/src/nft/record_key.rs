//! The keys of attachments' records in the set `attachments`.

use netlink::{RequestError, Socket};

use super::query;
use crate::kind::Kind;
use crate::owner::Owner;
use crate::ruleset::{Element, Set};

/// The key of an attachment's records of a kind, and the comment of its elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RecordKey {
    /// The comment of its elements.
    pub(super) label: String,
    /// The digest at the start of its records' keys.
    pub(super) digest: String,
}

impl RecordKey {
    pub(super) fn of(owner: &Owner, kind: Kind) -> Self {
        Self { label: owner.label(), digest: owner.digest(kind.properties.name) }
    }

    /// The keys of a kind whose labels `selects` accepts.
    pub(super) fn find(
        socket: &Socket,
        kind: Kind,
        selects: impl Fn(&str) -> bool,
    ) -> Result<Vec<Self>, RequestError> {
        let all = query::elements(socket, kind.table(), &Set::attachments().name)?;
        let of_kind = all.iter().filter_map(|(key, comment)| {
            let label = label(kind, comment).filter(|label| selects(label))?;
            Some(Self { label: label.to_owned(), digest: Element::digest_of(key)? })
        });
        Ok(of_kind.collect())
    }

    /// The comment of the first record.
    pub(super) fn title(&self, kind: Kind) -> String {
        format!("{kind} {}", self.label)
    }
}

/// The label in the comment of the first record.
pub(super) fn label(kind: Kind, title: &str) -> Option<&str> {
    title.strip_prefix(kind.properties.name)?.strip_prefix(' ')
}
