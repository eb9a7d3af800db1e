//! The directory of a network's leases: its files, each read, written and removed with care.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use cni::{Error, NetworkName, Result, file};

use super::lease::{self, Owner};

const LOCK: &str = "lock";
/// What is being written. There is one at most, under the lock.
pub const NEW: &str = ".new";
/// More than a container's id and an interface's name can have.
const LONGEST_LEASE: usize = 1024;

/// A network's directory, which may not be there.
#[derive(Clone, Debug)]
pub struct Directory(PathBuf);

/// What a file that is named by an address turned out to be.
#[derive(Debug)]
pub enum Content {
    Lease(Owner),
    /// Empty, or not there at all.
    Torn,
    NotAFile,
}

impl Directory {
    /// The one that a network has in a data directory.
    pub fn of(data_dir: &Path, network: &NetworkName) -> Self {
        Self(data_dir.join(network.as_str()))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The path of a file in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// The path of a lease.
    pub fn lease(&self, ip: IpAddr) -> PathBuf {
        self.0.join(ip.to_string())
    }

    /// Makes it, if it is not there.
    ///
    /// # Errors
    /// Code 5.
    pub fn create(&self) -> Result<()> {
        let made = DirBuilder::new().recursive(true).mode(0o755).create(&self.0);
        made.map_err(|e| Error::io(format!("create the directory of leases {}", self.0.display()), &e))
    }

    /// Takes the lock, which closing the file gives back. None if there is no directory.
    ///
    /// # Errors
    /// Code 5.
    pub fn lock(&self) -> Result<Option<File>> {
        let path = self.file(LOCK);
        let failed = |e: &io::Error| Error::io(format!("lock {}", path.display()), e);
        loop {
            let file = match file::open_own(writing().read(true), &path) {
                Ok(file) => file,
                Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
                Err(e) => return Err(failed(&e)),
            };
            file.lock().map_err(|e| failed(&e))?;
            let held = file.metadata().map_err(|e| failed(&e))?;
            // Whoever removed the directory meanwhile removed the lock with it: ours is of no use then.
            let same = |there: fs::Metadata| there.ino() == held.ino() && there.dev() == held.dev();
            if fs::symlink_metadata(&path).is_ok_and(same) {
                return Ok(Some(file));
            }
        }
    }

    /// The addresses that files are named by.
    ///
    /// # Errors
    /// Code 5.
    pub fn addresses(&self) -> Result<Vec<IpAddr>> {
        let failed = |e: io::Error| Error::io(format!("list the leases in {}", self.0.display()), &e);
        let mut ips = Vec::new();
        for entry in fs::read_dir(&self.0).map_err(failed)? {
            ips.extend(entry.map_err(failed)?.file_name().to_str().and_then(lease::address));
        }
        Ok(ips)
    }

    /// Reads a lease. No link is followed, and nothing that is no file is waited for.
    ///
    /// # Errors
    /// What the file system says.
    pub fn read(&self, ip: IpAddr) -> io::Result<Content> {
        let mut file = match file::open_own(OpenOptions::new().read(true), &self.lease(ip)) {
            Ok(file) => file,
            Err(e) if file::is_irregular(&e) => return Ok(Content::NotAFile),
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Content::Torn),
            Err(e) => return Err(e),
        };
        let mut content = [0; LONGEST_LEASE];
        let length = file.read(&mut content)?;
        Ok(Owner::parse(&content[..length]).map_or(Content::Torn, Content::Lease))
    }

    /// Whether an address is leased. An empty file was torn by a crash and holds nothing.
    ///
    /// # Errors
    /// Code 5.
    pub fn is_taken(&self, ip: IpAddr) -> Result<bool> {
        let path = self.lease(ip);
        match fs::symlink_metadata(&path) {
            Ok(file) => Ok(!file.is_file() || file.len() > 0),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(false),
            Err(e) => Err(Error::io(format!("look at lease {}", path.display()), &e)),
        }
    }

    /// Writes a file as a whole: a kill leaves the old one, or the new one.
    ///
    /// # Errors
    /// Code 5.
    pub fn write(&self, name: &str, content: &str) -> Result<()> {
        let (new, path) = (self.file(NEW), self.file(name));
        let written = file::open_own(writing().truncate(true), &new)
            .and_then(|mut file| file.write_all(content.as_bytes()))
            .map_err(|e| Error::io(format!("write {}", new.display()), &e));
        let renamed = written.and_then(|()| {
            fs::rename(&new, &path).map_err(|e| Error::io(format!("write {}", path.display()), &e))
        });
        // What is left of it is written over by the next one.
        renamed.inspect_err(|_| drop(fs::remove_file(&new)))
    }

    /// Writes a file in place: a kill may leave a mixture.
    ///
    /// # Errors
    /// Code 5.
    pub fn write_in_place(&self, name: &str, content: &str) -> Result<()> {
        let path = self.file(name);
        let written = file::open_own(&mut writing(), &path).and_then(|mut file| {
            file.write_all(content.as_bytes())?;
            file.set_len(content.len() as u64)
        });
        written.map_err(|e| Error::io(format!("write {}", path.display()), &e))
    }

    /// Removes a file. False if it was not there.
    ///
    /// # Errors
    /// Code 5.
    pub fn remove(&self, name: &str) -> Result<bool> {
        let path = self.file(name);
        match fs::remove_file(&path) {
            Ok(()) => Ok(true),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(false),
            Err(e) => Err(Error::io(format!("remove {}", path.display()), &e)),
        }
    }
}

fn writing() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600);
    options
}
