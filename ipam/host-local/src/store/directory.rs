//! Directory of a network's leases: reads, writes and removes its files.
//!
//! An administrator may remove the directory at any time, and another process may create it again. So it is opened
//! once, and all operations use the open directory. A process that still has the removed directory finds it empty. It
//! can neither write to the new directory nor remove anything there.

use std::fs::{DirBuilder, File};
use std::io::{self, ErrorKind, Read, Write};
use std::net::IpAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use cni::{Error, NetworkName, Result};
use nix::dir::{Dir, Entry};
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag};
use nix::libc;
use nix::sys::stat::{Mode, fstatat};
use nix::unistd::{UnlinkatFlags, unlinkat};
use system::file::{self, AtomicFile};

use super::lease::{self, Owner};

/// Maximum size of a lease file: more than the longest container id and interface name.
const LONGEST_LEASE: usize = 1024;

/// The open directory of a network. It may have been removed since.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    open: File,
}

/// Identifies a file and its last change: inode and change time, which no program can set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    inode: u64,
    changed: (i64, i64),
    modified: i64,
}

impl Stamp {
    /// The later one of change time and modification time: a copy from a backup has an old modification time.
    pub fn changed(&self) -> SystemTime {
        let seconds = u64::try_from(self.changed.0.max(self.modified)).unwrap_or_default();
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }
}

/// Content of a file whose name is an address.
#[derive(Debug)]
pub enum Content {
    Lease(Owner),
    /// Missing, empty, or only zeros and white space.
    Torn,
    NotAFile,
}

impl Directory {
    /// Path of a network's directory in a data directory.
    pub fn path_of(data_dir: &Path, network: &NetworkName) -> PathBuf {
        data_dir.join(network.as_str())
    }

    /// Creates the directory, if it does not exist.
    ///
    /// # Errors
    /// Code 5 if the directory cannot be created.
    pub fn create(path: &Path) -> Result<()> {
        let made = DirBuilder::new().recursive(true).mode(0o755).create(path);
        made.map_err(|e| Error::io(format!("create the directory of leases {}", path.display()), &e))
    }

    /// Opens the directory. None if it does not exist.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn open(path: &Path) -> io::Result<Option<Self>> {
        match file::open_directory(path) {
            Ok(open) => Ok(Some(Self { path: path.to_owned(), open })),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// The open directory.
    pub fn as_file(&self) -> &File {
        &self.open
    }

    /// The path of a file, for messages.
    pub fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The path of a lease, for messages.
    pub fn lease(&self, ip: IpAddr) -> PathBuf {
        self.path(&ip.to_string())
    }

    /// Opens a file without following links.
    ///
    /// # Errors
    /// If it cannot be opened, or is not a regular file.
    pub fn file(&self, name: &str, flags: OFlag) -> io::Result<File> {
        file::open_in(&self.open, name, flags)
    }

    /// The content of a file.
    ///
    /// # Errors
    /// If it cannot be read, is not a regular file, or has more than `limit` bytes.
    pub fn content(&self, name: &str, limit: u64) -> io::Result<Vec<u8>> {
        file::read_all(self.file(name, OFlag::O_RDONLY)?, limit)
    }

    /// The addresses among the file names.
    ///
    /// # Errors
    /// Code 5 if the directory cannot be read.
    pub fn addresses(&self) -> Result<Vec<IpAddr>> {
        Ok(self.names()?.iter().filter_map(|name| lease::address(name)).collect())
    }

    /// The names of all files, without names that are not UTF-8: no plugin creates them.
    ///
    /// # Errors
    /// Code 5 if the directory cannot be read.
    pub fn names(&self) -> Result<Vec<String>> {
        let flags = OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let names = Dir::openat(&self.open, ".", flags, Mode::empty()).and_then(|mut dir| {
            let name = |entry: Entry| entry.file_name().to_str().ok().map(str::to_owned);
            dir.iter().filter_map(|entry| entry.map(name).transpose()).collect::<nix::Result<Vec<String>>>()
        });
        match names {
            Ok(names) => Ok(names),
            // The directory was removed.
            Err(Errno::ENOENT) => Ok(Vec::new()),
            Err(e) => Err(Error::io(format!("list the leases in {}", self.path.display()), &e.into())),
        }
    }

    /// Reads a lease. Follows no link, and does not block on a FIFO.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn read(&self, ip: IpAddr) -> io::Result<Content> {
        let mut file = match self.file(&ip.to_string(), OFlag::O_RDONLY) {
            Ok(file) => file,
            Err(e) if file::is_irregular(&e) => return Ok(Content::NotAFile),
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Content::Torn),
            Err(e) => return Err(e),
        };
        let mut content = [0; LONGEST_LEASE];
        let length = file.read(&mut content)?;
        Ok(Owner::parse(&content[..length]).map_or(Content::Torn, Content::Lease))
    }

    /// Whether an address is leased. An empty file was torn by a crash and is not a lease.
    ///
    /// # Errors
    /// Code 5 if the file cannot be examined.
    pub fn is_taken(&self, ip: IpAddr) -> Result<bool> {
        self.size_of(ip).map(|file| file.is_some_and(|(is_file, size)| !is_file || size > 0))
    }

    /// Whether a file with the name of the address exists.
    ///
    /// # Errors
    /// Code 5 if the file cannot be examined.
    pub fn exists(&self, ip: IpAddr) -> Result<bool> {
        self.size_of(ip).map(|file| file.is_some())
    }

    /// The stamp of a lease file. None: there is no such regular file.
    pub fn stamp(&self, ip: IpAddr) -> Option<Stamp> {
        let file = fstatat(&self.open, ip.to_string().as_str(), AtFlags::AT_SYMLINK_NOFOLLOW).ok()?;
        let changed = (file.st_ctime, file.st_ctime_nsec);
        let stamp = Stamp { inode: file.st_ino, changed, modified: file.st_mtime };
        (file.st_mode & libc::S_IFMT == libc::S_IFREG).then_some(stamp)
    }

    /// Modification time of a file. None if it does not exist.
    pub fn modified(&self, name: &str) -> Option<SystemTime> {
        let file = fstatat(&self.open, name, AtFlags::AT_SYMLINK_NOFOLLOW).ok()?;
        Some(SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(file.st_mtime).ok()?))
    }

    /// Whether the file of an address is a regular one, and its size.
    fn size_of(&self, ip: IpAddr) -> Result<Option<(bool, i64)>> {
        match fstatat(&self.open, ip.to_string().as_str(), AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(file) => Ok(Some((file.st_mode & libc::S_IFMT == libc::S_IFREG, file.st_size))),
            Err(Errno::ENOENT) => Ok(None),
            Err(e) => Err(Error::io(format!("examine lease {}", self.lease(ip).display()), &e.into())),
        }
    }

    /// Writes a file atomically: after a kill, it has either the old or the new content.
    ///
    /// # Errors
    /// Code 5 if the file cannot be written.
    pub fn write(&self, name: &str, content: &str) -> Result<()> {
        self.whole(name).replace(content.as_bytes()).map_err(|e| self.unwritten(name, &e))
    }

    /// Creates a file atomically. Returns false, and writes nothing, if the file exists.
    /// This is safe without a lock.
    ///
    /// # Errors
    /// Code 5 if the file cannot be written.
    pub fn write_once(&self, name: &str, content: &str) -> Result<bool> {
        self.whole(name).create(content.as_bytes()).map_err(|e| self.unwritten(name, &e))
    }

    fn whole<'a>(&'a self, name: &'a str) -> AtomicFile<'a> {
        AtomicFile { dir: &self.open, name, label: name }
    }

    fn unwritten(&self, name: &str, e: &io::Error) -> Error {
        Error::io(format!("write {}", self.path(name).display()), e)
    }

    /// Writes a file in place: a kill may leave it with partial content.
    ///
    /// # Errors
    /// Code 5 if the file cannot be written.
    pub fn write_in_place(&self, name: &str, content: &str) -> Result<()> {
        let written = self.file(name, OFlag::O_WRONLY | OFlag::O_CREAT).and_then(|mut file| {
            file.write_all(content.as_bytes())?;
            file.set_len(content.len() as u64)
        });
        written.map_err(|e| self.unwritten(name, &e))
    }

    /// Removes a file. Returns false if it did not exist.
    ///
    /// # Errors
    /// Code 5 if the file cannot be removed.
    pub fn remove(&self, name: &str) -> Result<bool> {
        match self.unlink(name) {
            Ok(()) => Ok(true),
            Err(Errno::ENOENT) => Ok(false),
            Err(e) => Err(Error::io(format!("remove {}", self.path(name).display()), &e.into())),
        }
    }

    /// Removes a file.
    pub fn unlink(&self, name: &str) -> nix::Result<()> {
        unlinkat(&self.open, name, UnlinkatFlags::NoRemoveDir)
    }
}
