//! An attachment's rules for iptables as data. All parts are checked: addresses, numbers, labels, words of conditions.

use std::fmt::Display;

use crate::listing::TableChain;

/// Prefix of the comments of shared rules.
pub(crate) const SHARED: &str = "ferrule: ";

/// A rule in a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) table: &'static str,
    pub(crate) chain: String,
    pub(crate) place: Place,
    pub(crate) words: String,
}

/// Where a rule is added to its chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    First,
    Last,
    /// Directly before the first rule that jumps to a chain. Without such a rule, at the end.
    Before(&'static str),
}

/// The rules of an attachment in one family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// The table with the attachment's own chain.
    pub(crate) table: &'static str,
    /// The attachment's own chain.
    pub(crate) chain: String,
    /// The chains that all attachments share.
    pub(crate) shared_chains: Vec<String>,
    /// The rules that attachments share, each identified by its comment. Those that jump to an administrator's chain are
    /// identified by the chain, too.
    pub(crate) shared: Vec<Line>,
    pub(crate) lines: Vec<Line>,
}

impl Script {
    pub(crate) fn new(table: &'static str, chain: String) -> Self {
        Self { table, chain, shared_chains: Vec::new(), shared: Vec::new(), lines: Vec::new() }
    }

    /// Adds a rule to the attachment's own chain.
    pub(crate) fn own(&mut self, words: String) {
        self.append(&self.chain.clone(), words);
    }

    /// Adds a rule at the end of a chain of the table.
    pub(crate) fn append(&mut self, chain: &str, words: String) {
        self.lines.push(Line { table: self.table, chain: chain.into(), place: Place::Last, words });
    }

    /// Adds a rule at the start of a chain of the table.
    pub(crate) fn insert(&mut self, chain: &str, words: String) {
        self.lines.push(Line { table: self.table, chain: chain.into(), place: Place::First, words });
    }

    /// Adds a shared rule at the end of a chain of a table.
    pub(crate) fn share(&mut self, hook: TableChain, name: &str, matches: &str, target: &str) {
        self.share_at(Place::Last, hook, name, matches, target);
    }

    /// Adds a shared rule at a place of a chain of a table.
    pub(crate) fn share_at(
        &mut self,
        place: Place,
        (table, chain): TableChain,
        name: &str,
        matches: &str,
        target: &str,
    ) {
        let blank = if matches.is_empty() { "" } else { " " };
        let words = format!("{matches}{blank}{} -j {target}", comment(format!("{SHARED}{name}")));
        self.shared.push(Line { table, chain: chain.into(), place, words });
    }
}

/// A comment with a text without quotes.
pub(crate) fn comment(text: impl Display) -> String {
    format!("-m comment --comment \"{text}\"")
}
