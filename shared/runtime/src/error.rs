//! Errors of operations, with the plugin that caused them.

use std::fmt;

use cni::{Code, Command, PluginType};

/// Result of an operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failed step.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The plugin that failed, and its command. `None` for a step of the runtime.
    pub plugin: Option<(PluginType, Command)>,
    /// The plugin's error, or the runtime's.
    pub error: cni::Error,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.plugin {
            Some((kind, command)) => write!(f, "plugin {kind} ({command}): {}", self.error),
            None => self.error.fmt(f),
        }
    }
}

/// All failures of an operation. DEL and GC continue after a failure.
#[derive(Clone)]
pub struct Error {
    first: Box<Failure>,
    more: Vec<Failure>,
}

impl Error {
    /// A plugin's failure.
    pub fn of_plugin(kind: &PluginType, command: Command, error: cni::Error) -> Self {
        Failure { plugin: Some((kind.clone(), command)), error }.into()
    }

    /// A failure of a step of the runtime.
    pub(crate) fn own(code: Code, msg: impl Into<String>) -> Self {
        cni::Error::new(code, msg).into()
    }

    /// All failures in their order, at least one.
    pub fn failures(&self) -> impl Iterator<Item = &Failure> {
        std::iter::once(&*self.first).chain(&self.more)
    }

    /// Code of the first failure (SPEC.md, section 5, "Error").
    pub fn code(&self) -> u32 {
        self.first.error.code()
    }

    /// Puts the operation before every message.
    #[must_use]
    pub fn context(mut self, operation: impl fmt::Display) -> Self {
        for failure in std::iter::once(&mut *self.first).chain(&mut self.more) {
            failure.error = failure.error.clone().context(&operation);
        }
        self
    }

    /// Appends a sentence to the details of the last failure.
    #[must_use]
    pub fn detail(mut self, text: impl AsRef<str>) -> Self {
        let last = self.more.last_mut().unwrap_or(&mut *self.first);
        last.error = last.error.clone().detail(text);
        self
    }

    /// Joins two errors.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.more.push(*other.first);
        self.more.extend(other.more);
        self
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        Self { first: Box::new(failure), more: Vec::new() }
    }
}

impl From<cni::Error> for Error {
    fn from(error: cni::Error) -> Self {
        Failure { plugin: None, error }.into()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.more.is_empty() {
            write!(f, "{} steps failed: ", self.more.len() + 1)?;
        }
        for (i, failure) in self.failures().enumerate() {
            write!(f, "{}{failure}", if i > 0 { "; " } else { "" })?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "code {}: {self}", self.code())
    }
}

impl std::error::Error for Error {}

/// Collects failures of an operation that continues after each.
#[derive(Debug, Default)]
pub(crate) struct Failures(Option<Error>);

impl Failures {
    /// Records a failure, or returns the value.
    pub(crate) fn note<T>(&mut self, outcome: Result<T>) -> Option<T> {
        match outcome {
            Ok(value) => Some(value),
            Err(error) => {
                self.0 = Some(match self.0.take() {
                    None => error,
                    Some(earlier) => earlier.and(error),
                });
                None
            }
        }
    }

    pub(crate) fn into_result(self) -> Result<()> {
        self.0.map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_with_several_failures_lists_them_all_and_has_the_code_of_the_first() {
        let mut failures = Failures::default();
        let bridge = PluginType::parse("bridge").unwrap();
        failures.note::<()>(Err(Error::of_plugin(
            &bridge,
            Command::Del,
            cni::Error::config("no such thing"),
        )));
        failures.note::<()>(Err(Error::own(Code::Io, "remove it")));
        let error = failures.into_result().unwrap_err();
        assert_eq!(error.code(), 7);
        assert_eq!(error.to_string(), "2 steps failed: plugin bridge (DEL): no such thing; remove it");
        assert_eq!(error.failures().count(), 2);
    }
}
