//! Container runtimes of a host and their CNI directories, read from their own configurations.
//!
//! A runtime without a configuration file uses its compiled-in defaults. `table.rs` lists the known runtimes.

mod parse;
mod podman;
mod table;

use std::collections::VecDeque;
use std::env;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use cni::json::MAX_BYTES;
use serde_json::Value;
use system::file;
use system::host_path::below;

use crate::parse::{Said, imports, said};
pub use crate::table::names;
use crate::table::{Entry, Form, TABLE};

/// A container runtime, or a product that contains one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Runtime {
    pub name: &'static str,
    /// Whether it is installed: its executable, or a configuration that it generates, exists.
    pub is_present: bool,
    /// Whether it runs CNI plugins. Podman with netavark does not.
    pub runs_plugins: bool,
    /// Directory of network configurations.
    pub networks: PathBuf,
    /// Directories of plugins, in search order.
    pub plugins: Vec<PathBuf>,
    /// Missing directories: as soon as one of them exists, the runtime uses it instead of `plugins`.
    pub preferred: Vec<PathBuf>,
    /// File that sets the directories of plugins. `None`: the runtime's default.
    pub source: Option<PathBuf>,
}

/// All known runtimes, installed or not, and problems in their configurations. Files are read below `root`; the directories are the host's
/// paths.
pub fn of_host(root: &Path) -> (Vec<Runtime>, Vec<String>) {
    let (mut problems, mut runtimes) = (Vec::new(), Vec::new());
    for entry in TABLE {
        runtimes.extend(read_entry(entry, root, &mut problems));
    }
    (runtimes, problems)
}

/// `None` if the entry is for an unused setting.
fn read_entry(entry: &Entry, root: &Path, problems: &mut Vec<String>) -> Option<Runtime> {
    let data = DataDir::find(entry, root);
    let mut runtime = Runtime {
        name: entry.name,
        is_present: entry.signs.iter().any(|sign| below(root, &data.resolve(sign)).exists()),
        runs_plugins: true,
        networks: data.resolve(entry.networks),
        plugins: entry.plugins.iter().map(|dir| data.resolve(dir)).collect(),
        preferred: Vec::new(),
        source: None,
    };
    if entry.uses_first {
        let mut candidates = std::mem::take(&mut runtime.plugins);
        let first = candidates.iter().position(|dir| below(root, dir).exists()).unwrap_or_default();
        runtime.plugins = vec![candidates.swap_remove(first)];
        candidates.truncate(first);
        runtime.preferred = candidates;
    }
    let configs = read_files(entry, root, &data, &mut runtime, problems);
    runtime.runs_plugins = match entry.form {
        Form::Podman => podman::runs_plugins(&configs, root),
        _ => !configs.iter().any(parse::disables_cri),
    };
    if entry.form == Form::Flags {
        runtime.is_present = runtime.source.is_some();
        return runtime.is_present.then_some(runtime);
    }
    Some(runtime)
}

/// Reads all configuration files of an entry, and returns them.
fn read_files(
    entry: &Entry,
    root: &Path,
    data: &DataDir,
    runtime: &mut Runtime,
    problems: &mut Vec<String>,
) -> Vec<Value> {
    let named = entry.files.iter().flat_map(|pattern| files(root, &data.resolve(pattern)));
    let (mut waiting, mut seen) = (named.collect::<VecDeque<PathBuf>>(), Vec::new());
    let (mut configs, mut has_imports) = (Vec::new(), false);
    while let Some(path) = waiting.pop_front() {
        if seen.contains(&path) {
            continue;
        }
        match read(entry.form, root, &path) {
            Ok(None) => {}
            Err(why) => problems.push(format!("{}'s {} is not used: {why}", entry.name, path.display())),
            Ok(Some(config)) => {
                runtime.apply(entry, &path, said(&config, &entry.keys));
                if let Some(patterns) = imports(&config) {
                    // These directories replace the default ones.
                    if !has_imports {
                        waiting.clear();
                    }
                    has_imports = true;
                    let here = path.parent().unwrap_or(Path::new("/"));
                    waiting.extend(patterns.iter().flat_map(|pattern| files(root, &here.join(pattern))));
                }
                configs.push(config);
            }
        }
        seen.push(path);
    }
    configs
}

impl Runtime {
    fn apply(&mut self, entry: &Entry, path: &Path, said: Said) {
        if let Some(dir) = said.networks.into_iter().next() {
            self.networks = dir;
        }
        if said.plugins.is_empty() {
            return;
        }
        if !said.appends {
            self.plugins.clear();
            self.preferred.clear();
        }
        self.plugins.extend(said.plugins);
        self.source = Some(path.to_owned());
        // A removed package may leave its configuration: a file shows that the runtime is installed only if the runtime generates it.
        self.is_present |= entry.signs.is_empty();
    }
}

/// Data directory of k3s and RKE2, which is configurable.
struct DataDir {
    default: &'static str,
    moved: Option<String>,
}

impl DataDir {
    fn find(entry: &Entry, root: &Path) -> Self {
        let Some((config, default)) = entry.data else { return Self { default: "", moved: None } };
        let text = file::read(&below(root, Path::new(config)), MAX_BYTES).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let value = text.lines().find_map(|line| line.strip_prefix("data-dir:"));
        let value = value.map(|value| value.trim().trim_matches(['"', '\'']).to_owned());
        Self { default, moved: value.filter(|dir| dir.starts_with('/')) }
    }

    fn resolve(&self, path: &str) -> PathBuf {
        match (&self.moved, path.strip_prefix(self.default)) {
            (Some(moved), Some(rest)) => format!("{moved}{rest}").into(),
            _ => in_home(path),
        }
    }
}

/// Files of the host that match a pattern, sorted: `*` in the last component matches any text.
fn files(root: &Path, pattern: &Path) -> Vec<PathBuf> {
    let name = pattern.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let (Some(dir), Some((start, end))) = (pattern.parent(), name.split_once('*')) else {
        return vec![pattern.to_owned()];
    };
    if dangling(root, dir).is_some() {
        // The attempt to read it finds the problem.
        return vec![dir.to_owned()];
    }
    let names = fs::read_dir(below(root, dir)).into_iter().flatten().flatten();
    let names = names.filter_map(|entry| entry.file_name().into_string().ok());
    let fits = |name: &String| {
        name.len() >= start.len() + end.len() && name.starts_with(start) && name.ends_with(end)
    };
    let mut found: Vec<PathBuf> = names.filter(fits).map(|name| dir.join(name)).collect();
    found.sort_unstable();
    found
}

/// Expands `~`, which stands for the user's configuration directory.
fn in_home(path: &str) -> PathBuf {
    let Some(rest) = path.strip_prefix("~/") else { return path.into() };
    let set = |key| env::var_os(key).filter(|dir| !dir.is_empty()).map(PathBuf::from);
    let config = set("XDG_CONFIG_HOME").or_else(|| Some(set("HOME")?.join(".config")));
    // Without a home directory, no file exists.
    config.unwrap_or_else(|| "/nonexistent".into()).join(rest)
}

/// `None` if the file does not exist or is masked.
fn read(form: Form, root: &Path, path: &Path) -> Result<Option<Value>, String> {
    if is_mask(root, path) {
        return Ok(None);
    }
    let real = below(root, path);
    let text = match file::read(&real, MAX_BYTES) {
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return match dangling(root, path) {
                Some(link) => Err(format!(
                    "{} leads to {}, which does not exist",
                    link.display(),
                    below(root, link).display()
                )),
                None => Ok(None),
            };
        }
        text => text.map_err(|e| e.to_string())?,
    };
    parse::decode(form, path, &text).map(Some)
}

/// Whether a path is a link that masks a unit or a drop-in (systemd.unit(5)). In a container, the host's /dev may not be
/// mounted.
fn is_mask(root: &Path, path: &Path) -> bool {
    let real = below(root, path);
    real == root.join("dev/null") || real.canonicalize().is_ok_and(|real| real == Path::new("/dev/null"))
}

/// The symbolic link in a path of the host that leads to no file. In a container, its target may not be mounted.
fn dangling<'a>(root: &Path, path: &'a Path) -> Option<&'a Path> {
    path.ancestors().find(|path| {
        let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else { return false };
        below(root, dir).join(name).is_symlink() && !below(root, path).exists()
    })
}

#[cfg(test)]
mod tests;
