//! The iptables backend: one call of iptables-restore a family and change.
//!
//! An ADD assumes that what all attachments share is there, and lets the tool check it in the same call; only
//! if it is not, or the attachment has rules already, the rules are listed, under a lock, and the difference
//! is made.

mod canonical;
mod edit;
pub(crate) mod forward;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
pub(crate) mod legacy;
pub(crate) mod render;
pub(crate) mod repair;
pub(crate) mod saved;
mod tool;
pub(crate) mod tools;

use cni::{Code, Error, Result, ResultExt};
use netlink::Family;

use crate::kind::{IptablesRules, Kind};
use crate::owner::Owner;
use crate::plan::chains;
use crate::ruleset::Table;
use crate::script::Script;
use tools::{Tools, lock};

/// The iptables tools of this host.
#[derive(Debug)]
pub(crate) struct Iptables {
    _private: (),
}

impl Iptables {
    /// Looks for the tools.
    pub(crate) fn open() -> Result<Self> {
        Tools::find(Family::V4, "")?;
        Ok(Self { _private: () })
    }

    /// Installs an attachment's rules, in place of those that it may have.
    ///
    /// # Errors
    /// What the tool says. What was installed in the other family is for the caller to undo.
    pub(crate) fn install(&self, owner: &Owner, kind: Kind, rules: &dyn IptablesRules) -> Result<()> {
        let scripts = scripts(owner, kind, rules)?;
        let _lock = lock()?;
        for (tools, script) in scripts {
            let outcome = match tools.restore(&script.addition()) {
                Err(e) if !tool::is_hung(&e) => repair::replace(&tools, &[&script]),
                other => other,
            };
            outcome.context(|| format!("install the iptables rules of {owner}"))?;
        }
        Ok(())
    }

    /// Whether the rules that attachments share have their content, as far as they exist (STATUS). No tool is started where there are none.
    ///
    /// # Errors
    /// Code 999 with the first rule that was changed.
    pub(crate) fn verify_shared(&self, kind: Kind, has_chain: impl Fn(Table, &str) -> bool) -> Result<()> {
        let Some((properties, shared)) =
            kind.iptables().and_then(|properties| Some((properties, properties.shared.as_ref()?)))
        else {
            return Ok(());
        };
        for family in Family::ALL {
            let is_here = has_chain(Table::of_iptables(family, properties.table), shared.entry)
                || legacy::has_chain(family, (properties.table, shared.entry));
            if !is_here {
                continue;
            }
            let mut script = Script::new(properties.table, String::new());
            (shared.rules)(&mut script, family);
            if let Some(rule) = repair::first_changed(&Tools::find(family, "")?, &script)? {
                let error = Error::new(Code::Internal, format!("{rule} was changed"));
                return Err(error.detail("`cnitool repair --all` restores it"));
            }
        }
        Ok(())
    }

    /// Whether an attachment's rules are as they were installed. What waits is returned: packets meet the rules of a newer
    /// attachment first.
    pub(crate) fn check(&self, owner: &Owner, kind: Kind, rules: &dyn IptablesRules) -> Result<Vec<String>> {
        let mut waiting = Vec::new();
        for (tools, script) in scripts(owner, kind, rules)? {
            tools
                .restore(&script.check())
                .map_err(|e| e.detail("`cnitool repair --all` installs them again"))
                .context(|| format!("the iptables rules of {owner} are not as ADD left them"))?;
            if let Some(find) = kind.iptables().and_then(|properties| properties.waiting) {
                waiting.extend(find(&tools.save(&[script.table])?, &script.chain));
            }
        }
        Ok(waiting)
    }
}

/// The tools and the script of each family that has rules.
fn scripts(owner: &Owner, kind: Kind, rules: &dyn IptablesRules) -> Result<Vec<(Tools, Script)>> {
    let families = Family::ALL.into_iter();
    let scripts = families.filter_map(|family| Some((family, script(owner, kind, rules, family)?)));
    scripts.map(|(family, script)| Ok((Tools::find(family, "")?, script))).collect()
}

/// The rules of a family; none if it has none of them.
fn script(owner: &Owner, kind: Kind, rules: &dyn IptablesRules, family: Family) -> Option<Script> {
    let mut script = Script::new(kind.iptables()?.table, chains::chain(owner, kind)?);
    rules.write(&mut script, &owner.label(), family);
    (!script.lines.is_empty()).then_some(script)
}
