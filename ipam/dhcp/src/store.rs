//! Lease files of the daemon: one for each lease, in a directory next to the daemon's socket.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use cni::{Code, Error, Result};
use system::Retry;
use system::file::{self, AtomicFile, is_temporary, missing_is_fine};

use crate::key::Key;
use crate::record::Record;

/// Maximum size of a file in bytes. Options from a server have a few hundred.
const LARGEST: u64 = 256 << 10;

/// The file that the daemon keeps locked while it runs.
const LOCK: &str = "lock";

/// The directory of leases.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
}

impl Store {
    /// The store of the daemon on a socket: the socket's path without `.sock`. Does not access the file system.
    pub fn for_socket(socket: &Path) -> Self {
        let name = socket.file_name().unwrap_or_default().to_string_lossy();
        let dir = name.strip_suffix(".sock").map_or_else(|| format!("{name}.leases"), str::to_owned);
        Self { path: socket.with_file_name(dir) }
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Creates the directory.
    ///
    /// # Errors
    /// Code 5 if the directory cannot be created.
    pub fn create(&self) -> Result<()> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&self.path);
        made.map_err(|e| Error::io(format!("create the directory of leases {}", self.path.display()), &e))
    }

    /// Locks the directory, which must exist. None: another process holds the lock.
    ///
    /// # Errors
    /// Code 5 if the lock file cannot be opened or locked.
    pub fn lock(&self) -> Result<Option<File>> {
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

    /// Retries [`Store::lock`] while another process holds the lock. None after `time`, or if `gives_up` returns true.
    ///
    /// # Errors
    /// Code 5 if the lock file cannot be opened or locked.
    pub fn wait_for_lock(&self, time: Duration, gives_up: impl Fn() -> bool) -> Result<Option<File>> {
        let mut tried = Ok(None);
        Retry::new(time).wait_for(|| {
            tried = self.lock();
            Ok((!matches!(tried, Ok(None)) || gives_up()).then_some(()))
        })?;
        tried
    }

    /// Writes a record. It replaces an earlier one.
    ///
    /// # Errors
    /// Code 5 if the record cannot be written.
    pub fn write(&self, key: &Key, record: &Record) -> Result<()> {
        let (bytes, name) = (serde_json::to_vec(record)?, key.file());
        let written = file::open_directory(&self.path)
            .and_then(|dir| AtomicFile { dir: &dir, name: &name, label: &name }.replace(&bytes));
        written.map_err(|e| Error::io(format!("write lease {}", self.path.join(&name).display()), &e))
    }

    /// Removes a record. A missing record is not an error.
    ///
    /// # Errors
    /// Code 5 if the record cannot be removed.
    pub fn remove(&self, key: &Key) -> Result<()> {
        self.remove_file(&key.file())
    }

    fn remove_file(&self, name: &str) -> Result<()> {
        let path = self.path.join(name);
        let removed = missing_is_fine(fs::remove_file(&path));
        removed.map_err(|e| Error::io(format!("remove lease {}", path.display()), &e))
    }

    /// The record of an attachment.
    ///
    /// # Errors
    /// Code 5 if the file cannot be read. Code 6 if it is not a record.
    pub fn read(&self, key: &Key) -> Result<Option<Record>> {
        self.read_file(&key.file())
    }

    /// The record of an attachment, to release it. A file that is no record is removed: it belongs to this attachment.
    ///
    /// # Errors
    /// Code 5 if the file cannot be read or removed. A later DEL may be able to read and to release it.
    pub fn take(&self, key: &Key) -> Result<Option<Record>> {
        match self.read(key) {
            Err(e) if is_no_record(&e) => self.remove(key).map(|()| None),
            read => read,
        }
    }

    /// Whether an attachment has a record.
    pub fn has(&self, key: &Key) -> bool {
        !matches!(self.read(key), Ok(None))
    }

    /// A record of this boot.
    fn read_file(&self, name: &str) -> Result<Option<Record>> {
        Ok(self.read_any(name)?.filter(|record| !record.is_of_earlier_boot()))
    }

    fn read_any(&self, name: &str) -> Result<Option<Record>> {
        let path = self.path.join(name);
        let read = missing_is_fine(file::read_own(&path, LARGEST).map(Some));
        let read = read.map_err(|e| Error::io(format!("read lease {}", path.display()), &e))?;
        let Some(bytes) = read else { return Ok(None) };
        let record = Record::read(&bytes);
        let record = record.filter(|record| record.key().is_some_and(|key| key.file() == name));
        record.map(Some).ok_or_else(|| {
            Error::new(Code::Decoding, format!("{} is not a lease file of this version", path.display()))
        })
    }

    /// Whether a file is a record of an earlier boot: the directory may be on a disk.
    fn is_of_earlier_boot(&self, name: &str) -> bool {
        self.read_any(name).is_ok_and(|record| record.is_some_and(|record| record.is_of_earlier_boot()))
    }

    /// All readable records, and the errors of the others.
    ///
    /// # Errors
    /// Code 5 if the directory cannot be read.
    pub fn all(&self) -> Result<(Vec<Record>, Vec<Error>)> {
        let (mut records, mut errors) = (Vec::new(), Vec::new());
        for name in self.names()?.iter().filter(|name| name.ends_with(".json")) {
            match self.read_file(name) {
                Ok(record) => records.extend(record),
                Err(e) => errors.push(e),
            }
        }
        Ok((records, errors))
    }

    /// Removes temporary files of killed processes, and records of earlier boots. The caller holds the lock. Returns the
    /// failures.
    ///
    /// # Errors
    /// Code 5 if the directory cannot be read.
    pub fn tidy(&self) -> Result<Vec<Error>> {
        let names = self.names()?;
        let stale = names.iter().filter(|name| is_temporary(name) || self.is_of_earlier_boot(name));
        Ok(stale.filter_map(|name| self.remove_file(name).err()).collect())
    }

    /// The names of all files.
    fn names(&self) -> Result<Vec<String>> {
        let failed = |e: io::Error| Error::io(format!("list the leases in {}", self.path.display()), &e);
        let entries = missing_is_fine(fs::read_dir(&self.path).map(Some)).map_err(failed)?;
        let names = entries.into_iter().flatten();
        let names = names.map(|entry| entry.map(|entry| entry.file_name().into_string().ok()));
        names.filter_map(io::Result::transpose).collect::<io::Result<_>>().map_err(failed)
    }
}

/// Whether a file could be read, but is no lease of this version.
pub fn is_no_record(error: &Error) -> bool {
    error.code() == Code::Decoding as u32
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// The times in a record are meaningless after the next boot. The socket's directory may be on a disk.
    #[test]
    fn a_record_of_an_earlier_boot_is_ignored_and_removed_at_the_start() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::for_socket(&dir.path().join("dhcp.sock"));
        store.create().unwrap();
        let mut record: Value = serde_json::from_slice(include_bytes!("record/v4.json")).unwrap();
        let key = Record::read(record.to_string().as_bytes()).unwrap().key().unwrap();
        let file = store.path.join(key.file());
        // The daemon could not read the boot id. The lease may be of this boot.
        fs::write(&file, record.to_string()).unwrap();
        assert!(store.has(&key) && store.tidy().unwrap().is_empty() && file.exists());
        record["boot"] = json!("11111111-2222-4333-8444-555555555555");
        fs::write(&file, record.to_string()).unwrap();
        let (records, errors) = store.all().unwrap();
        assert!(records.is_empty() && errors.is_empty() && !store.has(&key));
        assert!(store.tidy().unwrap().is_empty() && !file.exists());
    }
}
