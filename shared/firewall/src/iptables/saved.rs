//! What iptables-save(8) lists.

use super::script::{HAIRPIN, HOSTPORTS, Line, SHARED};
use crate::leftovers::{Whose, parents};
use crate::rules::Kind;
use crate::sweep::Addresses;

/// Whether a chain is listed.
pub(super) fn has_chain(saved: &str, chain: &str) -> bool {
    saved.lines().any(|line| line.strip_prefix(':').and_then(|rest| rest.split(' ').next()) == Some(chain))
}

/// Whether a shared rule is listed: it is known by its chain and its comment, for each version of the tool
/// writes the matches in its own way.
pub(super) fn has_rule(saved: &str, wanted: &Line) -> bool {
    let named = comment(&wanted.words);
    rules(saved, wanted.table).any(|line| chain_of(line) == wanted.chain && comment(line) == named)
}

/// The rules that are listed of a table, as `-A CHAIN ...`.
fn rules<'a>(saved: &'a str, table: &'a str) -> impl Iterator<Item = &'a str> {
    let mut here = "";
    saved.lines().filter(move |line| {
        if let Some(name) = line.strip_prefix('*') {
            here = name;
        }
        here == table && line.starts_with("-A ")
    })
}

fn chain_of(rule: &str) -> &str {
    rule.split(' ').nth(1).unwrap_or_default()
}

/// The chain or target that a rule jumps to.
fn target(rule: &str) -> &str {
    rule.split_once(" -j ").and_then(|(_, rest)| rest.split(' ').next()).unwrap_or_default()
}

/// What the rules of a chain of the table nat jump to.
pub(super) fn targets(saved: &str, chain: &str) -> Vec<String> {
    rules(saved, "nat").filter(|rule| chain_of(rule) == chain).map(|rule| target(rule).to_owned()).collect()
}

/// The comment of a rule, empty if it has none. What is more than a word is in quotes, with quotes in it
/// escaped.
fn comment(rule: &str) -> String {
    let Some((_, rest)) = rule.split_once("--comment ") else { return String::new() };
    let Some(quoted) = rest.strip_prefix('"') else {
        return rest.split(' ').next().unwrap_or_default().to_owned();
    };
    let (mut text, mut escaped) = (String::new(), false);
    for c in quoted.chars() {
        match c {
            '"' if !escaped => break,
            '\\' if !escaped => escaped = true,
            c => {
                text.push(c);
                escaped = false;
            }
        }
    }
    text
}

/// What removes attachments' chains, and the rules that jump there.
#[derive(Debug, Default)]
pub(super) struct Removal {
    /// Rules of the table nat that go.
    rules: Vec<String>,
    /// Chains of it that go.
    chains: Vec<String>,
    /// Rules of the table mangle that go.
    mangle: Vec<String>,
    /// The containers' addresses, as far as our own rules name them.
    addresses: Addresses,
}

impl Removal {
    /// Of a chain, in which something else is to be put.
    pub(super) fn of_jumps(saved: &str, chain: &str) -> Vec<String> {
        rules(saved, "nat").filter(|rule| target(rule) == chain).map(deletion).collect()
    }

    /// Of all that is somebody's in what was listed.
    pub(super) fn of(saved: &str, whose: &Whose<'_>, kind: Kind) -> Self {
        let mut this = Self { chains: whose.chains(kind), ..Self::default() };
        this.chains.retain(|chain| has_chain(saved, chain));
        let in_parents = rules(saved, "nat").filter(|rule| parents(kind).contains(&chain_of(rule)));
        let (gone, left): (Vec<&str>, Vec<&str>) = in_parents.partition(|rule| {
            this.chains.iter().any(|chain| chain == target(rule)) || whose.has_jump(&comment(rule))
        });
        for rule in &gone {
            this.rules.push(deletion(rule));
            if !this.chains.iter().any(|chain| chain == target(rule)) {
                this.chains.push(target(rule).to_owned());
            }
        }
        let in_ours = |rules: &[&str]| rules.iter().any(|rule| chain_of(rule) == HOSTPORTS);
        let inside =
            rules(saved, "nat").filter(|rule| this.chains.iter().any(|chain| chain == chain_of(rule)));
        this.addresses = inside.filter_map(|rule| comment(rule).parse().ok()).collect();
        if in_ours(&gone) && !in_ours(&left) {
            this.add_shared(saved);
        }
        this
    }

    /// The rules that attachments shared, after the last one.
    fn add_shared(&mut self, saved: &str) {
        let shared = |rule: &&str| comment(rule).starts_with(SHARED) && chain_of(rule) != HAIRPIN;
        self.rules.extend(rules(saved, "nat").filter(shared).map(deletion));
        self.mangle.extend(rules(saved, "mangle").filter(shared).map(deletion));
        let chains = [HAIRPIN, HOSTPORTS].into_iter().filter(|chain| has_chain(saved, chain));
        self.chains.extend(chains.map(str::to_owned));
    }

    /// Whether there is nothing to remove.
    pub(super) fn is_empty(&self) -> bool {
        self.rules.is_empty() && self.chains.is_empty()
    }

    /// Whose connections are to be forgotten.
    pub(super) fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// The script for iptables-restore.
    pub(super) fn render(&self) -> String {
        let mut text = String::from("*nat\n");
        self.rules.iter().for_each(|rule| text.extend([rule, "\n"]));
        for verb in ["-F ", "-X "] {
            self.chains.iter().for_each(|chain| text.extend([verb, chain, "\n"]));
        }
        text.push_str("COMMIT\n");
        if !self.mangle.is_empty() {
            text.push_str("*mangle\n");
            self.mangle.iter().for_each(|rule| text.extend([rule, "\n"]));
            text.push_str("COMMIT\n");
        }
        text
    }
}

fn deletion(rule: &str) -> String {
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
    fn the_containers_addresses_are_in_the_comments_of_its_own_chain() {
        let owner = crate::owner::tests::owner("net", "c", "eth0");
        let chain = crate::iptables::chain(&owner, Kind::Masquerade);
        let saved = format!(
            "*nat\n:{chain} - [0:0]\n:X - [0:0]\n-A {chain} -s fd00::5/128 -m comment --comment \"fd00::5\" -j RETURN\n\
             -A X -m comment --comment 10.0.0.9 -j RETURN\nCOMMIT\n"
        );
        let removal = Removal::of(&saved, &Whose::Of(&owner), Kind::Masquerade);
        assert_eq!(removal.addresses(), &Addresses::from(["fd00::5".parse().unwrap()]));
    }

    #[test]
    fn rules_are_told_apart_by_table() {
        let saved = "*mangle\n-A PREROUTING -j DROP\nCOMMIT\n*nat\n:X - [0:0]\n-A PREROUTING -j X\nCOMMIT\n";
        assert_eq!(rules(saved, "nat").collect::<Vec<_>>(), ["-A PREROUTING -j X"]);
        assert!(has_chain(saved, "X") && !has_chain(saved, "PREROUTING"));
        assert_eq!(Removal::of_jumps(saved, "X"), ["-D PREROUTING -j X"]);
    }
}
