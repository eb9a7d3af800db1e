//! The record of a directory: its installed plugins, and the files that a run in progress replaces.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use cni::{Error, Result};
use serde::{Deserialize, Serialize};

use crate::files;
use crate::placed::STATE;

/// The content of a record file.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Record {
    /// Each installed plugin, and its SHA-256, which shows whether another program has replaced the file.
    pub installed: BTreeMap<String, String>,
    /// The inode of each plugin that is a hard link to a shared file. If cp(1) overwrites one of these plugins, the content
    /// of all of them changes, but the inode does not. So a plugin with this inode was not replaced, whatever its content is.
    pub links: BTreeMap<String, u64>,
    /// The birth time of each of these files, because an inode number may be used again after a file was removed. Missing
    /// if the file system does not record it.
    pub births: BTreeMap<String, (i64, u32)>,
    /// The last run that installed here.
    pub run: Option<u64>,
    /// Whether a run on the host itself has diverted the files of packages into `kept/`.
    #[serde(default)]
    pub diverted: bool,
    /// How many directories at the end of the plugin directory's path ferrule-install created.
    pub made: usize,
    /// The number of the last installation into this directory.
    pub number: u64,
    /// The names that the change to this record replaces, and whether a file of that name existed.
    pub changed: BTreeMap<String, bool>,
}

impl Record {
    /// Reads a record of a directory. None if the file does not exist.
    pub fn read(dir: &Path, name: &str) -> Result<Option<Self>> {
        let path = dir.join(STATE).join(name);
        let text = match fs::read(&path) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            read => read.map_err(|e| Error::io(format!("read {}", path.display()), &e))?,
        };
        let decoded = serde_json::from_slice(&text);
        decoded
            .map(Some)
            .map_err(|e| Error::from(e).context(format!("decode {}", path.display())).detail(remedy(dir)))
    }

    /// Removes a plugin from the record.
    pub fn drop(&mut self, name: &str) {
        self.installed.remove(name);
        self.links.remove(name);
        self.births.remove(name);
    }

    /// Writes and syncs the record to an unused name.
    pub fn write(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_vec_pretty(self)?;
        files::write(path, &mut text.as_slice(), 0o600).map(drop)
    }
}

/// How to start again without a record, and keep the files of others.
pub fn remedy(dir: &Path) -> String {
    let (dir, state) = (dir.display(), dir.join(STATE));
    let state = state.display();
    format!(
        "move the files in {state}/kept back to {dir}, remove {state}, and run `ferrule-install --uninstall --dir {dir}`"
    )
}
