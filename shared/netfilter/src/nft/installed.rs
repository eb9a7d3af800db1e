//! An attachment's installed rules.

use std::collections::BTreeMap;

use netlink::RequestError;

use super::batch::Batch;
use super::record_key::RecordKey;
use super::view::View;
use crate::ruleset::{Element, Record, Table};

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
