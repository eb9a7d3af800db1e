//! The leases of a network on disk, in the reference's format: one file for each address in the directory
//! DATADIR/NETWORK, `last_reserved_ip.N` for range set N, and `lock`, which is locked with flock(2) during each read or
//! change, see [`lock`].
//!
//! - *Leases are written atomically*: a file is written with a temporary name, `.new.*`, and then renamed. If the
//!   process is killed, the next run that reads all leases removes the unfinished file.
//! - *No lease is overwritten*, even without the lock: the rename fails if a file of this name exists
//!   (RENAME_NOREPLACE).
//! - *A torn file is not a lease.* A torn file is empty or contains only zeros. The reference writes lease files in
//!   place, so a kill of the reference leaves empty files. The address of a torn file counts as free, and the file is
//!   removed while the lock is held.
//! - *Nothing calls fsync*, because no container survives a power failure. Its lease file is then either complete, and
//!   DEL or GC releases the lease, or torn.
//! - *The time for an operation does not grow with the number of leases*. The [`index`] finds the leases of an owner.
//!   The *seal* of the index proves that the index has an entry for every lease.

use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, SystemTime};

use cni::{Attachment, Code, Error, Failures, NetworkName, Result};
use system::file::is_temporary;

use crate::allocator::Leases;
use crate::range::RangeSet;

mod boot;
mod directory;
mod elsewhere;
mod index;
mod lease;
mod lock;
mod status;

use directory::{Content, Directory, Stamp};
pub use elsewhere::leases as leases_elsewhere;
use index::Index;
pub use lease::{Lease, Owner};
use lock::Lock;
pub use status::{NEARLY_FULL, check as status};

/// The boot mark: a file with the kernel's boot id at the last ADD with `resetOnReboot`.
const BOOT: &str = ".boot_id";
/// An empty file. Its modification time is the start of the last search for stale leases in the background.
const LOOKED: &str = ".looked";
/// Minimum interval between two such searches.
const LOOK_PAUSE: Duration = Duration::from_secs(600);
/// Prefix of the hints: the file for range set N contains the address that was leased last. The search for a free
/// address begins after it.
const LAST_RESERVED: &str = "last_reserved_ip.";
/// Maximum size of the boot mark or of a hint in bytes. An editor may have added a line end.
const LONGEST_MARK: u64 = 100;

/// A network's leases. They are locked until the store is dropped.
#[derive(Debug)]
pub struct Store {
    dir: Directory,
    /// `None` if the index on disk may lack entries of leases.
    index: Option<Index>,
    /// Whether this process has changed the directory, which breaks the index's seal.
    changed: bool,
    lock: Lock,
}

/// A lease, and the time at which its file was last changed.
#[derive(Clone, Debug)]
pub struct DatedLease {
    pub lease: Lease,
    pub changed: SystemTime,
    /// Identifies the file and its last change.
    stamp: Stamp,
}

/// Errors of single files in the directory.
#[derive(Debug, Default)]
pub struct FileErrors {
    /// Files that could not be read. They may be leases of any container.
    pub unread: Failures,
    /// Files that could not be removed, or are not regular files.
    pub others: Failures,
}

impl FileErrors {
    /// Combines all errors into one.
    ///
    /// # Errors
    /// If any file has an error.
    pub fn into_result(mut self) -> Result<()> {
        self.others.note(self.unread.into_result());
        self.others.into_result()
    }
}

impl Store {
    /// Locks a network's leases. Creates the directory if it does not exist.
    ///
    /// # Errors
    /// Code 5 if a file operation fails.
    pub fn create(data_dir: &Path, network: &NetworkName) -> Result<Self> {
        let mut attempts = 0..3;
        loop {
            if let Some(store) = Self::open(data_dir, network)? {
                return Ok(store);
            }
            let made = Directory::create(&Directory::path_of(data_dir, network));
            // Other processes may create and remove the directory concurrently, so retry. A permanent error would occur
            // at each attempt.
            if attempts.next().is_none() {
                made?;
            }
        }
    }

    /// Locks a network's leases. Returns `None` if the directory does not exist.
    ///
    /// # Errors
    /// Code 5 if the directory cannot be opened, locked or read.
    pub fn open(data_dir: &Path, network: &NetworkName) -> Result<Option<Self>> {
        let path = Directory::path_of(data_dir, network);
        let Some((dir, lock)) = Lock::take(&path)? else { return Ok(None) };
        let index = Index::sealed(&dir);
        Ok(Some(Self { dir, index, changed: false, lock }))
    }

    /// Returns the attachment's leases, sorted by address. If the attachment has none, returns the leases of its
    /// container whose files contain no interface. Also returns the errors of files that could not be read, because
    /// such a file may be a lease of the attachment.
    ///
    /// A valid index without an entry for the attachment means that it has no lease. There is one exception: if a
    /// program has overwritten a lease file in place, the index does not contain the file's new owner.
    ///
    /// # Errors
    /// Code 5 if a file cannot be read.
    pub fn leases_of(&mut self, at: &Attachment) -> Result<(Vec<Lease>, Failures)> {
        let owners = Owner::all_of(at);
        match self.indexed(&owners) {
            Some(found) => Ok((Owner::most_exact(found), Failures::new())),
            None => self.search(&owners),
        }
    }

    /// Like [`Store::leases_of`], but reads all leases if the index has no entry, so that DEL misses no lease.
    ///
    /// # Errors
    /// Code 5 if a file cannot be read.
    pub fn every_lease_of(&mut self, at: &Attachment) -> Result<(Vec<Lease>, Failures)> {
        let owners = Owner::all_of(at);
        match self.indexed(&owners).filter(|found| !found.is_empty()) {
            Some(found) => Ok((Owner::most_exact(found), Failures::new())),
            None => self.search(&owners),
        }
    }

    /// The leases of the owners that the index finds. `None` if the index is incomplete or damaged.
    fn indexed(&self, owners: &[Owner]) -> Option<Vec<Lease>> {
        let index = self.index.as_ref()?;
        let mut found = Vec::new();
        for owner in owners {
            for ip in index.find(&owner.content()).ok()?? {
                if matches!(self.dir.read(ip).ok()?, Content::Lease(holder) if holder == *owner) {
                    found.push(Lease { ip, owner: owner.clone() });
                }
            }
        }
        Some(found)
    }

    /// Reads all leases, and returns the leases of the owners.
    fn search(&mut self, owners: &[Owner]) -> Result<(Vec<Lease>, Failures)> {
        let mut found = Vec::new();
        let errors = self.retain(|ip, owner| {
            if owners.contains(owner) {
                found.push(Lease { ip, owner: owner.clone() });
            }
            true
        })?;
        Ok((Owner::most_exact(found), errors.unread))
    }

    /// Reads all leases, releases those that `keep` does not accept, removes unfinished files of killed processes, and
    /// rebuilds the index.
    ///
    /// # Errors
    /// Code 5 if the directory cannot be read. Errors of single files are returned as the value.
    pub fn retain(&mut self, mut keep: impl FnMut(IpAddr, &Owner) -> bool) -> Result<FileErrors> {
        (self.index, self.changed) = (None, true);
        let names = self.dir.names()?;
        let mut errors = FileErrors::default();
        for name in names.iter().filter(|name| is_temporary(name)) {
            errors.others.note(self.dir.remove(name));
        }
        let ips: Vec<IpAddr> = names.iter().filter_map(|name| lease::address(name)).collect();
        let mut index = Index::begin(&self.dir, ips.len()).ok();
        for ip in ips {
            let owner = match self.dir.read(ip) {
                Ok(content) => errors.others.note(self.settle(ip, content, &mut keep)),
                Err(e) => {
                    let path = self.dir.lease(ip);
                    errors.unread.note::<Option<Owner>, _>(Err(Error::io(
                        format!("read lease {}", path.display()),
                        &e,
                    )))
                }
            };
            match owner {
                // `None` after an error: the file may be a lease that the new index lacks.
                Some(Some(owner)) => note(&mut index, |index| index.insert(&owner.content(), ip)),
                Some(None) => {}
                None => index = None,
            }
        }
        self.index = index;
        Ok(errors)
    }

    /// Calls `visit` for each lease. Changes nothing.
    ///
    /// # Errors
    /// Code 5 if files cannot be read. `visit` is called for all other leases.
    pub fn each(&self, mut visit: impl FnMut(IpAddr, &Owner)) -> Result<()> {
        let mut failures = Failures::new();
        for ip in self.dir.names()?.iter().filter_map(|name| lease::address(name)) {
            let path = self.dir.lease(ip);
            let read = self.dir.read(ip).map_err(|e| Error::io(format!("read lease {}", path.display()), &e));
            if let Some(Content::Lease(owner)) = failures.note(read) {
                visit(ip, &owner);
            }
        }
        failures.into_result()
    }

    /// All leases, with the times of their last changes. Unreadable files are left out.
    ///
    /// # Errors
    /// Code 5 if the directory cannot be read.
    pub fn aged(&self) -> Result<Vec<DatedLease>> {
        let aged = |ip| {
            let stamp = self.dir.stamp(ip)?;
            let Ok(Content::Lease(owner)) = self.dir.read(ip) else { return None };
            Some(DatedLease { lease: Lease { ip, owner }, changed: stamp.changed(), stamp })
        };
        Ok(self.dir.addresses()?.into_iter().filter_map(aged).collect())
    }

    /// Releases a lease if its file has not changed since [`Store::aged`] read it, and if the reference is excluded.
    /// Returns whether the lease was released.
    ///
    /// # Errors
    /// Code 5 if the file cannot be removed.
    pub fn release_unchanged(&mut self, aged: &DatedLease) -> Result<bool> {
        let is_same = self.lock.is_whole() && self.dir.stamp(aged.lease.ip) == Some(aged.stamp);
        if is_same {
            self.release(&aged.lease)?;
        }
        Ok(is_same)
    }

    /// Whether a range set may be nearly full. For speed, this uses only the number of leases in the index. Each
    /// attachment has an address of every range set, so each range set has an equal part of the leases.
    pub fn is_nearly_full(&self, sets: &[RangeSet]) -> bool {
        let Some(index) = &self.index else { return false };
        let leased = u128::from(index.count()) / (sets.len().max(1) as u128);
        sets.iter().any(|set| leased >= set.capacity().saturating_mul(NEARLY_FULL) / 100)
    }

    /// Whether a search for stale leases in the background is due. If so, records the current time as the search's
    /// start.
    pub fn is_background_search_due(&mut self) -> bool {
        let last = self.dir.modified(LOOKED);
        let is_time = last.is_none_or(|last| last.elapsed().map_or(true, |age| age > LOOK_PAUSE));
        if is_time {
            self.changed = true;
            return self.dir.remove(LOOKED).is_ok() && self.dir.write_in_place(LOOKED, "").is_ok();
        }
        false
    }

    /// Decides about the file of an address. If `keep` accepts the lease, returns its owner. Otherwise, or if the file
    /// is torn, removes the file.
    fn settle(
        &self,
        ip: IpAddr,
        content: Content,
        keep: &mut impl FnMut(IpAddr, &Owner) -> bool,
    ) -> Result<Option<Owner>> {
        match content {
            Content::Lease(owner) if keep(ip, &owner) => Ok(Some(owner)),
            // The reference is not excluded. It may just be writing this file.
            Content::Torn if !self.lock.is_whole() => Ok(None),
            Content::Lease(_) | Content::Torn => self.dir.remove(&ip.to_string()).map(|_| None),
            Content::NotAFile => {
                let path = self.dir.lease(ip);
                Err(Error::new(Code::Io, format!("lease {} is not a regular file", path.display())))
            }
        }
    }

    /// Writes leases for an attachment, all or none. `ips` contains one address of each range set.
    ///
    /// # Errors
    /// Code 5 if a file cannot be written. Code 11 if another program has just leased an address without the lock.
    pub fn reserve(&mut self, at: &Attachment, ips: &[IpAddr]) -> Result<()> {
        self.changed = true;
        let mut written = Vec::new();
        let outcome = ips.iter().enumerate().try_for_each(|(set, &ip)| {
            let lease = Lease { ip, owner: Owner::from(at) };
            self.write(&lease)?;
            note(&mut self.index, |index| index.insert(&lease.owner.content(), ip));
            written.push(lease);
            // Write the hint in place: a torn hint changes only the order of allocation. After a rename over an
            // existing file, ext4 writes the file to the disk immediately (auto_da_alloc), which takes longer than the
            // rest of an ADD.
            self.dir.write_in_place(&format!("{LAST_RESERVED}{set}"), &ip.to_string())
        });
        outcome.map_err(|error| {
            let left = written.iter().filter_map(|lease| self.release(lease).err());
            left.fold(error, Error::and_rollback)
        })
    }

    fn write(&self, lease: &Lease) -> Result<()> {
        let (name, content) = (lease.ip.to_string(), lease.owner.content());
        if self.dir.write_once(&name, &content)? {
            return Ok(());
        }
        // A file of this name exists. If it is torn, replace it.
        if !self.is_taken(lease.ip)? {
            self.dir.remove(&name)?;
            if self.dir.write_once(&name, &content)? {
                return Ok(());
            }
        }
        let text = format!("address {} has meanwhile been leased to {}", lease.ip, self.holder(lease.ip));
        Err(Error::new(Code::TryAgainLater, text)
            .detail("another process wrote that lease without holding the lock"))
    }

    /// Releases a lease that was read or written while this store held the lock.
    ///
    /// # Errors
    /// Code 5 if a file cannot be removed.
    pub fn release(&mut self, lease: &Lease) -> Result<()> {
        self.changed |= self.dir.remove(&lease.ip.to_string())?;
        note(&mut self.index, |index| index.remove(&lease.owner.content(), lease.ip));
        Ok(())
    }

    /// Drops all leases if the boot mark is from an earlier boot. Then writes the mark of this boot.
    ///
    /// Without a boot mark, for example at the first call, or with a damaged one, all leases are kept.
    ///
    /// # Errors
    /// Code 5 if a file operation fails.
    pub fn reset_after_reboot(&mut self) -> Result<()> {
        let this_boot = boot::id().map_err(|e| Error::io("read the kernel's boot id", &e))?;
        let path = self.dir.path(BOOT);
        match self.dir.content(BOOT, LONGEST_MARK) {
            Ok(mark) if mark == this_boot => return Ok(()),
            // The mark is damaged.
            Ok(mark) if !boot::is_id(&mark) => {}
            Ok(_) => self.retain(|_, _| false)?.into_result()?,
            Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::FileTooLarge) => {}
            Err(e) => return Err(Error::io(format!("read {}", path.display()), &e)),
        }
        self.changed = true;
        self.dir.write(BOOT, &String::from_utf8_lossy(&this_boot))
    }

    /// Removes the boot mark. ADD calls this while `resetOnReboot` is off, because the mark is then not updated after a
    /// reboot. If `resetOnReboot` is turned on later, an old mark would make [`Store::reset_after_reboot`] drop leases
    /// of running containers.
    ///
    /// # Errors
    /// Code 5 if the file cannot be removed.
    pub fn remove_boot_mark(&mut self) -> Result<()> {
        self.changed |= self.dir.remove(BOOT)?;
        Ok(())
    }
}

/// Changes the index. If the change fails, the index is incomplete: sets it to `None`.
fn note(index: &mut Option<Index>, change: impl FnOnce(&mut Index) -> io::Result<()>) {
    if index.as_mut().is_some_and(|index| change(index).is_err()) {
        *index = None;
    }
}

impl Leases for Store {
    fn last_reserved(&self, set: usize) -> Option<IpAddr> {
        let text = self.dir.content(&format!("{LAST_RESERVED}{set}"), LONGEST_MARK).ok()?;
        str::from_utf8(&text).ok()?.trim().parse().ok()
    }

    fn is_taken(&self, ip: IpAddr) -> Result<bool> {
        // If the reference is not excluded, an empty file may be a lease that the reference is just writing.
        if self.lock.is_whole() { self.dir.is_taken(ip) } else { self.dir.exists(ip) }
    }

    fn holder(&self, ip: IpAddr) -> String {
        let path = self.dir.lease(ip);
        let path = path.display();
        match self.dir.read(ip) {
            Ok(Content::Lease(owner)) => format!("{owner} ({path})"),
            Ok(Content::Torn) => format!("an unknown owner: {path} is empty"),
            Ok(Content::NotAFile) => format!("an unknown owner: {path} is not a regular file"),
            Err(e) => format!("an unknown owner: {path} cannot be read: {e}"),
        }
    }
}

/// Seals the index. This is always the last change before the lock is released. If it fails, nothing is reported:
/// without a valid seal, the next process rebuilds the index.
impl Drop for Store {
    fn drop(&mut self) {
        let sealable = self.changed && self.lock.is_whole();
        if let Some(index) = self.index.as_ref().filter(|_| sealable) {
            index.seal(&self.dir).ok();
        }
    }
}

#[cfg(test)]
mod tests;
