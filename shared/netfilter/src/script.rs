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
    /// Whether it is the first rule of its chain.
    pub(crate) first: bool,
    pub(crate) words: String,
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
        self.lines.push(Line { table: self.table, chain: chain.into(), first: false, words });
    }

    /// Adds a rule at the start of a chain of the table.
    pub(crate) fn insert(&mut self, chain: &str, words: String) {
        self.lines.push(Line { table: self.table, chain: chain.into(), first: true, words });
    }

    /// Adds a shared rule to a chain of a table.
    pub(crate) fn share(&mut self, (table, chain): TableChain, name: &str, matches: &str, target: &str) {
        let blank = if matches.is_empty() { "" } else { " " };
        let words = format!("{matches}{blank}{} -j {target}", comment(format!("{SHARED}{name}")));
        self.shared.push(Line { table, chain: chain.into(), first: false, words });
    }

    /// Adds a shared rule at the start of the chain.
    pub(crate) fn share_first(&mut self, hook: TableChain, name: &str, matches: &str, target: &str) {
        self.share(hook, name, matches, target);
        self.shared.iter_mut().last().into_iter().for_each(|line| line.first = true);
    }
}

/// A comment with a text without quotes.
pub(crate) fn comment(text: impl Display) -> String {
    format!("-m comment --comment \"{text}\"")
}
