//! Leases on disk: a file for each, in a directory beside the daemon's socket.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use cni::{Error, Result};
use system::file::{self, WholeFile, is_temporary};

use crate::record::{Key, Record};

/// The most bytes of a file. Options that a server sends have a few hundred.
const LARGEST: u64 = 256 << 10;

/// The file that the daemon holds locked as long as it lives.
const LOCK: &str = "lock";

/// The directory of leases.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
}

impl Store {
    /// That of the daemon on a socket: the socket's path without `.sock`. The file system is not looked at.
    pub fn beside(socket: &Path) -> Self {
        let name = socket.file_name().unwrap_or_default().to_string_lossy();
        let dir = name.strip_suffix(".sock").map_or_else(|| format!("{name}.leases"), str::to_owned);
        Self { path: socket.with_file_name(dir) }
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes the directory, and locks it. None: a daemon has it.
    ///
    /// # Errors
    /// Code 5.
    pub fn lock(&self) -> Result<Option<File>> {
        let failed = |e: &io::Error| Error::io(format!("lock {}", self.path.join(LOCK).display()), e);
        DirBuilder::new().recursive(true).mode(0o700).create(&self.path).map_err(|e| failed(&e))?;
        self.lock_if_there()
    }

    /// As [`Store::lock`], in a directory that is there.
    ///
    /// # Errors
    /// Code 5.
    pub fn lock_if_there(&self) -> Result<Option<File>> {
        let path = self.path.join(LOCK);
        let locked =
            file::open_own(OpenOptions::new().create(true).truncate(false).write(true).mode(0o600), &path)
                .and_then(|file| match file.try_lock() {
                    Ok(()) => Ok(Some(file)),
                    Err(fs::TryLockError::WouldBlock) => Ok(None),
                    Err(fs::TryLockError::Error(e)) => Err(e),
                });
        locked.map_err(|e| Error::io(format!("lock {}", path.display()), &e))
    }

    /// Writes a record, over an earlier one.
    ///
    /// # Errors
    /// Code 5.
    pub fn write(&self, key: &Key, record: &Record) -> Result<()> {
        let bytes = serde_json::to_vec(record)?;
        let name = key.file();
        let written = File::open(&self.path)
            .and_then(|dir| WholeFile { dir: &dir, name: &name, label: &name }.replace(&bytes));
        written.map_err(|e| Error::io(format!("write lease {}", self.path.join(&name).display()), &e))
    }

    /// Removes a record. That there is none is fine.
    ///
    /// # Errors
    /// Code 5.
    pub fn remove(&self, key: &Key) -> Result<()> {
        self.remove_file(&key.file())
    }

    fn remove_file(&self, name: &str) -> Result<()> {
        let path = self.path.join(name);
        match fs::remove_file(&path) {
            Err(e) if !matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                Err(Error::io(format!("remove lease {}", path.display()), &e))
            }
            _ => Ok(()),
        }
    }

    /// The record of an attachment.
    ///
    /// # Errors
    /// Code 5; code 6 for what is no record.
    pub fn read(&self, key: &Key) -> Result<Option<Record>> {
        self.read_file(&key.file())
    }

    fn read_file(&self, name: &str) -> Result<Option<Record>> {
        let path = self.path.join(name);
        let bytes = match file::read_own(&path, LARGEST) {
            Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(None),
            read => read.map_err(|e| Error::io(format!("read lease {}", path.display()), &e))?,
        };
        let record: serde_json::Result<Record> = serde_json::from_slice(&bytes);
        let record = record.ok().filter(|record| record.key().is_some_and(|key| key.file() == name));
        record.map(Some).ok_or_else(|| {
            Error::new(cni::Code::Decoding, format!("{} is no lease of this release", path.display()))
        })
    }

    /// All records, and why others cannot be read. What kills have left of files is removed, if the caller has the lock.
    ///
    /// # Errors
    /// Code 5: the directory cannot be read.
    pub fn all(&self, tidy: bool) -> Result<(Vec<Record>, Vec<Error>)> {
        let failed = |e: io::Error| Error::io(format!("list the leases in {}", self.path.display()), &e);
        let (mut records, mut errors) = (Vec::new(), Vec::new());
        let entries = match fs::read_dir(&self.path) {
            Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                return Ok((records, errors));
            }
            entries => entries.map_err(failed)?,
        };
        for entry in entries {
            let Ok(name) = entry.map_err(failed)?.file_name().into_string() else { continue };
            if is_temporary(&name) {
                if tidy {
                    errors.extend(self.remove_file(&name).err());
                }
            } else if name.ends_with(".json") {
                match self.read_file(&name) {
                    Ok(record) => records.extend(record),
                    Err(e) => errors.push(e),
                }
            }
        }
        Ok((records, errors))
    }
}
