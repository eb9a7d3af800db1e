//! The legacy variant of iptables. What the variant for nf_tables has is read and removed over netlink.

use std::fs;
use std::net::IpAddr;

use cni::{Failures, Result, ResultExt};
use netlink::{Family, xtables};

use super::chains;
use super::plan::{self, Plan};
use super::saved::Saved;
use super::tools::{Tools, lock, retry};
use crate::conntrack::Flush;
use crate::kind::{InIptables, Kind, Rules};
use crate::listing::Hook;
use crate::reference::chains::are_there;
use crate::selector::Selector;

/// Removes what is somebody's from a table, if the namespace has it.
///
/// # Errors
/// What the tool says; the other family's rules are removed.
pub(crate) fn remove(selector: &Selector<'_>, kind: Kind, flush: Flush<'_>) -> Result<()> {
    let Some(facts) = kind.iptables() else { return Ok(()) };
    let mut failures = Failures::new();
    for family in Family::ALL {
        if !may_have_rules(family, facts.table, selector, kind) {
            continue;
        }
        let Ok(tools) = Tools::find_legacy(family) else {
            warn_without_tools(family);
            continue;
        };
        let removed = remove_by(&tools, selector, (kind, facts), flush);
        failures.note(removed.context(|| "remove the rules of iptables-legacy"));
    }
    failures.into_result()
}

/// Removes the rules of the reference's that accept packets of addresses.
///
/// # Errors
/// What the tool says; the other family's rules are removed.
pub(crate) fn remove_accepts(hook: Hook, addresses: &[IpAddr]) -> Result<()> {
    let mut failures = Failures::new();
    for family in Family::ALL {
        if !has_chain(family, hook) {
            continue;
        }
        let Ok(tools) = Tools::find_legacy(family) else {
            warn_without_tools(family);
            continue;
        };
        let _lock = lock()?;
        let removed = retry(|| {
            let saved = tools.save(&[hook.0])?;
            let Ok(rules) = plan::accepts(&Saved::read(&saved), hook, addresses);
            let lines: String = rules.iter().map(|rule| format!("{rule}\n")).collect();
            if lines.is_empty() { Ok(()) } else { tools.restore(&format!("*{}\n{lines}COMMIT\n", hook.0)) }
        });
        failures.note(removed.context(|| "remove the rules of iptables-legacy"));
    }
    failures.into_result()
}

/// Whether a table has a chain of a user's in this namespace. No program is started to know.
fn has_chain(family: Family, (table, chain): Hook) -> bool {
    has_table(family, table)
        && xtables::user_chains(family, table)
            .map_or(true, |chains| chains.iter().any(|found| found == chain))
}

/// Whether the reference's rules of an attachment are there.
pub(crate) fn has_reference(selector: &Selector<'_>, rules: &dyn Rules) -> Result<bool> {
    let kind = rules.kind();
    let Some(InIptables { table, .. }) = kind.iptables() else { return Ok(false) };
    let may_accept = |family| kind.facts.reference.accepts.is_some_and(|hook| has_chain(family, hook));
    let may_be_there = |family| may_accept(family) || may_have_rules(family, table, selector, kind);
    if !Family::ALL.into_iter().any(may_be_there) {
        return Ok(false);
    }
    let save = |family| {
        let tools = Tools::find_legacy(family)?;
        if has_table(family, table) { tools.save(&[table]) } else { Ok(String::new()) }
    };
    let saved = [save(Family::V4)?, save(Family::V6)?];
    let Ok(are_there) = are_there(selector, rules, saved.each_ref().map(|saved| Saved::read(saved)));
    Ok(are_there)
}

/// Whether a table has rules of somebody in this namespace. No program is started to know.
fn may_have_rules(family: Family, table: &str, selector: &Selector<'_>, kind: Kind) -> bool {
    if !has_table(family, table) {
        return false;
    }
    let may_be_theirs = chains::may_be_of(selector, kind);
    // What the kernel does not tell, the tool may.
    xtables::user_chains(family, table).map_or(true, |chains| chains.iter().any(|chain| may_be_theirs(chain)))
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

fn remove_by(
    tools: &Tools,
    selector: &Selector<'_>,
    (kind, facts): (Kind, &InIptables),
    flush: Flush<'_>,
) -> Result<()> {
    let _lock = lock()?;
    retry(|| {
        let mut saved = tools.save(&[facts.table])?;
        if let Some(shared) = facts.shared.as_ref().filter(|shared| saved.contains(shared.entry)) {
            saved += &tools.save(&shared.tables_beside(facts.table))?;
        }
        let Ok(plan) = Plan::of(&Saved::read(&saved), selector, (kind, facts), []);
        apply(tools, &plan, flush)
    })
}

/// UDP flows are flushed when no packet can begin one again, but before the chains go that tell whose they are.
fn apply(tools: &Tools, plan: &Plan<Saved<'_>>, flush: Flush<'_>) -> Result<()> {
    if plan.is_empty() {
        return Ok(());
    }
    if plan.targets.is_empty() {
        return tools.restore(&plan.whole());
    }
    tools.restore(&plan.cut())?;
    flush(&plan.targets);
    tools.restore(&plan.rest())
}
