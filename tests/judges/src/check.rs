//! One question, and what comes of it.

use std::{fmt, thread};

use lab::Feature;

use crate::host::Host;
use crate::side::Side;
use crate::soon::Hope;

/// A question whose answer should be yes: `ask` panics if it is no.
pub struct Check {
    /// The program that is asked.
    pub group: &'static str,
    /// A sentence.
    pub name: &'static str,
    ask: fn(&Host),
    needs: Vec<Feature>,
    lacks: fn() -> Option<&'static str>,
    reference_fails: Option<&'static str>,
    ours_only: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Verdict {
    Passed,
    Failed,
    /// The reference fails, as the check explains.
    Explained(&'static str),
    /// What the check explains does not happen any more.
    Outdated,
    /// The kernel lacks what it needs.
    Skipped(Feature),
    /// The machine lacks the program, as this text tells.
    Absent(&'static str),
}

impl Check {
    pub fn new(group: &'static str, name: &'static str, ask: fn(&Host)) -> Self {
        Self { group, name, ask, needs: Vec::new(), lacks: || None, reference_fails: None, ours_only: None }
    }

    /// The reference fails, and this is why.
    pub fn reference_fails(self, why: &'static str) -> Self {
        Self { reference_fails: Some(why), ..self }
    }

    /// It asks for what the reference does not have, and this is why.
    pub fn ours_only(self, why: &'static str) -> Self {
        Self { ours_only: Some(why), ..self }
    }

    /// What not every kernel has.
    pub fn needs(self, feature: Feature) -> Self {
        Self { needs: [self.needs, vec![feature]].concat(), ..self }
    }

    /// A program that may be missing.
    pub fn unless(self, lacks: fn() -> Option<&'static str>) -> Self {
        Self { lacks, ..self }
    }

    /// Its row of docs/runtimes.md.
    pub fn row(&self, ours: &str, reference: &str) -> String {
        format!("| {} | {} | {ours} | {reference} |", self.group, self.name)
    }

    pub fn matches(&self, filter: &str) -> bool {
        format!("{}: {}", self.group, self.name).to_lowercase().contains(filter)
    }

    /// Asks on a host of its own.
    pub fn run_with(&self, side: Side) -> Verdict {
        if let Some(missing) = self.needs.iter().find(|feature| !feature.is_there()) {
            return Verdict::Skipped(*missing);
        }
        if let Some(why) = (self.lacks)() {
            return Verdict::Absent(why);
        }
        let explained = self.reference_fails.filter(|_| side == Side::Reference);
        if let Some(why) = self.ours_only.filter(|_| side == Side::Reference) {
            return Verdict::Explained(why);
        }
        let (ask, hope) = (self.ask, if explained.is_some() { Hope::Little } else { Hope::Full });
        // A lab belongs to a thread.
        let thread = thread::Builder::new().name(format!("{}: {} ({side})", self.group, self.name));
        let thread = thread.spawn(move || {
            hope.for_this_thread();
            ask(&Host::new(side));
        });
        let passed = thread.expect("start a thread").join().is_ok();
        match (passed, explained) {
            (true, None) => Verdict::Passed,
            (false, None) => Verdict::Failed,
            (false, Some(why)) => Verdict::Explained(why),
            (true, Some(_)) => Verdict::Outdated,
        }
    }

    /// What is known of the reference's answer.
    #[cfg(test)]
    pub fn known(&self) -> Verdict {
        self.reference_fails.or(self.ours_only).map_or(Verdict::Passed, Verdict::Explained)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed => write!(f, "yes"),
            Self::Failed => write!(f, "FAILED"),
            Self::Explained(why) => write!(f, "no: {why}"),
            Self::Outdated => write!(f, "FAILED: yes, though it is explained why not"),
            Self::Skipped(feature) => write!(f, "skipped: this kernel has no {feature}"),
            Self::Absent(why) => write!(f, "skipped: {why}"),
        }
    }
}
