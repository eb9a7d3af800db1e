//! Index of a network's leases: a hash table from owners to addresses in the file `.index`. It answers which addresses an owner
//! has, without reading every lease.
//!
//! The lease files are authoritative. Other programs change them: the reference, or an administrator with `rm` or `cp`. So the index
//! has two properties:
//!
//! - *An extra entry is harmless.* Users of an entry read the lease file, and trust only the file.
//! - *A missing entry is detected.* The index is complete only if its seal is valid.
//!
//! **The seal.** The last step of a change, still under the lock, sets the directory's modification time back by one hour. Then it
//! stores the directory's modification and change times in the index. When any program creates, removes or renames a file in the
//! directory, the kernel sets both times to the same instant. Under the seal they are an hour apart. So every such change breaks the
//! seal, however soon it follows and whatever the clock says. The granularity of time stamps does not matter.
//! Tools that restore the modification time (`cp -a`, `tar`, `touch`) still change the change time, which no program can set.
//!
//! Without a valid seal all lease files are read once, and the index is rebuilt. That happens
//!
//! - after a change by another program, or if the directory was copied or restored;
//! - after a kill between the first change and the seal, because the first change breaks the old seal;
//! - once after a boot. The seal contains the boot id. So the state of the index after a power failure does not matter, and nothing
//!   waits for the disk.
//!
//! The seal does not detect two changes, and the lock does not prevent them: a lease file that is *added* without the lock in the
//! microseconds between a change and its seal, and a file that is overwritten in place. The reference does neither. For this reason a
//! DEL without an answer from the index reads all files.
//!
//! **The file** has a header of one sector, followed by buckets of one sector each. A bucket has room for [`SLOTS`]
//! entries. If a bucket has overflowed, it is marked. A search in it then reads all files and creates a larger index.
//! Entries are never moved, so the time for a change does not depend on the number of entries.
//!
//! **Damage is detected.** Each sector ends with a checksum of its bytes and its position. A change in the file does
//! not change the directory, so neither a flipped bit nor an editor breaks the seal. If a checksum does not match, all
//! lease files are read instead.

use std::fs::{File, FileTimes};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv6Addr};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::{Duration, SystemTime};

use nix::fcntl::OFlag;
use system::boot;

use super::directory::Directory;

/// The file's name. The reference reads it like every file, and finds no container in it.
const NAME: &str = ".index";
/// Version of the file's format.
const MAGIC: &[u8; 8] = b"leases-2";
/// Size of a bucket and of the header in bytes.
const SECTOR: usize = 512;
/// Size of an entry in bytes: a key and an address.
const SLOT: usize = 24;
/// Entries in a bucket. The overflow mark and the checksum follow.
const SLOTS: usize = 20;
const OVERFLOW: usize = SLOTS * SLOT;
/// Position of a sector's checksum.
const SUM: usize = SECTOR - 8;
/// Maximum average load of a new index's buckets. It can grow by half before buckets overflow.
const LOAD: usize = 8;
const FEWEST_BUCKETS: usize = 8;
/// Distance of the two times of a sealed directory. It is coarser than any file system's time stamps.
const APART: Duration = Duration::from_secs(3600);

const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0100_0000_01b3;

/// Length of the seal at the start of the header: format, boot id, and the directory's two times.
const SEAL: usize = MAGIC.len() + boot::ID_LEN + 4 * 8;
type Seal = [u8; SEAL];
const BUCKETS_AT: usize = SEAL;
const COUNT_AT: usize = SEAL + 8;

/// An index that has an entry for every lease.
#[derive(Debug)]
pub struct Index {
    file: File,
    buckets: u64,
    count: u64,
}

impl Index {
    /// Opens the index if its seal is valid.
    pub fn sealed(dir: &Directory) -> Option<Self> {
        let file = dir.file(NAME, OFlag::O_RDWR).ok()?;
        let header = Sector::read(&file, 0).ok()?.bytes;
        let whole = header[..SEAL] == seal_of(dir).ok()?;
        let (buckets, count) = (read_u64(&header, BUCKETS_AT), read_u64(&header, COUNT_AT));
        (whole && buckets > 0).then_some(Self { file, buckets, count })
    }

    /// Creates an index with room for at least this many leases. It has no seal yet.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn begin(dir: &Directory, leases: usize) -> io::Result<Self> {
        let file = dir.file(NAME, OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_TRUNC)?;
        let buckets = (leases / LOAD).next_power_of_two().max(FEWEST_BUCKETS) as u64;
        let mut empty = Vec::with_capacity(FEWEST_BUCKETS * SECTOR);
        for first in (1..=buckets).step_by(FEWEST_BUCKETS) {
            empty.clear();
            (first..first + FEWEST_BUCKETS as u64)
                .for_each(|number| empty.extend(Sector::empty(number).summed()));
            file.write_all_at(&empty, first * SECTOR as u64)?;
        }
        Ok(Self { file, buckets, count: 0 })
    }

    /// The number of leases.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The addresses that may be the owner's. None if the bucket has overflowed.
    ///
    /// # Errors
    /// If the index cannot be read, or is damaged.
    pub fn find(&self, owner: &str) -> io::Result<Option<Vec<IpAddr>>> {
        let key = key(owner);
        let bucket = self.bucket(key)?.bytes;
        let addresses =
            || slots(&bucket).filter(|(_, slot)| slot_key(slot) == key).map(|(_, slot)| slot_ip(slot));
        Ok((bucket[OVERFLOW] == 0).then(|| addresses().collect()))
    }

    /// Adds a lease.
    ///
    /// # Errors
    /// If the index cannot be read or written. The caller must not seal it then.
    pub fn insert(&mut self, owner: &str, ip: IpAddr) -> io::Result<()> {
        let key = key(owner);
        let mut bucket = self.bucket(key)?;
        let free = slots(&bucket.bytes).find(|(_, slot)| slot_key(slot) == 0);
        match free {
            Some((at, _)) => bucket.bytes[at..at + SLOT].copy_from_slice(&slot(key, ip)),
            None => bucket.bytes[OVERFLOW] = 1,
        }
        bucket.write(&self.file)?;
        self.count += 1;
        Ok(())
    }

    /// Removes a lease.
    ///
    /// # Errors
    /// If the index cannot be read or written. The caller must not seal it then.
    pub fn remove(&mut self, owner: &str, ip: IpAddr) -> io::Result<()> {
        let key = key(owner);
        let mut bucket = self.bucket(key)?;
        let entry = slot(key, ip);
        let held = slots(&bucket.bytes).find(|(_, slot)| **slot == entry);
        if let Some((at, _)) = held {
            bucket.bytes[at..at + SLOT].fill(0);
            bucket.write(&self.file)?;
        }
        self.count = self.count.saturating_sub(1);
        Ok(())
    }

    /// Seals the index: it is complete now. Without leases, it is removed instead.
    ///
    /// # Errors
    /// An I/O error of the file system. The index then has no seal, and is rebuilt next time.
    pub fn seal(&self, dir: &Directory) -> io::Result<()> {
        if self.count == 0 {
            return Ok(dir.unlink(NAME)?);
        }
        let back = SystemTime::now().checked_sub(APART).unwrap_or(SystemTime::UNIX_EPOCH);
        dir.as_file().set_times(FileTimes::new().set_modified(back))?;
        let mut header = Sector::empty(0);
        header.bytes[..SEAL].copy_from_slice(&seal_of(dir)?);
        header.bytes[BUCKETS_AT..COUNT_AT].copy_from_slice(&self.buckets.to_le_bytes());
        header.bytes[COUNT_AT..COUNT_AT + 8].copy_from_slice(&self.count.to_le_bytes());
        header.write(&self.file)
    }

    fn bucket(&self, key: u64) -> io::Result<Sector> {
        Sector::read(&self.file, 1 + key % self.buckets)
    }
}

/// A part of the file that is read and written as a whole, with a checksum.
struct Sector {
    number: u64,
    bytes: [u8; SECTOR],
}

impl Sector {
    fn empty(number: u64) -> Self {
        Self { number, bytes: [0; SECTOR] }
    }

    fn read(file: &File, number: u64) -> io::Result<Self> {
        let mut this = Self::empty(number);
        file.read_exact_at(&mut this.bytes, number * SECTOR as u64)?;
        if read_u64(&this.bytes, SUM) == this.sum() { Ok(this) } else { Err(ErrorKind::InvalidData.into()) }
    }

    fn write(self, file: &File) -> io::Result<()> {
        let at = self.number * SECTOR as u64;
        file.write_all_at(&self.summed(), at)
    }

    fn summed(mut self) -> [u8; SECTOR] {
        let sum = self.sum();
        self.bytes[SUM..].copy_from_slice(&sum.to_le_bytes());
        self.bytes
    }

    /// Each step is reversible, so two sectors that differ in one word never have the same checksum.
    fn sum(&self) -> u64 {
        let words = self.bytes[..SUM].as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
        words.fold(FNV_OFFSET ^ self.number, |sum, word| (sum ^ word).wrapping_mul(FNV_PRIME).rotate_left(29))
    }
}

/// The seal for the current state of the directory.
fn seal_of(dir: &Directory) -> io::Result<Seal> {
    let now = dir.as_file().metadata()?;
    let times = [now.mtime(), now.mtime_nsec(), now.ctime(), now.ctime_nsec()];
    let bytes = MAGIC.iter().copied().chain(boot::id()?).chain(times.into_iter().flat_map(i64::to_le_bytes));
    let mut seal = [0; SEAL];
    seal.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
    Ok(seal)
}

/// The key of an owner: FNV-1a, the same in every build. Never 0, which marks a free entry.
fn key(owner: &str) -> u64 {
    let hash = owner.bytes().fold(FNV_OFFSET, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(FNV_PRIME));
    hash.max(1)
}

fn slots(bucket: &[u8; SECTOR]) -> impl Iterator<Item = (usize, &[u8; SLOT])> {
    bucket.as_chunks::<SLOT>().0.iter().take(SLOTS).enumerate().map(|(n, slot)| (n * SLOT, slot))
}

fn slot(key: u64, ip: IpAddr) -> [u8; SLOT] {
    let ip = match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    let mut slot = [0; SLOT];
    slot[..8].copy_from_slice(&key.to_le_bytes());
    slot[8..].copy_from_slice(&ip.octets());
    slot
}

fn slot_key(slot: &[u8; SLOT]) -> u64 {
    read_u64(slot, 0)
}

fn slot_ip(slot: &[u8; SLOT]) -> IpAddr {
    let mut octets = [0; 16];
    octets.copy_from_slice(&slot[8..]);
    Ipv6Addr::from(octets).to_canonical()
}

fn read_u64(bytes: &[u8], at: usize) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(number)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    fn open(dir: impl AsRef<Path>) -> Directory {
        Directory::open(dir.as_ref()).unwrap().unwrap()
    }

    fn ip(n: u32) -> IpAddr {
        IpAddr::V4((0x0a00_0000 + n).into())
    }

    fn owner(n: u32) -> String {
        format!("container-{n}\r\neth0")
    }

    fn index_of(dir: impl AsRef<Path>, leases: u32, room_for: usize) -> Index {
        let mut index = Index::begin(&open(dir), room_for).unwrap();
        (0..leases).for_each(|n| index.insert(&owner(n), ip(n)).unwrap());
        index
    }

    #[test]
    fn every_lease_is_found_by_its_owner_under_the_seal() {
        let dir = tempfile::tempdir().unwrap();
        index_of(&dir, 1000, 1000).seal(&open(&dir)).unwrap();
        let mut index = Index::sealed(&open(&dir)).unwrap();
        assert_eq!(index.count(), 1000);
        assert!((0..1000).all(|n| index.find(&owner(n)).unwrap() == Some(vec![ip(n)])));
        index.remove(&owner(7), ip(7)).unwrap();
        assert_eq!(index.find(&owner(7)).unwrap(), Some(vec![]));
        let v6: IpAddr = "fd00::1".parse().unwrap();
        index.insert(&owner(8), v6).unwrap();
        assert_eq!(index.find(&owner(8)).unwrap(), Some(vec![ip(8), v6]));
        assert_eq!(index.count(), 1000);
    }

    /// Also within the same tick of the kernel's clock, and if the old modification time is restored.
    #[test]
    fn the_seal_breaks_with_any_change_of_the_directory() {
        type Change = (&'static str, fn(&Path));
        let changes: [Change; 5] = [
            ("create", |dir| fs::write(dir.join("10.0.0.9"), "c").unwrap()),
            ("remove", |dir| fs::remove_file(dir.join("10.0.0.1")).unwrap()),
            ("rename", |dir| fs::rename(dir.join("10.0.0.1"), dir.join("10.0.0.2")).unwrap()),
            ("link", |dir| fs::hard_link(dir.join("10.0.0.1"), dir.join("10.0.0.2")).unwrap()),
            ("subdirectory", |dir| fs::create_dir(dir.join("x")).unwrap()),
        ];
        for (what, change) in changes {
            let dir = tempfile::tempdir().unwrap();
            fs::write(dir.path().join("10.0.0.1"), "c").unwrap();
            let index = index_of(&dir, 1, 1);
            for _ in 0..3 {
                index.seal(&open(&dir)).unwrap();
                assert!(Index::sealed(&open(&dir)).is_some(), "{what}");
            }
            change(dir.path());
            assert!(Index::sealed(&open(&dir)).is_none(), "{what}");
        }
    }

    #[test]
    fn a_copied_or_restored_directory_has_no_seal() {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = (dir.path().join("one"), dir.path().join("two"));
        fs::create_dir(&one).unwrap();
        index_of(&one, 1, 1).seal(&open(&one)).unwrap();
        fs::create_dir(&two).unwrap();
        fs::copy(one.join(NAME), two.join(NAME)).unwrap();
        let of = |dir: &Path| fs::metadata(dir).unwrap();
        let changed = |dir: &Path| (of(dir).ctime(), of(dir).ctime_nsec());
        let modified = of(&one).modified().unwrap();
        // Wait for the kernel's clock to tick: a change in the tick of the seal would have the same time stamp.
        loop {
            open(&two).as_file().set_times(FileTimes::new().set_modified(modified)).unwrap();
            if changed(&two) != changed(&one) {
                break;
            }
        }
        assert_eq!(of(&two).modified().unwrap(), modified);
        assert!(Index::sealed(&open(&one)).is_some());
        assert!(Index::sealed(&open(&two)).is_none());
    }

    #[test]
    fn the_index_is_deleted_with_the_last_lease() {
        let dir = tempfile::tempdir().unwrap();
        let mut index = index_of(&dir, 1, 1);
        index.seal(&open(&dir)).unwrap();
        index.remove(&owner(0), ip(0)).unwrap();
        index.seal(&open(&dir)).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_file_that_is_no_index_has_no_seal() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(NAME);
        index_of(&dir, 3, 3).seal(&open(&dir)).unwrap();
        let whole = fs::read(&file).unwrap();
        for garbage in [&b""[..], b"x", &[0; 4096], &whole[..SECTOR - 1]] {
            fs::write(&file, garbage).unwrap();
            assert!(Index::sealed(&open(&dir)).is_none());
        }
        fs::write(&file, whole).unwrap();
        assert!(Index::sealed(&open(&dir)).is_some());
        fs::rename(&file, dir.path().join("x")).unwrap();
        std::os::unix::fs::symlink("x", &file).unwrap();
        assert!(Index::sealed(&open(&dir)).is_none());
    }

    /// The seal does not detect this, because the content of a file is not part of the directory.
    #[test]
    fn a_flipped_byte_or_a_sector_in_anothers_position_is_detected() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(NAME);
        index_of(&dir, 100, 100).seal(&open(&dir)).unwrap();
        let whole = fs::read(&file).unwrap();
        let answers = || {
            let index = Index::sealed(&open(&dir))?;
            let answer = |n| index.find(&owner(n)).ok().flatten();
            (0..100).map(answer).collect::<Option<Vec<_>>>()
        };
        let all: Vec<_> = (0..100).map(|n| vec![ip(n)]).collect();
        assert_eq!(answers(), Some(all.clone()));
        for at in (0..whole.len()).step_by(7) {
            let mut damaged = whole.clone();
            damaged[at] ^= 1 << (at % 8);
            fs::write(&file, &damaged).unwrap();
            assert!(answers().is_none_or(|found| found == all), "byte {at}");
        }
        let mut moved = whole.clone();
        moved.rotate_left(SECTOR);
        moved[..SECTOR].copy_from_slice(&whole[..SECTOR]);
        fs::write(&file, &moved).unwrap();
        assert_eq!(answers(), None);
    }

    #[test]
    fn an_overflowed_bucket_has_no_answer_and_others_have() {
        let dir = tempfile::tempdir().unwrap();
        let mut index = Index::begin(&open(&dir), 1).unwrap();
        (0..SLOTS as u32).for_each(|n| index.insert("many", ip(n)).unwrap());
        assert_eq!(index.find("many").unwrap().unwrap().len(), SLOTS);
        index.insert("many", ip(99)).unwrap();
        assert_eq!(index.find("many").unwrap(), None);
        assert_eq!(index.find("another").unwrap(), Some(vec![]));
    }
}
