//! The sides of a comparison.

use std::fmt;
use std::fs;
use std::iter;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use lab::{Call, Lab, Release, Tool, ours, together};
use serde_json::{Value, json};

/// A side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Side {
    name: &'static str,
    /// The directory of its executables.
    directory: &'static Path,
    /// The directories of executables that `directory` lacks.
    further: &'static [PathBuf],
    pub backend: Backend,
    /// The text after its name in a row.
    pub remark: &'static str,
}

/// The side that Ferrule is compared with.
#[derive(Clone, Copy, Debug)]
pub enum Rival {
    /// The reference: its latest release on this machine with its fastest backend. Other directories contain the plugins
    /// that Debian's package lacks.
    Reference { further: &'static [PathBuf] },
    /// Older executables of Ferrule.
    Baseline(&'static Path),
}

impl Rival {
    pub fn is_baseline(self) -> bool {
        matches!(self, Self::Baseline(_))
    }

    /// The side that one of Ferrule's sides is compared with.
    pub fn of(self, backend: Backend) -> Side {
        match self {
            Self::Reference { further } => Side::reference(further),
            Self::Baseline(directory) => Side::baseline(directory, backend),
        }
    }
}

/// A firewall backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// The plugin's default: nftables for Ferrule.
    Default,
    Iptables,
    /// The reference's default is iptables. Its release 1.1.1 has nothing else.
    Nftables,
}

impl Backend {
    /// The value of the configuration's key. None: the default.
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
        Self { name: "ours", directory: &DIRECTORY, further: &[], backend, remark }
    }

    /// A separate executable for each plugin.
    pub fn single() -> Self {
        static DIRECTORY: LazyLock<PathBuf> = LazyLock::new(ours);
        let remark = ", ours as single executables";
        Self { name: "ours, single", directory: &DIRECTORY, further: &[], backend: Backend::Default, remark }
    }

    /// The reference: Debian's package, and the other directories.
    fn reference(further: &'static [PathBuf]) -> Self {
        static DIRECTORY: LazyLock<PathBuf> = LazyLock::new(|| Release::latest().place());
        let backend = if Release::latest() == Release::V1_1_1 { Backend::Default } else { Backend::Nftables };
        Self { name: "reference", directory: &DIRECTORY, further, backend, remark: "" }
    }

    /// Older executables of Ferrule.
    fn baseline(directory: &'static Path, backend: Backend) -> Self {
        Self { name: "before", directory, further: &[], backend, remark: "" }
    }

    /// The directory of a plugin's executable. If it is not installed, the first directory.
    pub fn directory(self, plugin: &str) -> &'static Path {
        self.directories().find(|directory| directory.join(plugin).is_file()).unwrap_or(self.directory)
    }

    fn directories(self) -> impl Iterator<Item = &'static Path> {
        iter::once(self.directory).chain(self.further.iter().map(PathBuf::as_path))
    }

    /// The first plugin of these that is not installed.
    pub fn lacks(self, plugins: &[&'static str]) -> Option<&'static str> {
        plugins.iter().copied().find(|plugin| self.size(plugin).is_none())
    }

    /// The names of the executables that its first directory lacks.
    pub fn further(self) -> Vec<String> {
        let all = self.further.iter().flat_map(|directory| executables(directory));
        all.filter(|plugin| !self.directory.join(plugin).exists()).collect()
    }

    /// The names of all its executables.
    pub fn plugins(self) -> Vec<String> {
        executables(self.directory)
    }

    /// The size of an executable in bytes. None: not installed.
    pub fn size(self, plugin: &str) -> Option<u64> {
        fs::metadata(self.directory(plugin).join(plugin)).ok().map(|file| file.len())
    }

    /// A call to one of its plugins.
    pub fn plugin(self, lab: &Lab, name: &str) -> Call {
        let call = lab.plugin(name).in_dir(self.directory(name));
        // A delegate may be in another directory.
        self.directories().fold(call, Call::also_in_dir)
    }

    pub fn cnitool(self, lab: &Lab) -> Tool {
        lab.cnitool().in_dir(self.directory)
    }

    /// The calls of a network's plugins, first to last, without the parts that depend on the container.
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
