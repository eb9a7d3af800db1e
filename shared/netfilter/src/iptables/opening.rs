//! The rules in the tables of the legacy variant that let packets pass which have a mark.

use std::fmt::Write as _;

use cni::{Result, ResultExt};

use super::legacy::{has_table, warn_without_tools};
use super::saved::{chain_of, comment as comment_of, deletion, has_chain, rules, target};
use super::script::comment;
use super::tools::{Tools, lock, retry};
use crate::kind::Rules;
use crate::opening::{CHAIN, HOOK, MARK, Opening, TABLE, TO_ADMIN, TO_CHAIN};
use netlink::{Family, xtables};

/// Puts what is missing of them into the tables that the namespace has.
///
/// # Errors
/// What the tool says.
pub(crate) fn open(rules: &dyn Rules) -> Result<()> {
    for (family, opening, tools) in opened(rules) {
        let Some(tools) = tools else {
            warn_without_tools(family);
            continue;
        };
        let _lock = lock()?;
        if tools.restore(&check(opening)).is_err() {
            let open = retry(|| tools.restore(&addition(opening, &tools.save(&[TABLE])?)));
            open.context(|| "let the containers' packets pass FORWARD of iptables-legacy")?;
        }
    }
    Ok(())
}

/// Whether all of them are there.
///
/// # Errors
/// What is missing, in the tool's words.
pub(crate) fn verify(rules: &dyn Rules) -> Result<()> {
    for (_, opening, tools) in opened(rules) {
        let Some(tools) = tools else { continue };
        tools
            .restore(&check(opening))
            .context(|| format!("{CHAIN} of iptables-legacy lacks what lets the container's packets pass"))?;
    }
    Ok(())
}

/// Removes them, and what leads there if nothing else is there, when nobody needs them any more.
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
        let closed = retry(|| match removal(&tools.save(&[TABLE])?) {
            Some(script) => tools.restore(&script),
            None => Ok(()),
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

/// The same, as far as these rules need them open.
fn opened(rules: &dyn Rules) -> impl Iterator<Item = (Family, &Opening, Option<Tools>)> {
    tools().filter_map(|(family, tools)| Some((family, rules.opening(family)?, tools)))
}

/// The rules, each with its chain, and the chain that it leads to, if it does.
fn wanted(opening: &Opening) -> [(&'static str, String, &str); 3] {
    let (admin, bit) = (opening.admin.as_str(), 1_u32 << opening.bit);
    [
        (CHAIN, format!("{} -j {admin}", comment(TO_ADMIN)), admin),
        (CHAIN, format!("-m mark --mark {bit:#x}/{bit:#x} {} -j ACCEPT", comment(opening.comment())), ""),
        (HOOK, format!("{} -j {CHAIN}", comment(TO_CHAIN)), CHAIN),
    ]
}

fn check(opening: &Opening) -> String {
    let lines = wanted(opening).map(|(chain, words, _)| format!("-C {chain} {words}\n"));
    format!("*{TABLE}\n{}COMMIT\n", lines.concat())
}

fn addition(opening: &Opening, saved: &str) -> String {
    let mut text = format!("*{TABLE}\n");
    for chain in [CHAIN, opening.admin.as_str()] {
        if !has_chain(saved, chain) {
            let _ = writeln!(text, "-N {chain}");
        }
    }
    for (chain, words, to) in wanted(opening) {
        let is_it = |rule: &&str| match to {
            "" => comment_of(rule) == opening.comment(),
            to => target(rule) == to,
        };
        if !rules(saved, TABLE).filter(|rule| chain_of(rule) == chain).any(|rule| is_it(&rule)) {
            let _ = writeln!(text, "{} {chain} {words}", if to.is_empty() { "-A" } else { "-I" });
        }
    }
    text + "COMMIT\n"
}

/// None: there is nothing of ours.
fn removal(saved: &str) -> Option<String> {
    let of =
        |chain: &str| rules(saved, TABLE).filter(move |rule| chain_of(rule) == chain).collect::<Vec<_>>();
    let (ours, others): (Vec<_>, Vec<_>) =
        of(CHAIN).into_iter().partition(|rule| comment_of(rule).starts_with(MARK));
    if ours.is_empty() {
        return None;
    }
    let mut text = format!("*{TABLE}\n");
    ours.iter().for_each(|rule| text.extend([deletion(rule).as_str(), "\n"]));
    let admins: Vec<&str> = others.iter().map(|rule| target(rule)).collect();
    // What the administrator has put there keeps the way to it.
    let is_empty = |chain: &&str| has_chain(saved, chain) && of(chain).is_empty();
    let led_to = |chain: &str| rules(saved, TABLE).filter(|rule| target(rule) == chain).count();
    if admins.iter().all(|admin| is_empty(admin) && led_to(admin) == 1) {
        let jumps = of(HOOK).into_iter().filter(|rule| target(rule) == CHAIN);
        jumps.for_each(|rule| text.extend([deletion(rule).as_str(), "\n"]));
        for command in ["-F", "-X"] {
            let _ = writeln!(text, "{command} {CHAIN}");
        }
        admins.iter().for_each(|admin| text.extend(["-X ", admin, "\n"]));
    }
    Some(text + "COMMIT\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::ChainName;

    fn opening() -> Opening {
        Opening { bit: 12, admin: ChainName::parse("CNI-ADMIN").unwrap() }
    }

    #[test]
    fn what_is_there_is_not_added_again() {
        let saved = "*filter\n:FORWARD DROP [0:0]\n:CNI-FORWARD - [0:0]\n:CNI-ADMIN - [0:0]\n\
            -A FORWARD -m comment --comment \"CNI firewall plugin rules\" -j CNI-FORWARD\n\
            -A CNI-FORWARD -m comment --comment \"CNI firewall plugin rules\" -j CNI-ADMIN\nCOMMIT\n";
        let wanted = "*filter\n-A CNI-FORWARD -m mark --mark 0x1000/0x1000 -m comment --comment \
                      \"ferrule: mark bit 12\" -j ACCEPT\nCOMMIT\n";
        assert_eq!(addition(&opening(), saved), wanted);
    }

    #[test]
    fn what_is_of_the_administrator_or_of_the_reference_keeps_its_way() {
        let mark = "-A CNI-FORWARD -m mark --mark 0x1000/0x1000 -m comment --comment \"ferrule: mark bit 12\" -j ACCEPT\n";
        let of = |more: &str| {
            format!(
                "*filter\n:FORWARD DROP [0:0]\n:CNI-FORWARD - [0:0]\n:CNI-ADMIN - [0:0]\n\
                 -A FORWARD -j CNI-FORWARD\n-A CNI-FORWARD -j CNI-ADMIN\n{mark}{more}COMMIT\n"
            )
        };
        let all = removal(&of("")).unwrap();
        assert!(all.contains("-D FORWARD -j CNI-FORWARD") && all.contains("-X CNI-ADMIN"), "{all}");
        for more in
            ["-A CNI-ADMIN -j DROP\n", "-A CNI-FORWARD -s 10.1.0.5/32 -j ACCEPT\n", "-A INPUT -j CNI-ADMIN\n"]
        {
            let some = removal(&of(more)).unwrap();
            assert!(some.contains("-D CNI-FORWARD -m mark") && !some.contains("-X"), "{some}");
        }
        assert_eq!(removal("*filter\n:FORWARD DROP [0:0]\nCOMMIT\n"), None);
    }
}
