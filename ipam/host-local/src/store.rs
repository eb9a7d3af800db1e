//! The leases of a network on disk, in the directory DATADIR/NETWORK. The reference's files are one file for each leased
//! address, `last_reserved_ip.N` for range set N, and `lock`. Ferrule's own are `.lock`, `.index`, `.boot_id` and
//! `.looked`. A [`Store`] holds `.lock`, and also the reference's `lock`, unless another process has held that for too
//! long (see [`lock`]). STATUS and the search in other networks' directories take no lock.
//!
//! - *Leases are written atomically*: a file is written with a temporary name, `.new.*`, and then renamed. If the
//!   process is killed, [`Store::retain`] removes the unfinished file.
//! - *No lease is overwritten*: the rename fails if a file of this name exists (RENAME_NOREPLACE). On a file
//!   system that does not support this flag, a hard link gives the file its name. Without both, only the lock prevents it.
//! - *A torn file is not a lease.* It is empty, or contains only zeros and white space. The reference writes lease files in
//!   place, so a kill of the reference leaves empty files. The address of an empty file is free immediately, that of a
//!   file with zeros or white space after [`Store::retain`] has removed the file. While the reference is not excluded, it may be
//!   writing the file: then the address is not free, and the file stays.
//! - *Nothing calls fsync.* After a power failure no container runs, so no lease is needed. A lease file is then complete
//!   (DEL or GC releases it), torn, or missing.
//! - *ADD reads only the attachment's leases*, and so do DEL and CHECK if the attachment has a lease: the [`index`] finds
//!   them. The *seal* of the index proves that it has an entry for every lease that could be read. Without a valid seal, the next ADD, DEL
//!   or CHECK reads all leases and rebuilds the index. GC always does, except in a dry run.

use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, SystemTime};

use cni::{Attachment, Code, Error, Failures, NetworkName, Result};
use system::boot;
use system::file::is_temporary;

use crate::allocator::Leases;
use crate::range::RangeSet;

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
const LAST_SEARCH: &str = ".looked";
/// Minimum interval between two such searches.
const SEARCH_INTERVAL: Duration = Duration::from_secs(600);
/// Prefix of the hint files. `last_reserved_ip.N` contains the address of range set N that was leased last. The search
/// for a free address begins after it.
const LAST_RESERVED: &str = "last_reserved_ip.";
/// Maximum size of the boot mark or of a hint in bytes. An editor may have added line ends.
const LONGEST_MARK: u64 = 100;

/// A network's leases. They are locked until the store is dropped.
#[derive(Debug)]
pub struct Store {
    dir: Directory,
    /// `None` if the index on disk may lack entries of leases.
    index: Option<Index>,
    /// Whether the index needs a new seal: this process has changed the directory or rebuilt the index.
    needs_seal: bool,
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
            // Other processes may create and remove the directory concurrently, so retry, and return only the error of
            // the last attempt.
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
        Ok(Some(Self { dir, index, needs_seal: false, lock }))
    }

    /// Returns the attachment's leases, sorted by address. If the attachment has none, returns the leases of its
    /// container whose files contain no interface. Also returns the errors of files that could not be read, because
    /// such a file may be a lease of the attachment.
    ///
    /// If a valid index has no entry for the attachment, the attachment has no lease. There are two exceptions, see [`index`]: a
    /// lease file that was overwritten in place, and one that was written without the lock immediately before the seal.
    ///
    /// # Errors
    /// Code 5 if the directory cannot be read.
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
    /// Code 5 if the directory cannot be read.
    pub fn every_lease_of(&mut self, at: &Attachment) -> Result<(Vec<Lease>, Failures)> {
        let owners = Owner::all_of(at);
        match self.indexed(&owners).filter(|found| !found.is_empty()) {
            Some(found) => Ok((Owner::most_exact(found), Failures::new())),
            None => self.search(&owners),
        }
    }

    /// The leases of the owners that the index finds. `None` if the index is incomplete or damaged,
    /// or if one of these lease files cannot be read.
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
        (self.index, self.needs_seal) = (None, true);
        let names = self.dir.names()?;
        let mut errors = FileErrors::default();
        for name in names.iter().filter(|name| is_temporary(name)) {
            errors.others.note(self.dir.remove(name));
        }
        let ips: Vec<IpAddr> = names.iter().filter_map(|name| lease::address(name)).collect();
        let mut index = Index::begin(&self.dir, ips.len()).ok();
        for ip in ips {
            let owner = match self.dir.read(ip) {
                Ok(Content::Lease(owner)) if keep(ip, &owner) => Some(Some(owner)),
                // The reference may be writing this file now.
                Ok(Content::Torn) if !self.lock.excludes_reference() => Some(None),
                Ok(Content::Lease(_) | Content::Torn) => {
                    errors.others.note(self.dir.remove(&ip.to_string())).map(|_| None)
                }
                // It is no lease, so the index lacks nothing.
                Ok(Content::NotAFile) => {
                    let text = format!("lease {} is not a regular file", self.dir.lease(ip).display());
                    errors.others.note::<(), _>(Err(Error::new(Code::Io, text)));
                    Some(None)
                }
                // The index lacks it. Without an entry of their attachment, DEL and CHECK read all leases again.
                Err(e) => {
                    let path = self.dir.lease(ip);
                    let error = Error::io(format!("read lease {}", path.display()), &e);
                    errors.unread.note::<(), _>(Err(error));
                    Some(None)
                }
            };
            match owner {
                Some(Some(owner)) => update_index(&mut index, |index| index.insert(&owner.content(), ip)),
                Some(None) => {}
                // The lease could not be removed, and the new index lacks it.
                None => index = None,
            }
        }
        self.index = index;
        Ok(errors)
    }

    /// Calls `visit` for each lease. Changes nothing.
    ///
    /// # Errors
    /// Code 5 if the directory cannot be read. Code 5 also if a lease file cannot be read; `visit` is then still called
    /// for the other leases.
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
    pub fn dated_leases(&self) -> Result<Vec<DatedLease>> {
        let dated = |ip| {
            let stamp = self.dir.stamp(ip)?;
            let Ok(Content::Lease(owner)) = self.dir.read(ip) else { return None };
            Some(DatedLease { lease: Lease { ip, owner }, changed: stamp.changed(), stamp })
        };
        Ok(self.dir.addresses()?.into_iter().filter_map(dated).collect())
    }

    /// Releases a lease if its file has not changed since [`Store::dated_leases`] read it, and if the reference is excluded.
    /// Returns whether the lease was released.
    ///
    /// # Errors
    /// Code 5 if the file cannot be removed.
    pub fn release_unchanged(&mut self, lease: &DatedLease) -> Result<bool> {
        let is_same = self.lock.excludes_reference() && self.dir.stamp(lease.lease.ip) == Some(lease.stamp);
        if is_same {
            self.release(&lease.lease)?;
        }
        Ok(is_same)
    }

    /// Whether a range set may be nearly full. For speed, this uses only the number of leases in the index. Each
    /// attachment has an address of every range set, so each range set has an equal part of the leases.
    pub fn is_nearly_full(&self, sets: &[RangeSet]) -> bool {
        let Some(index) = &self.index else { return false };
        let leased = u128::from(index.count()) / (sets.len().max(1) as u128);
        sets.iter().any(|set| status::is_nearly_full(leased, set))
    }

    /// Records that a search for stale leases in the background starts now. Returns false if the caller must not start
    /// one: the last search began less than [`SEARCH_INTERVAL`] ago, or the time cannot be recorded.
    pub fn claim_background_search(&mut self) -> bool {
        let last = self.dir.modified(LAST_SEARCH);
        let is_time = last.is_none_or(|last| last.elapsed().map_or(true, |age| age > SEARCH_INTERVAL));
        if is_time {
            self.needs_seal = true;
            return self.dir.remove(LAST_SEARCH).is_ok() && self.dir.write_in_place(LAST_SEARCH, "").is_ok();
        }
        false
    }

    /// Writes leases for an attachment, all or none. `ips` contains one address of each range set.
    ///
    /// # Errors
    /// Code 5 if a file cannot be written. Code 11 if another program has just leased an address without the lock.
    pub fn reserve(&mut self, at: &Attachment, ips: &[IpAddr]) -> Result<()> {
        self.needs_seal = true;
        let mut written = Vec::new();
        let outcome = ips.iter().enumerate().try_for_each(|(set, &ip)| {
            let lease = Lease { ip, owner: Owner::from(at) };
            self.write(&lease)?;
            update_index(&mut self.index, |index| index.insert(&lease.owner.content(), ip));
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
            .detail("another process wrote that lease without sharing a lock with this one; try again"))
    }

    /// Releases a lease that was read or written while this store held the lock.
    ///
    /// # Errors
    /// Code 5 if a file cannot be removed.
    pub fn release(&mut self, lease: &Lease) -> Result<()> {
        self.needs_seal |= self.dir.remove(&lease.ip.to_string())?;
        update_index(&mut self.index, |index| index.remove(&lease.owner.content(), lease.ip));
        Ok(())
    }

    /// Releases all leases if the boot mark is from an earlier boot. Then writes the mark of this boot.
    ///
    /// Without a boot mark, for example at the first call, or with a damaged one, all leases are kept. The reference does
    /// not update the mark, so its newer leases are released too: docs/host-local.md forbids this mixture.
    ///
    /// A file that cannot be removed still blocks its address. It causes a warning, because as an error it would fail
    /// every ADD: without the mark, the next one finds the same file.
    ///
    /// # Errors
    /// Code 5 if the directory or the mark cannot be read, or the mark cannot be written.
    pub fn reset_after_reboot(&mut self) -> Result<()> {
        let this_boot = boot::id().map_err(|e| Error::io("read the kernel's boot id", &e))?;
        let path = self.dir.path(BOOT);
        match self.dir.content(BOOT, LONGEST_MARK) {
            Ok(mark) if mark.trim_ascii_end() == this_boot => return Ok(()),
            // The mark is damaged.
            Ok(mark) if !boot::is_id(mark.trim_ascii_end()) => {}
            Ok(_) => {
                if let Err(error) = self.retain(|_, _| false)?.into_result() {
                    cni::warn(&format!("resetOnReboot: some leases from before the reboot stay: {error}"));
                }
            }
            Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::FileTooLarge) => {}
            Err(e) => return Err(Error::io(format!("read {}", path.display()), &e)),
        }
        self.needs_seal = true;
        self.dir.write(BOOT, &String::from_utf8_lossy(&this_boot))
    }

    /// Removes the boot mark. ADD calls this while `resetOnReboot` is off, because the mark is then not updated after a
    /// reboot. If `resetOnReboot` is turned on later, an old mark would make [`Store::reset_after_reboot`] release
    /// leases of running containers.
    ///
    /// # Errors
    /// Code 5 if the file cannot be removed.
    pub fn remove_boot_mark(&mut self) -> Result<()> {
        self.needs_seal |= self.dir.remove(BOOT)?;
        Ok(())
    }
}

/// Changes the index. If the change fails, the index is incomplete: sets it to `None`.
fn update_index(index: &mut Option<Index>, change: impl FnOnce(&mut Index) -> io::Result<()>) {
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
        // Without the lock, an empty file may be a lease that the reference is writing now.
        if self.lock.excludes_reference() { self.dir.is_taken(ip) } else { self.dir.exists(ip) }
    }

    fn holder(&self, ip: IpAddr) -> String {
        let path = self.dir.lease(ip);
        let path = path.display();
        match self.dir.read(ip) {
            Ok(Content::Lease(owner)) => format!("{owner} ({path})"),
            Ok(Content::Torn) => {
                format!("an unknown owner: {path} contains no container id, or was just removed")
            }
            Ok(Content::NotAFile) => format!("an unknown owner: {path} is not a regular file"),
            Err(e) => format!("an unknown owner: {path} cannot be read: {e}"),
        }
    }
}

/// Seals the index. This is always the last change before the lock is released. If it fails, nothing is reported:
/// without a valid seal, the next process rebuilds the index.
impl Drop for Store {
    fn drop(&mut self) {
        let sealable = self.needs_seal && self.lock.excludes_reference();
        if let Some(index) = self.index.as_ref().filter(|_| sealable) {
            index.seal(&self.dir).ok();
        }
    }
}

#[cfg(test)]
mod tests;
