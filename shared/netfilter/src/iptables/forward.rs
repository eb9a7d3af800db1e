//! Opening FORWARD and INPUT in the legacy tables. See [`crate::opening`].

use cni::{Code, Error, Result, ResultExt};
use netlink::{Family, RequestError, xtables};

use super::legacy::{has_chain, has_table, unlisted};
use super::saved::Saved;
use super::tools::{Tools, lock, retry};
use crate::kind::NftablesRules;
use crate::listing::{Edit, Listed};
use crate::opening::{self, MARK, OpenedHook, Opening, TABLE};

/// Opens the namespace's legacy tables for marked packets. `on_closed` handles the error of a table that drops them, and whose tools are not
/// installed.
///
/// # Errors
/// The tool's error, and that of `on_closed`.
pub(crate) fn open(rules: &NftablesRules, on_closed: fn(Error) -> Result<()>) -> Result<()> {
    for opened in opened(&rules.openings) {
        let (family, tools, opening) = opened?;
        let Some(tools) = tools else {
            match passage_by_kernel(family, opening)? {
                Passage::Unknown(error) => cni::warn(&error.to_string()),
                passage => passage.verify().or_else(on_closed)?,
            }
            continue;
        };
        let _lock = lock()?;
        let opened =
            retry(|| edit(&tools, |saved| opening::open_for(saved, family, opening, &rules.accepted)));
        opened
            .context(|| format!("let the containers' packets pass {} of iptables-legacy", opening.hook()))?;
    }
    Ok(())
}

/// Checks that marked packets pass. If that is not known without the tools, it counts as passed.
///
/// # Errors
/// Code 999 if they do not pass.
pub(crate) fn verify(openings: &[(Family, Opening)]) -> Result<()> {
    for opened in opened(openings) {
        let (family, tools, opening) = opened?;
        let Some(tools) = tools else {
            passage_by_kernel(family, opening)?.verify()?;
            continue;
        };
        let saved = tools.save(&[TABLE])?;
        let (_, is_open) = opening::open(&Saved::read(&saved), family, opening).map_err(unlisted)?;
        if !is_open {
            let text = format!(
                "the rule that accepts marked packets is missing in chain {} of iptables-legacy",
                opening.chain()
            );
            return Err(Error::new(Code::Internal, text).detail("`cnitool repair --all` restores it"));
        }
    }
    Ok(())
}

/// What a table does with marked packets, as far as it is known without its tools. With the error, if no rule accepts them by their mark.
enum Passage {
    Open,
    /// The table drops packets, but other rules may accept these.
    Unknown(Error),
    Closed(Error),
}

impl Passage {
    fn error(self) -> Option<Error> {
        match self {
            Self::Open => None,
            Self::Unknown(error) | Self::Closed(error) => Some(error),
        }
    }

    /// # Errors
    /// Code 999 if the packets certainly do not pass.
    fn verify(self) -> Result<()> {
        if let Self::Closed(error) = self { Err(error) } else { Ok(()) }
    }
}

/// The errors of tables that drop marked packets, or may drop them, and whose tools are not installed.
///
/// # Errors
/// If a table cannot be read.
pub(crate) fn closed_without_tools(openings: &[(Family, Opening)]) -> Result<Vec<Error>> {
    let mut errors = Vec::new();
    for opened in opened(openings) {
        if let (family, None, opening) = opened? {
            errors.extend(passage_by_kernel(family, opening)?.error());
        }
    }
    Ok(errors)
}

/// Reads a table without tools. The rule that accepts marked packets is found by its comment.
fn passage_by_kernel(family: Family, opening: &Opening) -> Result<Passage> {
    let (hook, tool) = (opening.hook(), family.choose("iptables", "ip6tables"));
    let read = || -> Result<_, RequestError> {
        let table = xtables::Table::read(family, TABLE)?;
        let accepts = table.contains(format!("{}\0", opening.comment()).as_bytes())
            && table.leads(hook, opening.chain())?;
        Ok((table.drops(hook)? && !accepts, table.has_rules_before_verdict(hook)?))
    };
    let (drops, has_other_rules) = read().map_err(unlisted)?;
    let why = format!("cannot be added: the tools of {tool}-legacy are not installed");
    let remedy = "install the package iptables on the host, and run `cnitool repair --all` there";
    Ok(if !drops {
        Passage::Open
    } else if has_other_rules {
        let text = format!(
            "{hook} of {tool}-legacy may drop the containers' packets: the rule that accepts them does not exist or is not \
             reached, and {why}. Whether other rules accept the packets is not known"
        );
        let test = "`cnitool test-connectivity NETWORK` shows whether other rules accept the packets";
        Passage::Unknown(Error::new(Code::Internal, text).detail(format!("{remedy}; {test}")))
    } else {
        let text = format!(
            "{hook} of {tool}-legacy drops the containers' packets, and the rule that accepts them {why}"
        );
        Passage::Closed(Error::new(Code::Internal, text).detail(remedy))
    })
}

/// Whether the host's legacy table drops forwarded packets that none of its conditional rules accepts.
///
/// # Errors
/// If the table cannot be read.
pub(crate) fn drops_forwarded(family: Family) -> Result<bool> {
    let drops = || xtables::Table::read(family, TABLE)?.drops(opening::HOOK);
    Ok(has_table(family, TABLE)? && drops().map_err(unlisted)?)
}

/// The openings whose table exists, each with the tools that change it.
fn opened(openings: &[(Family, Opening)]) -> impl Iterator<Item = Result<(Family, Option<Tools>, &Opening)>> {
    openings.iter().filter_map(|(family, opening)| match has_table(*family, TABLE) {
        Ok(false) => None,
        Ok(true) => Some(Ok((*family, Tools::find_legacy(*family).ok(), opening))),
        Err(e) => Some(Err(e)),
    })
}

/// Closes the tables when no attachment needs its packets to be marked any more.
///
/// # Errors
/// The tool's error.
pub(crate) fn close(way: OpenedHook, is_needed: impl Fn() -> Result<bool>) -> Result<()> {
    for family in Family::ALL {
        if !has_chain(family, (TABLE, way.chain))? {
            continue;
        }
        let Ok(tools) = Tools::find_legacy(family) else { continue };
        let _lock = lock()?;
        // Under the lock: an installation takes the same lock after its first transaction.
        if is_needed()? {
            return Ok(());
        }
        let is_unused = |rule: &Listed| rule.comment.starts_with(MARK);
        let closed = retry(|| edit(&tools, |saved| opening::close(saved, family, way, is_unused)));
        closed.context(|| format!("close {} of iptables-legacy", way.hook))?;
    }
    Ok(())
}

/// Lists the table and changes it.
fn edit(tools: &Tools, find: impl Fn(&Saved<'_>) -> Result<Edit, RequestError>) -> Result<()> {
    let saved = tools.save(&[TABLE])?;
    let saved = Saved::read(&saved);
    let edit = find(&saved).map_err(unlisted)?;
    if edit.is_empty() { Ok(()) } else { tools.restore(&saved.script(&edit)) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::chain_name::ChainName;

    fn opening() -> Opening {
        Opening::of_forward(12, ChainName::parse("CNI-ADMIN").unwrap())
    }

    /// The script that opens FORWARD, and whether it was open already.
    fn opened(saved: &str) -> (String, bool) {
        let saved = Saved::read(saved);
        let (edit, is_open) = opening::open(&saved, Family::V4, &opening()).unwrap();
        (saved.script(&edit), is_open)
    }

    fn closed(saved: &str) -> String {
        let saved = Saved::read(saved);
        saved.script(
            &opening::close_bits(&saved, Family::V4, OpenedHook::FORWARD, &BTreeSet::from([12])).unwrap(),
        )
    }

    const MARKED: &str = "-A CNI-FORWARD -m mark --mark 0x1000/0x1000 -m comment --comment \"ferrule: mark bit 12\" -j ACCEPT\n";

    #[test]
    fn existing_objects_are_not_added_again() {
        let saved = "*filter\n:FORWARD DROP [0:0]\n:CNI-FORWARD - [0:0]\n:CNI-ADMIN - [0:0]\n\
            -A FORWARD -m comment --comment \"CNI firewall plugin rules\" -j CNI-FORWARD\n\
            -A CNI-FORWARD -m comment --comment \"CNI firewall plugin rules\" -j CNI-ADMIN\nCOMMIT\n";
        assert_eq!(opened(saved), (format!("*filter\n{MARKED}COMMIT\n"), false));
        assert!(opened(&saved.replace("COMMIT", &format!("{MARKED}COMMIT"))).1);
    }

    /// As iptables up to 1.8.7 restores a rule with nftables' own mark expression.
    #[test]
    fn a_rule_of_ours_with_another_content_is_replaced() {
        let bare = "-A CNI-FORWARD -m comment --comment \"ferrule: mark bit 12\" -j ACCEPT";
        let saved = format!(
            "*filter\n:FORWARD DROP [0:0]\n:CNI-FORWARD - [0:0]\n:CNI-ADMIN - [0:0]\n\
             -A FORWARD -j CNI-FORWARD\n-A CNI-FORWARD -j CNI-ADMIN\n{bare}\nCOMMIT\n"
        );
        let replaced = format!("*filter\n{}\n{MARKED}COMMIT\n", bare.replace("-A", "-D"));
        assert_eq!(opened(&saved), (replaced, false));
    }

    #[test]
    fn chains_are_deleted_only_if_we_created_them_and_no_other_rules_are_in_them() {
        let created = |chain| format!("-A {chain} -m comment --comment \"ferrule: created this chain\"\n");
        let host = |more: &str| {
            format!(
                "*filter\n:FORWARD DROP [0:0]\n:CNI-FORWARD - [0:0]\n:CNI-ADMIN - [0:0]\n:MINE - [0:0]\n\
                 -A FORWARD -m comment --comment \"ferrule: containers\" -j CNI-FORWARD\n\
                 -A CNI-FORWARD -m comment --comment \"ferrule: administrator\" -j CNI-ADMIN\n{MARKED}{more}COMMIT\n"
            )
        };
        let both = created("CNI-FORWARD") + &created("CNI-ADMIN");
        let all = closed(&host(&both));
        assert!(all.contains("-D FORWARD") && all.contains("-X CNI-FORWARD\n-X CNI-ADMIN"), "{all}");
        // The administrator's own chains stay, but the jump to them does not.
        let none = closed(&host(""));
        assert!(none.contains("-D FORWARD") && none.contains("-D CNI-FORWARD -m comment"), "{none}");
        assert!(!none.contains("-X"), "{none}");
        for more in [
            "-A CNI-ADMIN -j DROP\n",
            "-A CNI-FORWARD -s 10.1.0.5/32 -j ACCEPT\n",
            "-A CNI-FORWARD -s 10.0.0.0/8 -j MINE\n",
            "-A CNI-FORWARD -j MINE\n",
            "-A CNI-FORWARD -j LOG\n",
        ] {
            let some = closed(&host(&(both.clone() + more)));
            assert_eq!(some, format!("*filter\n{}COMMIT\n", MARKED.replace("-A", "-D")), "{more}");
        }
        let elsewhere = closed(&host(&(both + "-A MINE -j CNI-ADMIN\n")));
        assert!(elsewhere.contains("-X CNI-FORWARD") && !elsewhere.contains("-X CNI-ADMIN"), "{elsewhere}");
        assert_eq!(closed("*filter\n:FORWARD DROP [0:0]\nCOMMIT\n"), "");
    }

    /// By `iptables -F`, which also removes the rule that says who created the chain.
    #[test]
    fn a_flushed_chain_is_deleted_unless_a_rule_jumps_to_it_and_opening_marks_it_as_ours_again() {
        let flushed = "*filter\n:FORWARD DROP [0:0]\n:CNI-FORWARD - [0:0]\n:CNI-ADMIN - [0:0]\nCOMMIT\n";
        let deleted = closed(flushed);
        assert!(deleted.contains("-X CNI-FORWARD\n") && !deleted.contains("CNI-ADMIN"), "{deleted}");
        assert_eq!(closed(&flushed.replace("COMMIT", "-A FORWARD -j CNI-FORWARD\nCOMMIT")), "");
        let (script, is_open) = opened(flushed);
        let created = "-A CNI-FORWARD -m comment --comment \"ferrule: created this chain\"\n";
        assert!(!is_open && script.contains(created) && !script.contains("-A CNI-ADMIN"), "{script}");
    }
}
