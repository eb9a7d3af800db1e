//! What iptables-nft or the reference's nftables backends installed, removed over netlink: no process is
//! started.

use std::net::IpAddr;

use netlink::{RequestError, Socket};

use super::batch::Batch;
use super::connection::Connection;
use super::query;
use super::retry::{Attempt, plain};
use super::tables::IptablesNft;
use crate::conntrack::Targets;
use crate::iptables::plan::{self, Plan};
use crate::kind::Kind;
use crate::listing::Hook;
use crate::ruleset::Table;
use crate::selector::Selector;

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
    socket: &Connection,
    wanted: Wanted<'_>,
    stay: impl Fn(&Foreign) -> bool,
) -> Attempt<Foreign> {
    let mut batch = Batch::new(Some(socket.generation().map_err(plain)?));
    let mut foreign = put_removal(socket, wanted, &mut batch).map_err(plain)?;
    if !stay(&foreign) {
        foreign.shared.iter().for_each(|(table, chain, handle)| batch.delete_rule(*table, chain, *handle));
        foreign.chains.iter().for_each(|(table, chain)| batch.delete_chain(*table, chain));
    }
    foreign.was_there = !batch.is_empty();
    if foreign.was_there {
        batch.commit_on(socket, &tables_of(wanted))?;
    }
    Ok(foreign)
}

/// Removes the rules by which the reference accepts packets of addresses, in one transaction. Whether there were any.
pub(super) fn remove_accepts(socket: &Connection, hook: Hook, addresses: &[IpAddr]) -> Attempt<bool> {
    let mut batch = Batch::new(Some(socket.generation().map_err(plain)?));
    for family in IptablesNft::all(socket) {
        for handle in plan::accepts(&family, hook, addresses).map_err(plain)? {
            batch.delete_rule(family.table(hook.0), hook.1, handle);
        }
    }
    if batch.is_empty() {
        return Ok(false);
    }
    batch.commit_on(socket, &[hook.0])?;
    Ok(true)
}

/// The names of the tables that are looked into.
fn tables_of(wanted: Wanted<'_>) -> Vec<&'static str> {
    let (reference, iptables) = (&wanted.kind.facts.reference, wanted.kind.iptables());
    let of_reference = reference.rules.iter().map(|(table, _)| table.name);
    let chains = (reference.chains)(wanted.selector).into_iter().map(|(table, _)| table.name);
    let hooks = iptables.and_then(|facts| facts.shared.as_ref()).map(|shared| shared.hooks);
    let hooks = hooks.into_iter().flatten().map(|(table, _)| *table);
    of_reference.chain(chains).chain(iptables.map(|facts| facts.table)).chain(hooks).collect()
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
        if query::has_chain(socket, table, &chain)? {
            foreign.chains.push((table, chain));
        }
    }
    let Some(facts) = wanted.kind.iptables() else { return Ok(foreign) };
    // What attachments share may be somebody's again.
    let shared = facts.shared.as_ref().map(|shared| shared.chains).unwrap_or_default();
    for family in IptablesNft::all(socket) {
        let table = family.table(facts.table);
        let known = wanted.known.chains.iter().filter(|(of, _)| *of == table).map(|(_, chain)| chain);
        let known = known.filter(|chain| !shared.contains(&chain.as_str())).cloned();
        let plan = Plan::of(&family, wanted.selector, (wanted.kind, facts), known)?;
        plan.jumps.iter().for_each(|(chain, handle)| batch.delete_rule(table, chain, *handle));
        let shared = plan.shared.into_iter();
        foreign.shared.extend(shared.map(|((table, chain), handle)| (family.table(table), chain, handle)));
        foreign.chains.extend(plan.chains.into_iter().map(|chain| (table, chain)));
        foreign.targets.addresses.extend(plan.targets.addresses);
        foreign.targets.are_unnamed |= plan.targets.are_unnamed;
    }
    Ok(foreign)
}
