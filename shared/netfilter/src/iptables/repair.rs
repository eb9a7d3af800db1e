//! Replacing the rules of one or many attachments, based on a listing of iptables-save(8).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use cni::{Result, ResultExt};
use netlink::Family;

use super::canonical::form;
use super::render::{OWN_CHANGE, in_table, put, put_at};
use super::saved::{self, Saved};
use super::script;
use super::tools::{Tools, is_hung, lock, retry};
use crate::kind::OwnedRules;
use crate::opening;
use crate::owner::are_of_one_container;
use crate::script::{Line, Place, Script, comment};

/// Prefix of Ferrule's own chains.
const OWN_CHAINS: &str = "FERRULE-";

/// Checks whether the rules of attachments are as they were installed, with one listing for each family.
///
/// # Errors
/// The tool's error.
pub(crate) fn are_installed(all: &[OwnedRules<'_>]) -> Result<Vec<bool>> {
    let mut installed = vec![true; all.len()];
    for family in Family::ALL {
        let scripts = scripts(all, family);
        if scripts.is_empty() {
            continue;
        }
        let tools = Tools::find(family, "")?;
        let text = list(&tools, scripts.iter().map(|(_, script)| script))?;
        let (saved, mut shared) = (Saved::read(&text), BTreeMap::new());
        for (of, script) in &scripts {
            let mut is_shared_here = |line: &Line| {
                let key = (line.table, line.chain.clone(), line.words.clone());
                *shared.entry(key).or_insert_with(|| is_listed(line, &saved) || exists(line, &tools))
            };
            // The tool checks shared rules only if the attachment has rules here.
            installed[*of] &=
                is_own_installed(script, &saved, &tools) && script.shared.iter().all(&mut is_shared_here);
        }
    }
    Ok(installed)
}

/// Installs the rules of attachments, oldest first, replacing their existing ones. Returns a result for each.
pub(crate) fn install(all: &[OwnedRules<'_>]) -> Vec<Result<()>> {
    let mut outcomes: Vec<Result<()>> = all.iter().map(|_| Ok(())).collect();
    for family in Family::ALL {
        let scripts = scripts(all, family);
        if let Err(e) = install_family(family, &scripts) {
            for (of, script) in &scripts {
                let one = if is_hung(&e) {
                    Err(e.clone())
                } else {
                    install_family(family, &[(*of, script.clone())])
                };
                if let (Err(e), Ok(())) = (one, &outcomes[*of]) {
                    outcomes[*of] =
                        Err(e).context(|| format!("install the iptables rules of {}", all[*of].0));
                }
            }
        }
    }
    outcomes
}

fn install_family(family: Family, scripts: &[(usize, Script)]) -> Result<()> {
    if scripts.is_empty() {
        return Ok(());
    }
    let tools = Tools::find(family, "")?;
    let _lock = lock()?;
    let scripts: Vec<&Script> = scripts.iter().map(|(_, script)| script).collect();
    replace(&tools, &scripts)
}

/// Lists the rules, and applies the differences. The caller holds the lock, so that no other plugin does the same.
///
/// # Errors
/// The tool's error.
pub(super) fn replace(tools: &Tools, scripts: &[&Script]) -> Result<()> {
    retry(|| {
        let text = list(tools, scripts.iter().copied())?;
        tools.restore(&replacement(scripts, &Saved::read(&text)))
    })
}

/// The scripts of the attachments with rules of a family, each with the attachment's index.
fn scripts(all: &[OwnedRules<'_>], family: Family) -> Vec<(usize, Script)> {
    let scripts = all.iter().enumerate();
    let script = |(owner, rules): &OwnedRules<'_>| script(owner, rules.kind(), rules.iptables()?, family);
    scripts.filter_map(|(of, pair)| Some((of, script(pair)?))).collect()
}

/// The first shared rule that exists with another content.
///
/// # Errors
/// The tool's error.
pub(super) fn first_changed(tools: &Tools, script: &Script) -> Result<Option<String>> {
    let text = list(tools, std::iter::once(script))?;
    let saved = Saved::read(&text);
    let is_changed = |line: &&Line| {
        let (same, changed) = named_alike(line, &saved);
        same.is_empty() && !changed.is_empty() && !exists(line, tools)
    };
    let first = script.shared.iter().find(is_changed);
    let name = |line: &Line| format!("the rule \"{}\" of chain {}", saved::comment(&line.words), line.chain);
    Ok(first.map(name))
}

/// Lists the tables of these scripts.
fn list<'a>(tools: &Tools, scripts: impl Iterator<Item = &'a Script>) -> Result<String> {
    let tables: BTreeSet<&str> = scripts.flat_map(Script::tables).collect();
    tools.save(&Vec::from_iter(tables))
}

/// Whether a rule is listed, in any form that the tool writes.
fn is_listed(line: &Line, saved: &Saved<'_>) -> bool {
    let expected = form(&line.words);
    saved.rules_of(line.table, &line.chain).any(|rule| form(words(rule)) == expected)
}

/// Whether a rule exists according to the tool, which knows all forms of a rule.
fn exists(line: &Line, tools: &Tools) -> bool {
    let mut text = format!("*{}\n", line.table);
    put(&mut text, "-C", line);
    tools.restore(&(text + "COMMIT\n")).is_ok()
}

/// Whether the attachment's own rules are as they were installed.
fn is_own_installed(script: &Script, saved: &Saved<'_>, tools: &Tools) -> bool {
    let jumps = saved.jumps_to(script.table, &script.chain);
    let found: Vec<&str> = saved.rules_of(script.table, &script.chain).chain(jumps).collect();
    // After a flush there are fewer rules. Then they need not be compared.
    if !saved.lists_chain(&script.chain) || found.len() != script.lines.len() {
        return false;
    }
    let found: BTreeSet<(&str, Vec<String>)> =
        found.into_iter().map(|rule| (saved::chain_of(rule), form(words(rule)))).collect();
    script.lines.iter().all(|line| found.contains(&(line.chain.as_str(), form(&line.words))))
        || tools.restore(&script.check()).is_ok()
}

/// A listed rule without its chain.
fn words(rule: &str) -> &str {
    rule.splitn(3, ' ').nth(2).unwrap_or_default()
}

/// Replaces the attachments' listed rules, and adds shared rules that are missing or were changed.
pub(super) fn replacement(scripts: &[&Script], saved: &Saved<'_>) -> String {
    let mut text = String::new();
    // Each table is a separate transaction. The one that may fail comes first, so that nothing has changed then.
    let own: BTreeSet<&str> = scripts.iter().map(|script| script.table).collect();
    let others: BTreeSet<&str> = scripts.iter().flat_map(|script| script.tables()).collect();
    for table in own.iter().chain(others.difference(&own)) {
        let (mut lines, mut chains, mut shared) = (String::new(), BTreeSet::new(), BTreeSet::new());
        let mut jumps = Jumps::default();
        for script in scripts.iter().filter(|script| script.table == *table) {
            put_chains(&mut lines, script, saved, &mut chains);
        }
        for script in scripts {
            for line in in_table(&script.shared, table) {
                if shared.insert((&line.chain, &line.words)) {
                    put_shared(&mut lines, line, saved);
                }
            }
            for line in in_table(&script.lines, table) {
                let position = (line.place == Place::First).then(|| jumps.insert(line, scripts, saved));
                match position.filter(|position| *position > 1) {
                    Some(position) => put_at(&mut lines, position, line),
                    None => put(&mut lines, line.verb(), line),
                }
            }
        }
        if !lines.is_empty() {
            let mark = if looks_like_loss(&lines, table, saved) { OWN_CHANGE } else { "" };
            let _ = write!(text, "*{table}\n{mark}{lines}COMMIT\n");
        }
    }
    text
}

/// The comments of the rules of chains in which the newest attachment's jump is the first, while jumps are inserted.
#[derive(Default)]
struct Jumps(BTreeMap<String, Vec<String>>);

impl Jumps {
    /// The position of an inserted jump, from 1: behind those of the container's other attachments, which keep their host
    /// ports. The jumps of all `scripts` were deleted.
    fn insert(&mut self, line: &Line, scripts: &[&Script], saved: &Saved<'_>) -> usize {
        let is_kept = |rule: &&str| !scripts.iter().any(|script| script.chain == saved::target(rule));
        let listed = || saved.rules_of(line.table, &line.chain).filter(is_kept).map(saved::comment).collect();
        let labels = self.0.entry(line.chain.clone()).or_insert_with(listed);
        let label = saved::comment(&line.words);
        let sibling = labels.iter().rposition(|other| are_of_one_container(other, &label));
        let position = sibling.map_or(0, |sibling| sibling + 1);
        labels.insert(position, label);
        position + 1
    }
}

/// Whether the events of a transaction look as if another program had removed rules: see [`crate::RulesetMonitor`]. Marking a
/// change as Ferrule's needs a deletion, and closing a socket after a deletion waits for a grace period. So a
/// transaction that only adds is not marked.
fn looks_like_loss(lines: &str, table: &str, saved: &Saved<'_>) -> bool {
    let deletes = lines.lines().any(|line| line.starts_with("-D ") || line.starts_with("-F "));
    deletes || table == opening::TABLE && !saved.lists_chain(opening::HOOK)
}

/// Creates the missing chains, and empties the attachment's own.
fn put_chains<'a>(text: &mut String, script: &'a Script, saved: &Saved<'_>, created: &mut BTreeSet<&'a str>) {
    for rule in saved.jumps_to(script.table, &script.chain) {
        text.extend([&saved::deletion(rule), "\n"]);
    }
    for chain in script.shared_chains.iter().filter(|chain| !saved.lists_chain(chain)) {
        if !created.insert(chain) {
            continue;
        }
        let _ = writeln!(text, "-N {chain}");
        if !chain.starts_with(OWN_CHAINS) {
            let _ = writeln!(text, "-A {chain} {}", comment(opening::CREATED));
        }
    }
    let verb = if saved.lists_chain(&script.chain) { "-F" } else { "-N" };
    let _ = writeln!(text, "{verb} {}", script.chain);
}

/// Adds a shared rule, replacing rules with its comment and another content.
fn put_shared(text: &mut String, line: &Line, saved: &Saved<'_>) {
    let (same, changed) = named_alike(line, saved);
    changed.iter().for_each(|rule| text.extend([&saved::deletion(rule), "\n"]));
    if !same.is_empty() {
        return;
    }
    let is_kept = |rule: &&str| !changed.contains(rule);
    let mut kept = saved.rules_of(line.table, &line.chain).filter(is_kept);
    match line.place {
        Place::Before(chain) => match kept.position(|rule| saved::target(rule) == chain) {
            Some(position) => put_at(text, position + 1, line),
            None => put(text, line.verb(), line),
        },
        Place::First | Place::Last => put(text, line.verb(), line),
    }
}

/// The rules with the comment of a shared rule: those with its content, and those with another. A jump to the chain of
/// another network's administrator has the same comment, and is neither.
fn named_alike<'s>(line: &'s Line, saved: &'s Saved<'_>) -> (Vec<&'s str>, Vec<&'s str>) {
    let (expected, name) = (form(&line.words), saved::comment(&line.words));
    let is_other =
        |rule: &str| name == opening::TO_ADMIN && saved::target(rule) != saved::target(&line.words);
    let named = saved.rules_of(line.table, &line.chain).filter(|rule| saved::comment(rule) == name);
    let named = named.filter(|rule| !is_other(rule));
    named.partition(|rule| form(words(rule)) == expected)
}
