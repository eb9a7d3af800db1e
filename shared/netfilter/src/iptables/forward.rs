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
            verify_by_kernel(family, opening).or_else(on_closed)?;
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

/// Checks that marked packets pass.
///
/// # Errors
/// Code 999 if they do not.
pub(crate) fn verify(openings: &[(Family, Opening)]) -> Result<()> {
    for opened in opened(openings) {
        let (family, tools, opening) = opened?;
        let Some(tools) = tools else {
            verify_by_kernel(family, opening)?;
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

/// Checks that marked packets pass the tables whose tools are not installed: nothing drops them, or the rule that accepts them exists.
///
/// # Errors
/// Code 999 if they do not.
pub(crate) fn verify_toolless(openings: &[(Family, Opening)]) -> Result<()> {
    for opened in opened(openings) {
        if let (family, None, opening) = opened? {
            verify_by_kernel(family, opening)?;
        }
    }
    Ok(())
}

/// Checks that marked packets pass a table, without tools. The rule that accepts them is found by its comment.
fn verify_by_kernel(family: Family, opening: &Opening) -> Result<()> {
    let is_closed = || -> Result<bool, RequestError> {
        let table = xtables::Table::read(family, TABLE)?;
        let accepts = table.contains(format!("{}\0", opening.comment()).as_bytes());
        Ok(table.drops(opening.hook())? && !(accepts && table.leads(opening.hook(), opening.chain())?))
    };
    if !is_closed().map_err(unlisted)? {
        return Ok(());
    }
    let tool = family.choose("iptables", "ip6tables");
    let text = format!(
        "{} of {tool}-legacy drops the containers' packets, and the rule that accepts them cannot be added: the tools of \
         {tool}-legacy are not installed",
        opening.hook()
    );
    Err(Error::new(Code::Internal, text)
        .detail("install the package iptables on the host, and run `cnitool repair --all` there"))
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
