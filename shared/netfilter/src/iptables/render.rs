//! An attachment's rules in the format of iptables-restore(8): to add and to check them.

use std::fmt::Write as _;

use crate::script::{Line, Place, Script};

/// A transaction that deletes rules creates and deletes this chain, which marks the change as Ferrule's: see
/// [`crate::RulesetMonitor`].
pub(crate) const MARKER: &str = "FERRULE-CHANGE";

/// The lines that create and delete it.
pub(super) const OWN_CHANGE: &str = "-N FERRULE-CHANGE\n-X FERRULE-CHANGE\n";

impl Script {
    /// The tables other than the one with the attachment's own chain.
    fn other_tables(&self) -> Vec<&'static str> {
        let mut tables: Vec<_> = self.shared.iter().map(|line| line.table).collect();
        tables.retain(|table| *table != self.table);
        tables.dedup();
        tables
    }

    /// All tables, the one with the attachment's chain first.
    pub(super) fn tables(&self) -> Vec<&'static str> {
        [self.table].into_iter().chain(self.other_tables()).collect()
    }

    /// Adds the attachment's rules. The tool fails and changes nothing if a shared rule or chain is missing, or if the
    /// attachment's chain exists.
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

    /// Fails if a rule is missing. Changes nothing.
    pub(super) fn check(&self) -> String {
        self.render(|table, text| {
            in_table(&self.shared, table).for_each(|line| put(text, "-C", line));
            in_table(&self.lines, table).for_each(|line| put(text, "-C", line));
        })
    }

    /// Each table is a separate transaction. The one that may fail comes first, so that nothing has changed then.
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
        if self.place == Place::First { "-I" } else { "-A" }
    }
}

pub(super) fn in_table<'a>(lines: &'a [Line], table: &str) -> impl Iterator<Item = &'a Line> {
    lines.iter().filter(move |line| line.table == table)
}

pub(super) fn put(text: &mut String, verb: &str, line: &Line) {
    let _ = writeln!(text, "{verb} {} {}", line.chain, line.words);
}

/// Inserts a rule at a position of its chain, from 1.
pub(super) fn put_at(text: &mut String, position: usize, line: &Line) {
    let _ = writeln!(text, "-I {} {position} {}", line.chain, line.words);
}
