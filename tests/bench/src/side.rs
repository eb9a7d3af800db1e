//! Who is measured.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use lab::{Call, Lab, REFERENCE, Tool, under_test};
use serde_json::{Value, json};

/// One of the contestants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Side {
    name: &'static str,
    /// Where its executables are.
    directory: &'static Path,
    pub backend: Backend,
    /// Its plugins are one executable.
    together: bool,
}

/// Of the firewall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// The one that a plugin takes by itself: nftables, and iptables of the reference, which has no other.
    Default,
    Iptables,
}

impl Side {
    pub fn ours(backend: Backend) -> Self {
        Self { name: "ours", directory: &under_test().dir, backend, together: false }
    }

    /// Ours as they are installed, all in one executable. None: there are none.
    pub fn together() -> Option<Self> {
        static DIRECTORY: LazyLock<PathBuf> = LazyLock::new(|| under_test().dir.join("multi"));
        let ours =
            Self { name: "ours in one", directory: &DIRECTORY, backend: Backend::Default, together: true };
        DIRECTORY.exists().then_some(ours)
    }

    /// Debian's.
    pub fn reference() -> Self {
        Self {
            name: "reference",
            directory: Path::new(REFERENCE),
            backend: Backend::Default,
            together: false,
        }
    }

    /// Executables of ours from another time.
    pub fn baseline(directory: &'static Path, backend: Backend) -> Self {
        Self { name: "before", directory, backend, together: false }
    }

    /// What a row says of it behind its name.
    pub fn remark(self) -> &'static str {
        match self {
            Self { backend: Backend::Iptables, .. } => ", ours with iptables",
            Self { together: true, .. } => ", ours in one executable",
            _ => "",
        }
    }

    /// The names of its executables.
    pub fn plugins(self) -> Vec<String> {
        let entries = fs::read_dir(self.directory).into_iter().flatten().flatten();
        let mut files: Vec<_> = entries.filter(|entry| entry.path().is_file()).collect();
        files.sort_unstable_by_key(fs::DirEntry::file_name);
        files.into_iter().filter_map(|file| file.file_name().into_string().ok()).collect()
    }

    /// Of an executable, in bytes. None: not installed.
    pub fn size(self, plugin: &str) -> Option<u64> {
        fs::metadata(self.directory.join(plugin)).ok().map(|file| file.len())
    }

    /// A call to one of its plugins.
    pub fn plugin(self, lab: &Lab, name: &str) -> Call {
        lab.plugin(name).in_dir(self.directory)
    }

    pub fn cnitool(self, lab: &Lab) -> Tool {
        lab.cnitool().in_dir(self.directory)
    }

    /// The calls to its plugins for a network, first to last, as far as they are the same for all containers.
    pub fn network(self, lab: &Lab, conflist: &Value) -> Vec<Call> {
        let shared = json!({"cniVersion": conflist["cniVersion"], "name": conflist["name"]});
        let call = |plugin: &Value| {
            let name = plugin["type"].as_str().expect("a plugin has a type");
            self.plugin(lab, name).config(plugin.clone()).config(shared.clone())
        };
        conflist["plugins"].as_array().expect("a list of plugins").iter().map(call).collect()
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let backend = if self.backend == Backend::Iptables { " with iptables" } else { "" };
        write!(f, "{}{backend}", self.name)
    }
}
