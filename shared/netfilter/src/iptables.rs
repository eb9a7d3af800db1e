//! The iptables backend: one call of iptables-restore for each family and change.
//!
//! An ADD assumes that the shared rules exist, and lets the tool check this in the same call. If they do not, or if the
//! attachment already has rules, the rules are listed under a lock, and the differences are applied.

mod canonical;
mod edit;
pub(crate) mod forward;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
pub(crate) mod legacy;
pub(crate) mod render;
pub(crate) mod repair;
pub(crate) mod saved;
pub(crate) mod tools;

use cni::{Code, Error, Result, ResultExt};
use netlink::Family;

use crate::kind::{IptablesRules, Kind, WaitingPort};
use crate::owner::Owner;
use crate::plan::chains;
use crate::ruleset::Table;
use crate::script::Script;
use tools::{Tools, lock};

/// The iptables tools of this host.
#[derive(Debug)]
pub(crate) struct Iptables(());

impl Iptables {
    /// Finds the tools.
    pub(crate) fn open() -> Result<Self> {
        Tools::find(Family::V4, "")?;
        Ok(Self(()))
    }

    /// Installs an attachment's rules, replacing its existing ones. `follows`: whether the container may have other
    /// attachments with rules of the kind, which this one's rules must follow.
    ///
    /// # Errors
    /// The tool's error. The caller must undo the changes for the other family.
    pub(crate) fn install(
        &self,
        owner: &Owner,
        kind: Kind,
        rules: &dyn IptablesRules,
        follows: bool,
    ) -> Result<()> {
        let scripts = scripts(owner, kind, rules)?;
        let _lock = lock()?;
        for (_, tools, script) in scripts {
            let add = || {
                if follows { repair::replace(&tools, &[&script]) } else { tools.restore(&script.addition()) }
            };
            let outcome = match add() {
                Err(e) if !follows && !tools::is_hung(&e) => repair::replace(&tools, &[&script]),
                other => other,
            };
            outcome.context(|| format!("install the iptables rules of {owner}"))?;
        }
        Ok(())
    }

    /// STATUS: checks the content of shared rules, as far as they exist. No tool is started without any.
    ///
    /// # Errors
    /// Code 999, with the first changed rule.
    pub(crate) fn verify_shared(&self, kind: Kind, has_chain: impl Fn(Table, &str) -> bool) -> Result<()> {
        let Some((properties, shared)) =
            kind.iptables().and_then(|properties| Some((properties, properties.shared.as_ref()?)))
        else {
            return Ok(());
        };
        for family in Family::ALL {
            let is_here = has_chain(Table::of_iptables(family, properties.table), shared.entry)
                || legacy::has_chain(family, (properties.table, shared.entry))?;
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

    /// Checks that an attachment's rules are as they were installed. Returns host ports for which another attachment's
    /// rules come first.
    pub(crate) fn check(&self, owner: &Owner, kind: Kind, rules: &dyn IptablesRules) -> Result<Vec<String>> {
        for (_, tools, script) in scripts(owner, kind, rules)? {
            match tools.restore(&script.check()) {
                Err(e) if tools::is_hung(&e) => {
                    return Err(e).context(|| format!("check the iptables rules of {owner}"));
                }
                checked => checked
                    .map_err(|e| e.detail("`cnitool repair --all` installs them again"))
                    .context(|| format!("the iptables rules of {owner} are not those that ADD installed"))?,
            }
        }
        let waiting = self.waiting(owner, kind, rules)?;
        Ok(waiting.into_iter().map(|waiting| waiting.text).collect())
    }

    /// The host ports for which another attachment's rules come first.
    pub(crate) fn waiting(
        &self,
        owner: &Owner,
        kind: Kind,
        rules: &dyn IptablesRules,
    ) -> Result<Vec<WaitingPort>> {
        let Some(find) = kind.iptables().and_then(|properties| properties.waiting) else {
            return Ok(Vec::new());
        };
        let mut waiting = Vec::new();
        for (family, tools, script) in scripts(owner, kind, rules)? {
            waiting.extend(find(&tools.save(&[script.table])?, &script.chain, family));
        }
        Ok(waiting)
    }
}

/// The tools and the script for each family that has rules.
fn scripts(owner: &Owner, kind: Kind, rules: &dyn IptablesRules) -> Result<Vec<(Family, Tools, Script)>> {
    let families = Family::ALL.into_iter();
    let scripts = families.filter_map(|family| Some((family, script(owner, kind, rules, family)?)));
    scripts.map(|(family, script)| Ok((family, Tools::find(family, "")?, script))).collect()
}

/// The rules of a family. None if there are none.
fn script(owner: &Owner, kind: Kind, rules: &dyn IptablesRules, family: Family) -> Option<Script> {
    let mut script = Script::new(kind.iptables()?.table, chains::chain(owner, kind)?);
    rules.write(&mut script, &owner.label(), family);
    (!script.lines.is_empty()).then_some(script)
}
