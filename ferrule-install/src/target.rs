//! The directory that the plugins go to.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use cni::{Error, Result};

use crate::placed::STATE;
use crate::say;

/// Where runtimes look for plugins, by distribution.
const PLACES: [&str; 3] = ["/opt/cni/bin", "/usr/lib/cni", "/usr/libexec/cni"];

/// The directory that was asked for, or the one where plugins are on this host.
pub fn find(asked: Option<&Path>, names: &BTreeSet<String>) -> Result<PathBuf> {
    if let Some(dir) = asked {
        return Ok(dir.to_owned());
    }
    let dir = choose(&PLACES.map(PathBuf::from), names);
    say(&format!("directory {}", dir.display()));
    Ok(dir)
}

/// Where this program has been before; else where there are plugins; else the first that is there; else the first.
fn choose(places: &[PathBuf], names: &BTreeSet<String>) -> PathBuf {
    let has_plugins = |dir: &&PathBuf| names.iter().any(|name| dir.join(name).exists());
    let mut found = places.iter().find(|dir| dir.join(STATE).is_dir());
    found = found.or_else(|| places.iter().find(has_plugins));
    found = found.or_else(|| places.iter().find(|dir| dir.is_dir()));
    found.or(places.first()).cloned().unwrap_or_default()
}

/// The directory by its real path. One that is missing is made.
pub fn make(dir: PathBuf) -> Result<PathBuf> {
    if !dir.exists() {
        fs::create_dir_all(&dir)
            .map_err(|e| Error::io(format!("make the directory {}", dir.display()), &e))?;
        say(&format!("made the directory {}", dir.display()));
    }
    dir.canonicalize().map_err(|e| Error::io(format!("open {}", dir.display()), &e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directory_is_where_it_was_installed_before_then_where_plugins_are_then_what_is_there() {
        let root = tempfile::tempdir().unwrap();
        let places = ["a", "b", "c", "d"].map(|name| root.path().join(name));
        let names = BTreeSet::from(["bridge".to_owned()]);
        assert_eq!(choose(&places, &names), places[0]);
        for dir in &places[1..] {
            fs::create_dir(dir).unwrap();
        }
        assert_eq!(choose(&places, &names), places[1]);
        fs::write(places[2].join("bridge"), "").unwrap();
        assert_eq!(choose(&places, &names), places[2]);
        fs::create_dir(places[3].join(STATE)).unwrap();
        assert_eq!(choose(&places, &names), places[3]);
    }
}
