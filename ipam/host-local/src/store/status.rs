//! STATUS: whether a lease could be written, and how full the range sets are. It may be called every few seconds, so it
//! takes no lock and reads no lease.

use std::path::Path;

use cni::{Code, Error, NetworkName, Result};
use nix::sys::statvfs::{FsFlags, Statvfs, statvfs};
use nix::unistd::{AccessFlags, access};

use super::directory::Directory;
use super::index::Index;
use crate::range::RangeSet;

/// A range set is nearly full if this percentage is leased.
pub const NEARLY_FULL: u128 = 90;

/// Whether so many leases nearly fill a range set.
pub fn is_nearly_full(leased: u128, set: &RangeSet) -> bool {
    let capacity = set.capacity();
    // Rounded up: a set of one address is not nearly full while it is free.
    leased >= capacity - capacity / (100 / (100 - NEARLY_FULL))
}

/// Usage of a range set.
#[derive(Debug)]
pub struct Fill<'a> {
    /// The range set.
    pub set: &'a RangeSet,
    /// The number of leased addresses.
    pub leased: u128,
}

impl Fill<'_> {
    /// Whether no address is free.
    pub fn is_full(&self) -> bool {
        self.leased >= self.set.capacity()
    }
}

/// Checks that a lease can be written. Returns the range sets that are full or nearly full.
///
/// # Errors
/// Code 50, with the obstacle.
pub fn check<'a>(data_dir: &Path, network: &NetworkName, sets: &'a [RangeSet]) -> Result<Vec<Fill<'a>>> {
    let path = Directory::path_of(data_dir, network);
    let fills = writable(&path).and_then(|()| {
        let dir = Directory::open(&path).map_err(|e| Error::io(format!("open {}", path.display()), &e))?;
        dir.map_or(Ok(Vec::new()), |dir| nearly_full(&dir, sets))
    });
    fills.map_err(|error: Error| error.with_code(Code::NotAvailable))
}

/// The file system of the directory, or of its nearest existing parent.
fn writable(dir: &Path) -> Result<()> {
    let there = dir.ancestors().find(|dir| dir.exists()).unwrap_or(Path::new("."));
    let refuse = |why: &str| Err(Error::new(Code::Io, format!("{why}: {}", there.display())));
    let fs: Statvfs = statvfs(there)
        .map_err(|e| Error::io(format!("examine the file system of {}", there.display()), &e.into()))?;
    if !there.is_dir() {
        return refuse("the path for leases is not a directory");
    }
    if fs.flags().contains(FsFlags::ST_RDONLY) {
        return refuse("the file system for leases is read-only");
    }
    // Some file systems have no limit: they report 0 of 0 blocks or inodes free.
    if fs.blocks() > 0 && fs.blocks_free() == 0 || fs.files() > 0 && fs.files_free() == 0 {
        return refuse("the file system for leases is full");
    }
    access(there, AccessFlags::W_OK | AccessFlags::X_OK)
        .map_err(|e| Error::io(format!("write leases to {}", there.display()), &e.into()))
}

/// Counts in the cheapest way that is certain: first the number of leases in the index, then file names, then the files
/// themselves, because a torn file reserves no address.
fn nearly_full<'a>(dir: &Directory, sets: &'a [RangeSet]) -> Result<Vec<Fill<'a>>> {
    let all = Index::sealed(dir).map(|index| u128::from(index.count()));
    if all.is_some_and(|all| !sets.iter().any(|set| is_nearly_full(all, set))) {
        return Ok(Vec::new());
    }
    let ips = dir.addresses()?;
    let mut fills = Vec::new();
    for set in sets {
        let named = ips.iter().filter(|ip| set.may_lease(**ip));
        if !is_nearly_full(named.clone().count() as u128, set) {
            continue;
        }
        let mut leased = 0;
        for ip in named {
            leased += u128::from(dir.is_taken(*ip)?);
        }
        fills.push(Fill { set, leased });
    }
    Ok(fills)
}
