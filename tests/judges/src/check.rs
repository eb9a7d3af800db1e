//! A check, and its result.

use std::{fmt, thread};

use lab::{Feature, message_of_panic};

use crate::host::Host;
use crate::side::Side;
use crate::soon::Timeout;

/// A question whose answer should be yes. `ask` panics if the answer is no.
pub struct Check {
    /// The program under test.
    pub group: &'static str,
    /// The property that must hold, as a sentence.
    pub name: &'static str,
    prepare: fn(&Host),
    ask: fn(&Host),
    needs: Vec<Feature>,
    lacks: fn() -> Option<&'static str>,
    reference_fails: Option<Difference>,
    ours_alone: Option<&'static str>,
}

/// A known failure of the reference.
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
    /// The reference fails with the expected message, for this reason.
    Explained(&'static str),
    /// The reference passes, although the check expects it to fail.
    Outdated,
    /// The reference fails with another message than expected.
    Unexpected,
    /// The kernel lacks this feature.
    Skipped(Feature),
    /// The machine lacks the program. The text names it.
    Absent(&'static str),
    /// The check does not apply to the reference, for this reason.
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

    /// The reference fails this check with a message that contains `message`, because of `why`. The run fails if the reference passes, or
    /// fails with another message.
    pub fn reference_fails(self, message: &'static str, why: &'static str) -> Self {
        Self { reference_fails: Some(Difference { message, why }), ..self }
    }

    /// The check does not run with the reference, because of `why`.
    pub fn ours_alone(self, why: &'static str) -> Self {
        Self { ours_alone: Some(why), ..self }
    }

    /// Prepares the host before the check.
    pub fn prepared_by(self, prepare: fn(&Host)) -> Self {
        Self { prepare, ..self }
    }

    /// Skips the check if the kernel lacks a feature.
    pub fn needs(self, feature: Feature) -> Self {
        Self { needs: [self.needs, vec![feature]].concat(), ..self }
    }

    /// Skips the check if `lacks` names a missing program.
    pub fn unless(self, lacks: fn() -> Option<&'static str>) -> Self {
        Self { lacks, ..self }
    }

    /// The check's row in docs/runtimes.md.
    pub fn row(&self, ours: &str, reference: &str) -> String {
        format!("| {} | {} | {ours} | {reference} |", self.group, self.name)
    }

    pub fn matches(&self, filter: &str) -> bool {
        format!("{}: {}", self.group, self.name).to_lowercase().contains(filter)
    }

    /// Runs the check on a new host.
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
        let (prepare, ask) = (self.prepare, self.ask);
        let timeout = if difference.is_some() { Timeout::Short } else { Timeout::Normal };
        // A lab changes the namespaces of its thread.
        let thread = thread::Builder::new().name(format!("{}: {} ({side})", self.group, self.name));
        let thread = thread.spawn(move || {
            timeout.set_for_this_thread();
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

    /// The expected result of the reference.
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
