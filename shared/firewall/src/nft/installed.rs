//! What an attachment has in the ruleset.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use netlink::{RequestError, Socket};

use super::batch::Batch;
use super::claims::{Asked, Queue};
use super::element::{Element, Record};
use super::layout::{self, HOSTPORTS, Table};
use super::query;
use super::view::View;
use crate::rules::{Kind, Protocol};

/// Where an attachment's records of a kind are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// What its elements are commented with.
    pub(super) label: String,
    /// What its records are under.
    pub(super) digest: String,
}

/// What is in the ruleset of an attachment, by kind.
#[derive(Debug)]
pub(super) struct Installed {
    pub(super) place: Place,
    pub(super) records: Vec<Record>,
    /// How many places in the set of records are taken, the label's included.
    pub(super) places: usize,
}

impl Installed {
    pub(super) fn read(view: &View<'_>, kind: Kind, place: Place) -> Result<Self, RequestError> {
        let mut found = Self { place, records: Vec::new(), places: 0 };
        for index in 0..=u16::MAX {
            let Some(comment) = view.comment_of(&Element::record(&found.place.digest, index))? else { break };
            if index == 0 && comment != format!("{kind} {}", found.place.label) {
                break;
            }
            found.places += 1;
            found.records.extend(comment.parse());
        }
        Ok(found)
    }

    /// The container's addresses that UDP flows are redirected to.
    pub(super) fn udp_targets(&self) -> impl Iterator<Item = IpAddr> {
        self.records.iter().filter_map(|record| match record {
            Record::Forward(forward) | Record::OwnRule(forward) if forward.protocol == Protocol::Udp => {
                Some(forward.to.ip())
            }
            _ => None,
        })
    }

    /// Puts the deletion of its records into a batch.
    pub(super) fn put_records(&self, table: Table, batch: &mut Batch) {
        for index in 0..self.places {
            batch.delete_element(table, &Element::record(&self.place.digest, index as u16));
        }
    }
}

/// Puts the deletion of what still is theirs into a batch, all but the records, and hands host ports on to those that wait
/// for them. `keep` says which elements are not to be looked at. How many claims that were recorded are so no longer.
pub(super) fn put_deletion(
    view: &View<'_>,
    stale: &[Installed],
    keep: impl Fn(&Element) -> bool,
    batch: &mut Batch,
) -> Result<usize, RequestError> {
    let (mut gone, mut asked) = (0, Asked::default());
    let labels: BTreeSet<&str> = stale.iter().map(|found| found.place.label.as_str()).collect();
    for element in unique(stale.iter().flat_map(|found| &found.records)) {
        if keep(&element) {
            continue;
        }
        let holder = view.comment_of(&element)?;
        let is_theirs = holder.as_deref().is_some_and(|label| labels.contains(label));
        if is_theirs {
            batch.delete_element(view.table, &element);
        }
        let mut queue = Queue::read(view, &element)?;
        if queue.is_empty() {
            continue;
        }
        labels.iter().for_each(|label| queue.remove(label));
        let is_free = is_theirs || holder.is_none();
        if let Some((next, element)) = if is_free { queue.pop(view, &element, &mut asked)? } else { None } {
            batch.add_element(view.table, &element, &next.label);
        }
        gone += queue.put(view, batch);
    }
    if stale.iter().flat_map(|found| &found.records).any(|record| matches!(record, Record::OwnRule(_))) {
        for rule in query::rules(view.socket, layout::INET, HOSTPORTS.name)? {
            if labels.contains(rule.comment.as_str()) {
                batch.delete_rule(view.table, HOSTPORTS.name, rule.handle);
            }
        }
    }
    Ok(gone)
}

/// The handles of the rules that are an attachment's own.
pub(super) fn own_rules(socket: &Socket, label: &str) -> Result<Vec<u64>, RequestError> {
    let rules = query::rules(socket, layout::INET, HOSTPORTS.name)?;
    Ok(rules.into_iter().filter(|rule| rule.comment == label).map(|rule| rule.handle).collect())
}

/// The elements of records, each once: of two mappings of the same port the last one counts.
pub(super) fn unique<'a>(records: impl IntoIterator<Item = &'a Record>) -> Vec<Element> {
    let mut elements: Vec<Element> = Vec::new();
    let mut places = BTreeMap::new();
    for element in records.into_iter().flat_map(Record::elements) {
        let place = places.entry((element.set.name.clone(), element.key.clone())).or_insert(elements.len());
        if *place == elements.len() {
            elements.push(element);
        } else {
            elements[*place] = element;
        }
    }
    elements
}
