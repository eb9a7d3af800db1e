//! Opening FORWARD in the legacy tables. See [`crate::opening`].

use std::fmt::Write as _;

use cni::{Code, Error, Result, ResultExt};
use netlink::{Family, xtables};

use super::legacy::{has_table, warn_without_tools};
use super::saved::Saved;
use super::script::comment;
use super::tools::{Tools, lock, retry};
use crate::kind::Rules;
use crate::listing::Content;
use crate::opening::{self, CHAIN, Edit, MARK, NewRule, TABLE};

/// Opens the tables that the namespace has for packets that rules mark.
///
/// # Errors
/// What the tool says.
pub(crate) fn open(rules: &dyn Rules) -> Result<()> {
    for (family, tools) in tools() {
        let Some(opening) = rules.opening(family) else { continue };
        let Some(tools) = tools else {
            warn_without_tools(family);
            continue;
        };
        let _lock = lock()?;
        let opened = retry(|| {
            let saved = tools.save(&[TABLE])?;
            let Ok(edit) = opening::open(&Saved::read(&saved), opening);
            restore(&tools, &edit)
        });
        opened.context(|| "let the containers' packets pass FORWARD of iptables-legacy")?;
    }
    Ok(())
}

/// Whether they pass.
///
/// # Errors
/// Code 999 if not.
pub(crate) fn verify(rules: &dyn Rules) -> Result<()> {
    for (family, tools) in tools() {
        let (Some(opening), Some(tools)) = (rules.opening(family), tools) else { continue };
        let saved = tools.save(&[TABLE])?;
        let Ok(edit) = opening::open(&Saved::read(&saved), opening);
        if !edit.is_open {
            let text = format!("{CHAIN} of iptables-legacy lacks what lets the container's packets pass");
            return Err(Error::new(Code::Internal, text));
        }
    }
    Ok(())
}

/// Closes the tables when no attachment has its packets marked any more.
///
/// # Errors
/// What the tool says.
pub(crate) fn close(is_needed: impl Fn() -> Result<bool>) -> Result<()> {
    for (family, tools) in tools() {
        let has_chain =
            || xtables::user_chains(family, TABLE).is_ok_and(|chains| chains.iter().any(|c| c == CHAIN));
        let Some(tools) = tools.filter(|_| has_chain()) else { continue };
        let _lock = lock()?;
        // Under the lock: whoever installs comes here with the same lock after its first transaction.
        if is_needed()? {
            return Ok(());
        }
        let closed = retry(|| {
            let saved = tools.save(&[TABLE])?;
            let Ok(edit) = opening::close(&Saved::read(&saved), |rule| rule.comment.starts_with(MARK));
            restore(&tools, &edit)
        });
        closed.context(|| "close FORWARD of iptables-legacy")?;
    }
    Ok(())
}

/// The families that have the table, with the tools if they are installed.
fn tools() -> impl Iterator<Item = (Family, Option<Tools>)> {
    let families = Family::ALL.into_iter().filter(|family| has_table(*family, TABLE));
    families.map(|family| (family, Tools::find_legacy(family).ok()))
}

fn restore(tools: &Tools, edit: &Edit<String>) -> Result<()> {
    if edit.is_empty() { Ok(()) } else { tools.restore(&script(edit)) }
}

fn script(edit: &Edit<String>) -> String {
    let mut text = format!("*{TABLE}\n");
    edit.new_chains.iter().for_each(|chain| text.extend(["-N ", chain, "\n"]));
    edit.deleted.iter().for_each(|(_, deletion)| text.extend([deletion, "\n"]));
    edit.added.iter().for_each(|rule| text.extend([line(rule).as_str(), "\n"]));
    for command in ["-F ", "-X "] {
        edit.old_chains.iter().for_each(|chain| text.extend([command, chain, "\n"]));
    }
    text + "COMMIT\n"
}

fn line(rule: &NewRule) -> String {
    let mut text = format!("{} {} ", if rule.first { "-I" } else { "-A" }, rule.chain);
    let _ = match &rule.content {
        Content::Jump(chain) => write!(text, "{} -j {chain}", comment(&rule.comment)),
        Content::Accept(bit) => {
            let bit = 1_u32 << bit;
            write!(text, "-m mark --mark {bit:#x}/{bit:#x} {} -j ACCEPT", comment(&rule.comment))
        }
        _ => write!(text, "{}", comment(&rule.comment)),
    };
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::kinds::ChainName;
    use crate::opening::Opening;

    fn opening() -> Opening {
        Opening { bit: 12, admin: ChainName::parse("CNI-ADMIN").unwrap() }
    }

    fn opened(saved: &str) -> Edit<String> {
        let Ok(edit) = opening::open(&Saved::read(saved), &opening());
        edit
    }

    fn closed(saved: &str) -> String {
        let Ok(edit) = opening::close_bits(&Saved::read(saved), &BTreeSet::from([12]));
        script(&edit)
    }

    const MARKED: &str = "-A CNI-FORWARD -m mark --mark 0x1000/0x1000 -m comment --comment \"ferrule: mark bit 12\" -j ACCEPT\n";

    #[test]
    fn what_is_there_is_not_added_again() {
        let saved = "*filter\n:FORWARD DROP [0:0]\n:CNI-FORWARD - [0:0]\n:CNI-ADMIN - [0:0]\n\
            -A FORWARD -m comment --comment \"CNI firewall plugin rules\" -j CNI-FORWARD\n\
            -A CNI-FORWARD -m comment --comment \"CNI firewall plugin rules\" -j CNI-ADMIN\nCOMMIT\n";
        let edit = opened(saved);
        assert!(!edit.is_open);
        assert_eq!(script(&edit), format!("*filter\n{MARKED}COMMIT\n"));
        assert!(opened(&saved.replace("COMMIT", &format!("{MARKED}COMMIT"))).is_open);
    }

    /// As iptables 1.8.7 restores the rule that older versions of ours installed.
    #[test]
    fn a_rule_of_ours_with_another_content_is_replaced() {
        let bare = "-A CNI-FORWARD -m comment --comment \"ferrule: mark bit 12\" -j ACCEPT";
        let saved = format!(
            "*filter\n:FORWARD DROP [0:0]\n:CNI-FORWARD - [0:0]\n:CNI-ADMIN - [0:0]\n\
             -A FORWARD -j CNI-FORWARD\n-A CNI-FORWARD -j CNI-ADMIN\n{bare}\nCOMMIT\n"
        );
        let edit = opened(&saved);
        assert!(!edit.is_open);
        assert_eq!(script(&edit), format!("*filter\n{}\n{MARKED}COMMIT\n", bare.replace("-A", "-D")));
    }

    #[test]
    fn chains_go_only_if_they_were_created_here_and_nothing_of_others_is_in_them() {
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
        // An administrator's own chains stay, without what led there.
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
        assert_eq!(closed("*filter\n:FORWARD DROP [0:0]\nCOMMIT\n"), "*filter\nCOMMIT\n");
    }
}
