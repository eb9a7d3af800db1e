//! Where the records of attachments are.

use netlink::{RequestError, Socket};

use super::query;
use crate::kind::Kind;
use crate::owner::Owner;
use crate::ruleset::{Element, Set};

/// Where an attachment's records of a kind are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Slot {
    /// What its elements are commented with.
    pub(super) label: String,
    /// What its records are under.
    pub(super) digest: String,
}

impl Slot {
    pub(super) fn of(owner: &Owner, kind: Kind) -> Self {
        Self { label: owner.label(), digest: owner.digest(kind.facts.name) }
    }

    /// The slots of a kind whose labels are wanted.
    pub(super) fn find(
        socket: &Socket,
        kind: Kind,
        is_wanted: impl Fn(&str) -> bool,
    ) -> Result<Vec<Self>, RequestError> {
        let all = query::elements(socket, kind.table(), &Set::attachments().name)?;
        let of_kind = all.iter().filter_map(|(key, comment)| {
            let label = label(kind, comment).filter(|label| is_wanted(label))?;
            Some(Self { label: label.to_owned(), digest: Element::digest_of(key)? })
        });
        Ok(of_kind.collect())
    }

    /// The first record's comment.
    pub(super) fn title(&self, kind: Kind) -> String {
        format!("{kind} {}", self.label)
    }
}

/// The label in the comment of an attachment's first record.
pub(super) fn label(kind: Kind, title: &str) -> Option<&str> {
    title.strip_prefix(kind.facts.name)?.strip_prefix(' ')
}
