//! One question, and what comes of it.

use std::{fmt, thread};

use lab::{Feature, message_of_panic};

use crate::host::Host;
use crate::side::Side;
use crate::soon::Hope;

/// A question whose answer should be yes: `ask` panics if it is no.
pub struct Check {
    /// The program that is asked.
    pub group: &'static str,
    /// A sentence.
    pub name: &'static str,
    prepare: fn(&Host),
    ask: fn(&Host),
    needs: Vec<Feature>,
    lacks: fn() -> Option<&'static str>,
    reference_fails: Option<Difference>,
    ours_alone: Option<&'static str>,
}

/// What the reference is known to do otherwise.
#[derive(Clone, Copy, Debug)]
struct Difference {
    /// Part of the message with which the check fails.
    message: &'static str,
    why: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Verdict {
    Passed,
    Failed,
    /// The reference fails with the message that the check names, for this reason.
    Explained(&'static str),
    /// The reference passes a check that it is said to fail.
    Outdated,
    /// The reference fails with another message than the check names.
    Unexpected,
    /// The kernel lacks what it needs.
    Skipped(Feature),
    /// The machine lacks the program, as this text tells.
    Absent(&'static str),
    /// It makes no sense with the reference, as this text tells.
    NotAsked(&'static str),
}

impl Check {
    pub fn new(group: &'static str, name: &'static str, ask: fn(&Host)) -> Self {
        Self {
            group,
            name,
            prepare: |_| (),
            ask,
            needs: Vec::new(),
            lacks: || None,
            reference_fails: None,
            ours_alone: None,
        }
    }

    /// The reference fails this check with `message`, or a longer one that has it, because of `why`. The run fails if it passes, and if it
    /// fails with another message.
    pub fn reference_fails(self, message: &'static str, why: &'static str) -> Self {
        Self { reference_fails: Some(Difference { message, why }), ..self }
    }

    /// The reference is not asked, because of `why`.
    pub fn ours_alone(self, why: &'static str) -> Self {
        Self { ours_alone: Some(why), ..self }
    }

    /// What is done on the host first.
    pub fn prepared_by(self, prepare: fn(&Host)) -> Self {
        Self { prepare, ..self }
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
        if let Some(why) = self.ours_alone.filter(|_| side == Side::Reference) {
            return Verdict::NotAsked(why);
        }
        let difference = self.reference_fails.filter(|_| side == Side::Reference);
        let (prepare, ask, hope) =
            (self.prepare, self.ask, if difference.is_some() { Hope::Little } else { Hope::Full });
        // A lab belongs to a thread.
        let thread = thread::Builder::new().name(format!("{}: {} ({side})", self.group, self.name));
        let thread = thread.spawn(move || {
            hope.for_this_thread();
            let host = Host::new(side);
            prepare(&host);
            ask(&host);
        });
        match (thread.expect("start a thread").join(), difference) {
            (Ok(()), None) => Verdict::Passed,
            (Ok(()), Some(_)) => Verdict::Outdated,
            (Err(_), None) => Verdict::Failed,
            (Err(panic), Some(difference)) if message_of_panic(&*panic).contains(difference.message) => {
                Verdict::Explained(difference.why)
            }
            (Err(_), Some(_)) => Verdict::Unexpected,
        }
    }

    /// What is known of the reference's answer.
    #[cfg(test)]
    pub fn known(&self) -> Verdict {
        let fails = self.reference_fails.map(|difference| Verdict::Explained(difference.why));
        self.ours_alone.map(Verdict::NotAsked).or(fails).unwrap_or(Verdict::Passed)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed => write!(f, "yes"),
            Self::Failed => write!(f, "FAILED"),
            Self::Explained(why) => write!(f, "no: {why}"),
            Self::Outdated => write!(f, "FAILED: yes, but the check says that the reference fails"),
            Self::Unexpected => write!(f, "FAILED: no, but not with the message that the check names"),
            Self::Skipped(feature) => write!(f, "skipped: this kernel has no {feature}"),
            Self::Absent(why) => write!(f, "skipped: {why}"),
            Self::NotAsked(why) => write!(f, "not asked: {why}"),
        }
    }
}
