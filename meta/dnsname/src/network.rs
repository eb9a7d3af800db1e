//! A network's directory: the server's configuration, its hosts file, and the lock under which both are changed.
//!
//! `/run/containers/cni/dnsname/NETWORK` is the original plugin's directory. Either plugin can continue with the
//! files of the other. But only root can enter `/run/containers`, and the server reads the hosts file as an
//! unprivileged user. So the files are in `/run/ferrule-dnsname/NETWORK`, and the original's path is a link to that
//! directory. A directory that the original plugin has created is replaced by such a link before a server is started
//! for it.
//!
//! The original's lock is `lock` in the directory, held by flock(2). A plugin that removes a directory holds its
//! lock. So after locking, check that the path still leads to the same directory.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use cni::{Code, Error, NetworkName, Result};
use nix::fcntl::OFlag;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use system::file::{self, AtomicFile};
use system::{lock, size_limit};

use crate::deletions::Deletions;
use crate::hosts::{Entry, Hosts};
use crate::masq::Service;
use crate::server;

/// The files. The original plugin uses the same names.
pub const CONF: &str = "dnsmasq.conf";
pub const HOSTS: &str = "addnhosts";
pub const PID: &str = "pidfile";
const LOCK: &str = "lock";

/// The original plugin does not have this file: see [`Deletions`].
const DELETED: &str = "deleted";

/// The original plugin's directory for all networks. Only root can enter it.
const LINKS: &str = "/run/containers/cni/dnsname";

/// Ferrule's directory for all networks. Every user can enter it.
const DIRECTORIES: &str = "/run/ferrule-dnsname";

/// Timeout for the lock. Other plugins start a server while they hold it.
const LOCK_TIMEOUT: Duration = Duration::from_secs(60);

/// Maximum size of a hosts file in bytes: enough for a network of 65536 containers.
const LONGEST_FILE: u64 = 64 << 20;

/// Maximum number of links that lead from one to the next, as in path_resolution(7).
const MOST_LINKS: usize = 40;

/// The directory of a network, locked until it is dropped.
#[derive(Debug)]
pub struct Network {
    name: NetworkName,
    /// The path that the original plugin and the server's arguments contain.
    path: PathBuf,
    dir: File,
    _lock: File,
}

/// The result of an attempt to lock a directory.
enum Attempt {
    Locked(Box<Network>),
    Missing,
    /// Another process holds the lock, or the directory has been replaced.
    Busy,
}

impl Network {
    /// Locks a network's directory, and creates it if it does not exist.
    ///
    /// # Errors
    /// Code 5 if a file operation fails. Code 11 if other processes hold the lock.
    pub fn create(name: &NetworkName) -> Result<Self> {
        locked(name, || match Self::attempt(name)? {
            Attempt::Locked(this) => Ok(Some(Some(*this))),
            Attempt::Busy => Ok(None),
            Attempt::Missing => Self::make(name).map(|made| made.map(Some)),
        })?
        .ok_or_else(|| held(name))
    }

    /// Locks a network's directory. None if it does not exist.
    ///
    /// # Errors
    /// Code 5 if a file operation fails. Code 11 if other processes hold the lock.
    pub fn open(name: &NetworkName) -> Result<Option<Self>> {
        locked(name, || match Self::attempt(name)? {
            Attempt::Locked(this) => Ok(Some(Some(*this))),
            Attempt::Missing => Self::remove_unlinked(name),
            Attempt::Busy => Ok(None),
        })
    }

    /// Locks a network's directory without waiting. None: another process holds the lock, or the directory does not
    /// exist.
    ///
    /// # Errors
    /// If a file operation fails.
    pub fn try_open(name: &NetworkName) -> io::Result<Option<Self>> {
        Ok(match Self::attempt(name)? {
            Attempt::Locked(this) => Some(*this),
            Attempt::Missing | Attempt::Busy => None,
        })
    }

    /// Reads a network's hosts file without the lock: the file is replaced atomically.
    ///
    /// # Errors
    /// Code 5 if the file cannot be read.
    pub fn peek(name: &NetworkName) -> Result<Hosts> {
        peek_file(name, HOSTS).map(|text| Hosts::parse(&text))
    }

    /// Like [`Network::service`], without the lock.
    ///
    /// # Errors
    /// Code 5 if the file cannot be read.
    pub fn peek_service(name: &NetworkName) -> Result<Option<Service>> {
        peek_file(name, CONF).map(|text| Service::parse(&text))
    }

    fn attempt(name: &NetworkName) -> io::Result<Attempt> {
        Self::lock(name, path_of(name))
    }

    fn lock(name: &NetworkName, path: PathBuf) -> io::Result<Attempt> {
        let Some(dir) = open_directory(&path)? else { return Ok(Attempt::Missing) };
        let lock = match file::open_in(&dir, LOCK, OFlag::O_RDONLY | OFlag::O_CREAT) {
            // The directory has been removed meanwhile.
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Attempt::Busy),
            lock => lock?,
        };
        if !lock::try_lock(&lock)? || !file::is_still(&dir, fs::metadata(&path))? {
            return Ok(Attempt::Busy);
        }
        Ok(Attempt::Locked(Box::new(Self { name: name.clone(), path, dir, _lock: lock })))
    }

    /// Creates the directory, and the link to it. None: another process is changing it.
    fn make(name: &NetworkName) -> io::Result<Option<Self>> {
        let (link, path) = (path_of(name), readable(name));
        let parent = link.parent().unwrap_or(Path::new("/"));
        DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
        if is_rootless() {
            return DirBuilder::new().recursive(true).mode(0o700).create(&link).map(|()| None);
        }
        make_enterable(&path)?;
        let Attempt::Locked(this) = Self::lock(name, path.clone())? else { return Ok(None) };
        // The original plugin has removed the link but not the directory. Then its server has exited, and the files
        // are stale. If a server runs, only the link was lost.
        if this.has_files()? && matches!(server::find(name), Ok(None)) {
            this.remove_files()?;
        }
        match symlink(&path, &link) {
            Err(e) if e.kind() == ErrorKind::AlreadyExists => Ok(None),
            linked => linked.map(|()| Some(Self { path: link, ..*this })),
        }
    }

    /// Removes a directory without a link. None: try again, because another process is changing it, or because a
    /// server runs and its link was restored.
    fn remove_unlinked(name: &NetworkName) -> io::Result<Option<Option<Self>>> {
        // Without root, there is no shared directory.
        if is_rootless() {
            return Ok(Some(None));
        }
        let (link, path) = (path_of(name), readable(name));
        match Self::lock(name, path.clone())? {
            Attempt::Busy => Ok(None),
            Attempt::Missing => {
                if fs::read_link(&link).is_ok_and(|to| to == path) {
                    file::missing_is_fine(fs::remove_file(&link))?;
                }
                Ok(Some(None))
            }
            Attempt::Locked(_) if fs::symlink_metadata(&link).is_ok() => Ok(None),
            Attempt::Locked(this) => match server::find(name).map_err(|e| io::Error::other(e.to_string()))? {
                Some(_) => symlink(&path, &link).map(|()| None),
                None => {
                    this.remove_directory(&path)?;
                    Ok(Some(None))
                }
            },
        }
    }

    /// The path of a file, through the original plugin's directory.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The path of the directory for the server's user.
    pub fn readable_path(&self) -> PathBuf {
        if is_rootless() { self.path.clone() } else { readable(&self.name) }
    }

    /// The network's name.
    pub fn name(&self) -> &NetworkName {
        &self.name
    }

    /// The hosts file.
    ///
    /// # Errors
    /// Code 5 if it cannot be read.
    pub fn hosts(&self) -> Result<Hosts> {
        self.read(HOSTS).map(|text| Hosts::parse(&text))
    }

    /// The settings with which the server was started, from its configuration. None: the file does not exist or is
    /// not usable.
    ///
    /// # Errors
    /// Code 5 if it cannot be read.
    pub fn service(&self) -> Result<Option<Service>> {
        self.conf().map(|text| Service::parse(&text))
    }

    /// The text of the server's configuration. Empty: it has none.
    ///
    /// # Errors
    /// Code 5 if it cannot be read.
    pub fn conf(&self) -> Result<String> {
        self.read(CONF)
    }

    /// The attachments whose DEL has run.
    ///
    /// # Errors
    /// Code 5 if the file cannot be read.
    pub fn deletions(&self) -> Result<Deletions> {
        self.read(DELETED).map(|text| Deletions::parse(&text))
    }

    /// Writes the attachments whose DEL has run.
    ///
    /// # Errors
    /// Code 5 if the file cannot be written. It is then unchanged.
    pub fn write_deletions(&self, deletions: &Deletions) -> Result<()> {
        self.whole(DELETED)
            .replace(deletions.text().as_bytes())
            .map_err(|e| self.failed("write", DELETED, &e))
    }

    fn read(&self, name: &str) -> Result<String> {
        let read = file::open_in(&self.dir, name, OFlag::O_RDONLY)
            .and_then(|file| file::read_all(file, LONGEST_FILE));
        let bytes = file::missing_is_fine(read).map_err(|e| self.failed("read", name, &e))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Replaces the hosts file atomically. The server can read it.
    ///
    /// # Errors
    /// Code 5 if the file cannot be written. It is then unchanged.
    pub fn write_hosts(&self, hosts: &Hosts) -> Result<()> {
        let written = self.whole(HOSTS).replace_for_all(hosts.text().as_bytes());
        written.map_err(|e| self.failed("write", HOSTS, &e))
    }

    /// Writes the hosts file without some entries. If the disk has no space for a new file, changes the file in
    /// place.
    ///
    /// # Errors
    /// Code 5 if the file cannot be written.
    pub fn remove_entries(&self, hosts: &Hosts, removed: &[Entry]) -> Result<()> {
        let write = || self.whole(HOSTS).replace_for_all(hosts.text().as_bytes());
        match write() {
            Err(e) if e.kind() == ErrorKind::FileTooLarge => size_limit::raise().and_then(|()| write()),
            Err(e) if is_full(&e) => {
                let blanked = Hosts::blanked(&self.read(HOSTS)?, removed);
                let file = file::open_in(&self.dir, HOSTS, OFlag::O_WRONLY);
                file.and_then(|file| file.write_all_at(blanked.as_bytes(), 0))
            }
            written => written,
        }
        .map_err(|e| self.failed("write", HOSTS, &e))
    }

    /// Writes the configuration.
    ///
    /// # Errors
    /// Code 5 if the file cannot be written. It is then unchanged.
    pub fn write_conf(&self, text: &str) -> Result<()> {
        self.whole(CONF).replace(text.as_bytes()).map_err(|e| self.failed("write", CONF, &e))
    }

    fn whole<'a>(&'a self, name: &'a str) -> AtomicFile<'a> {
        AtomicFile { dir: &self.dir, name, label: name }
    }

    /// Ensures that the hosts file is in a directory that the server can enter. Replaces a directory of the original
    /// plugin by a link, and returns the new directory. None: the directory is the same.
    ///
    /// # Errors
    /// Code 5 if a file operation fails. The directory is then unchanged.
    pub fn make_readable(&self) -> Result<Option<Self>> {
        if is_rootless() {
            return Ok(None);
        }
        if fs::symlink_metadata(&self.path).is_ok_and(|found| found.is_symlink()) {
            make_enterable(&readable(&self.name)).map_err(|e| self.failed("create", "", &e))?;
            return Ok(None);
        }
        let hosts = self.hosts()?;
        let moved = self.replace_by_link(&hosts).map_err(|e| self.failed("replace by a link", "", &e))?;
        moved.map(Some).ok_or_else(|| held(&self.name))
    }

    fn replace_by_link(&self, hosts: &Hosts) -> io::Result<Option<Self>> {
        let path = readable(&self.name);
        make_enterable(&path)?;
        let Attempt::Locked(new) = Self::lock(&self.name, path.clone())? else { return Ok(None) };
        new.whole(HOSTS).replace_for_all(hosts.text().as_bytes())?;
        let aside = Path::new(DIRECTORIES).join(format!(".original.{}", self.name));
        // A plugin that was killed at this step has left its link here, or the original plugin's directory.
        match fs::remove_file(&aside) {
            Err(e) if e.kind() == ErrorKind::IsADirectory => fs::remove_dir_all(&aside)?,
            removed => file::missing_is_fine(removed)?,
        }
        symlink(&path, &aside)?;
        renameat_with(CWD, &aside, CWD, &self.path, RenameFlags::EXCHANGE)?;
        self.remove_directory(&aside)?;
        Ok(Some(Self { path: self.path.clone(), ..*new }))
    }

    /// Removes the directory, after its server has exited and its hosts file has no entries left.
    ///
    /// # Errors
    /// Code 5 if a file cannot be removed.
    pub fn remove(self) -> Result<()> {
        let removed = match fs::read_link(&self.path) {
            // Remove the link first. Without the link, no plugin uses the directory, even if removing the rest fails.
            Ok(to) => fs::remove_file(&self.path).and_then(|()| self.remove_directory(&to)),
            Err(_) => self.remove_directory(&self.path),
        };
        removed.map_err(|e| self.failed("remove", "", &e))
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        self.remove_files()?;
        file::missing_is_fine(fs::remove_file(path.join(LOCK)))?;
        match fs::remove_dir(path) {
            // A process that waits for the lock has created the lock file again, or another program has put a file
            // there. Keep the directory then.
            Err(e) if e.kind() == ErrorKind::DirectoryNotEmpty => Ok(()),
            removed => file::missing_is_fine(removed),
        }
    }

    /// Removes unfinished files of killed plugins.
    ///
    /// # Errors
    /// Code 5 if a file cannot be removed.
    pub fn remove_unfinished(&self) -> Result<()> {
        self.remove_temporary().map_err(|e| self.failed("remove unfinished files in", "", &e))
    }

    fn remove_temporary(&self) -> io::Result<()> {
        [HOSTS, CONF, DELETED].iter().try_for_each(|label| file::remove_temporary(&self.descriptor(), label))
    }

    /// Whether the hosts file was deleted by another program. The DEL of the last container deletes the configuration,
    /// too.
    ///
    /// # Errors
    /// Code 5 if the files cannot be examined.
    pub fn has_lost_hosts(&self) -> Result<bool> {
        let exists =
            |name| self.descriptor().join(name).try_exists().map_err(|e| self.failed("examine", name, &e));
        Ok(!exists(HOSTS)? && exists(CONF)?)
    }

    /// Whether the directory has a file besides the lock.
    fn has_files(&self) -> io::Result<bool> {
        for entry in fs::read_dir(self.descriptor())? {
            if entry?.file_name() != LOCK {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Removes all files except the lock: no server can be started then.
    ///
    /// # Errors
    /// Code 5 if a file cannot be removed.
    pub fn clear(&self) -> Result<()> {
        self.remove_files().map_err(|e| self.failed("remove the files of", "", &e))
    }

    fn remove_files(&self) -> io::Result<()> {
        self.remove_temporary()?;
        // The original plugin creates a copy of the hosts file, `addnhosts.old`, for a moment.
        for name in [HOSTS, "addnhosts.old", CONF, PID, DELETED] {
            file::missing_is_fine(fs::remove_file(self.descriptor().join(name)))?;
        }
        Ok(())
    }

    /// The path of the open directory. Its original path may lead to another directory by now.
    fn descriptor(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&self.dir)))
    }

    fn failed(&self, what: &str, name: &str, e: &io::Error) -> Error {
        failed(what, &self.path, name, e)
    }
}

/// The failure of an operation on a file in a network's directory.
fn failed(what: &str, directory: &Path, name: &str, e: &io::Error) -> Error {
    // The error contains the real path instead of the link, because it shows which disk is full.
    let path = fs::canonicalize(directory).unwrap_or_else(|_| directory.to_owned());
    Error::io(format!("{what} {}", path.join(name).display()), e)
}

fn locked<T>(
    name: &NetworkName,
    attempt: impl FnMut() -> io::Result<Option<Option<T>>>,
) -> Result<Option<T>> {
    let outcome = lock::wait_for(LOCK_TIMEOUT, attempt);
    let outcome = outcome.map_err(|e| Error::io(format!("lock {}", path_of(name).display()), &e))?;
    outcome.ok_or_else(|| held(name))
}

fn held(name: &NetworkName) -> Error {
    let path = path_of(name).join(LOCK);
    let text = format!("lock {}: other processes have held it for {LOCK_TIMEOUT:?}", path.display());
    Error::new(Code::TryAgainLater, text)
        .detail(format!("`fuser -v {}` shows which processes hold it", path.display()))
}

/// The networks with a directory.
pub fn all() -> Vec<NetworkName> {
    let entries = fs::read_dir(links()).into_iter().flatten().flatten();
    entries.filter_map(|entry| NetworkName::parse(entry.file_name().to_str()?).ok()).collect()
}

/// The original plugin's directory of a network.
pub fn path_of(name: &NetworkName) -> PathBuf {
    links().join(name.as_str())
}

fn links() -> PathBuf {
    session_directory().map_or_else(|| LINKS.into(), |dir| dir.join("containers/cni/dnsname"))
}

/// The directory of a network that the server's user can enter.
fn readable(name: &NetworkName) -> PathBuf {
    Path::new(DIRECTORIES).join(name.as_str())
}

/// Whether the plugin runs for a rootless engine. Then the server runs as the engine's user, and no directory is
/// shared.
pub fn is_rootless() -> bool {
    session_directory().is_some()
}

/// The runtime directory of a rootless engine, from the environment. For root, the variable would name a different
/// directory in each login session, so Podman unsets it.
fn session_directory() -> Option<PathBuf> {
    let dir = std::env::var_os("XDG_RUNTIME_DIR").filter(|dir| !dir.is_empty())?;
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let is_initial = map.split_whitespace().eq(["0", "0", "4294967295"]);
    (!is_initial && Path::new(&dir).is_absolute()).then(|| dir.into())
}

/// Creates a network's directory that the server's user can enter, whatever the umask.
fn make_enterable(path: &Path) -> io::Result<()> {
    for (path, mode) in [(Path::new(DIRECTORIES), 0o755), (path, 0o711)] {
        match DirBuilder::new().mode(mode).create(path) {
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
            made => made?,
        }
        // Another plugin may have removed the network's directory meanwhile.
        file::missing_is_fine(fs::set_permissions(path, Permissions::from_mode(mode)))?;
    }
    Ok(())
}

/// Whether the directory of the host's resolv.conf exists. dnsmasq waits for the file, but does not start without its
/// directory: the link of a host whose systemd-resolved does not run leads to no directory.
pub fn resolv_conf_has_directory() -> bool {
    let mut path = PathBuf::from("/etc/resolv.conf");
    for _ in 0..MOST_LINKS {
        let directory = path.parent().unwrap_or(Path::new("/"));
        match fs::read_link(&path) {
            Ok(to) => path = directory.join(to),
            Err(_) => return directory.is_dir(),
        }
    }
    false
}

fn is_full(e: &io::Error) -> bool {
    matches!(e.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

fn open_directory(path: &Path) -> io::Result<Option<File>> {
    file::missing_is_fine(file::open_directory(path).map(Some))
}

/// Reads one of a network's files without the lock. Empty: it does not exist.
fn peek_file(name: &NetworkName, file: &str) -> Result<String> {
    let path = path_of(name);
    let read = file::missing_is_fine(file::read_own(&path.join(file), LONGEST_FILE));
    let read = read.map_err(|e| failed("read", &path, file, &e))?;
    Ok(String::from_utf8_lossy(&read).into_owned())
}
