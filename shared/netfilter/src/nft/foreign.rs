//! Removes rules of iptables-nft or of the reference's nftables backends over netlink, without starting a process.

use netlink::{Family, RequestError};

use super::batch::Batch;
use super::connection::Connection;
use super::retry::{Attempt, plain};
use super::tables::Tables;
use crate::listing::Listing;
use crate::plan::{Plan, Query};
use crate::ruleset::Table;

/// Removes such rules in one transaction. Writes nothing if there are none. `known` is what an earlier transaction has
/// left: with `stay`, the chains stay, but no rule jumps to them any more.
pub(super) fn remove(
    socket: &Connection,
    query: Query<'_>,
    known: &Plan,
    stay: impl Fn(&Plan) -> bool,
) -> Attempt<Plan> {
    let mut batch = Batch::new(Some(socket.generation().map_err(plain)?));
    let plan = plan(&Tables(socket), query, known).map_err(plain)?;
    plan.jumps.iter().for_each(|rule| batch.delete_rule(rule.table, &rule.chain, rule.handle));
    if !stay(&plan) {
        batch.edit(&plan.rest);
    }
    if !batch.is_empty() {
        batch.commit_on(socket, &tables_of(query))?;
    }
    Ok(plan)
}

/// The names of the tables to read.
fn tables_of(query: Query<'_>) -> Vec<&'static str> {
    let (reference, iptables) = (&query.kind.properties.reference, query.kind.iptables());
    let of_reference = reference.rules.iter().map(|(table, _)| table.name);
    let chains = (reference.chains)(query.selector).into_iter().map(|(table, _)| table.name);
    let accepts = reference.accepts.map(|(table, _)| table);
    let hooks = iptables.and_then(|properties| properties.shared.as_ref()).map(|shared| shared.hooks);
    let hooks = hooks.into_iter().flatten().map(|(table, _)| *table);
    of_reference
        .chain(chains)
        .chain(accepts)
        .chain(iptables.map(|properties| properties.table))
        .chain(hooks)
        .collect()
}

fn plan(tables: &Tables<'_>, query: Query<'_>, known: &Plan) -> Result<Plan, RequestError> {
    let (mut plan, reference) = (Plan::default(), &query.kind.properties.reference);
    for (table, chain) in reference.rules {
        let rules = tables.rules(*table, chain)?.into_iter();
        let theirs = rules.filter(|rule| (reference.has_rule)(query.selector, &rule.comment));
        plan.jumps.extend(theirs.map(|rule| rule.location));
    }
    plan.targets.has_rules_without_addresses = !plan.jumps.is_empty();
    for (table, chain) in (reference.chains)(query.selector) {
        if tables.has_chain(table, &chain)? {
            plan.rest.old_chains.push((table, chain));
        }
    }
    for family in Family::ALL {
        plan.extend(query.plan(tables, family, known_chains(query, family, known))?);
    }
    Ok(plan)
}

/// The attachments' chains that an earlier transaction has left. Shared chains may be in use again.
fn known_chains(query: Query<'_>, family: Family, known: &Plan) -> Vec<String> {
    let Some(properties) = query.kind.iptables() else { return Vec::new() };
    let shared = properties.shared.as_ref().map(|shared| shared.chains).unwrap_or_default();
    let table = Table::of_iptables(family, properties.table);
    let chains = known.rest.old_chains.iter().filter(|(of, _)| *of == table).map(|(_, chain)| chain);
    chains.filter(|chain| !shared.contains(&chain.as_str())).cloned().collect()
}
