//! A fault of a plugin's environment: its disk, its files, its limits, its kernel.

use std::fmt;

use lab::{Call, Lab};

/// A fault for the time of one run.
pub struct EnvFault {
    /// The row of the figures that counts it.
    pub label: String,
    pub what: String,
    /// Causes the fault in the thread's lab.
    pub inflict: Box<dyn Fn(&Lab) -> Lift + Send + Sync>,
    /// Changes how the plugin is started.
    pub vary: Box<dyn Fn(Call) -> Call + Send + Sync>,
    /// The object that an error has to name.
    pub culprit: Option<String>,
    /// Commands that must succeed nevertheless.
    pub spares: &'static [&'static str],
    /// Objects cannot be seen: a DEL or GC that succeeds may leave them.
    pub hides: bool,
    /// Files cannot be removed: a DEL or GC that fails leaves only files.
    pub keeps_files: bool,
}

/// Ends the fault. Returns a finding if a foreign file was touched.
pub type Lift = Box<dyn FnOnce() -> Option<String>>;

impl EnvFault {
    /// A fault without an effect yet.
    pub fn new(label: &str, what: String) -> Self {
        Self {
            label: label.to_owned(),
            what,
            inflict: Box::new(|_| Box::new(|| None)),
            vary: Box::new(|call| call),
            culprit: None,
            spares: &[],
            hides: false,
            keeps_files: false,
        }
    }
}

impl fmt::Debug for EnvFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.label, self.what)
    }
}
