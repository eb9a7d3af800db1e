//! Installation of an attachment's rules, and [`LayoutDiff`], the comparison of the ruleset with the shared layout,
//! which CHECK and STATUS also use.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};

use netlink::{Family, RequestError, Socket};
use nix::errno::Errno;

use super::batch::Batch;
use super::claims::{Key, WaitingAttachments, key};
use super::connection::Connection;
use super::content::is_same;
use super::deletion::{delete_elements, unused_bits};
use super::installed::{Installed, RecordKey, unique};
use super::query::RawRule;
use super::retry::{Attempt, plain};
use super::tables::Tables;
use super::view::View;
use super::{probe, query};
use crate::kind::{Kind, NftablesRules};
use crate::opening;
use crate::owner::{self, Owner, are_of_one_container};
use crate::ruleset::{Chain, Element, Layout, Record, Rule, Set, Table};

/// The installation of an attachment's rules, which may need several attempts.
pub(super) struct Installation<'a> {
    socket: &'a Connection,
    kind: Kind,
    rules: &'a NftablesRules,
    layout: Layout,
    record_key: RecordKey,
    /// Whether the last attempt also wrote the shared layout.
    writes_layout: Cell<bool>,
    /// Whether an attempt needed an object that did not exist.
    lacks_object: Cell<bool>,
    /// The generation of the ruleset that the caller has read. The first attempt is bound to it. None: each
    /// attempt reads the current one.
    generation: Cell<Option<u32>>,
    /// What the last attempt took over from other attachments: each record, with the label of the earlier holder.
    taken: RefCell<BTreeSet<(String, String)>>,
    /// Host ports that another attachment of the container keeps, according to the last attempt: sets and keys.
    waits_for: RefCell<BTreeSet<Key>>,
    /// Other rules between the shared ones, when the last attempt read them.
    others: RefCell<Vec<OtherRule>>,
}

/// The comment and the handle of a rule of an attachment or of another program.
type OtherRule = (String, u64);

impl<'a> Installation<'a> {
    pub(super) fn new(
        socket: &'a Connection,
        owner: &'a Owner,
        kind: Kind,
        rules: &'a NftablesRules,
    ) -> Self {
        Self {
            socket,
            kind,
            rules,
            layout: layout_of(kind, rules),
            record_key: RecordKey::of(owner, kind),
            writes_layout: Cell::new(false),
            lacks_object: Cell::new(false),
            generation: Cell::new(None),
            taken: RefCell::default(),
            waits_for: RefCell::default(),
            others: RefCell::default(),
        }
    }

    /// Uses a generation that was read before. If the ruleset has changed since, the kernel refuses the first attempt.
    pub(super) fn with_generation(self, generation: Option<u32>) -> Self {
        self.generation.set(generation);
        self
    }

    /// Adds everything. With `replace`, conflicting elements of other attachments or of an earlier ADD are deleted
    /// first.
    pub(super) fn attempt(&self, replace: bool) -> Attempt {
        let (socket, table) = (self.socket, self.kind.table());
        let generation = match self.generation.take() {
            Some(generation) => generation,
            None => socket.generation().map_err(plain)?,
        };
        let diff = LayoutDiff::of(socket, table, &self.layout).map_err(plain)?;
        let replace = replace || diff.others.iter().any(|(comment, _)| *comment == self.record_key.label);
        // No rule refers to the set of records, so it may be missing although all rules exist.
        let lacks_records = (self.lacks_object.get() || !diff.is_empty())
            && has_lost_records(socket, table).map_err(plain)?;
        // A transaction that only adds need not be bound to the generation: it fails if another program has deleted the
        // table or a set.
        let bound = replace || lacks_records || !diff.is_empty();
        self.writes_layout.set(!diff.is_empty());
        let mut batch = Batch::new(bound.then_some(generation));
        diff.write_changes(table, &self.layout, &mut batch);
        self.others.replace(diff.others);
        if lacks_records {
            batch.add_set(table, &Set::attachments());
            batch.add_element(
                table,
                &Element::incomplete(),
                "incomplete: another program has deleted records",
            );
        }
        let mut tables = vec![table.name];
        if replace && self.delete_conflicting(&mut batch).map_err(plain)? {
            tables.push(opening::TABLE);
        }
        self.add_elements_and_rules(&mut batch);
        let outcome = batch.commit_on(socket, &tables);
        match &outcome {
            Err((_, refusal)) if refusal.errno() == Some(Errno::ENOENT) => self.lacks_object.set(true),
            Ok(()) if lacks_records => cni::warn(&format!(
                "another program has deleted the set attachments of table {}, so a DEL no longer finds the rules of \
                 other attachments; run `cnitool repair --all` before these containers end. The table stays until the \
                 next boot",
                table.name
            )),
            _ => {}
        }
        outcome
    }

    /// Warns of elements that this attachment took over from others. Host ports return to the earlier attachments after
    /// this attachment's DEL. If two networks use the same address, their configurations are wrong, unless the other
    /// container exited without a DEL.
    pub(super) fn warn_of_takeovers(&self) {
        for (record, holder) in self.taken.borrow().iter() {
            if self.kind.properties.maps_host_ports {
                cni::warn(&format!(
                    "host port taken over from {holder}, until this attachment's DEL: {record}"
                ));
            } else if owner::network_of(holder) != owner::network_of(&self.record_key.label) {
                cni::warn(&format!(
                    "{holder}, on another network, has the same address ({record}). If that \
                     container still runs, it loses its connections: configure different ranges for the two networks"
                ));
            }
        }
    }

    /// Warns of older attachments whose own rules precede the maps, and redirect packets that this attachment's mappings
    /// would redirect. This attachment gets them after the other one's DEL.
    pub(super) fn warn_of_preceding_rules(&self) -> Result<(), RequestError> {
        let (kind, own) = (self.kind, &self.record_key.label);
        let others = self.others.borrow();
        if !kind.properties.maps_host_ports || !self.rules.rules.is_empty() || others.is_empty() {
            return Ok(());
        }
        let view = View::new(self.socket, kind, 1);
        let labels: BTreeSet<&str> = others.iter().map(|(label, _)| label.as_str()).collect();
        for older in labels.into_iter().filter(|label| label != own).filter_map(Owner::of_label) {
            let older = Installed::read(&view, RecordKey::of(&older, kind))?;
            let preceding = || older.records.iter().filter(|r| r.chain.is_some()).filter_map(|r| r.redirects);
            let is_hidden = |record: &&Record| {
                record.redirects.is_some_and(|own| preceding().any(|it| it.includes(&own)))
            };
            for record in self.rules.records.iter().filter(is_hidden) {
                cni::warn(&format!(
                    "{} has rules with conditions or another markMasqBit for this host port, which precede the mapping \
                     until that attachment's DEL: {record}",
                    older.record_key.label
                ));
            }
        }
        Ok(())
    }

    /// Whether the kernel refused the last attempt because it lacks a part. The attempt is bound to the generation, so
    /// the error cannot mean that another program has deleted an object.
    pub(super) fn is_missing_part(&self, refusal: &RequestError) -> bool {
        self.writes_layout.get() && probe::is_missing_part(refusal)
    }

    /// Adds the attachment's records, the elements of the records, and its own rules.
    pub(super) fn add_elements_and_rules(&self, batch: &mut Batch) {
        let (kind, RecordKey { label, digest }) = (self.kind, &self.record_key);
        let table = kind.table();
        batch.add_element(table, &Element::record(digest, 0), &self.record_key.title(kind));
        for (index, record) in (1..=u16::MAX).zip(&self.rules.records) {
            batch.add_element(table, &Element::record(digest, index), &record.text);
        }
        for element in unique(&self.rules.records) {
            if !self.waits_for.borrow().contains(&key(&element)) {
                batch.add_element(table, &element, label);
            }
        }
        let others = self.others.borrow();
        let sibling = others.iter().rev().find(|(other, _)| are_of_one_container(other, label));
        for rule in &self.rules.rules {
            let rule = Rule { comment: label.clone(), ..rule.clone() };
            match sibling {
                Some((_, handle)) => batch.add_rule_after(table, *handle, &rule),
                None => batch.add_rule(table, &rule),
            }
        }
    }

    /// Deletes the attachment's existing elements, and those of others with the same keys. An attachment that loses a
    /// host port waits for it from now on.
    ///
    /// For each element of this attachment: deletes it if it exists. If another attachment has it, that one is recorded
    /// for the warning and appended to the port's queue. This attachment is removed from the queue, because it has the
    /// port now. If the other attachment is of the same container, it keeps a host port, and this one waits.
    ///
    /// Returns whether the table of the opened hook changes, too.
    fn delete_conflicting(&self, batch: &mut Batch) -> Result<bool, RequestError> {
        let (kind, label) = (self.kind, &self.record_key.label);
        let (view, table) = (View::new(self.socket, kind, 1), kind.table());
        let earlier = Installed::read(&view, self.record_key.clone())?;
        let expected = unique(&self.rules.records);
        let keys: BTreeSet<(&str, &[u8])> =
            expected.iter().map(|element| (&*element.set.name, &*element.key)).collect();
        let is_expected = |element: &Element| keys.contains(&(&*element.set.name, &*element.key));
        delete_elements(&view, std::slice::from_ref(&earlier), is_expected, batch)?;
        earlier.delete_records(table, batch);
        let closes = self.close_earlier_bits(&view, &earlier, batch)?;
        if earlier.records.is_empty() {
            self.delete_unrecorded_rules(batch);
        }
        // Read once, because one attachment may have thousands of ports.
        let mut claims = BTreeMap::new();
        self.taken.borrow_mut().clear();
        self.waits_for.borrow_mut().clear();
        for element in expected.iter().filter(|element| !element.set.is_shared) {
            let Some(holder) = view.comment_of(element)? else { continue };
            let mut queue = WaitingAttachments::read(&view, element)?;
            queue.remove(label);
            if holder != *label && element.set.is_claimed && !claims.contains_key(&holder) {
                let record_keys = RecordKey::find(self.socket, kind, |label| label == holder)?;
                claims.insert(holder.clone(), record_keys.into_iter().next());
            }
            let claim = claims.get(&holder).cloned().flatten();
            let record = self.record_of(element).filter(|_| holder != *label);
            let is_host_port = record.is_some_and(|record| record.redirects.is_some());
            if is_host_port && claim.is_some() && are_of_one_container(&holder, label) {
                queue.push_newest(self.record_key.clone());
                self.waits_for.borrow_mut().insert(key(element));
            } else {
                batch.delete_element(table, element);
                claim.into_iter().for_each(|claim| queue.push_newest(claim));
                // A host port is taken over, not the address that it leads to.
                let taken = record.filter(|_| is_host_port || !kind.properties.maps_host_ports);
                self.taken.borrow_mut().extend(taken.map(|record| (record.to_string(), holder)));
            }
            queue.write(&view, batch);
        }
        Ok(closes)
    }

    /// Deletes the rules that accept packets with a mark bit of an earlier ADD, if neither this one nor another attachment uses it. The
    /// records that name the bit are deleted in the same transaction. Returns whether there are such rules.
    fn close_earlier_bits(
        &self,
        view: &View<'_>,
        earlier: &Installed,
        batch: &mut Batch,
    ) -> Result<bool, RequestError> {
        let own: BTreeSet<u8> = self.rules.records.iter().filter_map(|record| record.bit).collect();
        let is_kept = |record: &Record| record.bit.is_none_or(|bit| own.contains(&bit));
        let Some(way) = self.kind.properties.nftables.opens else { return Ok(false) };
        if earlier.records.iter().all(is_kept) {
            return Ok(false);
        }
        let unused = &unused_bits(view, std::slice::from_ref(earlier))? - &own;
        for family in Family::ALL {
            batch.edit(&opening::close_bits(&Tables(self.socket), family, way, &unused)?);
        }
        Ok(!unused.is_empty())
    }

    /// Deletes this attachment's own rules after another program has deleted the records.
    fn delete_unrecorded_rules(&self, batch: &mut Batch) {
        let Some(chain) = self.rules.rules.first().map(|rule| rule.chain) else { return };
        let others = self.others.borrow();
        for (_, handle) in others.iter().filter(|(comment, _)| *comment == self.record_key.label) {
            batch.delete_rule(self.kind.table(), chain, *handle);
        }
    }

    /// This attachment's record that contains an element.
    fn record_of(&self, element: &Element) -> Option<&Record> {
        let is_it = |own: &Element| own.key == element.key && own.set.name == element.set.name;
        self.rules.records.iter().find(|record| record.elements.iter().any(is_it))
    }
}

/// The differences between the ruleset and a layout.
#[derive(Debug, Default)]
pub(super) struct LayoutDiff {
    /// Chains that do not exist, or have no rules.
    chains: Vec<Chain>,
    /// Missing rules.
    missing: Vec<Rule>,
    /// Rules whose expressions differ, by handle. Another program changed them.
    changed: Vec<(u64, Rule)>,
    /// Rules after a rule that they must precede, by handle.
    misplaced: Vec<(u64, Rule)>,
    /// Other rules in ordered chains, in their order: those of attachments with own rules.
    others: Vec<OtherRule>,
    /// For a missing or misplaced rule, by its chain and comment: the handle of the existing rule that must follow it.
    next: BTreeMap<(&'static str, String), u64>,
}

impl LayoutDiff {
    pub(super) fn of(socket: &Socket, table: Table, layout: &Layout) -> Result<Self, RequestError> {
        let mut this = Self::default();
        for chain in &layout.chains {
            let found = &query::rules(socket, table, chain.name)?;
            let expected = || layout.rules.iter().filter(|rule| rule.chain == chain.name);
            if chain.is_ordered {
                let is_other = |rule: &&RawRule| !expected().any(|shared| shared.comment == rule.comment);
                this.others
                    .extend(found.iter().filter(is_other).map(|rule| (rule.comment.clone(), rule.handle)));
                this.compare_order(expected(), found);
            } else {
                this.find_late(expected, found);
            }
            for rule in expected() {
                let Some(position) = position_of(rule, found) else {
                    this.missing.push(rule.clone());
                    continue;
                };
                let found = &found[position];
                if !is_same(&rule.expressions, found) {
                    this.changed.push((found.handle, rule.clone()));
                }
            }
            // A chain without rules may not exist. A chain with rules is not added: that would be an update of the
            // chain, for which the kernel waits for a grace period.
            this.chains.extend(found.is_empty().then_some(*chain));
        }
        Ok(this)
    }

    /// Finds the misplaced rules of a chain, and the position of the rules that are to be added. Moves as few rules as possible:
    /// other rules, such as those of attachments with conditions, may be between the expected ones.
    fn compare_order<'a>(&mut self, expected: impl Iterator<Item = &'a Rule>, found: &[RawRule]) {
        let expected: Vec<_> =
            expected.filter(|rule| !rule.first).map(|rule| (rule, position_of(rule, found))).collect();
        let positions: Vec<usize> = expected.iter().filter_map(|(_, position)| *position).collect();
        let in_order = longest_increasing(&positions);
        let mut next = None;
        for (rule, position) in expected.into_iter().rev() {
            match position.map(|position| (position, found[position].handle)) {
                Some((position, handle)) if in_order.contains(&position) => next = Some(handle),
                misplaced => {
                    self.misplaced.extend(misplaced.map(|(_, handle)| (handle, rule.clone())));
                    self.next.extend(next.map(|handle| ((rule.chain, rule.comment.clone()), handle)));
                }
            }
        }
    }

    /// Finds rules that must be before the chain's ordinary rules, and are behind one of them.
    fn find_late<'a, R: Iterator<Item = &'a Rule>>(&mut self, expected: impl Fn() -> R, found: &[RawRule]) {
        let position = |rule: &Rule| position_of(rule, found);
        let ordinary = expected().filter(|rule| !rule.first).filter_map(position).min();
        let is_late = |at: &usize| ordinary.is_some_and(|ordinary| *at > ordinary);
        let late = expected().filter(|rule| rule.first);
        let late =
            late.filter_map(|rule| Some((found[position(rule).filter(is_late)?].handle, rule.clone())));
        let late: Vec<_> = late.collect();
        self.misplaced.extend(late);
    }

    /// The first missing rule, as text.
    pub(super) fn missing_rule(&self) -> Option<String> {
        let rule = self.missing.first()?;
        Some(format!("the rule \"{}\" of chain {} is missing", rule.comment, rule.chain))
    }

    /// The first changed or misplaced rule, as text.
    pub(super) fn changed_rule(&self) -> Option<String> {
        let text =
            |rule: &Rule, what: &str| format!("the rule \"{}\" of chain {} {what}", rule.comment, rule.chain);
        let changed = self.changed.first().map(|(_, rule)| text(rule, "was changed"));
        let moved =
            || self.misplaced.first().map(|(_, rule)| text(rule, "follows a rule that it must precede"));
        changed.or_else(moved)
    }

    /// Whether all rules are as they must be. Chains and sets are added only with rules: a rule cannot exist without
    /// its chain and its sets. The set of records, which no rule uses, is an exception: see `lacks_object`.
    fn is_empty(&self) -> bool {
        self.missing.is_empty() && self.changed.is_empty() && self.misplaced.is_empty()
    }

    /// Adds missing parts, moves misplaced rules, and replaces rules whose expressions differ.
    fn write_changes(&self, table: Table, layout: &Layout, batch: &mut Batch) {
        // The chains also if no rule is missing: a changed rule may have jumped to a chain that was deleted.
        if !self.is_empty() {
            batch.add_table(table);
            self.chains.iter().for_each(|chain| batch.add_chain(table, *chain));
            layout.sets.iter().for_each(|set| batch.add_set(table, set));
        }
        // The kernel finds a rule by its handle only until the rule is replaced, so this is the order.
        for rule in layout.rules.iter().filter(|rule| self.is_added(rule)) {
            match self.next.get(&(rule.chain, rule.comment.clone())) {
                Some(next) => batch.add_rule_before(table, *next, rule),
                None => batch.add_rule(table, rule),
            }
        }
        self.changed
            .iter()
            .filter(|(handle, _)| !self.misplaced.iter().any(|(misplaced, _)| misplaced == handle))
            .for_each(|(handle, rule)| batch.replace_rule(table, *handle, rule));
        self.misplaced.iter().for_each(|(handle, rule)| batch.delete_rule(table, rule.chain, *handle));
    }

    /// Whether a rule is to be added: because it is missing, or at another position.
    fn is_added(&self, rule: &Rule) -> bool {
        self.missing.contains(rule) || self.misplaced.iter().any(|(_, misplaced)| misplaced == rule)
    }
}

/// Whether another program has deleted the set of records from a table with Ferrule's other sets.
fn has_lost_records(socket: &Socket, table: Table) -> Result<bool, RequestError> {
    let sets = query::sets(socket, table)?;
    Ok(!sets.is_empty() && !sets.contains(&Set::attachments().name.into_owned()))
}

/// The position of a shared rule in its chain. If several rules have its comment, the one with its expressions.
fn position_of(rule: &Rule, found: &[RawRule]) -> Option<usize> {
    let mut named = (0..found.len()).filter(|index| found[*index].comment == rule.comment);
    let first = named.next()?;
    let is_exact = |index: &usize| is_same(&rule.expressions, &found[*index]);
    if is_exact(&first) { Some(first) } else { Some(named.find(is_exact).unwrap_or(first)) }
}

/// The numbers of a longest increasing subsequence. Of several, that with the greatest numbers: a rule that was moved to
/// the start of a chain must go back, not the rules that follow it.
fn longest_increasing(numbers: &[usize]) -> BTreeSet<usize> {
    let rank = |numbers: &Vec<usize>| (numbers.len(), numbers.iter().sum::<usize>());
    let mut longest: Vec<Vec<usize>> = Vec::new();
    for number in numbers {
        let before = longest.iter().filter(|numbers| numbers.last() < Some(number));
        let mut until_here = before.max_by_key(|numbers| rank(numbers)).cloned().unwrap_or_default();
        until_here.push(*number);
        longest.push(until_here);
    }
    longest.into_iter().max_by_key(rank).unwrap_or_default().into_iter().collect()
}

/// The layout that must exist for an attachment's elements.
pub(super) fn layout_of(kind: Kind, rules: &NftablesRules) -> Layout {
    let mut layout = (kind.properties.nftables.layout)();
    layout.sets.push(Set::attachments());
    layout.extend(rules.layout.clone());
    layout
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::owner::tests::owner;
    use crate::ruleset::RECORDS_MAX;
    use crate::{Masquerade, Rules as _};

    #[test]
    fn the_maximum_number_of_records_can_be_added() {
        let address = |n: usize| format!("10.{}.{}.{}/8", n >> 16, n >> 8 & 0xff, n & 0xff).parse().unwrap();
        let rules = Masquerade { addresses: (1..RECORDS_MAX).map(address).collect() };
        let (socket, records) = (Connection::open().unwrap(), rules.nftables());
        let (owner, mut batch) = (owner("net", "c", "eth0"), Batch::new(None));
        Installation::new(&socket, &owner, rules.kind(), &records).add_elements_and_rules(&mut batch);
        assert!(!batch.is_empty());
    }
}
