//! A finding of a check: the object, the cause, and the remedy.

use serde_json::{Value, json};

/// The severity of a finding. The worst severity is the smallest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Containers cannot be attached, or attached containers have lost a part of their attachment.
    Error,
    /// The host works now, but probably not as intended, or not for long.
    Warning,
    /// Information. It does not change the exit code.
    Note,
}

impl Severity {
    pub fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Note => "note",
        }
    }
}

/// The remedy if an object could not be examined.
pub const EXAMINE_AGAIN: &str = "remove the cause, and run `cnitool doctor` again as root";

/// A problem of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub severity: Severity,
    /// The object, such as `network pods`.
    pub object: String,
    pub cause: String,
    pub remedy: String,
}

impl Finding {
    pub fn error(object: impl Into<String>, cause: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::new(Severity::Error, object, cause, remedy)
    }

    pub fn warning(object: impl Into<String>, cause: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::new(Severity::Warning, object, cause, remedy)
    }

    pub fn note(object: impl Into<String>, cause: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::new(Severity::Note, object, cause, remedy)
    }

    /// A warning that an object could not be examined.
    pub fn unread(object: impl Into<String>, cause: impl Into<String>) -> Self {
        Self::warning(object, cause, EXAMINE_AGAIN)
    }

    fn new(
        severity: Severity,
        object: impl Into<String>,
        cause: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self { severity, object: object.into(), cause: cause.into(), remedy: remedy.into() }
    }

    /// Whether this finding also reports the cause of another one, with its remedy, for the same network or object.
    pub fn includes(&self, other: &Self) -> bool {
        self.cause.contains(&other.cause)
            && self.remedy.contains(&other.remedy)
            && self.network_or_object() == other.network_or_object()
    }

    /// The network of an attachment, or a network's name. The object itself if it is neither.
    fn network_or_object(&self) -> &str {
        let attachment = self.object.strip_prefix("attachment ").and_then(|label| label.split('/').next());
        attachment.or_else(|| self.object.strip_prefix("network ")).unwrap_or(&self.object)
    }

    /// With the name of the check that found it.
    pub fn json(&self, check: &str) -> Value {
        json!({
            "severity": self.severity.name(), "check": check, "object": self.object, "cause": self.cause,
            "remedy": self.remedy,
        })
    }
}
