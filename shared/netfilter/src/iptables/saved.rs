//! Parses a listing of iptables-save(8).

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use netlink::{Family, RequestError};

use crate::listing::{Content, Listed, Listing, RuleLocation};
use crate::ruleset::Table;
use crate::ruleset::uapi::{SCTP, UDP};

/// A listing, indexed.
pub(super) struct Saved<'a> {
    chains: BTreeSet<&'a str>,
    /// By table and chain. Each rule has its line number.
    rules: BTreeMap<(&'a str, &'a str), Vec<(u64, &'a str)>>,
    /// By table and target chain.
    jumps: BTreeMap<(&'a str, &'a str), Vec<&'a str>>,
    lines: Vec<&'a str>,
}

impl<'a> Saved<'a> {
    pub(super) fn read(saved: &'a str) -> Self {
        let (chains, rules, jumps) = (chains(saved).collect(), BTreeMap::new(), BTreeMap::new());
        let mut this = Self { chains, rules, jumps, lines: Vec::new() };
        for (number, (table, rule)) in (0..).zip(all_rules(saved)) {
            this.rules.entry((table, chain_of(rule))).or_default().push((number, rule));
            this.jumps.entry((table, target(rule))).or_default().push(rule);
            this.lines.push(rule);
        }
        this
    }

    pub(super) fn lists_chain(&self, chain: &str) -> bool {
        self.chains.contains(chain)
    }

    /// The rules of a chain.
    pub(super) fn rules_of<'s>(&'s self, table: &'s str, chain: &'s str) -> impl Iterator<Item = &'s str> {
        self.rules.get(&(table, chain)).into_iter().flatten().map(|(_, rule)| *rule)
    }

    /// The rules that jump to a chain.
    pub(super) fn jumps_to<'s>(&'s self, table: &'s str, chain: &'s str) -> impl Iterator<Item = &'s str> {
        self.jumps.get(&(table, chain)).into_iter().flatten().copied()
    }

    /// The command that deletes a rule.
    pub(super) fn deletion_of(&self, handle: u64) -> String {
        let line = usize::try_from(handle).ok().and_then(|number| self.lines.get(number));
        line.map(|rule| deletion(rule)).unwrap_or_default()
    }
}

impl Listing for Saved<'_> {
    fn chains(&self, _: Table) -> Result<Vec<String>, RequestError> {
        Ok(self.chains.iter().map(|chain| (*chain).to_owned()).collect())
    }

    fn has_chain(&self, _: Table, chain: &str) -> Result<bool, RequestError> {
        Ok(self.chains.contains(chain))
    }

    fn rules(&self, table: Table, chain: &str) -> Result<Vec<Listed>, RequestError> {
        let listed = |(handle, rule): &(u64, &str)| Listed {
            location: RuleLocation { table, chain: chain.to_owned(), handle: *handle },
            comment: comment(rule),
            target: target(rule).to_owned(),
            tracked: match word_after(rule, " -p ") {
                "udp" => Some(UDP),
                "sctp" => Some(SCTP),
                _ => None,
            },
            port: word_after(rule, " --dport ").parse().ok(),
            content: content(rule),
        };
        Ok(self.rules.get(&(table.name, chain)).into_iter().flatten().map(listed).collect())
    }
}

/// The listed chains.
fn chains(saved: &str) -> impl Iterator<Item = &str> {
    saved.lines().filter_map(|line| line.strip_prefix(':')?.split(' ').next())
}

/// The listed rules of a table, as `-A CHAIN ...`.
pub(crate) fn rules<'a>(saved: &'a str, table: &'a str) -> impl Iterator<Item = &'a str> {
    all_rules(saved).filter(move |(of, _)| *of == table).map(|(_, rule)| rule)
}

/// All rules, each with its table.
fn all_rules(saved: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut table = "";
    saved.lines().filter_map(move |line| {
        table = line.strip_prefix('*').unwrap_or(table);
        line.starts_with("-A ").then_some((table, line))
    })
}

pub(crate) fn chain_of(rule: &str) -> &str {
    rule.split(' ').nth(1).unwrap_or_default()
}

/// The chain or target to which a rule jumps.
pub(crate) fn target(rule: &str) -> &str {
    rule.split_once(" -j ").and_then(|(_, rest)| rest.split(' ').next()).unwrap_or_default()
}

/// The comment of a rule. Empty without one.
pub(crate) fn comment(rule: &str) -> String {
    rule.split_once("--comment ").map_or_else(String::new, |(_, rest)| first_word(rest).0.into_owned())
}

/// The first word of a text, and the part after it. A word that contains spaces is quoted, with escaped quotes in it.
pub(super) fn first_word(text: &str) -> (Cow<'_, str>, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        return (word.into(), rest);
    };
    let (mut word, mut characters) = (String::new(), quoted.char_indices());
    while let Some((at, c)) = characters.next() {
        match c {
            '"' => return (word.into(), &quoted[at + 1..]),
            '\\' => word.extend(characters.next().map(|(_, escaped)| escaped)),
            c => word.push(c),
        }
    }
    (word.into(), "")
}

/// The word after another one. Empty if there is none.
pub(crate) fn word_after<'a>(rule: &'a str, name: &str) -> &'a str {
    rule.split_once(name).and_then(|(_, rest)| rest.split(' ').next()).unwrap_or_default()
}

/// What a rule does.
fn content(rule: &str) -> Content {
    let Some((_, words)) = rule.strip_prefix("-A ").and_then(|rule| rule.split_once(' ')) else {
        return Content::Nothing;
    };
    let words = without_comment(words);
    match words.rsplit_once("-j ") {
        None if words.is_empty() => Content::Nothing,
        Some(("", "ACCEPT" | "DROP" | "RETURN")) | None => Content::Other,
        Some(("", target)) if !target.contains(' ') => Content::Jump(target.to_owned()),
        Some((matches, target)) if are_interfaces(matches) => {
            Content::Interfaces(format!("{matches}-j {target}"))
        }
        Some((matches, "ACCEPT")) => accepted(matches.trim_end()).unwrap_or(Content::Other),
        Some(_) => Content::Other,
    }
}

/// Whether all conditions are about interfaces.
fn are_interfaces(matches: &str) -> bool {
    let words: Vec<_> = matches.split_whitespace().filter(|word| *word != "!").collect();
    !words.is_empty() && words.chunks(2).all(|pair| matches!(pair, ["-i" | "-o", _]))
}

/// The words of a rule without its comment.
fn without_comment(words: &str) -> String {
    const COMMENT: &str = "-m comment --comment ";
    let Some((before, rest)) = words.split_once(COMMENT) else { return words.to_owned() };
    let (_, after) = first_word(rest);
    format!("{before}{}", after.trim_start()).trim_end().to_owned()
}

/// The packets that a rule with these matches accepts.
fn accepted(matches: &str) -> Option<Content> {
    if let Some(mark) = matches.strip_prefix("-m mark --mark ") {
        let (value, mask) = mark.split_once('/')?;
        let value = u32::from_str_radix(value.strip_prefix("0x")?, 16).ok()?;
        let is_bit = value.is_power_of_two() && mask == format!("{value:#x}");
        return is_bit.then(|| Content::Accept(value.trailing_zeros() as u8));
    }
    let from = || matches.strip_prefix("-s ");
    let to = || matches.strip_prefix("-d ")?.strip_suffix(" -m conntrack --ctstate RELATED,ESTABLISHED");
    let (address, prefix) = from().or_else(to)?.split_once('/')?;
    let address: IpAddr = address.parse().ok()?;
    (prefix == Family::from(address).choose("32", "128")).then_some(Content::AcceptAddress(address))
}

/// The command that deletes a listed rule.
pub(super) fn deletion(rule: &str) -> String {
    rule.replacen("-A ", "-D ", 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comment_is_read_with_and_without_quotes() {
        assert_eq!(comment("-A X -m comment --comment a/b/c -j Y"), "a/b/c");
        let quoted = r#"-A X -m comment --comment "dnat name: \"net\" id: \"c\"" -j Y"#;
        assert_eq!(comment(quoted), "dnat name: \"net\" id: \"c\"");
        assert_eq!(comment("-A X -j Y"), "");
    }

    #[test]
    fn rules_that_accept_packets_of_one_address_are_recognized() {
        for (rule, address) in [
            ("-A CNI-FORWARD -s 10.1.2.2/32 -j ACCEPT", Some("10.1.2.2")),
            ("-A CNI-FORWARD -s fd00::2/128 -j ACCEPT", Some("fd00::2")),
            (
                "-A CNI-FORWARD -d 10.1.2.2/32 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
                Some("10.1.2.2"),
            ),
            ("-A CNI-FORWARD -d 10.1.2.2/32 -j ACCEPT", None),
            ("-A CNI-FORWARD ! -s 10.1.2.2/32 -j ACCEPT", None),
            ("-A CNI-FORWARD -s 10.1.2.0/24 -j ACCEPT", None),
            ("-A CNI-FORWARD -s 10.1.2.2/32 -o eth0 -j ACCEPT", None),
            ("-A CNI-FORWARD -s 10.1.2.2/32 -j DROP", None),
            ("-A CNI-FORWARD", None),
        ] {
            let accepted = match content(rule) {
                Content::AcceptAddress(ip) => Some(ip),
                _ => None,
            };
            assert_eq!(accepted, address.map(|ip| ip.parse().unwrap()), "{rule}");
        }
    }

    #[test]
    fn rules_are_compared_without_their_comments() {
        let accept = "-A CNI-FORWARD -m mark --mark 0x1000/0x1000 -m comment --comment \"ferrule: mark bit 12\" -j ACCEPT";
        assert_eq!(content(accept), Content::Accept(12));
        assert_eq!(content("-A X -m comment --comment made -j Y"), Content::Jump("Y".into()));
        assert_eq!(content("-A X -m comment --comment \"a \\\"b\\\" c\""), Content::Nothing);
        assert_eq!(content("-A X"), Content::Nothing);
        for other in [
            "-A CNI-FORWARD -m comment --comment \"ferrule: mark bit 12\" -j ACCEPT",
            "-A CNI-FORWARD -m mark --mark 0x1000/0x1000 -j DROP",
            "-A CNI-FORWARD -m mark ! --mark 0x1000/0x1000 -j ACCEPT",
            "-A CNI-FORWARD -m mark --mark 0x1000/0xffff -j ACCEPT",
            "-A CNI-FORWARD -i eth0 -m mark --mark 0x1000/0x1000 -j ACCEPT",
            "-A X -s 10.0.0.0/8 -j Y",
            "-A X -j LOG --log-prefix x",
        ] {
            assert_eq!(content(other), Content::Other, "{other}");
        }
    }

    #[test]
    fn rules_are_distinguished_by_table() {
        let saved = "*mangle\n-A PREROUTING -j DROP\nCOMMIT\n*nat\n:X - [0:0]\n-A PREROUTING -j X\nCOMMIT\n";
        assert_eq!(rules(saved, "nat").collect::<Vec<_>>(), ["-A PREROUTING -j X"]);
        let read = Saved::read(saved);
        assert!(read.lists_chain("X") && !read.lists_chain("PREROUTING"));
        assert_eq!(read.jumps_to("nat", "X").collect::<Vec<_>>(), ["-A PREROUTING -j X"]);
        assert_eq!(read.jumps_to("mangle", "X").next(), None);
        assert_eq!(rules(saved, "nat").map(deletion).collect::<Vec<_>>(), ["-D PREROUTING -j X"]);
    }
}
