//! The legacy variant of iptables. Rules of the nf_tables variant are listed and removed over netlink.

use std::fs;
use std::io::ErrorKind;

use cni::{Error, Failures, Result, ResultExt};
use netlink::{Family, RequestError, xtables};

use super::saved::Saved;
use super::tools::{Tools, lock, retry};
use crate::conntrack::Flush;
use crate::kind::{Kind, Rules};
use crate::listing::TableChain;
use crate::owner::Owner;
use crate::plan::Query;
use crate::plan::chains;
use crate::reference::names::is_any_chain;

/// Removes rules from the namespace's legacy tables.
///
/// # Errors
/// The tool's error. The rules of the other family are removed nevertheless.
pub(crate) fn remove(query: Query<'_>, flush: Flush<'_>) -> Result<()> {
    let mut failures = Failures::new();
    for family in Family::ALL {
        if failures.note(may_have_rules(family, query)) != Some(true) {
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

/// Whether a table may have any of the reference's rules.
///
/// # Errors
/// Code 5 if the names of the tables cannot be read.
pub(crate) fn has_any_of_reference(kind: Kind) -> Result<bool> {
    let table = kind.properties.reference.table;
    Ok(has_chains(Family::V4, table, is_any_chain)? || has_chains(Family::V6, table, is_any_chain)?)
}

/// Whether a table has the reference's rules of an attachment.
pub(crate) fn has_reference(owner: &Owner, rules: &dyn Rules) -> Result<bool> {
    let (kind, Some(rules)) = (rules.kind(), rules.reference()) else { return Ok(false) };
    if !has_any_of_reference(kind)? {
        return Ok(false);
    }
    let table = kind.properties.reference.table;
    for family in Family::ALL {
        let tools = Tools::find_legacy(family)?;
        let saved = if has_table(family, table)? { tools.save(&[table])? } else { String::new() };
        if !rules.are_in_iptables(&Saved::read(&saved), family, owner).map_err(unlisted)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether a table of this namespace has a user-defined chain. Starts no program.
///
/// # Errors
/// Code 5 if the names of the tables cannot be read.
pub(super) fn has_chain(family: Family, (table, chain): TableChain) -> Result<bool> {
    has_chains(family, table, |found| found == chain)
}

/// Whether a table of this namespace may have rules of another attachment of a container. Starts no program.
pub(crate) fn may_have_sibling(family: Family, table: &str, owner: &Owner) -> bool {
    let label = format!("/{}/", owner.container_label());
    match has_table(family, table) {
        Ok(false) => false,
        Ok(true) => {
            xtables::Table::read(family, table).map_or(true, |table| table.contains(label.as_bytes()))
        }
        // The look itself would create the table.
        Err(_) => true,
    }
}

/// Whether this namespace has rules of a kind of other attachments. False if the kernel does not report it. Starts no program.
pub(crate) fn has_others(family: Family, owner: &Owner, kind: Kind) -> Result<bool> {
    let Some(table) = kind.iptables().map(|properties| properties.table) else { return Ok(false) };
    let own = chains::chain(owner, kind);
    let is_others = |chain: &String| chains::is_own(kind, chain) && Some(chain) != own.as_ref();
    Ok(has_table(family, table)?
        && user_chains(family, table).is_ok_and(|chains| chains.iter().any(is_others)))
}

/// Whether a table of this namespace may have the rules. Starts no program.
fn may_have_rules(family: Family, Query { selector, kind, addresses }: Query<'_>) -> Result<bool> {
    let accepts =
        kind.properties.reference.accepts.filter(|_| !addresses.is_empty() && !selector.is_for_many());
    if let Some(hook) = accepts
        && has_chain(family, hook)?
    {
        return Ok(true);
    }
    let Some(properties) = kind.iptables() else { return Ok(false) };
    has_chains(family, properties.table, chains::may_be_of(selector, kind))
}

/// If the kernel does not report it, the tool may.
fn has_chains(family: Family, table: &str, is_meant: impl Fn(&str) -> bool) -> Result<bool> {
    Ok(has_table(family, table)?
        && user_chains(family, table).map_or(true, |chains| chains.iter().any(|chain| is_meant(chain))))
}

fn user_chains(family: Family, table: &str) -> Result<Vec<String>, RequestError> {
    xtables::Table::read(family, table)?.user_chains()
}

/// Whether the namespace has a table. The kernel creates a table at its first use.
///
/// # Errors
/// Code 5 if the names of the tables cannot be read.
pub(crate) fn has_table(family: Family, table: &str) -> Result<bool> {
    let names = family.choose("ip_tables_names", "ip6_tables_names");
    let path = format!("/proc/thread-self/net/{names}");
    match fs::read_to_string(&path) {
        Ok(names) => Ok(names.lines().any(|name| name == table)),
        // Without the legacy variant in the kernel, the file does not exist. If a rootless engine created the network namespace before its
        // user namespace had users, the file belongs to the host's root.
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied) => Ok(false),
        Err(e) => Err(Error::io(format!("read {path}"), &e)),
    }
}

/// The tools existed when the rules were installed, and the rules can be removed when they exist again. Meanwhile, DEL
/// succeeds with a warning.
fn warn_without_tools(family: Family) {
    let tool = family.choose("iptables", "ip6tables");
    cni::warn(&format!(
        "there may be rules of {tool}-legacy, but the tools of {tool}-legacy are not installed, so they cannot be \
         removed: install the package iptables, and run `cnitool gc --all`"
    ));
}

/// The error for an unreadable listing.
pub(super) fn unlisted(refusal: RequestError) -> Error {
    refusal.during("read", "the rules of iptables").into()
}

/// UDP flows are flushed when no packet can start one again, but before the chains that contain the containers'
/// addresses are deleted.
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

/// Lists the kind's table, and the tables with its shared rules.
fn save(tools: &Tools, query: Query<'_>) -> Result<String> {
    let Some(properties) = query.kind.iptables() else { return Ok(String::new()) };
    let mut saved = tools.save(&[properties.table])?;
    if let Some(shared) = properties.shared.as_ref().filter(|shared| saved.contains(shared.entry)) {
        saved += &tools.save(&shared.tables_other_than(properties.table))?;
    }
    Ok(saved)
}
