//! What came of a plugin's run, and what the protocol demands of it.

use std::process::Output;

use serde_json::{Deserializer, Value};

use crate::under_test;

/// Everything that a runtime gets to see.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Plugin and command.
    pub what: String,
    /// None: killed by a signal.
    pub exit: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

/// The one error object of a failed run.
#[derive(Clone, Debug)]
pub struct CniError {
    pub code: u64,
    pub msg: String,
    pub details: String,
}

impl Outcome {
    pub(crate) fn new(what: String, output: &Output) -> Self {
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        Self { what, exit: output.status.code(), stdout: text(&output.stdout), stderr: text(&output.stderr) }
    }

    pub fn succeeded(&self) -> bool {
        self.exit == Some(0)
    }

    /// Success, and nothing to say: DEL, CHECK, GC, STATUS.
    pub fn ok(&self) {
        assert!(self.succeeded(), "{self:#?}");
        assert!(self.stdout.trim().is_empty(), "nothing belongs on stdout: {self:#?}");
    }

    /// Success, and one result on stdout: ADD, VERSION.
    pub fn ok_result(&self) -> Value {
        assert!(self.succeeded(), "{self:#?}");
        self.one_document()
    }

    /// Failure as the protocol wants it: exit code 1 and one error object on stdout.
    pub fn error(&self) -> CniError {
        assert_eq!(self.exit, Some(1), "a failure is exit code 1: {self:#?}");
        let document = self.one_document();
        let text = |key: &str| document[key].as_str().unwrap_or_default().to_owned();
        let error = CniError {
            code: document["code"].as_u64().unwrap_or_default(),
            msg: text("msg"),
            details: text("details"),
        };
        assert!(error.code > 0 && !error.msg.is_empty(), "an error has a code and a message: {self:#?}");
        // docs/reference-quirks.md#errors
        let has_version = document["cniVersion"].is_string();
        assert!(under_test().reference || has_version, "an error carries cniVersion: {self:#?}");
        error
    }

    /// Failure with this code, and a message or details with this word. Of the reference no more than a
    /// failure is asked: docs/reference-quirks.md#errors.
    #[track_caller]
    pub fn refused(&self, code: u64, culprit: &str) -> CniError {
        let error = self.error();
        if !under_test().reference {
            assert_eq!(error.code, code, "{self:#?}");
            let named = error.msg.contains(culprit) || error.details.contains(culprit);
            assert!(named, "no word of {culprit:?}: {self:#?}");
        }
        error
    }

    fn one_document(&self) -> Value {
        let mut documents = Deserializer::from_str(&self.stdout).into_iter::<Value>();
        let first = documents.next().unwrap_or_else(|| panic!("an empty stdout: {self:#?}"));
        let document = first.unwrap_or_else(|e| panic!("not JSON, {e}: {self:#?}"));
        assert!(documents.next().is_none(), "more than one document on stdout: {self:#?}");
        document
    }
}
