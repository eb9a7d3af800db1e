//! The leases of a network, on disk as the reference keeps them: in the directory DATADIR/NETWORK one file per
//! address, `last_reserved_ip.N` for range set N, and `lock`, held with flock(2) by whoever looks or changes.
//!
//! - *A lease is whole or not there.* It is written to `.new` and renamed. A kill leaves at most a `.new`, which the
//!   next one writes over. Nothing waits for the disk (fsync): after a loss of power the containers are
//!   gone too, and what is left of their files is either whole, to be released by DEL or GC, or torn.
//! - *A torn file is no lease.* The reference writes in place, so a kill leaves empty files of its making: they neither
//!   count nor keep their address, and are removed under the lock.
//! - *Time does not grow with the leases*, see [`index`].

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use cni::{Attachment, Code, Error, Failures, NetworkName, Result};

use nix::libc;

use crate::allocator::Leases;

mod boot;
mod index;
mod lease;
mod status;

use index::Index;
pub use lease::{Lease, Owner};
pub use status::check as status;

const LOCK: &str = "lock";
const NEW: &str = ".new";
const BOOT: &str = ".boot_id";
const LAST_RESERVED: &str = "last_reserved_ip.";
/// More than a container's id and an interface's name can have.
const LONGEST_LEASE: usize = 1024;

/// A network's leases, locked until this is dropped.
#[derive(Debug)]
pub struct Store {
    dir: PathBuf,
    /// None: not every lease is known to have an entry.
    index: Option<Index>,
    changed: bool,
    /// Closing it unlocks.
    _lock: File,
}

/// What a file that is named by an address turned out to be.
enum Content {
    Lease(Owner),
    Torn,
    NotAFile,
}

impl Store {
    /// Locks a network's leases. The directory is made if there is none.
    ///
    /// # Errors
    /// Code 5: what failed on which file.
    pub fn create(data_dir: &Path, network: &NetworkName) -> Result<Self> {
        let dir = directory(data_dir, network);
        loop {
            let made = DirBuilder::new().recursive(true).mode(0o755).create(&dir);
            made.map_err(|e| Error::io(format!("create the directory of leases {}", dir.display()), &e))?;
            // None: someone removed the directory in this moment.
            if let Some(lock) = lock(&dir)? {
                return Ok(Self::locked(dir, lock));
            }
        }
    }

    /// Locks a network's leases. None if there is no directory of them.
    ///
    /// # Errors
    /// As [`Store::create`].
    pub fn open(data_dir: &Path, network: &NetworkName) -> Result<Option<Self>> {
        let dir = directory(data_dir, network);
        Ok(lock(&dir)?.map(|lock| Self::locked(dir, lock)))
    }

    fn locked(dir: PathBuf, lock: File) -> Self {
        let index = Index::sealed(&dir);
        Self { dir, index, changed: false, _lock: lock }
    }

    /// The leases of an attachment, by address. Only if there are none: those of its container by files without an interface.
    ///
    /// # Errors
    /// Code 5: what failed on which file.
    pub fn leases_of(&mut self, at: &Attachment) -> Result<Vec<Lease>> {
        let exact = Owner::from(at);
        let old = exact.any_interface();
        let mut found = match self.indexed(&[&exact, &old]) {
            Some(found) => found,
            None => self.search(&[&exact, &old])?,
        };
        found.sort_by_key(|lease| lease.ip);
        let (exact, old): (Vec<_>, Vec<_>) = found.into_iter().partition(|lease| lease.owner == exact);
        Ok(if exact.is_empty() { old } else { exact })
    }

    /// Asks the index. None if it cannot say.
    fn indexed(&self, owners: &[&Owner]) -> Option<Vec<Lease>> {
        let index = self.index.as_ref()?;
        let mut found = Vec::new();
        for &owner in owners {
            for ip in index.find(&owner.content()).ok()?? {
                if matches!(self.read(ip), Ok(Content::Lease(holder)) if holder == *owner) {
                    found.push(Lease { ip, owner: owner.clone() });
                }
            }
        }
        Some(found)
    }

    /// Reads every lease. A file that cannot be read is nobody's here, and is reported by GC.
    fn search(&mut self, owners: &[&Owner]) -> Result<Vec<Lease>> {
        let mut found = Vec::new();
        self.retain(|ip, owner| {
            if owners.contains(&owner) {
                found.push(Lease { ip, owner: owner.clone() });
            }
            true
        })?;
        Ok(found)
    }

    /// Reads every lease, releases those that are not to be kept, removes what crashes left, and makes the index anew.
    ///
    /// # Errors
    /// Code 5 if the directory cannot be read. The value: what went wrong with single files.
    pub fn retain(&mut self, mut keep: impl FnMut(IpAddr, &Owner) -> bool) -> Result<Failures> {
        (self.index, self.changed) = (None, true);
        let ips = addresses(&self.dir)?;
        let mut failures = Failures::new();
        failures.note(self.remove(NEW));
        let mut index = Index::begin(&self.dir, ips.len()).ok();
        for ip in ips {
            match self.settle(ip, &mut keep) {
                Ok(Some(owner)) => note(&mut index, |index| index.insert(&owner.content(), ip)),
                Ok(None) => {}
                Err(error) => {
                    index = None;
                    failures.note(Err::<(), _>(error));
                }
            }
        }
        self.index = index;
        Ok(failures)
    }

    /// Keeps a lease, and gives its owner, or removes it.
    fn settle(&mut self, ip: IpAddr, keep: &mut impl FnMut(IpAddr, &Owner) -> bool) -> Result<Option<Owner>> {
        match self.read(ip).map_err(|e| Error::io(format!("read lease {}", self.path(ip).display()), &e))? {
            Content::Lease(owner) if keep(ip, &owner) => Ok(Some(owner)),
            Content::Lease(_) | Content::Torn => self.remove(&ip.to_string()).map(|()| None),
            Content::NotAFile => {
                Err(Error::new(Code::Io, format!("lease {} is not a regular file", self.path(ip).display())))
            }
        }
    }

    /// Writes leases for an attachment, all of them or none. `ips` has one address of each range set.
    ///
    /// # Errors
    /// Code 5: what failed on which file.
    pub fn reserve(&mut self, at: &Attachment, ips: &[IpAddr]) -> Result<()> {
        let mut written = Vec::new();
        let outcome = ips.iter().enumerate().try_for_each(|(set, &ip)| {
            let lease = Lease { ip, owner: Owner::from(at) };
            self.write(&ip.to_string(), &lease.owner.content())?;
            note(&mut self.index, |index| index.insert(&lease.owner.content(), ip));
            written.push(lease);
            self.set_last_reserved(set, ip)
        });
        outcome.map_err(|error| {
            let left = written.iter().filter_map(|lease| self.release(lease).err());
            left.fold(error, |e, left| e.detail(format!("roll back: {left}")))
        })
    }

    /// Releases a lease that was found or written under this lock.
    ///
    /// # Errors
    /// Code 5: what failed on which file.
    pub fn release(&mut self, lease: &Lease) -> Result<()> {
        self.remove(&lease.ip.to_string())?;
        note(&mut self.index, |index| index.remove(&lease.owner.content(), lease.ip));
        Ok(())
    }

    /// Notes where the next search begins. It is written in place: torn it costs one turn of the round at most,
    /// while a rename over it makes ext4 write it to the disk at once (`auto_da_alloc`), which takes longer than
    /// all the rest of an ADD.
    fn set_last_reserved(&self, set: usize, ip: IpAddr) -> Result<()> {
        let path = self.dir.join(format!("{LAST_RESERVED}{set}"));
        let text = ip.to_string();
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600).custom_flags(libc::O_NOFOLLOW);
        let written = options.open(&path).and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.set_len(text.len() as u64)
        });
        written.map_err(|e| Error::io(format!("write {}", path.display()), &e))
    }

    /// Drops all leases if they were made before this boot: no container of then is alive.
    ///
    /// What is not known to be of before is kept: on the first call there is no mark of a boot yet.
    ///
    /// # Errors
    /// Code 5: what failed on which file.
    pub fn reset_after_reboot(&mut self) -> Result<()> {
        let this_boot = boot::id().map_err(|e| Error::io("read the id of this boot", &e))?;
        let path = self.dir.join(BOOT);
        match fs::read(&path) {
            Ok(mark) if mark == this_boot => return Ok(()),
            Ok(_) => self.retain(|_, _| false)?.into_result()?,
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            Err(e) => return Err(Error::io(format!("read {}", path.display()), &e)),
        }
        self.write(BOOT, &String::from_utf8_lossy(&this_boot))
    }

    /// Forgets which boot the leases are of: from now on leases are made that [`Store::reset_after_reboot`] would not
    /// know of.
    ///
    /// # Errors
    /// Code 5: what failed on which file.
    pub fn forget_boot(&mut self) -> Result<()> {
        self.remove(BOOT)
    }

    fn read(&self, ip: IpAddr) -> io::Result<Content> {
        read(&self.path(ip))
    }

    /// Writes a file as a whole.
    fn write(&mut self, name: &str, content: &str) -> Result<()> {
        self.changed = true;
        let (new, path) = (self.dir.join(NEW), self.dir.join(name));
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
        let written = options.open(&new).and_then(|mut file| file.write_all(content.as_bytes()));
        written.and_then(|()| fs::rename(&new, &path)).map_err(|e| {
            // What is left of it is written over by the next one.
            fs::remove_file(&new).ok();
            Error::io(format!("write {}", path.display()), &e)
        })
    }

    /// Removes a file, if it is there.
    fn remove(&mut self, name: &str) -> Result<()> {
        let path = self.dir.join(name);
        match fs::remove_file(&path) {
            Ok(()) => {
                self.changed = true;
                Ok(())
            }
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
            Err(e) => Err(Error::io(format!("remove {}", path.display()), &e)),
        }
    }

    fn path(&self, ip: IpAddr) -> PathBuf {
        self.dir.join(ip.to_string())
    }
}

/// Changes the index. If that fails it knows too little, and is given up.
fn note(index: &mut Option<Index>, change: impl FnOnce(&mut Index) -> io::Result<()>) {
    if index.as_mut().is_some_and(|index| change(index).is_err()) {
        *index = None;
    }
}

impl Leases for Store {
    fn last_reserved(&self, set: usize) -> Option<IpAddr> {
        let text = fs::read_to_string(self.dir.join(format!("{LAST_RESERVED}{set}"))).ok()?;
        text.trim().parse().ok()
    }

    fn is_taken(&self, ip: IpAddr) -> Result<bool> {
        is_taken(&self.dir, ip)
    }

    fn holder(&self, ip: IpAddr) -> String {
        let path = self.path(ip);
        let path = path.display();
        match self.read(ip) {
            Ok(Content::Lease(owner)) => format!("{owner} ({path})"),
            Ok(Content::Torn) => format!("nobody ({path} is empty)"),
            Ok(Content::NotAFile) => format!("what is no regular file ({path})"),
            Err(e) => format!("someone ({path}: {e})"),
        }
    }
}

/// The seal is the last change, whatever came before it, and the lock is released only then. Without a seal the next
/// one makes the index anew, so a failure here needs no report.
impl Drop for Store {
    fn drop(&mut self) {
        if let Some(index) = self.index.as_ref().filter(|_| self.changed) {
            index.seal(&self.dir).ok();
        }
    }
}

fn directory(data_dir: &Path, network: &NetworkName) -> PathBuf {
    data_dir.join(network.as_str())
}

/// Takes the lock. None if there is no directory.
fn lock(dir: &Path) -> Result<Option<File>> {
    let path = dir.join(LOCK);
    let failed = |e: &io::Error| Error::io(format!("lock {}", path.display()), e);
    loop {
        let mut options = OpenOptions::new();
        options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW);
        let file = match options.open(&path) {
            Ok(file) => file,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(failed(&e)),
        };
        file.lock().map_err(|e| failed(&e))?;
        let held = file.metadata().map_err(|e| failed(&e))?;
        // Whoever removed the directory meanwhile removed the lock with it: ours is of no use then.
        if fs::symlink_metadata(&path)
            .is_ok_and(|there| there.ino() == held.ino() && there.dev() == held.dev())
        {
            return Ok(Some(file));
        }
    }
}

fn read(path: &Path) -> io::Result<Content> {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let mut file = match options.open(path) {
        Ok(file) => file,
        Err(e) if e.raw_os_error() == Some(libc::ELOOP) => return Ok(Content::NotAFile),
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Content::Torn),
        Err(e) => return Err(e),
    };
    if !file.metadata()?.is_file() {
        return Ok(Content::NotAFile);
    }
    let mut content = [0; LONGEST_LEASE];
    let length = file.read(&mut content)?;
    Ok(Owner::parse(&content[..length]).map_or(Content::Torn, Content::Lease))
}

/// An empty file was torn by a crash and holds nothing.
fn is_taken(dir: &Path, ip: IpAddr) -> Result<bool> {
    let path = dir.join(ip.to_string());
    match fs::symlink_metadata(&path) {
        Ok(file) => Ok(!file.is_file() || file.len() > 0),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(false),
        Err(e) => Err(Error::io(format!("look at lease {}", path.display()), &e)),
    }
}

/// The addresses that files are named by.
fn addresses(dir: &Path) -> Result<Vec<IpAddr>> {
    let failed = |e: io::Error| Error::io(format!("list the leases in {}", dir.display()), &e);
    let mut ips = Vec::new();
    for entry in fs::read_dir(dir).map_err(failed)? {
        ips.extend(entry.map_err(failed)?.file_name().to_str().and_then(lease::address));
    }
    Ok(ips)
}

#[cfg(test)]
mod tests;
