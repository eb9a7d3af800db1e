//! What iptables-restore(8) reads. Written of checked values only: addresses, numbers, labels, checked words.

use std::fmt::{Display, Write as _};

use crate::listing::Hook;

/// What the comments of rules begin with that all attachments share.
pub(crate) const SHARED: &str = "ferrule: ";

/// The chain that a transaction creates and deletes if it deletes rules. It says that the change is ours: see [`crate::Losses`].
pub(crate) const MARKER: &str = "FERRULE-CHANGE";

/// What does so.
pub(super) const OWN_CHANGE: &str = "-N FERRULE-CHANGE\n-X FERRULE-CHANGE\n";

/// A rule in a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) table: &'static str,
    pub(super) chain: String,
    /// Whether it comes first in its chain.
    pub(super) first: bool,
    pub(super) words: String,
}

/// The rules of an attachment in one family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// The table with the attachment's own chain.
    pub(super) table: &'static str,
    /// The attachment's own chain.
    pub(crate) chain: String,
    /// The chains that all attachments share.
    pub(crate) shared_chains: Vec<String>,
    /// The rules that all attachments share, each known by its comment.
    pub(super) shared: Vec<Line>,
    pub(super) lines: Vec<Line>,
}

impl Script {
    pub(super) fn new(table: &'static str, chain: String) -> Self {
        Self { table, chain, shared_chains: Vec::new(), shared: Vec::new(), lines: Vec::new() }
    }

    /// A rule in the attachment's own chain.
    pub(crate) fn own(&mut self, words: String) {
        self.append(&self.chain.clone(), words);
    }

    /// A rule at the end of a chain of the table.
    pub(crate) fn append(&mut self, chain: &str, words: String) {
        self.lines.push(Line { table: self.table, chain: chain.into(), first: false, words });
    }

    /// A rule before all others of a chain of the table.
    pub(crate) fn insert(&mut self, chain: &str, words: String) {
        self.lines.push(Line { table: self.table, chain: chain.into(), first: true, words });
    }

    /// A rule that all attachments share, in a chain of a table.
    pub(crate) fn share(&mut self, (table, chain): Hook, name: &str, matches: &str, target: &str) {
        let blank = if matches.is_empty() { "" } else { " " };
        let words = format!("{matches}{blank}{} -j {target}", comment(format!("{SHARED}{name}")));
        self.shared.push(Line { table, chain: chain.into(), first: false, words });
    }

    /// The same, before all others of the chain.
    pub(crate) fn share_first(&mut self, hook: Hook, name: &str, matches: &str, target: &str) {
        self.share(hook, name, matches, target);
        self.shared.iter_mut().last().into_iter().for_each(|line| line.first = true);
    }

    /// The tables other than that of the attachment's own chain.
    fn other_tables(&self) -> Vec<&'static str> {
        let mut tables: Vec<_> = self.shared.iter().map(|line| line.table).collect();
        tables.retain(|table| *table != self.table);
        tables.dedup();
        tables
    }

    /// All tables, its own first.
    pub(super) fn tables(&self) -> Vec<&'static str> {
        [self.table].into_iter().chain(self.other_tables()).collect()
    }

    /// Adds the attachment's rules if all that is shared is there and its own chain is not: else the tool
    /// fails, and changes nothing.
    pub(super) fn addition(&self) -> String {
        let new = format!("-N {}\n", self.chain);
        self.render(|table, text| {
            in_table(&self.shared, table).for_each(|line| put(text, "-C", line));
            if table == self.table {
                text.push_str(&new);
            }
            in_table(&self.lines, table).for_each(|line| put(text, line.verb(), line));
        })
    }

    /// Fails if any of it is missing, and changes nothing.
    pub(super) fn check(&self) -> String {
        self.render(|table, text| {
            in_table(&self.shared, table).for_each(|line| put(text, "-C", line));
            in_table(&self.lines, table).for_each(|line| put(text, "-C", line));
        })
    }

    /// Each table is a transaction of its own. The one that may be refused comes first: then nothing was changed.
    fn render(&self, of_table: impl Fn(&str, &mut String)) -> String {
        let mut text = String::new();
        for table in self.tables() {
            let mut lines = String::new();
            of_table(table, &mut lines);
            if !lines.is_empty() {
                let _ = write!(text, "*{table}\n{lines}COMMIT\n");
            }
        }
        text
    }
}

impl Line {
    pub(super) fn verb(&self) -> &'static str {
        if self.first { "-I" } else { "-A" }
    }
}

pub(super) fn in_table<'a>(lines: &'a [Line], table: &str) -> impl Iterator<Item = &'a Line> {
    lines.iter().filter(move |line| line.table == table)
}

pub(super) fn put(text: &mut String, verb: &str, line: &Line) {
    let _ = writeln!(text, "{verb} {} {}", line.chain, line.words);
}

/// A comment, of a text without quotes.
pub(crate) fn comment(text: impl Display) -> String {
    format!("-m comment --comment \"{text}\"")
}
