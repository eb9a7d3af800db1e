//! The outcome of a plugin's run, and the protocol's requirements.

use std::process::Output;

use serde_json::{Deserializer, Value};

use crate::under_test;

/// Everything that a runtime can see.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Plugin and command.
    pub what: String,
    /// None: killed by a signal.
    pub exit: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

/// The error object of a failed run.
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

    /// Asserts success without output: DEL, CHECK, GC, STATUS.
    pub fn ok(&self) {
        assert!(self.succeeded(), "{self:#?}");
        assert!(self.stdout.trim().is_empty(), "nothing belongs on stdout: {self:#?}");
    }

    /// Asserts success with one result on stdout: ADD, VERSION.
    pub fn ok_result(&self) -> Value {
        assert!(self.succeeded(), "{self:#?}");
        self.document().unwrap_or_else(|fault| panic!("{fault}: {self:#?}"))
    }

    /// Asserts failure: exit code 1 and one error object on stdout.
    #[track_caller]
    pub fn error(&self) -> CniError {
        self.judged().unwrap_or_else(|fault| panic!("{fault}: {self:#?}"))
    }

    /// Asserts failure with this code, and a word in the message or the details. For the reference, any failure is
    /// accepted: docs/reference-quirks.md#errors.
    #[track_caller]
    pub fn refused(&self, code: u64, culprit: &str) -> CniError {
        if under_test().reference {
            return self.error();
        }
        self.verdict(code, culprit).unwrap_or_else(|fault| panic!("{fault}"))
    }

    /// Like the assertion above, but returns the error object, or a text that says what is wrong with the failure.
    pub fn verdict(&self, code: u64, culprit: &str) -> Result<CniError, String> {
        let error = self.judged().map_err(|fault| format!("{fault}: {self:#?}"))?;
        if error.code != code {
            return Err(format!("code {code} was expected: {error:?}"));
        }
        if !error.msg.contains(culprit) && !error.details.contains(culprit) {
            return Err(format!("no word of {culprit:?}: {error:?}"));
        }
        Ok(error)
    }

    /// The error object of a failure, or a text that says what is wrong with the failure.
    pub fn judged(&self) -> Result<CniError, String> {
        if self.exit != Some(1) {
            return Err("a failure is exit code 1".to_owned());
        }
        let document = self.document()?;
        let text = |key: &str| document[key].as_str().unwrap_or_default().to_owned();
        let code = document["code"].as_u64().unwrap_or_default();
        let error = CniError { code, msg: text("msg"), details: text("details") };
        if error.code == 0 || error.msg.is_empty() {
            return Err("an error has a code and a message".to_owned());
        }
        // docs/reference-quirks.md#errors
        if !under_test().reference && !document["cniVersion"].is_string() {
            return Err("an error carries cniVersion".to_owned());
        }
        Ok(error)
    }

    fn document(&self) -> Result<Value, String> {
        let mut documents = Deserializer::from_str(&self.stdout).into_iter::<Value>();
        let first = documents.next().ok_or("an empty stdout")?;
        let document = first.map_err(|e| format!("not JSON, {e}"))?;
        match documents.next() {
            None => Ok(document),
            Some(_) => Err("more than one document on stdout".to_owned()),
        }
    }
}
