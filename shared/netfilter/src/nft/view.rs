//! The elements of a table's sets. They are read one by one, or listed once if many are needed.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};

use netlink::{RequestError, Socket};

use super::query;
use crate::kind::Kind;
use crate::ruleset::{Element, Record, Set, Table};

/// From this number of attachments on, listing whole sets is faster.
const MANY: usize = 16;

type Comments = BTreeMap<Vec<u8>, String>;

/// The contents of a kind's table, within one attempt of a transaction.
pub(super) struct View<'a> {
    pub(super) socket: &'a Socket,
    /// The socket for dumps that end at the first match.
    partial_dumps: &'a Socket,
    pub(super) kind: Kind,
    pub(super) table: Table,
    listed: RefCell<BTreeMap<String, Comments>>,
    lists: bool,
    /// Whether there are records of other attachments than the removed ones.
    pub(super) has_others: Cell<bool>,
}

impl<'a> View<'a> {
    /// A view for reading the elements of a number of attachments.
    pub(super) fn new(socket: &'a Socket, kind: Kind, attachments: usize) -> Self {
        let lists = attachments >= MANY;
        let (table, listed) = (kind.table(), RefCell::default());
        Self { socket, partial_dumps: socket, kind, table, listed, lists, has_others: Cell::new(false) }
    }

    /// Uses a separate socket for dumps that end at the first match.
    pub(super) fn with_partial_dumps(self, partial_dumps: &'a Socket) -> Self {
        Self { partial_dumps, ..self }
    }

    /// The items that follow from records of other attachments than these.
    pub(super) fn needed_by_others<T: PartialEq>(
        &self,
        things: &[T],
        digests: &BTreeSet<&str>,
        of: impl Fn(Record) -> Vec<T>,
    ) -> Result<Vec<T>, RequestError> {
        let is_others = |key: &[u8]| Element::digest_of(key).is_some_and(|it| !digests.contains(it.as_str()));
        let parse = self.kind.properties.nftables.parse;
        let mut needed = Vec::new();
        query::visit(self.partial_dumps, self.table, &Set::attachments().name, |key, comment| {
            let of_other =
                Some(comment).filter(|_| is_others(key)).and_then(parse).map(&of).unwrap_or_default();
            for thing in of_other {
                if things.contains(&thing) && !needed.contains(&thing) {
                    needed.push(thing);
                }
            }
            needed.len() == things.len()
        })?;
        self.has_others.set(self.has_others.get() || !needed.is_empty());
        Ok(needed)
    }

    /// Whether another program has deleted records, so that other attachments may need any shared element.
    pub(super) fn is_incomplete(&self) -> Result<bool, RequestError> {
        Ok(query::comment_of(self.socket, self.table, &Element::incomplete())?.is_some())
    }

    /// The comment of an element. None if it does not exist. Empty without a comment.
    pub(super) fn comment_of(&self, element: &Element) -> Result<Option<String>, RequestError> {
        if !self.lists {
            return query::comment_of(self.socket, self.table, element);
        }
        let mut listed = self.listed.borrow_mut();
        let name: &str = &element.set.name;
        if !listed.contains_key(name) {
            let all = query::elements(self.socket, self.table, name)?;
            listed.insert(name.to_owned(), all.into_iter().collect());
        }
        Ok(listed.get(name).and_then(|set| set.get(&element.key)).cloned())
    }
}
