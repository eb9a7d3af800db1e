//! An attachment's rules as iptables-restore(8) reads them: to add, to repair and to check.

use std::fmt::Write as _;

use crate::script::{Line, Script};

/// The chain that a transaction creates and deletes if it deletes rules. It says that the change is ours: see [`crate::Losses`].
pub(crate) const MARKER: &str = "FERRULE-CHANGE";

/// What does so.
pub(super) const OWN_CHANGE: &str = "-N FERRULE-CHANGE\n-X FERRULE-CHANGE\n";

impl Script {
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
