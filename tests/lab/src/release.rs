//! Releases of the reference that scenarios run: real executables built by Debian.

use std::env;
use std::fmt;
use std::path::PathBuf;

use crate::under_test::{repository, skip};

/// A release of containernetworking/plugins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// From 2022, in Debian 12. Without an nftables backend, dummy and tap.
    V1_1_1,
    /// From 2026, in Debian unstable: the release that Ferrule replaces.
    V1_9_1,
}

impl Release {
    pub const ALL: [Self; 2] = [Self::V1_1_1, Self::V1_9_1];

    /// The directory of its executables. None: it is not on this machine.
    pub fn dir(self) -> Option<PathBuf> {
        Some(self.place()).filter(|dir| dir.join("bridge").exists())
    }

    /// The expected directory of its executables, whether they exist or not.
    pub fn place(self) -> PathBuf {
        match self {
            // The directory of Debian's package.
            Self::V1_1_1 => "/usr/lib/cni".into(),
            Self::V1_9_1 => target().join("reference/usr/lib/cni"),
        }
    }

    /// The latest release on this machine. 1.1.1 if there is none, so that a failure names a path.
    pub fn latest() -> Self {
        if Self::V1_9_1.dir().is_some() { Self::V1_9_1 } else { Self::V1_1_1 }
    }

    /// The releases that have a plugin. If a release is not on this machine, the test counts as skipped.
    pub fn with(plugin: &str) -> Vec<Self> {
        Self::ALL.into_iter().filter(|release| release.knows(plugin) && release.is_here()).collect()
    }

    /// [`Release::with`] a plugin, each with each of the values.
    pub fn with_each<T: Copy, const N: usize>(plugin: &str, values: [T; N]) -> Vec<(Self, T)> {
        let releases = Self::with(plugin).into_iter();
        releases.flat_map(|release| values.map(|value| (release, value))).collect()
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

/// A directory of unpacked Debian packages (by scripts/test). None: it is missing, and the test counts as skipped.
pub fn unpacked(tree: &str) -> Option<PathBuf> {
    let tree = target().join(tree);
    if !tree.exists() {
        skip(&format!("{} is missing: scripts/test unpacks it from Debian's packages", tree.display()));
        return None;
    }
    Some(tree)
}

/// The directory into which scripts/test unpacks packages.
pub(crate) fn target() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| repository().join("target"), PathBuf::from)
}
