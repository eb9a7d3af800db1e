//! The executables to install: the files of a directory, and the names of the plugins.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use cni::{Code, Error, Result};
use serde_json::Value;
use system::child::{self, IoStop, Limits};

use crate::say;

/// The directory in which the packages install the plugins.
const PACKAGED: &str = "/usr/lib/ferrule/cni";

/// The executable that contains all plugins.
const ALL: &str = "ferrule";

/// Files in the source directory that are not plugins.
const TOOLS: [&str; 3] = [ALL, "ferrule-install", "cnitool"];

/// Maximum output and timeout of VERSION and `--list`.
const LIMITS: Limits = Limits { bytes: 1 << 20, time: Some(Duration::from_secs(60)), ..Limits::NONE };

/// What the version of each of Ferrule's plugins contains, after the release of the reference.
const MARK: &[u8] = b"+ferrule.";

/// More than the size of any plugin of Ferrule, in bytes. Larger executables are not read.
const LARGEST: u64 = 64 << 20;

/// The directory of this program, as in the archives, or else the directory of the packages.
pub fn find() -> Result<PathBuf> {
    let own = env::current_exe().map_err(|e| Error::io("find ferrule-install's own directory", &e))?;
    let own = own.parent().map(Path::to_owned).unwrap_or_default();
    Ok(if own.join("host-local").exists() { own } else { PACKAGED.into() })
}

/// The plugins to install: name and file.
pub type Sources = BTreeMap<String, PathBuf>;

/// The plugins that the options select.
#[derive(Debug, Default)]
pub struct Selection {
    /// Empty: all plugins.
    pub only: BTreeSet<String>,
    pub skip: BTreeSet<String>,
}

impl Selection {
    pub fn has(&self, name: &str) -> bool {
        (self.only.is_empty() || self.only.contains(name)) && !self.skip.contains(name)
    }
}

/// The plugins of a directory. With `link`, all names have the same file. Without `is_given`, executables of others that are next to this
/// program are left out, unless an option names them.
pub fn plugins(from: &Path, is_given: bool, link: bool, selection: &Selection) -> Result<Sources> {
    let is_named = |name: &str| is_given || selection.only.contains(name);
    let mut found = if link { linked(&from.join(ALL))? } else { separate(from, is_named)? };
    if let Some(missing) = selection.only.iter().find(|name| !found.contains_key(*name)) {
        let names: Vec<&str> = found.keys().map(String::as_str).collect();
        return Err(Error::new(
            Code::InvalidConfig,
            format!("there is no plugin {missing:?} in {}", from.display()),
        )
        .detail(format!("the directory contains {}", names.join(", "))));
    }
    if found.is_empty() {
        return Err(Error::new(Code::InvalidConfig, format!("there are no plugins in {}", from.display()))
            .detail("name the directory that has them with --from"));
    }
    // An option may also name plugins of another suite.
    for unknown in selection.skip.iter().filter(|name| !found.contains_key(*name)) {
        say(&format!("there is no plugin {unknown:?} to skip"));
    }
    found.retain(|name, _| selection.has(name));
    Ok(found)
}

/// The executables of a directory: those of Ferrule, and those that are named. The archive may have been unpacked where others have executables,
/// too.
fn separate(from: &Path, is_named: impl Fn(&str) -> bool) -> Result<Sources> {
    let read = |e| {
        Error::io(format!("read the directory {}", from.display()), &e)
            .detail("name the directory that has the plugins with --from")
    };
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(from).map_err(read)? {
        let path = entry.map_err(read)?.path();
        let metadata = fs::metadata(&path);
        let is_executable =
            metadata.as_ref().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0);
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if !is_executable || name.starts_with('.') || TOOLS.contains(&name) {
            continue;
        }
        let is_small = metadata.is_ok_and(|meta| meta.len() < LARGEST);
        if !(is_named(name) || is_small && has_mark(&path)?) {
            say(&format!("skipped {}: it is not one of Ferrule's plugins", path.display()));
            continue;
        }
        found.insert(name.to_owned(), path);
    }
    Ok(found)
}

/// Whether an executable is one of Ferrule's plugins. It is not started to find out.
fn has_mark(path: &Path) -> Result<bool> {
    let bytes = fs::read(path).map_err(|e| Error::io(format!("read {}", path.display()), &e))?;
    Ok(bytes.windows(MARK.len()).any(|part| part == MARK))
}

fn linked(all: &Path) -> Result<Sources> {
    let listed = answer(Command::new(all).arg("--list"), b"").map_err(|e| e.context(all.display()))?;
    Ok(listed.lines().map(|name| (name.to_owned(), all.to_owned())).collect())
}

/// Checks that a plugin starts on this host and answers to VERSION.
pub fn ask_version(plugin: &Path) -> Result<()> {
    let about = |error: Error| {
        error.context(format!("{} does not answer VERSION", plugin.display())).detail(
            "the file may be damaged or built for another architecture, or the directory may be mounted with noexec",
        )
    };
    let text = answer(Command::new(plugin).env("CNI_COMMAND", "VERSION"), br#"{"cniVersion": "1.0.0"}"#);
    let answer: Value = serde_json::from_str(&text.map_err(about)?).map_err(|e| about(e.into()))?;
    match answer["supportedVersions"].as_array() {
        Some(versions) if !versions.is_empty() => Ok(()),
        _ => Err(about(Error::new(Code::Decoding, "it names no version"))),
    }
}

fn answer(command: &mut Command, request: &[u8]) -> Result<String> {
    let outcome = child::run(command, request, LIMITS).map_err(|stopped| match stopped.why {
        IoStop::System(what, e) => Error::io(what, &e),
        IoStop::Late => Error::new(Code::Internal, "it takes longer than a minute"),
        IoStop::Endless => Error::new(Code::Internal, "it prints without end"),
    })?;
    if !outcome.status.success() {
        return Err(Error::new(Code::Internal, outcome.status.to_string()));
    }
    Ok(String::from_utf8_lossy(&outcome.out).into_owned())
}
