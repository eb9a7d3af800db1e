//! dpkg's diversions: a package that has, or will have, a plugin of a name that is installed writes it to `.ferrule/kept`
//! instead, so that its upgrade does not replace ours, and `--uninstall` puts its latest file back.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use cni::{Code, Error, Result};

use crate::placed::STATE;
use crate::say;

/// Groups of three lines: the file, where it is diverted to, and for which package (`:` for the administrator).
const DIVERSIONS: &str = "/var/lib/dpkg/diversions";

/// Makes the diversions of a directory those of these plugins.
///
/// # Errors
///
/// Code 999 if dpkg-divert fails, for example since the administrator has diverted a plugin elsewhere.
pub fn set(dir: &Path, names: &BTreeSet<&str>) -> Result<()> {
    if !is_of_packages(dir) {
        return Ok(());
    }
    let current = current(dir, &fs::read_to_string(DIVERSIONS).unwrap_or_default());
    let new = names.iter().filter(|name| !current.contains(**name));
    new.copied().try_for_each(|name| change("--add", dir, name))?;
    let stale = current.iter().filter(|name| !names.contains(name.as_str()));
    stale.map(String::as_str).try_for_each(|name| change("--remove", dir, name))
}

/// Whether packages put plugins there: /usr and /opt, but /usr/local is the administrator's.
fn is_of_packages(dir: &Path) -> bool {
    let (usr, local, opt) = (dir.starts_with("/usr"), dir.starts_with("/usr/local"), dir.starts_with("/opt"));
    (usr && !local || opt) && Path::new("/var/lib/dpkg/status").exists()
}

/// The plugins of a directory that are diverted into our state.
fn current(dir: &Path, diversions: &str) -> BTreeSet<String> {
    let lines: Vec<&str> = diversions.lines().collect();
    let ours = lines.chunks_exact(3).filter_map(|group| {
        let name = Path::new(group[0]).strip_prefix(dir).ok()?.to_str()?;
        (Path::new(group[1]) == dir.join(STATE).join("kept").join(name)).then(|| name.to_owned())
    });
    ours.collect()
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

/// A failure does not matter for the plugins that are in place: only for the next upgrade of another package.
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
    }

    #[test]
    fn only_directories_of_packages_have_diversions() {
        for dir in ["/usr/local/libexec/cni", "/tmp/bin", "/srv/opt/cni"] {
            assert!(!is_of_packages(Path::new(dir)), "{dir}");
        }
    }
}
