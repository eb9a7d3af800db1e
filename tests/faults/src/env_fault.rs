//! Something that is wrong with a plugin's environment: its disk, its files, its limits, its kernel.

use std::fmt;

use lab::{Call, Lab};

/// What is wrong, for the time of one run.
pub struct EnvFault {
    /// The line of the figures that it counts in.
    pub label: String,
    pub what: String,
    /// Brings it about, in the lab that the thread is in.
    pub inflict: Box<dyn Fn(&Lab) -> Lift + Send + Sync>,
    /// How the plugin is started.
    pub vary: Box<dyn Fn(Call) -> Call + Send + Sync>,
    /// What an error has to name.
    pub culprit: Option<String>,
    /// The commands that must succeed all the same.
    pub spares: &'static [&'static str],
    /// What there is to remove cannot be seen: a DEL or GC that succeeds has the right to leave it.
    pub hides: bool,
}

/// Ends the fault, and says what was touched that is none of a plugin's business.
pub type Lift = Box<dyn FnOnce() -> Option<String>>;

impl EnvFault {
    /// One that does nothing yet.
    pub(crate) fn new(label: &str, what: String) -> Self {
        Self {
            label: label.to_owned(),
            what,
            inflict: Box::new(|_| Box::new(|| None)),
            vary: Box::new(|call| call),
            culprit: None,
            spares: &[],
            hides: false,
        }
    }
}

impl fmt::Debug for EnvFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.label, self.what)
    }
}
