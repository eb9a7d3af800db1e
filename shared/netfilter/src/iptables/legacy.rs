//! The legacy variant of iptables. What the variant for nf_tables has is read and removed over netlink.

use std::fs;

use cni::{Error, Failures, Result, ResultExt};
use netlink::{Family, RequestError, xtables};

use super::saved::Saved;
use super::tools::{Tools, lock, retry};
use crate::conntrack::Flush;
use crate::kind::{Kind, Rules};
use crate::listing::Hook;
use crate::owner::Owner;
use crate::plan::Query;
use crate::plan::chains;
use crate::reference::names::is_any_chain;

/// Removes what is somebody's from the tables that the namespace has.
///
/// # Errors
/// What the tool says; the other family's rules are removed.
pub(crate) fn remove(query: Query<'_>, flush: Flush<'_>) -> Result<()> {
    let mut failures = Failures::new();
    for family in Family::ALL {
        if !may_have_rules(family, query) {
            continue;
        }
        let Ok(tools) = Tools::find_legacy(family) else {
            warn_without_tools(family);
            continue;
        };
        let removed = remove_by(&tools, family, query, flush);
        failures.note(removed.context(|| "remove the rules of iptables-legacy"));
    }
    failures.into_result()
}

/// Whether a table may have rules of the reference, of any attachment.
pub(crate) fn has_any_of_reference(kind: Kind) -> bool {
    Family::ALL.into_iter().any(|family| has_chains(family, kind.properties.reference.table, is_any_chain))
}

/// Whether the reference's rules of an attachment are in one of its tables.
pub(crate) fn has_reference(owner: &Owner, rules: &dyn Rules) -> Result<bool> {
    let (kind, Some(rules)) = (rules.kind(), rules.reference()) else { return Ok(false) };
    if !has_any_of_reference(kind) {
        return Ok(false);
    }
    let table = kind.properties.reference.table;
    for family in Family::ALL {
        let tools = Tools::find_legacy(family)?;
        let saved = if has_table(family, table) { tools.save(&[table])? } else { String::new() };
        if !rules.are_in_iptables(&Saved::read(&saved), family, owner).map_err(unlisted)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether a table has a chain of a user's in this namespace. No program is started to know.
pub(super) fn has_chain(family: Family, (table, chain): Hook) -> bool {
    has_chains(family, table, |found| found == chain)
}

/// Whether a table has rules of somebody in this namespace. No program is started to know.
fn may_have_rules(family: Family, Query { selector, kind, addresses }: Query<'_>) -> bool {
    let accepts =
        kind.properties.reference.accepts.filter(|_| !addresses.is_empty() && !selector.is_for_many());
    accepts.is_some_and(|hook| has_chain(family, hook))
        || kind
            .iptables()
            .is_some_and(|properties| has_chains(family, properties.table, chains::may_be_of(selector, kind)))
}

/// What the kernel does not tell, the tool may.
fn has_chains(family: Family, table: &str, is_meant: impl Fn(&str) -> bool) -> bool {
    has_table(family, table)
        && xtables::user_chains(family, table)
            .map_or(true, |chains| chains.iter().any(|chain| is_meant(chain)))
}

/// Whether a table is there in this namespace: the kernel makes it with its first use.
pub(crate) fn has_table(family: Family, table: &str) -> bool {
    let names = family.choose("ip_tables_names", "ip6_tables_names");
    // There is no such file where the kernel does not have the legacy variant.
    let names = fs::read_to_string(format!("/proc/thread-self/net/{names}")).unwrap_or_default();
    names.lines().any(|name| name == table)
}

/// Whoever made the rules had the tools: they can be removed when these are back. The container must be able to go.
pub(super) fn warn_without_tools(family: Family) {
    let tool = family.choose("iptables", "ip6tables");
    cni::warn(&format!(
        "there may be rules of {tool}-legacy, but {tool} is not installed, so they cannot be removed: \
         install the package iptables, and have the runtime collect garbage (GC)"
    ));
}

/// That what a tool has listed cannot be read again.
pub(super) fn unlisted(refusal: RequestError) -> Error {
    refusal.during("read", "the rules of iptables").into()
}

/// UDP flows are flushed when no packet can begin one again, but before the chains go that tell whose they are.
fn remove_by(tools: &Tools, family: Family, query: Query<'_>, flush: Flush<'_>) -> Result<()> {
    let _lock = lock()?;
    retry(|| {
        let saved = save(tools, query)?;
        let saved = Saved::read(&saved);
        let plan = query.plan(&saved, family, []).map_err(unlisted)?;
        if plan.is_empty() {
            return Ok(());
        }
        if plan.targets.is_empty() {
            return tools.restore(&saved.script(&plan.whole()));
        }
        if !plan.jumps.is_empty() {
            tools.restore(&saved.deletion(&plan.jumps))?;
        }
        flush(&plan.targets);
        tools.restore(&saved.script(&plan.rest))
    })
}

/// The table of a kind, and those with rules that its attachments share.
fn save(tools: &Tools, query: Query<'_>) -> Result<String> {
    let Some(properties) = query.kind.iptables() else { return Ok(String::new()) };
    let mut saved = tools.save(&[properties.table])?;
    if let Some(shared) = properties.shared.as_ref().filter(|shared| saved.contains(shared.entry)) {
        saved += &tools.save(&shared.tables_beside(properties.table))?;
    }
    Ok(saved)
}
