//! Findings in a configuration.

use std::path::PathBuf;

use runtime::Network;
use runtime::text::Position;
use serde_json::{Value, json};

/// A finding in a configuration.
#[derive(Debug, PartialEq, Eq)]
pub struct Finding {
    pub at: Position,
    pub level: Level,
    pub text: String,
    /// The remedy.
    pub help: Option<String>,
}

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// The configuration does not work.
    Error,
    /// The configuration works, but probably not as intended.
    Warning,
}

impl Level {
    pub fn name(self) -> &'static str {
        match self {
            Self::Error => "error:",
            Self::Warning => "warning:",
        }
    }
}

impl Finding {
    pub fn json(&self) -> Value {
        json!({
            "line": self.at.line,
            "column": self.at.column,
            "level": self.level.name().trim_end_matches(':'),
            "msg": self.text,
            "help": self.help,
        })
    }
}

/// Collects findings.
#[derive(Debug)]
pub struct Report<'a> {
    findings: Vec<Finding>,
    /// The plugin directories.
    pub path: &'a [PathBuf],
    /// Whether the file's extension is that of a list.
    pub is_list: bool,
    /// The network as the runtime library has loaded it. None: loading failed.
    pub network: Option<&'a Network>,
}

impl<'a> Report<'a> {
    pub fn new(path: &'a [PathBuf], is_list: bool, network: Option<&'a Network>) -> Self {
        Self { findings: Vec::new(), path, is_list, network }
    }

    /// The number of errors so far.
    pub fn errors(&self) -> usize {
        self.findings.iter().filter(|finding| finding.level == Level::Error).count()
    }

    pub fn error(&mut self, at: Position, text: impl Into<String>) -> &mut Finding {
        self.add(at, Level::Error, text.into())
    }

    pub fn warning(&mut self, at: Position, text: impl Into<String>) -> &mut Finding {
        self.add(at, Level::Warning, text.into())
    }

    /// All findings, in the order of the text.
    pub fn finish(mut self) -> Vec<Finding> {
        self.findings.sort_by_key(|finding| finding.at);
        self.findings
    }

    fn add(&mut self, at: Position, level: Level, text: String) -> &mut Finding {
        self.findings.push(Finding { at, level, text, help: None });
        let last = self.findings.len() - 1;
        &mut self.findings[last]
    }
}
