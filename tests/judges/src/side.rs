//! The two sides of a comparison: Ferrule's plugins and the reference's.

use std::{env, fmt};

/// The reference's release, if it is not the one that Ferrule replaces. scripts/judges sets the variable.
pub fn fallback() -> Option<String> {
    env::var("JUDGES_FALLBACK").ok()
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Side {
    Ours,
    Reference,
}

impl Side {
    pub const ALL: [Self; 2] = [Self::Ours, Self::Reference];

    pub fn called(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|side| side.to_string() == name)
    }

    pub fn other(self) -> Self {
        match self {
            Self::Ours => Self::Reference,
            Self::Reference => Self::Ours,
        }
    }

    /// The directory into which scripts/judges has installed the plugins.
    pub fn directory(self) -> &'static str {
        match self {
            Self::Ours => "/mnt/ours/opt/cni/bin",
            Self::Reference => "/mnt/reference",
        }
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ours => "ours",
            Self::Reference => "reference",
        })
    }
}
