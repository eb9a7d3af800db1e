//! Files of a configuration directory.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Files with one of these extensions, sorted.
pub(crate) fn files(dir: &Path, extensions: &[&str]) -> cni::Result<Vec<PathBuf>> {
    let unreadable = |e| cni::Error::io(format!("read the directory {}", dir.display()), &e);
    let entries = match fs::read_dir(dir) {
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        entries => entries.map_err(unreadable)?,
    };
    let mut files = Vec::new();
    for entry in entries {
        let file = entry.map_err(unreadable)?.path();
        let extension = file.extension().and_then(|extension| extension.to_str());
        if extension.is_some_and(|extension| extensions.contains(&extension)) && !file.is_dir() {
            files.push(file);
        }
    }
    files.sort_unstable();
    Ok(files)
}
