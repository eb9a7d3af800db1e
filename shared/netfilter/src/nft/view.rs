//! The elements of a table's sets, asked for one by one, or listed once where many are to be looked at.

use std::cell::RefCell;
use std::collections::BTreeMap;

use netlink::{RequestError, Socket};

use super::query;
use crate::kind::Kind;
use crate::ruleset::{Element, Table};

/// From how many attachments on it costs less to list whole sets.
const MANY: usize = 16;

type Comments = BTreeMap<Vec<u8>, String>;

/// What is in the table of a kind of rules, within one try of a transaction.
pub(super) struct View<'a> {
    pub(super) socket: &'a Socket,
    pub(super) kind: Kind,
    pub(super) table: Table,
    listed: RefCell<BTreeMap<String, Comments>>,
    lists: bool,
}

impl<'a> View<'a> {
    /// For a look at the elements of so many attachments.
    pub(super) fn new(socket: &'a Socket, kind: Kind, attachments: usize) -> Self {
        Self { socket, kind, table: kind.table(), listed: RefCell::default(), lists: attachments >= MANY }
    }

    /// The comment of an element: none if it is not there, empty if it has none.
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
