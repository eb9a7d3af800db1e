//! Errors of a plugin.

use std::error::Error as StdError;
use std::fmt::{self, Display};
use std::io;

use serde::{Deserialize, Serialize};
use system::lock::LockError;

use crate::Version;

/// Result of a step of a plugin.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Error codes of the specification (SPEC.md, section 5, "Error"), and 999 for all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Code {
    /// The configuration's `cniVersion` is not supported, or too old for the command.
    IncompatibleVersion = 1,
    /// A key of the configuration, or its value, is not supported.
    UnsupportedField = 2,
    /// The container does not exist. The runtime need not clean up.
    UnknownContainer = 3,
    /// A `CNI_*` variable is missing or malformed.
    InvalidEnvironment = 4,
    /// Reading or writing failed.
    Io = 5,
    /// Invalid JSON, or a value of the wrong type.
    Decoding = 6,
    /// The configuration is invalid.
    InvalidConfig = 7,
    /// `CNI_NETNS` is the plugin's own network namespace.
    InvalidNetns = 8,
    /// A transient condition: try again.
    TryAgainLater = 11,
    /// STATUS: no ADD can succeed.
    NotAvailable = 50,
    /// STATUS: no ADD can succeed, and running containers may have no connectivity.
    LimitedConnectivity = 51,
    /// All other errors, mostly refusals of the kernel.
    Internal = 999,
}

/// An error object of the specification: a code, a message with operation and object, and details with the kernel's or file system's words
/// and the remedy.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Error {
    code: u32,
    msg: String,
    #[serde(default)]
    details: String,
    /// Whether a plugin ended with this error and did not mark it as one of Ferrule's ([`Error::to_marked_json`]).
    #[serde(skip)]
    unmarked: bool,
}

impl Error {
    /// An error with a code and a message.
    pub fn new(code: Code, msg: impl Into<String>) -> Self {
        Self::foreign(code as u32, msg, "")
    }

    /// Another plugin's error, unchanged. Codes from 100 on belong to that plugin.
    pub fn foreign(code: u32, msg: impl Into<String>, details: impl Into<String>) -> Self {
        Self { code, msg: msg.into(), details: details.into(), unmarked: false }
    }

    /// Code 7: the configuration is invalid.
    pub fn config(msg: impl Into<String>) -> Self {
        Self::new(Code::InvalidConfig, msg)
    }

    /// Code 5: an operation on a file failed.
    pub fn io(operation: impl Display, cause: &io::Error) -> Self {
        let error = Self::new(Code::Io, format!("{operation}: {}", words(cause)));
        let is_for_root = cause.kind() == io::ErrorKind::PermissionDenied && !system::is_root();
        if is_for_root { error.detail("run it as root") } else { error }
    }

    /// Appends a sentence to the details: a cause, or a remedy.
    #[must_use]
    pub fn detail(mut self, text: impl AsRef<str>) -> Self {
        let text = text.as_ref();
        if !text.is_empty() {
            if !self.details.is_empty() {
                self.details.push_str("; ");
            }
            self.details.push_str(text);
        }
        self
    }

    /// Adds failures of the rollback.
    #[must_use]
    pub fn and_rollback(self, failure: Self) -> Self {
        self.detail(format!("the rollback failed too: {failure}"))
    }

    /// Puts the operation before the message.
    #[must_use]
    pub fn context(mut self, operation: impl Display) -> Self {
        self.msg = format!("{operation}: {}", self.msg);
        self
    }

    /// Replaces the code.
    #[must_use]
    pub fn with_code(mut self, code: Code) -> Self {
        self.code = code as u32;
        self
    }

    /// Records that a plugin ended with this error and did not mark it.
    pub(crate) fn unmarked(mut self) -> Self {
        self.unmarked = true;
        self
    }

    pub(crate) fn is_unmarked(&self) -> bool {
        self.unmarked
    }

    /// The code, see [`Code`].
    pub fn code(&self) -> u32 {
        self.code
    }

    /// Whether this refuses the request itself: its version, its variables or its configuration, or an ADD for an attachment that already
    /// has an address. Nothing was changed then.
    pub(crate) fn refuses_the_request(&self) -> bool {
        // The words of host-local. The reference's code is 999.
        const DUPLICATE: &str = "duplicate allocation is not allowed";
        const REFUSALS: [Code; 5] = [
            Code::IncompatibleVersion,
            Code::UnsupportedField,
            Code::InvalidEnvironment,
            Code::Decoding,
            Code::InvalidConfig,
        ];
        REFUSALS.iter().any(|code| *code as u32 == self.code) || self.msg.contains(DUPLICATE)
    }

    /// Operation and object.
    pub fn msg(&self) -> &str {
        &self.msg
    }

    /// Cause and remedy, may be empty.
    pub fn details(&self) -> &str {
        &self.details
    }

    /// The error object as a line of JSON.
    pub fn to_json(&self, version: Version) -> String {
        self.wire(version, None)
    }

    /// The error object of a failed command that is not in the specification. Plugins of other vendors refuse such a command with error objects
    /// of any code, but without this mark.
    pub(crate) fn to_marked_json(&self) -> String {
        self.wire(Version::LATEST, Some(env!("CARGO_PKG_VERSION")))
    }

    fn wire(&self, version: Version, ferrule: Option<&str>) -> String {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Wire<'a> {
            cni_version: Version,
            code: u32,
            msg: &'a str,
            #[serde(skip_serializing_if = "str::is_empty")]
            details: &'a str,
            /// The mark: see [`crate::exec::MARK`].
            #[serde(skip_serializing_if = "Option::is_none")]
            ferrule: Option<&'a str>,
        }
        let (msg, details) = (&shortened(&self.msg), &shortened(&self.details));
        let wire = Wire { cni_version: version, code: self.code, msg, details, ferrule };
        serde_json::to_string_pretty(&wire).unwrap_or_default()
    }
}

/// Maximum length of a text in characters. A text may quote a configuration of several megabytes.
const LONGEST: usize = 8192;

fn shortened(text: &str) -> String {
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}... ({} bytes)", &text[..end], text.len()),
        None => text.to_owned(),
    }
}

/// Converts any other error, with its causes as details: 5 for an [`io::Error`], 11 for a lock that others hold or a cause that is
/// [`io::ErrorKind::WouldBlock`], otherwise 999. [`Error`] itself therefore does not implement [`std::error::Error`].
impl<E: StdError + 'static> From<E> for Error {
    fn from(error: E) -> Self {
        let whole: &(dyn StdError + 'static) = &error;
        if let Some(io) = whole.downcast_ref::<io::Error>() {
            return Self::new(Code::Io, words(io));
        }
        if let Some(lock) = whole.downcast_ref::<LockError>() {
            return of_lock(lock);
        }
        let mut this = Self::new(Code::Internal, error.to_string());
        let mut cause = error.source();
        while let Some(inner) = cause {
            if inner.downcast_ref().is_some_and(|io: &io::Error| io.kind() == io::ErrorKind::WouldBlock) {
                this = this.with_code(Code::TryAgainLater);
            }
            let text = inner.downcast_ref::<io::Error>().map_or_else(|| inner.to_string(), words);
            if !this.msg.contains(&text) {
                this = this.detail(text);
            }
            cause = inner.source();
        }
        this
    }
}

/// Code 11 for a lock that others hold.
fn of_lock(error: &LockError) -> Error {
    match error {
        LockError::Held { path, .. } => Error::new(Code::TryAgainLater, error.to_string())
            .detail(format!("`fuser -v {}` shows which processes hold it", path.display())),
        LockError::Io { path, error } => Error::io(format!("lock {}", path.display()), error),
    }
}

impl Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.msg)?;
        if !self.details.is_empty() {
            write!(f, " ({})", self.details)?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "code {}: {self}", self.code)
    }
}

/// The system's words for an error, without the number that Rust appends.
fn words(error: &io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error ") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}

/// Adds operation, code or remedy to an error before `?`.
pub trait ResultExt<T> {
    /// Puts the operation before the message.
    fn context<D: Display>(self, operation: impl FnOnce() -> D) -> Result<T>;
    /// Replaces the code.
    fn code(self, code: Code) -> Result<T>;
    /// Adds a remedy to the details.
    fn hint(self, advice: &str) -> Result<T>;
}

impl<T, E: Into<Error>> ResultExt<T> for std::result::Result<T, E> {
    fn context<D: Display>(self, operation: impl FnOnce() -> D) -> Result<T> {
        self.map_err(|e| e.into().context(operation()))
    }

    fn code(self, code: Code) -> Result<T> {
        self.map_err(|e| e.into().with_code(code))
    }

    fn hint(self, advice: &str) -> Result<T> {
        self.map_err(|e| e.into().detail(advice))
    }
}

/// Collects failures of a DEL or GC, which continue after each failure.
#[derive(Debug, Default)]
pub struct Failures(Vec<Error>);

impl Failures {
    /// Starts without failures.
    pub fn new() -> Self {
        Self::default()
    }

    /// Records the failure of a step, or returns its value.
    pub fn note<T, E: Into<Error>>(&mut self, outcome: std::result::Result<T, E>) -> Option<T> {
        outcome.map_err(|e| self.0.push(e.into())).ok()
    }

    /// Returns the only failure, or all of them in one error with the first one's code. Equal texts are included once.
    pub fn into_result(mut self) -> Result<()> {
        self.0.dedup_by_key(|error| error.to_string());
        match self.0.len() {
            0 => Ok(()),
            1 => Err(self.0.remove(0)),
            count => {
                let all: Vec<String> = self.0.iter().map(ToString::to_string).collect();
                Err(Error::foreign(self.0[0].code, format!("{count} steps failed: {}", all.join("; ")), ""))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_others_hold_is_transient_and_names_its_file() {
        let (path, time) = ("/run/ferrule/x.lock".into(), std::time::Duration::from_secs(10));
        let held = Error::from(LockError::Held { path, time });
        assert_eq!(
            (held.code(), held.msg()),
            (11, "lock /run/ferrule/x.lock: other processes have held it for 10s")
        );
        assert!(held.details().contains("fuser -v /run/ferrule/x.lock"), "{held}");
        let error = io::Error::from_raw_os_error(24);
        let failed = Error::from(LockError::Io { path: "/run/ferrule/x.lock".into(), error });
        assert_eq!((failed.code(), failed.msg()), (5, "lock /run/ferrule/x.lock: Too many open files"));
    }

    #[test]
    fn an_io_error_becomes_code_5_without_rusts_error_number() {
        let error = Error::from(io::Error::from_raw_os_error(17));
        assert_eq!((error.code(), error.msg()), (5, "File exists"));
    }

    #[test]
    fn a_cause_in_the_message_is_not_repeated() {
        #[derive(Debug)]
        struct Outer(io::Error);
        impl Display for Outer {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "create veth eth0: {}", words(&self.0))
            }
        }
        impl StdError for Outer {
            fn source(&self) -> Option<&(dyn StdError + 'static)> {
                Some(&self.0)
            }
        }
        let error = Error::from(Outer(io::Error::from_raw_os_error(17)));
        assert_eq!((error.msg(), error.details()), ("create veth eth0: File exists", ""));
    }

    #[test]
    fn the_object_on_stdout_carries_the_version_the_code_and_both_texts() {
        let error = Error::config("bridge: name is empty").detail("give it a name");
        let json: serde_json::Value = serde_json::from_str(&error.to_json(Version::V1_0_0)).unwrap();
        assert_eq!(
            json,
            serde_json::json!({
                "cniVersion": "1.0.0", "code": 7, "msg": "bridge: name is empty", "details": "give it a name",
            })
        );
    }

    #[test]
    fn a_message_that_quotes_megabytes_is_shortened() {
        let json = Error::config("é".repeat(1 << 20)).to_json(Version::LATEST);
        assert!(json.len() < 20_000 && json.contains("... (2097152 bytes)"), "{} bytes", json.len());
    }

    #[test]
    fn several_failures_are_reported_as_one_error_with_all_texts() {
        let mut failures = Failures::new();
        assert_eq!(failures.note(Ok::<_, Error>(1)), Some(1));
        failures.note(Err::<(), _>(Error::new(Code::Io, "remove lease 10.0.0.2")));
        failures.note(Err::<(), _>(Error::config("ipam")));
        let error = failures.into_result().unwrap_err();
        assert_eq!((error.code(), error.msg()), (5, "2 steps failed: remove lease 10.0.0.2; ipam"));
    }
}
