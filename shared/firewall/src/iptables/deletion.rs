//! What removes attachments' rules from what iptables-save(8) lists.

use std::collections::BTreeSet;

use super::chains::{self, is_own};
use super::saved::{chain_of, chains as listed, comment, deletion, has_chain, rules, target};
use super::script::SHARED;
use crate::conntrack::Targets;
use crate::kind::{InIptables, Kind, Shared};
use crate::ordered::Names;
use crate::reference::names::is_any_chain;
use crate::selector::Selector;

/// What removes attachments' chains, and the rules that jump there.
#[derive(Debug)]
pub(super) struct Deletion {
    table: &'static str,
    /// Rules that lead packets to the chains that go.
    jumps: Vec<String>,
    /// Rules that attachments shared, each with its table.
    shared: Vec<(&'static str, String)>,
    /// Chains that go.
    chains: Names,
    /// Where UDP flows were led to by them.
    pub(super) targets: Targets,
}

impl Deletion {
    /// Of all that is somebody's in what was listed.
    pub(super) fn of(saved: &str, selector: &Selector<'_>, kind: Kind, facts: &InIptables) -> Self {
        let table = facts.table;
        let mut chains: Names = chains::of(selector, kind).into_iter().collect();
        chains.retain(|chain| has_chain(saved, chain));
        let in_parents = rules(saved, table).filter(|rule| facts.parents.contains(&chain_of(rule)));
        let (gone, left): (Vec<&str>, Vec<&str>) =
            in_parents.partition(|rule| chains.contains(target(rule)) || selector.has_jump(&comment(rule)));
        gone.iter().for_each(|rule| chains.add(target(rule)));
        let mut this = Self {
            table,
            jumps: gone.into_iter().map(deletion).collect(),
            shared: Vec::new(),
            chains,
            targets: Targets::default(),
        };
        if facts.shared.is_some() && selector.is_for_many() {
            this.add_unreached(saved, kind, &left);
        }
        this.targets = this.find_targets(saved);
        if let Some(shared) = &facts.shared
            && !left.iter().any(|rule| chain_of(rule) == shared.entry)
            && this.chains.iter().any(|chain| is_own(kind, chain))
        {
            this.add_shared(saved, shared);
        }
        this
    }

    /// Chains to which nothing leads: whoever was killed before has removed the rest.
    fn add_unreached(&mut self, saved: &str, kind: Kind, left: &[&str]) {
        let reached: BTreeSet<&str> = left.iter().map(|rule| target(rule)).collect();
        let unreached = listed(saved).filter(|chain| is_own(kind, chain) && !reached.contains(chain));
        unreached.for_each(|chain| self.chains.add(chain));
    }

    /// The containers' addresses that UDP goes to, as far as rules name them.
    fn find_targets(&self, saved: &str) -> Targets {
        let inside = rules(saved, self.table).filter(|rule| self.chains.contains(chain_of(rule)));
        let udp = inside.filter(|rule| rule.contains(" -p udp "));
        Targets {
            addresses: udp.filter_map(|rule| comment(rule).parse().ok()).collect(),
            are_unnamed: self.chains.iter().any(is_any_chain),
        }
    }

    /// What attachments shared, after the last one.
    fn add_shared(&mut self, saved: &str, shared: &Shared) {
        for (table, chain) in shared.hooks {
            let shared = rules(saved, table)
                .filter(|rule| chain_of(rule) == *chain && comment(rule).starts_with(SHARED));
            self.shared.extend(shared.map(|rule| (*table, deletion(rule))));
        }
        shared.chains.iter().filter(|chain| has_chain(saved, chain)).for_each(|chain| self.chains.add(chain));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.jumps.is_empty() && self.chains.is_empty()
    }

    /// The script for iptables-restore after which no packet comes to the chains any more.
    pub(super) fn cut(&self) -> String {
        format!("*{}\n{}COMMIT\n", self.table, lines(&self.jumps))
    }

    /// The script for the rest.
    pub(super) fn rest(&self) -> String {
        self.after("")
    }

    /// Both in one.
    pub(super) fn whole(&self) -> String {
        self.after(&lines(&self.jumps))
    }

    fn after(&self, jumps: &str) -> String {
        let mut text = format!("*{}\n{jumps}", self.table);
        let (here, others): (Vec<_>, Vec<_>) =
            self.shared.iter().partition(|(table, _)| *table == self.table);
        here.iter().for_each(|(_, rule)| text.extend([rule, "\n"]));
        for command in ["-F ", "-X "] {
            self.chains.iter().for_each(|chain| text.extend([command, chain, "\n"]));
        }
        let mut table = self.table;
        for (of, rule) in others {
            if *of != table {
                text.extend(["COMMIT\n*", of, "\n"]);
                table = of;
            }
            text.extend([rule, "\n"]);
        }
        text + "COMMIT\n"
    }
}

fn lines(rules: &[String]) -> String {
    rules.iter().map(|rule| format!("{rule}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HostPorts;

    #[test]
    fn the_containers_addresses_are_in_the_comments_of_its_own_chains_rules_for_udp() {
        let owner = crate::owner::tests::owner("net", "c", "eth0");
        let chain = chains::chain(&owner, HostPorts::KIND).unwrap();
        let saved = format!(
            "*nat\n:{chain} - [0:0]\n:X - [0:0]\n-A {chain} -p udp -m comment --comment \"fd00::5\" -j DNAT\n\
             -A {chain} -p tcp -m comment --comment fd00::6 -j DNAT\n\
             -A X -p udp -m comment --comment 10.0.0.9 -j RETURN\nCOMMIT\n"
        );
        let facts = HostPorts::KIND.iptables().unwrap();
        let deletion = Deletion::of(&saved, &Selector::Of(&owner), HostPorts::KIND, facts);
        assert_eq!(&deletion.targets.addresses, &BTreeSet::from(["fd00::5".parse().unwrap()]));
    }
}
