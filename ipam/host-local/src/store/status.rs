//! STATUS: could every range set give an address now? Asked every few seconds, so it takes no lock and reads no lease.

use std::net::IpAddr;
use std::path::Path;

use cni::{Code, Error, NetworkName, Result};
use nix::sys::statvfs::{FsFlags, Statvfs, statvfs};

use super::directory::Directory;
use super::index::Index;
use crate::allocator;
use crate::range::RangeSet;

/// Is there a free address in each range set, and can a lease be written?
///
/// # Errors
/// Code 50: what is exhausted, or in the way.
pub fn check(data_dir: &Path, network: &NetworkName, sets: &[RangeSet]) -> Result<()> {
    let path = Directory::path_of(data_dir, network);
    let unavailable = |error: Error| error.with_code(Code::NotAvailable);
    writable(&path).map_err(unavailable)?;
    let dir = Directory::open(&path).map_err(|e| Error::io(format!("open {}", path.display()), &e));
    let Some(dir) = dir.map_err(unavailable)? else { return Ok(()) };
    match exhausted(&dir, sets).map_err(unavailable)? {
        Some(set) => Err(unavailable(allocator::exhausted(set))),
        None => Ok(()),
    }
}

/// The file system of the directory, or of the nearest one above that is there.
fn writable(dir: &Path) -> Result<()> {
    let there = dir.ancestors().find(|dir| dir.exists()).unwrap_or(Path::new("."));
    let refuse = |why: &str| Err(Error::new(Code::Io, format!("{why}: {}", there.display())));
    let fs: Statvfs = statvfs(there)
        .map_err(|e| Error::io(format!("look at the file system of {}", there.display()), &e.into()))?;
    if !there.is_dir() {
        return refuse("the place for leases is not a directory");
    }
    if fs.flags().contains(FsFlags::ST_RDONLY) {
        return refuse("the file system for leases is read-only");
    }
    // Some file systems do not count inodes: they have 0 of 0 free.
    if fs.blocks_free() == 0 || (fs.files() > 0 && fs.files_free() == 0) {
        return refuse("the file system for leases is full");
    }
    Ok(())
}

/// The first range set without a free address, found by the cheapest way that is sure: the number of all leases, which
/// the index knows; their names; and the files themselves, of which a torn one takes no address.
fn exhausted<'a>(dir: &Directory, sets: &'a [RangeSet]) -> Result<Option<&'a RangeSet>> {
    let smallest = sets.iter().map(RangeSet::capacity).min().unwrap_or(0);
    if Index::sealed(dir).is_some_and(|index| u128::from(index.count()) < smallest) {
        return Ok(None);
    }
    let ips = dir.addresses()?;
    for set in sets {
        let in_set = |ip: &&IpAddr| set.range_of(**ip).is_some_and(|range| range.may_lease(**ip));
        let full = ips.iter().filter(in_set).count() as u128 >= set.capacity();
        if full && !has_torn(dir, set)? {
            return Ok(Some(set));
        }
    }
    Ok(None)
}

fn has_torn(dir: &Directory, set: &RangeSet) -> Result<bool> {
    for ip in set.candidates(None) {
        if !dir.is_taken(ip)? {
            return Ok(true);
        }
    }
    Ok(false)
}
