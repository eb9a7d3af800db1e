//! Removes attachments' rules.

use std::collections::BTreeSet;

use cni::Result;
use netlink::{Family, Protocol, RequestError, Socket};

use super::batch::Batch;
use super::deletion::{delete_elements, unmapped_flows, unused_bits};
use super::foreign;
use super::installed::{Installed, RecordKey, unique};
use super::retry::{Attempt, plain, retry};
use super::tables::Tables;
use super::view::View;
use super::{Nft, query};
use crate::conntrack::{FlowTarget, Flush, Targets};
use crate::kind::Kind;
use crate::opening;
use crate::plan::{Plan, Query};
use crate::ruleset::{Layout, Set, Table};
use crate::selector::Selector;

impl Nft {
    /// Removes the selected rules of a kind in one transaction. If other programs change the ruleset too often for
    /// that, uses several. UDP and SCTP flows are flushed when no packet can start one again, but before the records are
    /// deleted: if the plugin is killed in between, the next one finds the records.
    ///
    /// # Errors
    /// The kernel's error. Without any rules, it succeeds.
    pub(crate) fn remove(&self, selector: &Selector<'_>, kind: Kind, flush: Flush<'_>) -> Result<()> {
        let mut limit = usize::MAX;
        loop {
            let (mut record_keys, mut more, mut targets) = (Vec::new(), false, Targets::default());
            retry(&self.socket, selector, "remove", |_| {
                let generation = self.socket.generation().map_err(plain)?;
                record_keys = self.find(selector, kind).map_err(plain)?;
                more = record_keys.len() > limit;
                record_keys.truncate(limit);
                // The limit for the next attempt, if this one is refused.
                limit = record_keys.len().div_ceil(2).max(1);
                let stale = self.read(kind, &record_keys).map_err(plain)?;
                // An earlier attempt may have succeeded although its answer was lost.
                targets.flows.extend(self.unmapped_flows(kind, &stale).map_err(plain)?);
                self.delete(kind, &stale, generation, targets.is_empty())
            })?;
            if !targets.is_empty() {
                flush(&targets);
                retry(&self.socket, selector, "remove", |_| {
                    let generation = self.socket.generation().map_err(plain)?;
                    let stale = self.read(kind, &record_keys).map_err(plain)?;
                    self.delete(kind, &stale, generation, true)
                })?;
            }
            if !more {
                return Ok(());
            }
        }
    }

    fn find(&self, selector: &Selector<'_>, kind: Kind) -> Result<Vec<RecordKey>, RequestError> {
        match selector {
            Selector::Of(owner) | Selector::Own(owner) => Ok(vec![RecordKey::of(owner, kind)]),
            Selector::Stale(stale) => RecordKey::find(&self.socket, kind, |label| stale.has(label)),
        }
    }

    fn read(&self, kind: Kind, record_keys: &[RecordKey]) -> Result<Vec<Installed>, RequestError> {
        let view = View::new(&self.socket, kind, record_keys.len());
        let mut found = Vec::new();
        for record_key in record_keys {
            let installed = Installed::read(&view, record_key.clone())?;
            found.extend((installed.recorded > 0).then_some(installed));
        }
        Ok(found)
    }

    fn unmapped_flows(&self, kind: Kind, stale: &[Installed]) -> Result<BTreeSet<FlowTarget>, RequestError> {
        let view = View::new(&self.socket, kind, stale.len()).with_partial_dumps(self.partial_dumps());
        unmapped_flows(&view, stale)
    }

    /// One transaction that deletes what attachments still have, with or without their records. It also deletes the
    /// table if nothing of other programs is in it.
    fn delete(&self, kind: Kind, stale: &[Installed], generation: u32, records: bool) -> Attempt {
        if stale.is_empty() {
            return Ok(());
        }
        let (mut batch, table) = (Batch::new(Some(generation)), kind.table());
        let view = View::new(&self.socket, kind, stale.len()).with_partial_dumps(self.partial_dumps());
        let unused = unused_bits(&view, stale).map_err(plain)?;
        let mut gone = delete_elements(&view, stale, |_| false, &mut batch).map_err(plain)?;
        if records {
            stale.iter().for_each(|found| found.delete_records(table, &mut batch));
            gone += stale.iter().map(|found| found.recorded).sum::<usize>();
            let labels = stale.iter().map(|found| found.record_key.label.as_str()).collect();
            if !view.has_others.get()
                && self.count_up_to(table, gone + 1).map_err(plain)? == gone
                && self.has_only_ours(kind, &labels).map_err(plain)?
                && self.has_only_elements_of(table, stale, &labels).map_err(plain)?
            {
                batch = Batch::new(Some(generation));
                batch.delete_table(table);
            }
        }
        if let Some(way) = kind.properties.nftables.opens {
            for family in Family::ALL {
                let tables = Tables(&self.socket);
                batch.edit(&opening::close_bits(&tables, family, way, &unused).map_err(plain)?);
            }
        }
        self.has_deleted.set(true);
        let tables: &[&str] = if unused.is_empty() { &[table.name] } else { &[table.name, opening::TABLE] };
        if batch.is_empty() { Ok(()) } else { batch.commit_on(&self.socket, tables) }
    }

    /// Whether all elements are those of stale attachments. Attachments have elements without records if another program has
    /// deleted the records.
    fn has_only_elements_of(
        &self,
        table: Table,
        stale: &[Installed],
        labels: &BTreeSet<&str>,
    ) -> Result<bool, RequestError> {
        let elements = unique(stale.iter().flat_map(|found| &found.records));
        for set in query::sets(&self.socket, table)? {
            let mut has_others = false;
            query::visit(self.partial_dumps(), table, &set, |key, comment| {
                let is_deleted = || elements.iter().any(|one| one.set.name == set && one.key == key);
                has_others = set != Set::attachments().name && !labels.contains(comment) && !is_deleted();
                has_others
            })?;
            if has_others {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The number of records. Stops reading at `enough` records. The unread replies need a separate socket, which is
    /// kept, because closing a socket waits for all pending deletions.
    fn count_up_to(&self, table: Table, enough: usize) -> Result<usize, RequestError> {
        query::count_up_to(self.partial_dumps(), table, &Set::attachments().name, enough)
    }

    pub(super) fn partial_dumps(&self) -> &Socket {
        if self.partial_dumps.get().is_none() {
            // A removal must not fail because descriptors have run out. Without a second socket, all records are read.
            if let Ok(socket) = Socket::open(Protocol::Netfilter) {
                self.partial_dumps.set(socket).ok();
            }
        }
        self.partial_dumps.get().unwrap_or(&self.socket)
    }

    /// Removes rules of iptables-nft or of the reference. UDP and SCTP flows are flushed as by [`Nft::remove`].
    pub(crate) fn remove_foreign(&self, query: Query<'_>, flush: Flush<'_>) -> Result<()> {
        let has_flows = |plan: &Plan| query.kind.properties.maps_host_ports && !plan.targets.is_empty();
        let first = self.remove_planned(query, &Plan::default(), has_flows)?;
        if has_flows(&first) {
            flush(&first.targets);
            self.remove_planned(query, &first, |_| false)?;
        }
        Ok(())
    }

    fn remove_planned(&self, query: Query<'_>, known: &Plan, stay: impl Fn(&Plan) -> bool) -> Result<Plan> {
        let mut plan = Plan::default();
        retry(&self.socket, "other backends and containernetworking/plugins", "remove", |_| {
            plan = foreign::remove(&self.socket, query, known, &stay)?;
            self.has_deleted.set(self.has_deleted.get() || !plan.is_empty());
            Ok(())
        })?;
        Ok(plan)
    }

    /// Whether all chains and rules in a kind's table are Ferrule's: shared ones, and those with these labels.
    pub(super) fn has_only_ours(&self, kind: Kind, labels: &BTreeSet<&str>) -> Result<bool, RequestError> {
        let table = kind.table();
        let kinds = Kind::ALL.into_iter().filter(|other| other.table() == table).chain([kind]);
        let kinds: Vec<(Kind, Layout)> =
            kinds.map(|kind| (kind, (kind.properties.nftables.layout)())).collect();
        for name in query::chains(&self.socket, table)? {
            let is_here = |layout: &Layout| layout.chains.iter().any(|chain| chain.name == name);
            let here: Vec<_> = kinds.iter().filter(|(_, layout)| is_here(layout)).collect();
            let is_ours = |comment: &str| {
                labels.contains(comment)
                    || here.iter().any(|(kind, layout)| {
                        layout.rules.iter().any(|rule| rule.comment == comment)
                            || kind
                                .properties
                                .nftables
                                .comments
                                .iter()
                                .any(|start| comment.starts_with(start))
                    })
            };
            if here.is_empty()
                || !query::rules(&self.socket, table, &name)?.iter().all(|rule| is_ours(&rule.comment))
            {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
