//! The iptables backend: one call of iptables-restore a family and change.
//!
//! An ADD assumes that what all attachments share is there, and lets the tool check it in the same call; only
//! if it is not, or the attachment has rules already, the rules are listed, under a lock, and the difference
//! is made.

#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod saved;
mod script;
mod tool;

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use cni::{Code, Error, Failures, Result, ResultExt};
use netlink::xtables;
use system::lock::Lock;

use crate::leftovers::Whose;
use crate::owner::Owner;
use crate::reference;
use crate::removal::ForgetAll;
use crate::rules::{Kind, Rules};
use saved::Removal;
use script::Script;
pub(crate) use script::{HAIRPIN, HOSTPORTS, SHARED, chain, is_own};

/// How often to try again because another writer came between listing and changing.
const TRIES: usize = 4;

/// The lock of those that change rules by iptables.
const LOCK: &str = "iptables";

/// How long to wait for it. A hundred containers at once on a slow machine take turns for half a minute.
const PATIENCE: Duration = Duration::from_secs(60);

/// The tools of a family.
#[derive(Clone, Debug)]
struct Tools {
    restore: PathBuf,
    save: PathBuf,
}

impl Tools {
    /// `variant` is empty for the host's default, or `-legacy`.
    fn find(v4: bool, variant: &str) -> Result<Self> {
        let prefix = if v4 { "iptables" } else { "ip6tables" };
        let find = |verb: &str| {
            let name = format!("{prefix}{variant}-{verb}");
            tool::find(&name).ok_or_else(|| {
                Error::new(Code::Io, format!("{name} is not installed"))
                    .detail("install the package iptables, or set the backend to nftables")
            })
        };
        Ok(Self { restore: find("restore")?, save: find("save")? })
    }
}

/// The iptables tools of this host.
#[derive(Debug)]
pub(crate) struct Iptables {
    _private: (),
}

impl Iptables {
    /// Looks for the tools.
    ///
    /// # Errors
    /// Which one is not there.
    pub(crate) fn open() -> Result<Self> {
        Tools::find(true, "")?;
        Ok(Self { _private: () })
    }

    /// Installs an attachment's rules, in place of those that it may have.
    ///
    /// # Errors
    /// What the tool says. What was installed in the other family is for the caller to undo.
    pub(crate) fn install(&self, owner: &Owner, rules: &Rules) -> Result<()> {
        let scripts = scripts(owner, rules)?;
        let _lock = lock()?;
        for (tools, script) in scripts {
            let outcome = match tool::restore(&tools.restore, &script.addition()) {
                Err(e) if !tool::is_hung(&e) => repair(&tools, &script),
                other => other,
            };
            outcome.context(|| format!("install the iptables rules of {owner}"))?;
        }
        Ok(())
    }

    /// Whether an attachment's rules are as they were installed. What waits is told: packets meet the rules of a newer
    /// attachment first.
    ///
    /// # Errors
    /// What the tool says.
    pub(crate) fn check(&self, owner: &Owner, rules: &Rules) -> Result<Vec<String>> {
        let mut waiting = Vec::new();
        for (tools, script) in scripts(owner, rules)? {
            tool::restore(&tools.restore, &script.check())
                .context(|| format!("the iptables rules of {owner} are not as ADD left them"))?;
            if rules.kind() == Kind::HostPorts {
                waiting.extend(saved::before(&tool::save(&tools.save, "nat")?, &script.chain));
            }
        }
        Ok(waiting)
    }
}

/// The tools and the script of each family that has rules.
fn scripts(owner: &Owner, rules: &Rules) -> Result<Vec<(Tools, Script)>> {
    let families = [true, false].into_iter();
    let scripts = families.filter_map(|v4| Some((v4, Script::of(owner, rules, v4)?)));
    scripts.map(|(v4, script)| Ok((Tools::find(v4, "")?, script))).collect()
}

/// Removes what is somebody's from the tables of the legacy variant, if the namespace has such tables. What
/// the variant for nf_tables has is removed over netlink.
///
/// # Errors
/// What the tool says; the other family's rules are removed.
pub(crate) fn remove_legacy(whose: &Whose<'_>, kind: Kind, forget: ForgetAll<'_>) -> Result<()> {
    let mut failures = Failures::new();
    for v4 in [true, false] {
        if !may_be_in_legacy(v4, whose, kind) {
            continue;
        }
        let Ok(tools) = Tools::find(v4, "-legacy").or_else(|_| Tools::find(v4, "")) else {
            warn_without_tools(v4);
            continue;
        };
        let removed = remove(&tools, whose, kind, forget).context(|| "remove the rules of iptables-legacy");
        failures.note(removed);
    }
    failures.into_result()
}

/// Whether the legacy variant has the reference's rules of an attachment.
///
/// # Errors
/// What the tool says.
pub(crate) fn has_reference(whose: &Whose<'_>, rules: &Rules) -> Result<bool> {
    let kind = rules.kind();
    if ![true, false].into_iter().any(|v4| may_be_in_legacy(v4, whose, kind)) {
        return Ok(false);
    }
    let save = |v4| {
        let tools = Tools::find(v4, "-legacy").or_else(|_| Tools::find(v4, ""))?;
        if has_legacy_nat(v4) { tool::save(&tools.save, "nat") } else { Ok(String::new()) }
    };
    let saved = [save(true)?, save(false)?];
    reference::in_iptables(whose, rules, |v4, chain| Ok(saved::targets(&saved[usize::from(!v4)], chain)))
}

/// Whether the legacy variant has rules of somebody in this namespace. No program is started to know.
fn may_be_in_legacy(v4: bool, whose: &Whose<'_>, kind: Kind) -> bool {
    if kind == Kind::SpoofCheck || !has_legacy_nat(v4) {
        return false;
    }
    let chains = xtables::user_chains(v4, "nat");
    // What the kernel does not tell, the tool may.
    chains.map_or(true, |chains| chains.iter().any(|chain| whose.may_have_chain(kind, chain)))
}

/// Whether the legacy variant has a table nat in this namespace: the kernel makes it with its first use.
pub(crate) fn has_legacy_nat(v4: bool) -> bool {
    let names = if v4 { "ip_tables_names" } else { "ip6_tables_names" };
    // There is no such file where the kernel does not have the legacy variant.
    let names = fs::read_to_string(format!("/proc/thread-self/net/{names}")).unwrap_or_default();
    names.lines().any(|name| name == "nat")
}

/// Whoever made the rules had the tools: they can be removed when these are back. The container must be able to go.
fn warn_without_tools(v4: bool) {
    let tool = if v4 { "iptables" } else { "ip6tables" };
    cni::warn(&format!(
        "there may be rules of {tool}-legacy, but {tool} is not installed, so they cannot be removed: \
         install the package iptables, and have the runtime collect garbage (GC)"
    ));
}

fn remove(tools: &Tools, whose: &Whose<'_>, kind: Kind, forget: ForgetAll<'_>) -> Result<()> {
    let _lock = lock()?;
    let mut outcome = Ok(());
    for _ in 0..TRIES {
        let mut saved = tool::save(&tools.save, "nat")?;
        if kind == Kind::HostPorts && saved.contains(HOSTPORTS) {
            saved += &tool::save(&tools.save, "mangle")?;
        }
        outcome = apply(tools, &Removal::of(&saved, whose, kind), kind, forget);
        if !matches!(&outcome, Err(e) if !tool::is_hung(e)) {
            break;
        }
    }
    outcome
}

/// UDP flows are forgotten when no packet can begin one again, but before the chains go that tell whose they are.
fn apply(tools: &Tools, removal: &Removal, kind: Kind, forget: ForgetAll<'_>) -> Result<()> {
    if removal.is_empty() {
        return Ok(());
    }
    if kind != Kind::HostPorts || removal.addresses().is_empty() && !removal.is_unnamed() {
        return tool::restore(&tools.restore, &removal.whole());
    }
    tool::restore(&tools.restore, &removal.cut())?;
    forget(removal.addresses(), removal.is_unnamed());
    tool::restore(&tools.restore, &removal.rest())
}

/// Keeps other plugins from changing rules by iptables. A tool holds it until it ends, also if the plugin that started it is
/// killed. None: this host has no place for a lock.
fn lock() -> Result<Option<Lock>> {
    let lock = Lock::acquire(LOCK, PATIENCE)?;
    if let Some(lock) = &lock {
        lock.pass_on().context(|| "pass a lock on to child processes")?;
    }
    Ok(lock)
}

/// Waits for tools that are still at work, whose plugin may have been killed.
///
/// # Errors
/// Code 11 if they do not end in time.
pub(crate) fn settle() -> Result<()> {
    Ok(Lock::acquire(LOCK, PATIENCE).map(drop)?)
}

/// Lists what is there, and makes the difference, while no other plugin does the same: the caller holds the lock.
fn repair(tools: &Tools, script: &Script) -> Result<()> {
    let mut outcome = Ok(());
    for _ in 0..TRIES {
        let mut saved = tool::save(&tools.save, "nat")?;
        if script.shared.iter().any(|line| line.table == "mangle") {
            saved += &tool::save(&tools.save, "mangle")?;
        }
        outcome = tool::restore(&tools.restore, &script.repair(&saved));
        if !matches!(&outcome, Err(e) if !tool::is_hung(e)) {
            break;
        }
    }
    outcome
}
