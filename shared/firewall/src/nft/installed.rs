//! What an attachment has in the ruleset.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use netlink::{Refusal, Socket};

use super::batch::Batch;
use super::element::{Element, Record};
use super::layout::{self, HOSTPORTS, Table};
use super::query;
use crate::rules::Kind;

/// What is in the ruleset of an attachment, by kind.
#[derive(Debug)]
pub(super) struct Installed {
    /// What its elements are commented with.
    pub(super) label: String,
    pub(super) digest: String,
    pub(super) records: Vec<Record>,
    /// How many places in the set of records are taken, the label's included.
    pub(super) places: usize,
}

impl Installed {
    pub(super) fn read(socket: &Socket, kind: Kind, label: String, digest: String) -> Result<Self, Refusal> {
        let mut found = Self { label, digest, records: Vec::new(), places: 0 };
        for index in 0..=u16::MAX {
            let place = Element::record(&found.digest, index);
            let Some(comment) = query::comment_of(socket, kind.table(), &place)? else { break };
            found.places += 1;
            found.records.extend(comment.parse());
        }
        Ok(found)
    }

    pub(super) fn has(&self, element: &Element) -> bool {
        let same = |other: Element| other.set == element.set && other.key == element.key;
        self.records.iter().flat_map(Record::elements).any(same)
    }

    /// The container's addresses.
    pub(super) fn addresses(&self) -> Vec<IpAddr> {
        let address = |record: &Record| match record {
            Record::Masquerade(address) => Some(address.ip()),
            Record::Forward(forward) | Record::OwnRule(forward) => Some(forward.to.ip()),
            Record::Hairpin { .. } | Record::Port(..) => None,
        };
        let addresses: BTreeSet<IpAddr> = self.records.iter().filter_map(address).collect();
        addresses.into_iter().collect()
    }

    /// Puts the deletion of what still is the attachment's into a batch.
    pub(super) fn put_deletion(
        &self,
        socket: &Socket,
        table: Table,
        batch: &mut Batch,
    ) -> Result<(), Refusal> {
        for element in unique(&self.records) {
            if query::comment_of(socket, table, &element)?.as_ref() == Some(&self.label) {
                batch.delete_element(table, &element);
            }
        }
        if self.records.iter().any(|record| matches!(record, Record::OwnRule(_))) {
            for handle in own_rules(socket, &self.label)? {
                batch.delete_rule(table, HOSTPORTS.name, handle);
            }
        }
        for index in 0..self.places {
            batch.delete_element(table, &Element::record(&self.digest, index as u16));
        }
        Ok(())
    }
}

/// The handles of the rules that are an attachment's own.
pub(super) fn own_rules(socket: &Socket, label: &str) -> Result<Vec<u64>, Refusal> {
    let rules = query::rules(socket, layout::INET, HOSTPORTS.name)?;
    Ok(rules.into_iter().filter(|rule| rule.comment == label).map(|rule| rule.handle).collect())
}

/// The elements of records, each once: of two mappings of the same port the last one counts.
pub(super) fn unique(records: &[Record]) -> Vec<Element> {
    let mut elements: Vec<Element> = Vec::new();
    let mut places = BTreeMap::new();
    for element in records.iter().flat_map(Record::elements) {
        let place = places.entry((element.set.name.clone(), element.key.clone())).or_insert(elements.len());
        if *place == elements.len() {
            elements.push(element);
        } else {
            elements[*place] = element;
        }
    }
    elements
}
