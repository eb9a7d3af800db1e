//! Diversions of dpkg. If another package contains a plugin with an installed name, dpkg writes that file to
//! `.ferrule/kept` instead. So an upgrade of that package does not replace Ferrule's plugin, and `--uninstall`
//! restores the package's latest file.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use cni::{Code, Error, Result};

use crate::placed::STATE;
use crate::say;
use crate::target::PLACES;

/// dpkg's list of diversions, in groups of three lines: the file, the diverted path, and the package (`:` for the
/// administrator).
const DIVERSIONS: &str = "/var/lib/dpkg/diversions";

/// Sets the diversions of a directory to these plugins. `dir` is the real path.
///
/// # Errors
/// Code 999 if dpkg-divert fails, for example because the administrator has diverted a plugin elsewhere.
pub fn set(dir: &Path, names: &BTreeSet<&str>) -> Result<()> {
    if !has_dpkg() {
        return Ok(());
    }
    let diversions = fs::read_to_string(DIVERSIONS).unwrap_or_default();
    for dir in paths(dir, names.is_empty()) {
        let current = current(dir, &diversions);
        let new = names.iter().filter(|name| !current.contains(**name));
        new.copied().try_for_each(|name| change("--add", dir, name))?;
        let stale = current.iter().filter(|name| !names.contains(name.as_str()));
        stale.map(String::as_str).try_for_each(|name| change("--remove", dir, name))?;
    }
    Ok(())
}

/// Whether packages of dpkg may install plugins in a directory.
pub fn applies(dir: &Path) -> bool {
    has_dpkg() && paths(dir, false).next().is_some()
}

/// Whether this system has dpkg.
pub fn has_dpkg() -> bool {
    Path::new("/var/lib/dpkg/status").exists()
}

/// The paths by which packages may contain plugins of a directory. dpkg compares the paths in packages as text, and
/// /opt/cni may be a symbolic link to another disk. At an uninstallation, also paths that may have been such links: without
/// a state directory, a diversion is of no use.
fn paths(dir: &Path, is_end: bool) -> impl Iterator<Item = &Path> {
    let leads_here = move |path: &Path| path.canonicalize().is_ok_and(|real| real == dir);
    let is_stale = move |path: &Path| is_end && !path.join(STATE).exists();
    let others = PLACES.iter().map(Path::new);
    let others = others.filter(move |path| *path != dir && (leads_here(path) || is_stale(path)));
    std::iter::once(dir).chain(others).filter(|path| is_of_packages(path))
}

/// Whether packages install plugins in a directory: below /usr and /opt, except /usr/local, which is the
/// administrator's.
fn is_of_packages(dir: &Path) -> bool {
    dir.starts_with("/opt") || dir.starts_with("/usr") && !dir.starts_with("/usr/local")
}

/// The plugins of a directory that are diverted into the state directory.
fn current(dir: &Path, diversions: &str) -> BTreeSet<String> {
    let ours = ours(diversions).filter(|(of, _)| *of == dir);
    ours.map(|(_, name)| name.to_owned()).collect()
}

/// The names whose files of packages dpkg keeps in the state directory of this directory, under any path that leads to it.
pub fn kept(dir: &Path) -> BTreeSet<String> {
    let diversions = fs::read_to_string(DIVERSIONS).unwrap_or_default();
    paths(dir, false).flat_map(|dir| current(dir, &diversions)).collect()
}

/// The paths of directories with plugins that are diverted into the state directory, which may no longer exist.
pub fn dirs() -> Vec<PathBuf> {
    let diversions = fs::read_to_string(DIVERSIONS).unwrap_or_default();
    let dirs: BTreeSet<&Path> = ours(&diversions).map(|(dir, _)| dir).collect();
    dirs.into_iter().map(Path::to_owned).collect()
}

/// The diversions into state directories: each with the plugin's directory and name.
fn ours(diversions: &str) -> impl Iterator<Item = (&Path, &str)> {
    let lines: Vec<&str> = diversions.lines().collect();
    let groups: Vec<_> =
        lines.chunks_exact(3).map(|group| (Path::new(group[0]), Path::new(group[1]))).collect();
    groups.into_iter().filter_map(|(from, to)| {
        let (dir, name) = (from.parent()?, from.file_name()?.to_str()?);
        (to == dir.join(STATE).join("kept").join(name)).then_some((dir, name))
    })
}

fn change(how: &str, dir: &Path, name: &str) -> Result<()> {
    let mut command = Command::new("dpkg-divert");
    command.args(["--local", "--no-rename", "--quiet", "--divert"]);
    command.arg(dir.join(STATE).join("kept").join(name)).arg(how).arg(dir.join(name));
    let outcome = command.output().map_err(|e| Error::io("run dpkg-divert", &e))?;
    if outcome.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&outcome.stderr).trim().to_owned();
    Err(Error::new(Code::Internal, format!("dpkg-divert {how} {}: {said}", dir.join(name).display())))
}

/// Warns of a failure. It does not affect the installed plugins, only the next upgrade of another package.
pub fn warn(outcome: Result<()>, dir: &Path) {
    if let Err(error) = outcome {
        say(&format!(
            "warning: {error}. The next upgrade of a package with plugins in {} may replace these",
            dir.display()
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_diversions_into_our_own_state_count() {
        let text = "/usr/lib/cni/bridge\n/usr/lib/cni/.ferrule/kept/bridge\n:\n\
                    /usr/lib/cni/tap\n/usr/lib/cni/tap.distrib\nother\n\
                    /opt/cni/bin/ptp\n/opt/cni/bin/.ferrule/kept/ptp\n:\n";
        let found = current(Path::new("/usr/lib/cni"), text);
        assert_eq!(found, BTreeSet::from(["bridge".to_owned()]));
        let all =
            [("/usr/lib/cni", "bridge"), ("/opt/cni/bin", "ptp")].map(|(dir, name)| (Path::new(dir), name));
        assert_eq!(ours(text).collect::<Vec<_>>(), all);
    }

    #[test]
    fn only_directories_of_packages_have_diversions() {
        for dir in ["/usr/local/libexec/cni", "/tmp/bin", "/srv/opt/cni"] {
            assert!(!is_of_packages(Path::new(dir)), "{dir}");
        }
    }
}
