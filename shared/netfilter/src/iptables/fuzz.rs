//! Scripts for iptables-restore from hostile rules.

#![allow(clippy::unwrap_used, reason = "a fuzz target ends with a panic")]

use cni::{NetworkName, Scope};
use netlink::Family;

use super::render::MARKER;
use super::repair::replacement;
use super::saved::Saved;
use super::script;
use crate::kind::Rules;
use crate::owner::Owner;
use crate::plan::Query;
use crate::selector::{Selector, Stale};

/// Maximum number of other lines in a script: tables, and chains to create.
const FRAME: usize = 12;

/// Every line is a valid command with one target, and the number of lines is limited by the number of rules.
pub(crate) fn rules(owner: &Owner, rules: &dyn Rules, saved: &str) {
    let (kind, rules) = (rules.kind(), rules.iptables());
    let scripts =
        |rules| Family::ALL.into_iter().filter_map(move |family| script(owner, kind, rules, family));
    for script in rules.into_iter().flat_map(scripts) {
        let count = script.shared.len() + script.lines.len();
        for (text, listed) in
            [(script.addition(), ""), (script.check(), ""), (replacement(&[&script], &Saved::read("")), "")]
        {
            assert!(text.lines().count() <= count + FRAME, "{text}");
            text.lines().for_each(|line| order(line, listed));
        }
        replacement(&[&script], &Saved::read(saved)).lines().for_each(|line| order(line, saved));
    }
    let Ok(network) = NetworkName::parse(owner.network()) else { return };
    let [all, dry] = [Scope::default(), Scope::default().dry()];
    let stale = |scope| Selector::Stale(Stale::new(&network, scope, kind.properties.name));
    for selector in [Selector::Of(owner), stale(&all), stale(&dry)] {
        let (query, listing) = (Query { selector: &selector, kind, addresses: &[] }, Saved::read(saved));
        let plan = query.plan(&listing, Family::V4, []).unwrap();
        listing.script(&plan.whole()).lines().for_each(|line| order(line, saved));
    }
}

/// A deletion must be of a listed rule. No other line contains foreign words, except for conditions, each of which is
/// one word.
fn order(line: &str, saved: &str) {
    let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
    match verb {
        "*nat" | "*mangle" | "*filter" | "COMMIT" => assert_eq!(rest, ""),
        "-N" => assert!(rest.len() < 29 && !rest.contains(' '), "{line}"),
        "-X" if rest == MARKER => {}
        "-F" | "-X" => assert!(saved.is_empty() || saved.contains(rest), "{line}"),
        "-D" => assert!(saved.contains(&format!("-A {rest}")), "{line}"),
        "-A" | "-I" | "-C" => {
            let words = words(rest);
            assert_eq!(words.iter().filter(|word| is_target(word)).count(), 1, "{line}");
            assert!(
                !words.iter().any(|word| matches!(word.as_str(), "-t" | "-A" | "-D" | "-F" | "-X")),
                "{line}"
            );
        }
        _ => panic!("{line}"),
    }
}

fn is_target(word: &str) -> bool {
    let long = |name: &str| word.len() > 2 && word.starts_with("--") && name.starts_with(word);
    word.starts_with("-j") || word.starts_with("-g") || long("--jump") || long("--goto")
}

/// Splits a line as iptables-restore does: at spaces outside of double quotes. `\\` escapes a character.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut in_quotes, mut chars) = (Vec::new(), String::new(), false, line.chars());
    while let Some(c) = chars.next() {
        match c {
            '"' => in_quotes = !in_quotes,
            '\\' if in_quotes => word.extend(chars.next()),
            ' ' if !in_quotes => words.push(std::mem::take(&mut word)),
            c => word.push(c),
        }
    }
    assert!(!in_quotes, "{line}");
    words.push(word);
    words
}
