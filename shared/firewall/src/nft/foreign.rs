//! What iptables-nft or the reference's nftables backends installed, removed over netlink: no process is
//! started.

use std::net::IpAddr;

use netlink::{RequestError, Socket};

use super::batch::Batch;
use super::decode::{is_for_udp, jump};
use super::query;
use super::retry::{Attempt, plain};
use crate::conntrack::Targets;
use crate::iptables::chains::{self, is_own};
use crate::iptables::script::SHARED;
use crate::kind::{InIptables, Kind, Shared};
use crate::ordered::Names;
use crate::reference::names::is_any_chain;
use crate::ruleset::Table;
use crate::ruleset::uapi::*;
use crate::selector::Selector;

/// What iptables-nft and ip6tables-nft call a table.
pub(super) fn tables(name: &'static str) -> [Table; 2] {
    [Table::new(NFPROTO_IPV4, name), Table::new(NFPROTO_IPV6, name)]
}

/// Whether iptables-nft has an attachment's chain, in either family.
pub(super) fn has_chain(socket: &Socket, facts: &InIptables, chain: &str) -> Result<bool, RequestError> {
    let [v4, v6] = tables(facts.table);
    Ok(query::has_chain(socket, v4, chain)? || query::has_chain(socket, v6, chain)?)
}

/// What is there of foreign rules, beside those that lead packets to it.
#[derive(Debug, Default)]
pub(super) struct Foreign {
    chains: Vec<(Table, String)>,
    /// Rules that attachments shared, of which none is left.
    shared: Vec<(Table, &'static str, u64)>,
    /// Where UDP flows are led to by them.
    pub(super) targets: Targets,
    /// Whether anything was deleted.
    pub(super) was_there: bool,
}

/// Whose foreign rules of a kind are removed.
#[derive(Clone, Copy)]
pub(super) struct Wanted<'a> {
    pub(super) selector: &'a Selector<'a>,
    pub(super) kind: Kind,
    /// What an earlier transaction has left.
    pub(super) known: &'a Foreign,
}

/// Removes foreign rules in one transaction; nothing is written if there is nothing. Chains that packets
/// went through stay if `stay` says so, and nothing leads there any more.
pub(super) fn remove(
    socket: &Socket,
    wanted: Wanted<'_>,
    stay: impl Fn(&Foreign) -> bool,
) -> Attempt<Foreign> {
    let mut batch = Batch::new(Some(query::generation(socket).map_err(plain)?));
    let mut foreign = put_removal(socket, wanted, &mut batch).map_err(plain)?;
    if !stay(&foreign) {
        foreign.shared.iter().for_each(|(table, chain, handle)| batch.delete_rule(*table, chain, *handle));
        foreign.chains.iter().for_each(|(table, chain)| batch.delete_chain(*table, chain));
    }
    foreign.was_there = !batch.is_empty();
    if foreign.was_there {
        batch.commit(socket)?;
    }
    Ok(foreign)
}

fn put_removal(socket: &Socket, wanted: Wanted<'_>, batch: &mut Batch) -> Result<Foreign, RequestError> {
    let (mut foreign, reference) = (Foreign::default(), &wanted.kind.facts.reference);
    for (table, chain) in reference.rules {
        for rule in query::rules(socket, *table, chain)? {
            if (reference.has_rule)(wanted.selector, &rule.comment) {
                batch.delete_rule(*table, chain, rule.handle);
            }
        }
    }
    foreign.targets.are_unnamed = !batch.is_empty();
    for (table, chain) in (reference.chains)(wanted.selector) {
        foreign.take(socket, table, &chain)?;
    }
    if let Some(facts) = wanted.kind.iptables() {
        for table in tables(facts.table) {
            put_chains(socket, (table, facts), wanted, (&mut foreign, batch))?;
        }
    }
    Ok(foreign)
}

/// Attachments' chains of iptables-nft, and the rules that jump there.
fn put_chains(
    socket: &Socket,
    (table, facts): (Table, &InIptables),
    wanted: Wanted<'_>,
    (foreign, batch): (&mut Foreign, &mut Batch),
) -> Result<(), RequestError> {
    let Wanted { selector, kind, known } = wanted;
    // What attachments share may be somebody's again.
    let shared = facts.shared.as_ref().map(|shared| shared.chains).unwrap_or_default();
    let here = known.chains.iter().filter(|(of, chain)| *of == table && !shared.contains(&chain.as_str()));
    let mut chains: Names = here.map(|(_, chain)| chain.clone()).collect();
    for chain in chains::of(selector, kind) {
        if !chains.contains(&chain) && query::has_chain(socket, table, &chain)? {
            chains.add(&chain);
        }
    }
    if chains.is_empty() && !selector.is_for_many() {
        return Ok(());
    }
    let mut left = Names::default();
    let mut is_entry_used = false;
    for parent in facts.parents {
        for rule in query::rules(socket, table, parent)? {
            let Some(target) = jump(&rule) else { continue };
            if chains.contains(&target) || selector.has_jump(&rule.comment) {
                batch.delete_rule(table, parent, rule.handle);
                chains.add(&target);
            } else {
                left.add(&target);
                is_entry_used |= facts.shared.as_ref().is_some_and(|shared| shared.entry == *parent);
            }
        }
    }
    if facts.shared.is_some() && selector.is_for_many() {
        // To where nothing leads: whoever was killed before removed the rest.
        let own = query::chains(socket, table)?.into_iter().filter(|chain| is_own(kind, chain));
        own.filter(|chain| !left.contains(chain)).for_each(|chain| chains.add(&chain));
    }
    if let Some(shared) = &facts.shared
        && !is_entry_used
        && chains.iter().any(|chain| is_own(kind, chain))
    {
        foreign.take_shared(socket, table.family, shared)?;
        shared.chains.iter().for_each(|chain| chains.add(chain));
    }
    chains.iter().try_for_each(|chain| foreign.take(socket, table, chain))
}

impl Foreign {
    /// The rules that attachments shared, after the last one.
    fn take_shared(&mut self, socket: &Socket, family: u8, shared: &Shared) -> Result<(), RequestError> {
        for (table, chain) in shared.hooks {
            let table = Table::new(family, table);
            let rules = query::rules(socket, table, chain)?;
            let shared = rules.iter().filter(|rule| rule.comment.starts_with(SHARED));
            self.shared.extend(shared.map(|rule| (table, *chain, rule.handle)));
        }
        Ok(())
    }

    /// A chain, with all that is in it. Of our own, some rules name the container's address.
    fn take(&mut self, socket: &Socket, table: Table, chain: &str) -> Result<(), RequestError> {
        if query::has_chain(socket, table, chain)? {
            let rules = query::rules(socket, table, chain)?;
            let udp = rules.iter().filter(|rule| is_for_udp(rule));
            self.targets.addresses.extend(udp.filter_map(|rule| rule.comment.parse::<IpAddr>().ok()));
            self.targets.are_unnamed |= is_any_chain(chain);
            self.chains.push((table, chain.to_owned()));
        }
        Ok(())
    }
}
