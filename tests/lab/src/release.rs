//! Releases of the reference that scenarios run: the real executables, as Debian builds them.

use std::env;
use std::fmt;
use std::path::PathBuf;

use crate::under_test::{repository, skip};

/// A release of containernetworking/plugins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// Of 2022, in Debian 12. It has no nftables backend, no dummy and no tap.
    V1_1_1,
    /// Of 2026, in Debian unstable: the release that ours stands for.
    V1_9_1,
}

impl Release {
    pub const ALL: [Self; 2] = [Self::V1_1_1, Self::V1_9_1];

    /// The directory of its executables. None: it is not on this machine.
    pub fn dir(self) -> Option<PathBuf> {
        Some(self.place()).filter(|dir| dir.join("bridge").exists())
    }

    /// Where its executables belong, whether or not they are on this machine.
    pub fn place(self) -> PathBuf {
        match self {
            // Debian's package installs them there.
            Self::V1_1_1 => "/usr/lib/cni".into(),
            Self::V1_9_1 => target().join("reference/usr/lib/cni"),
        }
    }

    /// The latest release on this machine. 1.1.1 if there is none, so that a failure names a path.
    pub fn latest() -> Self {
        if Self::V1_9_1.dir().is_some() { Self::V1_9_1 } else { Self::V1_1_1 }
    }

    /// The releases that have a plugin. For each release that is not on this machine the test counts as skipped.
    pub fn with(plugin: &str) -> Vec<Self> {
        Self::ALL.into_iter().filter(|release| release.knows(plugin) && release.is_here()).collect()
    }

    fn knows(self, plugin: &str) -> bool {
        self == Self::V1_9_1 || !["dummy", "tap"].contains(&plugin)
    }

    /// Whether it is on this machine. If not, the test counts as skipped.
    pub fn is_here(self) -> bool {
        if self.dir().is_none() {
            skip(&format!("the reference {self} is not here: scripts/test unpacks Debian's package"));
        }
        self.dir().is_some()
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V1_1_1 => "1.1.1",
            Self::V1_9_1 => "1.9.1",
        })
    }
}

/// What scripts/test unpacks of Debian's packages and does not install. None: it is missing, and the test counts as skipped.
pub fn unpacked(tree: &str) -> Option<PathBuf> {
    let tree = target().join(tree);
    if !tree.exists() {
        skip(&format!("{} is missing: scripts/test unpacks it from Debian's packages", tree.display()));
        return None;
    }
    Some(tree)
}

/// Where scripts/test unpacks what the machine does not have.
pub(crate) fn target() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| repository().join("target"), PathBuf::from)
}
