//! Deletes attachments' elements, and passes their host ports to waiting attachments.

use std::cell::RefCell;
use std::collections::BTreeSet;

use netlink::RequestError;

use super::batch::Batch;
use super::claims::{RequestedElements, WaitingAttachments};
use super::installed::{Installed, unique};
use super::query;
use super::view::View;
use crate::conntrack::FlowTarget;
use crate::ruleset::{Element, Record};

/// Deletes what still belongs to these attachments, except the records, and passes host ports to attachments that wait
/// for them. Ignores the elements that `keep` selects. Returns how many elements fewer the set of records then has for
/// waiting attachments.
pub(super) fn delete_elements(
    view: &View<'_>,
    stale: &[Installed],
    keep: impl Fn(&Element) -> bool,
    batch: &mut Batch,
) -> Result<usize, RequestError> {
    let (mut gone, mut requested) = (0, RequestedElements::default());
    let labels: BTreeSet<&str> = stale.iter().map(|found| found.record_key.label.as_str()).collect();
    let elements = unique(stale.iter().flat_map(|found| &found.records)).into_iter();
    let (shared, own): (Vec<_>, Vec<_>) =
        elements.filter(|element| !keep(element)).partition(|element| element.set.is_shared);
    delete_shared(view, &shared, stale, batch)?;
    for element in own {
        let holder = view.comment_of(&element)?;
        let is_theirs = holder.as_deref().is_some_and(|label| labels.contains(label));
        if is_theirs {
            batch.delete_element(view.table, &element);
        }
        let mut queue = WaitingAttachments::read(view, &element)?;
        if queue.is_empty() {
            continue;
        }
        queue.retain(|waiting| !labels.contains(waiting));
        let is_free = is_theirs || holder.is_none();
        if let Some((next, element)) = if is_free { queue.pop(view, &element, &mut requested)? } else { None }
        {
            batch.add_element(view.table, &element, &next.label);
        }
        gone += queue.write(view, batch);
    }
    let chains: BTreeSet<_> = stale.iter().flat_map(|found| &found.records).filter_map(|r| r.chain).collect();
    for chain in chains {
        for rule in query::rules(view.socket, view.table, chain)? {
            if labels.contains(rule.comment.as_str()) {
                batch.delete_rule(view.table, chain, rule.handle);
            }
        }
    }
    Ok(gone)
}

/// Deletes shared elements that no other attachment needs.
fn delete_shared(
    view: &View<'_>,
    shared: &[Element],
    stale: &[Installed],
    batch: &mut Batch,
) -> Result<(), RequestError> {
    if shared.is_empty() || view.is_incomplete()? {
        return Ok(());
    }
    let needed = view.needed_by_others(shared, &digests(stale), |record| record.elements)?;
    for element in shared.iter().filter(|element| !needed.contains(element)) {
        if view.comment_of(element)?.is_some() {
            batch.delete_element(view.table, element);
        }
    }
    Ok(())
}

/// The mark bits that no other attachment uses: other programs' chains need not accept them any more. Empty if other attachments use
/// all bits of these ones. Otherwise also bits that these do not use: an earlier ADD may have left rules for them.
pub(super) fn unused_bits(view: &View<'_>, stale: &[Installed]) -> Result<BTreeSet<u8>, RequestError> {
    let bits: BTreeSet<u8> =
        stale.iter().flat_map(|found| &found.records).filter_map(|record| record.bit).collect();
    if bits.is_empty() || view.is_incomplete()? {
        return Ok(BTreeSet::new());
    }
    let all: Vec<u8> = bits.iter().copied().collect();
    let of_others = RefCell::new(BTreeSet::new());
    let needed = view.needed_by_others(&all, &digests(stale), |record| {
        of_others.borrow_mut().extend(record.bit);
        record.bit.into_iter().collect()
    })?;
    // The records were read to the end only if one of the bits is unused.
    let is_complete = needed.len() < bits.len();
    Ok((0..u32::BITS as u8).filter(|bit| is_complete && !of_others.borrow().contains(bit)).collect())
}

/// The UDP and SCTP flows to the containers, except those that another attachment maps in the same way: its container has the
/// address now. All records are listed only if another attachment has one of the ports, or may have it with conditions.
pub(super) fn unmapped_flows(
    view: &View<'_>,
    stale: &[Installed],
) -> Result<BTreeSet<FlowTarget>, RequestError> {
    let labels: BTreeSet<&str> = stale.iter().map(|found| found.record_key.label.as_str()).collect();
    let (mut flows, mut may_be_mapped) = (BTreeSet::new(), false);
    for record in stale.iter().flat_map(|found| &found.records) {
        let Some(port) = record.tracked else { continue };
        flows.insert(FlowTarget::from(port));
        may_be_mapped |= record.chain.is_some();
        for element in &record.elements {
            may_be_mapped |= view.comment_of(element)?.is_some_and(|holder| !labels.contains(&*holder));
        }
    }
    if may_be_mapped {
        let all = Vec::from_iter(flows.iter().copied());
        let of = |record: Record| record.tracked.into_iter().map(FlowTarget::from).collect();
        let needed = view.needed_by_others(&all, &digests(stale), of)?;
        flows.retain(|flow| !needed.contains(flow));
    }
    Ok(flows)
}

fn digests(stale: &[Installed]) -> BTreeSet<&str> {
    stale.iter().map(|found| found.record_key.digest.as_str()).collect()
}
