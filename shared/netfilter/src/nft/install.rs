//! The installation of an attachment's rules.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};

use netlink::{RequestError, Socket};

use super::batch::Batch;
use super::claims::Queue;
use super::deletion::put_deletion;
use super::installed::{Installed, unique};
use super::retry::{Attempt, plain};
use super::slot::Slot;
use super::view::View;
use super::{probe, query};
use crate::kind::Rules;
use crate::owner::Owner;
use crate::ruleset::{Element, Layout, Record, Rule, Set, Table};

/// The installation of an attachment's rules, which may take several tries.
pub(super) struct Change<'a> {
    socket: &'a Socket,
    rules: &'a dyn Rules,
    records: &'a [Record],
    layout: Layout,
    slot: Slot,
    /// Whether the last try began with what all attachments share.
    lays_out: Cell<bool>,
    /// The generation that the first try may take for that of all it reads.
    generation: Cell<Option<u32>>,
    /// What the last try took from other attachments: each record, and whose it was.
    taken: RefCell<BTreeSet<(String, String)>>,
}

impl<'a> Change<'a> {
    pub(super) fn new(
        socket: &'a Socket,
        owner: &'a Owner,
        rules: &'a dyn Rules,
        records: &'a [Record],
    ) -> Self {
        let slot = Slot::of(owner, rules.kind());
        Self {
            socket,
            rules,
            records,
            layout: layout_of(rules),
            slot,
            lays_out: Cell::new(false),
            generation: Cell::new(None),
            taken: RefCell::default(),
        }
    }

    /// With a generation that was read before: if the ruleset is another one by now, the first try is void.
    pub(super) fn reading_since(self, generation: Option<u32>) -> Self {
        self.generation.set(generation);
        self
    }

    /// Adds all that is wanted. With `replace`, what others or an earlier ADD hold of it is deleted before.
    pub(super) fn attempt(&self, replace: bool) -> Attempt {
        let (socket, table) = (self.socket, self.rules.kind().table());
        let generation = match self.generation.take() {
            Some(generation) => generation,
            None => query::generation(socket).map_err(plain)?,
        };
        let missing = missing(socket, table, &self.layout).map_err(plain)?;
        // Additions alone need not be bound to what was read: they fail if it is no longer so.
        let bound = replace || !missing.rules.is_empty();
        self.lays_out.set(!missing.rules.is_empty());
        let mut batch = Batch::new(bound.then_some(generation));
        if !missing.rules.is_empty() {
            batch.add_table(table);
        }
        missing.chains.iter().for_each(|chain| batch.add_chain(table, *chain));
        missing.sets.iter().for_each(|set| batch.add_set(table, set));
        missing.rules.iter().for_each(|rule| batch.add_rule(table, rule));
        if replace {
            self.put_replacement(&mut batch).map_err(plain)?;
        }
        self.put_additions(&mut batch);
        batch.commit(socket)
    }

    /// Writes to the log what other attachments have lost to this one. A host port is theirs again after its DEL. Two networks with
    /// the same address are a mistake in their configurations, unless the other container has exited without a DEL.
    pub(super) fn warn_of_losers(&self) {
        let network = |label: &str| label.split('/').next().map(str::to_owned);
        for (record, holder) in self.taken.borrow().iter() {
            if self.rules.kind().facts.redirects {
                cni::warn(&format!(
                    "host port taken over from {holder}, until this attachment's DEL: {record}"
                ));
            } else if network(holder) != network(&self.slot.label) {
                cni::warn(&format!(
                    "{holder}, of another network, has the same address ({record}): if its container runs, it loses its \
                     connections; give the two networks different ranges"
                ));
            }
        }
    }

    /// Whether a refusal of the last try says that the kernel lacks something: what it was asked for is bound to what was read,
    /// so it names nothing that could be missing.
    pub(super) fn is_lack(&self, refusal: &RequestError) -> bool {
        self.lays_out.get() && probe::is_lack(refusal)
    }

    fn put_additions(&self, batch: &mut Batch) {
        let (kind, Slot { label, digest }) = (self.rules.kind(), &self.slot);
        let table = kind.table();
        batch.add_element(table, &Element::record(digest, 0), &self.slot.title(kind));
        for (index, record) in (1..=u16::MAX).zip(self.records) {
            batch.add_element(table, &Element::record(digest, index), &record.text);
        }
        for element in unique(self.records) {
            batch.add_element(table, &element, label);
        }
        self.rules.conditional_rules(label).iter().for_each(|rule| batch.add_rule(table, rule));
    }

    /// Deletes what this attachment has already, and what others have under a key that it needs. Whoever has a host port that
    /// it needs waits for it from now on.
    fn put_replacement(&self, batch: &mut Batch) -> Result<(), RequestError> {
        let (kind, label) = (self.rules.kind(), &self.slot.label);
        let (view, table) = (View::new(self.socket, kind, 1), kind.table());
        let earlier = Installed::read(&view, self.slot.clone())?;
        let wanted = unique(self.records);
        let keys: BTreeSet<(&str, &[u8])> = wanted.iter().map(|w| (&*w.set.name, &*w.key)).collect();
        let again = |element: &Element| keys.contains(&(&*element.set.name, &*element.key));
        put_deletion(&view, std::slice::from_ref(&earlier), again, batch)?;
        earlier.put_records(table, batch);
        // Looked for once: one attachment may hold thousands of ports.
        let mut claims = BTreeMap::new();
        self.taken.borrow_mut().clear();
        for element in wanted.iter().filter(|element| !element.set.is_shared) {
            let Some(holder) = view.comment_of(element)? else { continue };
            batch.delete_element(table, element);
            if holder != *label {
                let of = |record: &&Record| {
                    record.elements.iter().any(|it| it.key == element.key && it.set.name == element.set.name)
                };
                let record = self.records.iter().find(of).map(Record::to_string).unwrap_or_default();
                self.taken.borrow_mut().insert((record, holder.clone()));
            }
            let mut queue = Queue::read(&view, element)?;
            queue.remove(label);
            if holder != *label && element.set.is_claimed {
                if !claims.contains_key(&holder) {
                    let slots = Slot::find(self.socket, kind, |label| label == holder)?;
                    claims.insert(holder.clone(), slots.into_iter().next());
                }
                queue.extend(claims.get(&holder).cloned().flatten());
            }
            queue.put(&view, batch);
        }
        Ok(())
    }
}

/// What of a layout is not there.
pub(super) fn missing(socket: &Socket, table: Table, layout: &Layout) -> Result<Layout, RequestError> {
    let mut missing = Layout::default();
    for chain in &layout.chains {
        let found = query::rules(socket, table, chain.name)?;
        let wanted = layout.rules.iter().filter(|rule| rule.chain == chain.name);
        let here = |rule: &Rule| found.iter().any(|f| f.comment == rule.comment);
        missing.rules.extend(wanted.filter(|rule| !here(rule)).cloned());
        // To add a chain that is there changes it, and the kernel makes whoever does so wait for a grace period.
        missing.chains.extend(found.is_empty().then_some(*chain));
    }
    if missing.rules.is_empty() {
        return Ok(Layout::default());
    }
    missing.sets.clone_from(&layout.sets);
    Ok(missing)
}

/// All that must be there for an attachment's elements.
pub(super) fn layout_of(rules: &dyn Rules) -> Layout {
    let mut layout = (rules.kind().facts.nftables.layout)();
    layout.sets.push(Set::attachments());
    rules.extend_layout(&mut layout);
    layout
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Masquerade;
    use crate::owner::tests::owner;
    use crate::ruleset::RECORDS_MAX;

    #[test]
    fn as_many_records_are_added_as_there_are_numbers_for_them() {
        let address = |n: usize| format!("10.{}.{}.{}/8", n >> 16, n >> 8 & 0xff, n & 0xff).parse().unwrap();
        let rules = Masquerade { addresses: (1..RECORDS_MAX).map(address).collect() };
        let (socket, records) = (Socket::open(netlink::Protocol::Netfilter).unwrap(), rules.records());
        let (owner, mut batch) = (owner("net", "c", "eth0"), Batch::new(None));
        Change::new(&socket, &owner, &rules, &records).put_additions(&mut batch);
        assert!(!batch.is_empty());
    }
}
