//! Who is measured.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use lab::{Call, Lab, Release, Tool, ours, together};
use serde_json::{Value, json};

/// One of the contestants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Side {
    name: &'static str,
    /// Where its executables are.
    directory: &'static Path,
    /// Where those are that `directory` lacks.
    further: Option<&'static Path>,
    pub backend: Backend,
    /// What a row says of it behind its name.
    pub remark: &'static str,
}

/// What ours is compared with.
#[derive(Clone, Copy, Debug)]
pub enum Rival {
    /// Its latest release on this machine with its fastest backend, and what Debian's package lacks from another directory.
    Reference { further: Option<&'static Path> },
    /// Executables of ours from another time.
    Baseline(&'static Path),
}

impl Rival {
    pub fn is_baseline(self) -> bool {
        matches!(self, Self::Baseline(_))
    }

    /// The one that a side of ours is compared with.
    pub fn of(self, backend: Backend) -> Side {
        match self {
            Self::Reference { further } => Side::reference(further),
            Self::Baseline(directory) => Side::baseline(directory, backend),
        }
    }
}

/// Of the firewall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// The one that a plugin takes by itself: nftables of ours.
    Default,
    Iptables,
    /// The reference takes iptables by itself. Its release 1.1.1 has nothing else.
    Nftables,
}

impl Backend {
    /// What a configuration names. None: the default is what is wanted.
    pub fn key(self) -> Option<&'static str> {
        match self {
            Self::Default => None,
            Self::Iptables => Some("iptables"),
            Self::Nftables => Some("nftables"),
        }
    }
}

impl Side {
    /// All plugins in one executable, as `make install` installs them.
    pub fn ours(backend: Backend) -> Self {
        static DIRECTORY: LazyLock<PathBuf> = LazyLock::new(together);
        let remark = if backend == Backend::Iptables { ", ours with iptables" } else { "" };
        Self { name: "ours", directory: &DIRECTORY, further: None, backend, remark }
    }

    /// An executable for each plugin.
    pub fn single() -> Self {
        static DIRECTORY: LazyLock<PathBuf> = LazyLock::new(ours);
        let remark = ", ours as single executables";
        Self { name: "ours, single", directory: &DIRECTORY, further: None, backend: Backend::Default, remark }
    }

    /// Debian's, and what its package lacks.
    fn reference(further: Option<&'static Path>) -> Self {
        static DIRECTORY: LazyLock<PathBuf> = LazyLock::new(|| Release::latest().place());
        let backend = if Release::latest() == Release::V1_1_1 { Backend::Default } else { Backend::Nftables };
        Self { name: "reference", directory: &DIRECTORY, further, backend, remark: "" }
    }

    /// Executables of ours from another time.
    fn baseline(directory: &'static Path, backend: Backend) -> Self {
        Self { name: "before", directory, further: None, backend, remark: "" }
    }

    /// Where the executable of a plugin is. The first place: it is not installed.
    pub fn directory(self, plugin: &str) -> &'static Path {
        let has = |directory: &&'static Path| directory.join(plugin).is_file();
        self.further.filter(|further| has(further) && !has(&self.directory)).unwrap_or(self.directory)
    }

    /// Of what a scenario needs, a plugin that is not installed.
    pub fn lacks(self, plugins: &[&'static str]) -> Option<&'static str> {
        plugins.iter().copied().find(|plugin| self.size(plugin).is_none())
    }

    /// The names of those that its first directory lacks.
    pub fn further(self) -> Vec<String> {
        let all = self.further.map(executables).unwrap_or_default();
        all.into_iter().filter(|plugin| !self.directory.join(plugin).exists()).collect()
    }

    /// The names of its executables.
    pub fn plugins(self) -> Vec<String> {
        executables(self.directory)
    }

    /// Of an executable, in bytes. None: not installed.
    pub fn size(self, plugin: &str) -> Option<u64> {
        fs::metadata(self.directory(plugin).join(plugin)).ok().map(|file| file.len())
    }

    /// A call to one of its plugins.
    pub fn plugin(self, lab: &Lab, name: &str) -> Call {
        let call = lab.plugin(name).in_dir(self.directory(name));
        // A delegate may be in the other one.
        [Some(self.directory), self.further].into_iter().flatten().fold(call, Call::also_in_dir)
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

fn executables(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut files: Vec<_> = entries.filter(|entry| entry.path().is_file()).collect();
    files.sort_unstable_by_key(fs::DirEntry::file_name);
    files.into_iter().filter_map(|file| file.file_name().into_string().ok()).collect()
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let backend = if self.backend == Backend::Iptables { " with iptables" } else { "" };
        write!(f, "{}{backend}", self.name)
    }
}
