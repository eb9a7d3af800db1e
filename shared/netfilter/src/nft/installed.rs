//! An attachment's installed rules, and the keys of its records in the set `attachments`.

use std::collections::BTreeMap;

use netlink::{RequestError, Socket};

use super::batch::Batch;
use super::query;
use super::view::View;
use crate::kind::Kind;
use crate::owner::Owner;
use crate::ruleset::{Element, Record, Set, Table};

/// The installed rules of an attachment, of one kind.
#[derive(Debug)]
pub(super) struct Installed {
    pub(super) record_key: RecordKey,
    pub(super) records: Vec<Record>,
    /// The number of its elements in the set of records, including the label.
    pub(super) recorded: usize,
}

impl Installed {
    pub(super) fn read(view: &View<'_>, record_key: RecordKey) -> Result<Self, RequestError> {
        let mut found = Self { record_key, records: Vec::new(), recorded: 0 };
        for index in 0..=u16::MAX {
            let Some(comment) = view.comment_of(&Element::record(&found.record_key.digest, index))? else {
                break;
            };
            if index == 0 && comment != found.record_key.title(view.kind) {
                break;
            }
            found.recorded += 1;
            found.records.extend((view.kind.properties.nftables.parse)(&comment));
        }
        Ok(found)
    }

    /// Deletes the attachment's records.
    pub(super) fn delete_records(&self, table: Table, batch: &mut Batch) {
        for index in 0..self.recorded {
            batch.delete_element(table, &Element::record(&self.record_key.digest, index as u16));
        }
    }
}

/// The elements of records, without duplicates. If two records have the same key, the last one is used.
pub(super) fn unique<'a>(records: impl IntoIterator<Item = &'a Record>) -> Vec<Element> {
    let mut elements: Vec<Element> = Vec::new();
    let mut places = BTreeMap::new();
    for element in records.into_iter().flat_map(|record| &record.elements) {
        let place = places.entry((element.set.name.clone(), element.key.clone())).or_insert(elements.len());
        if *place == elements.len() {
            elements.push(element.clone());
        } else {
            elements[*place] = element.clone();
        }
    }
    elements
}

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
