//! Results of the connectivity checks.

use serde_json::{Value, json};

/// A check of the network, and its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub promise: String,
    pub from: String,
    pub to: String,
    pub outcome: Outcome,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The check has passed. With a measured value, if there is one.
    Passed(String),
    Failed {
        cause: String,
        remedy: String,
    },
    /// The check could not run.
    Skipped(String),
}

/// The check that a container can be removed.
pub const REMOVAL: &str = "remove";

impl Row {
    pub fn new(promise: &str, from: impl Into<String>, to: impl Into<String>, outcome: Outcome) -> Self {
        Self { promise: promise.to_owned(), from: from.into(), to: to.into(), outcome }
    }

    pub fn skipped(promise: &str, from: &str, to: &str, why: impl Into<String>) -> Self {
        Self::new(promise, from, to, Outcome::Skipped(why.into()))
    }

    pub fn is_of_removal(&self) -> bool {
        self.promise == REMOVAL
    }

    pub fn is_passed(&self) -> bool {
        matches!(self.outcome, Outcome::Passed(_))
    }

    pub fn is_failed(&self) -> bool {
        matches!(self.outcome, Outcome::Failed { .. })
    }

    pub fn json(&self) -> Value {
        let (result, details, remedy) = match &self.outcome {
            Outcome::Passed(details) => ("passed", details, None),
            Outcome::Failed { cause, remedy } => ("failed", cause, Some(remedy)),
            Outcome::Skipped(why) => ("skipped", why, None),
        };
        json!({
            "promise": self.promise, "from": self.from, "to": self.to, "result": result, "details": details,
            "remedy": remedy,
        })
    }
}

impl Outcome {
    pub fn failed(cause: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::Failed { cause: cause.into(), remedy: remedy.into() }
    }
}
