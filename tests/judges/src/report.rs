//! The table of results.

use std::fmt;

use crate::check::{Check, Verdict};
use crate::side::Side;

pub const HEAD: &str = "| program | check | Ferrule | reference |\n|---|---|---|---|";

#[derive(Default)]
pub struct Report {
    rows: Vec<String>,
    verdicts: Vec<Verdict>,
    /// Comparisons that are not in the table.
    skips: usize,
}

impl Report {
    /// Adds the results of a check with each side.
    pub fn add(&mut self, check: &Check, tried: &[(Side, Verdict)]) {
        let of =
            |side| tried.iter().find(|(one, _)| *one == side).map_or(String::new(), |(_, v)| v.to_string());
        self.rows.push(check.row(&of(Side::Ours), &of(Side::Reference)));
        self.verdicts.extend(tried.iter().map(|(_, verdict)| verdict));
    }

    /// Counts a comparison that this run could not make.
    pub fn skip(&mut self) {
        self.skips += 1;
    }

    pub fn failed(&self) -> usize {
        self.count(|verdict| matches!(verdict, Verdict::Failed | Verdict::Outdated | Verdict::Unexpected))
    }

    fn count(&self, which: impl Fn(&Verdict) -> bool) -> usize {
        self.verdicts.iter().filter(|verdict| which(verdict)).count()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{HEAD}\n{}", self.rows.join("\n"))?;
        let passed = self.count(|verdict| *verdict == Verdict::Passed);
        let skipped = self.skips
            + self.count(|verdict| {
                matches!(
                    verdict,
                    Verdict::Explained(_) | Verdict::Skipped(_) | Verdict::Absent(_) | Verdict::NotAsked(_)
                )
            });
        write!(f, "\n{passed} passed, {} failed, {skipped} skipped", self.failed())
    }
}
