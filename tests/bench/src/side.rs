//! Who is measured.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use lab::{Call, Lab, REFERENCE, Tool, ours, together};
use serde_json::{Value, json};

/// One of the contestants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Side {
    name: &'static str,
    /// Where its executables are.
    directory: &'static Path,
    pub backend: Backend,
    /// What a row says of it behind its name.
    pub remark: &'static str,
}

/// Of the firewall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// The one that a plugin takes by itself: nftables, and iptables of the reference, which has no other.
    Default,
    Iptables,
}

impl Side {
    /// All plugins in one executable, as `make install` installs them.
    pub fn ours(backend: Backend) -> Self {
        static DIRECTORY: LazyLock<PathBuf> = LazyLock::new(together);
        let remark = if backend == Backend::Iptables { ", ours with iptables" } else { "" };
        Self { name: "ours", directory: &DIRECTORY, backend, remark }
    }

    /// An executable for each plugin.
    pub fn single() -> Self {
        static DIRECTORY: LazyLock<PathBuf> = LazyLock::new(ours);
        let remark = ", ours as single executables";
        Self { name: "ours, single", directory: &DIRECTORY, backend: Backend::Default, remark }
    }

    /// Debian's.
    pub fn reference() -> Self {
        Self { name: "reference", directory: Path::new(REFERENCE), backend: Backend::Default, remark: "" }
    }

    /// Executables of ours from another time.
    pub fn baseline(directory: &'static Path, backend: Backend) -> Self {
        Self { name: "before", directory, backend, remark: "" }
    }

    /// Where its executables are.
    pub fn directory(self) -> &'static Path {
        self.directory
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
