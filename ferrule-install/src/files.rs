//! File operations that sync to disk before they return, and hard links.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::Path;

use cni::{Error, Result};
use nix::errno::Errno;
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use rustix::thread::{CapabilitySet, capabilities};
use sha2::{Digest, Sha256};

use crate::say;

/// Writes a new file, syncs it, and returns its SHA-256.
pub fn write(path: &Path, content: &mut impl Read, mode: u32) -> Result<String> {
    let mut write = || {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
        let sum = pour(content, &mut file)?;
        // Set the mode explicitly, because of the umask.
        match file.set_permissions(PermissionsExt::from_mode(mode)) {
            // On a file system without modes, such as vfat, the mount determines the mode.
            Err(e) if e.kind() != ErrorKind::PermissionDenied => return Err(e),
            _ => {}
        }
        file.sync_all()?;
        Ok(sum)
    };
    write().map_err(|e| failed(format!("write {}", path.display()), &e))
}

/// An error of a file operation, with a remedy.
pub fn failed(operation: String, cause: &io::Error) -> Error {
    let error = Error::io(operation, cause);
    match cause.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            error.detail("free disk space there, and run ferrule-install again")
        }
        ErrorKind::ReadOnlyFilesystem => {
            error.detail("select a writable directory with --dir, or mount this one read-write")
        }
        // Both errors are of this kind.
        ErrorKind::PermissionDenied if cause.raw_os_error() == Some(Errno::EPERM as i32) => {
            error.detail("run it as root; lsattr shows whether the file or its directory is immutable")
        }
        ErrorKind::PermissionDenied if system::is_root() && has_dac_override() => error.detail(
            "a security module or the file system denies it: for a container with SELinux, use the option label=disable; for NFS, export the directory with no_root_squash",
        ),
        ErrorKind::PermissionDenied if system::is_root() => error.detail(
            "root without the capability DAC_OVERRIDE may not write there: add it to the container, or make root the owner of the directory",
        ),
        ErrorKind::PermissionDenied => error.detail("run it as root"),
        _ => error,
    }
}

/// Whether modes and owners of files do not restrict this process.
fn has_dac_override() -> bool {
    capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::DAC_OVERRIDE))
}

/// The SHA-256 of a file's content. None if the file does not exist.
pub fn sum(path: &Path) -> Result<Option<String>> {
    if !stat(path)?.is_some_and(|meta| meta.is_file()) {
        return Ok(None);
    }
    let sum = File::open(path).and_then(|mut file| pour(&mut file, &mut io::sink()));
    sum.map(Some).map_err(|e| Error::io(format!("read {}", path.display()), &e))
}

/// The SHA-256 sums of files. Files with several names are read once.
#[derive(Debug, Default)]
pub struct Sums(BTreeMap<(u64, u64), Option<String>>);

impl Sums {
    /// Like [`sum`].
    pub fn get(&mut self, path: &Path) -> Result<Option<String>> {
        let Some(meta) = stat(path)? else { return Ok(None) };
        let id = (meta.dev(), meta.ino());
        if let Some(known) = self.0.get(&id) {
            return Ok(known.clone());
        }
        let read = sum(path)?;
        self.0.insert(id, read.clone());
        Ok(read)
    }
}

/// Copies a reader to a writer, and returns the SHA-256.
fn pour(content: &mut impl Read, to: &mut impl Write) -> io::Result<String> {
    let (mut hash, mut buffer) = (Sha256::new(), vec![0; 1 << 16]);
    loop {
        match content.read(&mut buffer)? {
            0 => break,
            read => {
                hash.update(&buffer[..read]);
                to.write_all(&buffer[..read])?;
            }
        }
    }
    Ok(hash.finalize().iter().fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    }))
}

/// Gives a file a second name, and replaces an existing file of that name. First uses the name `temporary`, so that
/// the second name always leads to a complete file. If the file system has no hard links, copies the file. Returns
/// whether it is a copy.
pub fn keep(from: &Path, to: &Path, temporary: &Path) -> Result<bool> {
    remove(temporary)?;
    let is_copy = fs::hard_link(from, temporary).is_err();
    if is_copy {
        copy(from, temporary).map_err(|e| e.context(format!("keep {}", from.display())))?;
    }
    rename(temporary, to)?;
    Ok(is_copy)
}

/// Copies a symbolic link as a link.
fn copy(from: &Path, to: &Path) -> Result<()> {
    let open = |e| Error::io(format!("open {}", from.display()), &e);
    let meta = fs::symlink_metadata(from).map_err(open)?;
    if meta.is_symlink() {
        let copied = fs::read_link(from).and_then(|target| symlink(target, to));
        return copied.map_err(|e| failed(format!("make the symbolic link {}", to.display()), &e));
    }
    let mode = meta.permissions().mode() & 0o7777;
    write(to, &mut File::open(from).map_err(open)?, mode).map(drop)
}

/// The metadata of a file, or of a symbolic link itself. None if the file does not exist. Any other error, such as that
/// of a broken disk, does not mean that the file is missing.
pub fn stat(path: &Path) -> Result<Option<Metadata>> {
    match fs::symlink_metadata(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        found => found.map(Some).map_err(|e| Error::io(format!("look at {}", path.display()), &e)),
    }
}

/// The time at which a file was created, in seconds and nanoseconds. None if the file system does not record it. The
/// standard library does not know it with musl.
pub fn birth(path: &Path) -> Option<(i64, u32)> {
    let found = statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BTIME).ok()?;
    let has_birth = found.stx_mask & StatxFlags::BTIME.bits() != 0;
    has_birth.then_some((found.stx_btime.tv_sec, found.stx_btime.tv_nsec))
}

/// The names of the files in a directory. A missing directory counts as empty.
pub fn names(dir: &Path) -> Result<Vec<OsString>> {
    let entries = match fs::read_dir(dir) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries,
    };
    let names = entries.and_then(|entries| entries.map(|entry| Ok(entry?.file_name())).collect());
    names.map_err(|e| Error::io(format!("list {}", dir.display()), &e))
}

/// Whether a file of this name exists.
pub fn exists(path: &Path) -> Result<bool> {
    Ok(stat(path)?.is_some())
}

/// Whether both are one file, or files with the same content, or symbolic links with the same target.
pub fn same(one: &Path, other: &Path) -> Result<bool> {
    let (Some(found), Some(second)) = (stat(one)?, stat(other)?) else { return Ok(false) };
    if (found.dev(), found.ino()) == (second.dev(), second.ino()) {
        return Ok(true);
    }
    if found.is_symlink() && second.is_symlink() {
        let target =
            |path: &Path| fs::read_link(path).map_err(|e| Error::io(format!("read {}", path.display()), &e));
        return Ok(target(one)? == target(other)?);
    }
    Ok(matches!((sum(one)?, sum(other)?), (Some(one), Some(other)) if one == other))
}

/// Removes a file. Succeeds if it does not exist.
pub fn remove(path: &Path) -> Result<()> {
    system::file::missing_is_fine(fs::remove_file(path))
        .map_err(|e| failed(format!("remove {}", path.display()), &e))
}

/// Removes a directory with its files. Succeeds if it does not exist.
pub fn remove_dir(path: &Path) -> Result<()> {
    system::file::missing_is_fine(fs::remove_dir_all(path))
        .map_err(|e| failed(format!("remove {}", path.display()), &e))
}

/// Removes directories at the end of a path, from the last one to the first one that is not empty. `count` is the number
/// of directories.
pub fn remove_empty_dirs(path: &Path, count: usize) {
    for dir in path.ancestors().take(count) {
        match fs::remove_dir(dir) {
            Ok(()) => say(&format!("removed the directory {}", dir.display())),
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            Err(_) => break,
        }
    }
}

/// Renames a file, and replaces an existing file.
pub fn rename(from: &Path, to: &Path) -> Result<()> {
    fs::rename(from, to).map_err(|e| {
        let error = failed(format!("rename {} to {}", from.display(), to.display()), &e);
        match e.kind() {
            ErrorKind::ResourceBusy | ErrorKind::ExecutableFileBusy => {
                error.detail("the file is a mount point, or it is in use on a file system that does not allow replacing it: exclude it with --skip NAME")
            }
            _ => error,
        }
    })
}

/// Creates a directory that only its owner can use. Succeeds if it exists.
pub fn make_dir(path: &Path) -> Result<()> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(e) if e.kind() != ErrorKind::AlreadyExists => {
            Err(failed(format!("make the directory {}", path.display()), &e))
        }
        _ => Ok(()),
    }
}

/// Syncs the entries of a directory to disk.
pub fn sync_dir(path: &Path) -> Result<()> {
    let synced = File::open(path).and_then(|dir| dir.sync_all());
    synced.map_err(|e| Error::io(format!("write the directory {} to the disk", path.display()), &e))
}
