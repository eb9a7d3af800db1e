//! What is installed in a directory, and what a change that is under way had found there.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use cni::{Error, Result};
use serde::{Deserialize, Serialize};

use crate::files;

/// A file of the state directory.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Record {
    /// Each plugin that is installed, and its SHA-256: by it a file is told from one that others have put in its place.
    pub installed: BTreeMap<String, String>,
    /// The inode of each plugin that shares its file with others. What is written into one of these, as by cp(1), is in all of
    /// them: nobody has put such a file there.
    #[serde(default)]
    pub links: BTreeMap<String, u64>,
    /// The run that was the last to install here. None in the record of a program that did not note it.
    #[serde(default)]
    pub run: Option<u64>,
    /// Of the change that leads to this record: each name, and whether it was there.
    pub changed: BTreeMap<String, bool>,
}

impl Record {
    /// None if there is no such file.
    pub fn read(path: &Path) -> Result<Option<Self>> {
        let text = match fs::read(path) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            read => read.map_err(|e| Error::io(format!("read {}", path.display()), &e))?,
        };
        let remedy = "it lists the replaced files: look at them in .ferrule, and remove that directory to \
         start again";
        let decoded = serde_json::from_slice(&text);
        decoded
            .map(Some)
            .map_err(|e| Error::from(e).context(format!("decode {}", path.display())).detail(remedy))
    }

    /// A plugin is not installed any more.
    pub fn drop(&mut self, name: &str) {
        self.installed.remove(name);
        self.links.remove(name);
    }

    /// Writes it to the disk under a name that is not in use.
    pub fn write(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_vec_pretty(self)?;
        files::write(path, &mut text.as_slice(), 0o600).map(drop)
    }
}
