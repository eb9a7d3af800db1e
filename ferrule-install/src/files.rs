//! Files that are on the disk when a function returns, and second names for files.

use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, symlink};
use std::path::Path;

use cni::{Error, Result};
use sha2::{Digest, Sha256};

/// Writes a new file to the disk, and tells its SHA-256.
pub fn write(path: &Path, content: &mut impl Read, mode: u32) -> Result<String> {
    let mut write = || {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
        let sum = pour(content, &mut file)?;
        // Whatever the umask is.
        file.set_permissions(PermissionsExt::from_mode(mode))?;
        file.sync_all()?;
        Ok(sum)
    };
    write().map_err(|e| Error::io(format!("write {}", path.display()), &e))
}

/// The SHA-256 of what a file has. None if it is none.
pub fn sum(path: &Path) -> Result<Option<String>> {
    let read = || match fs::symlink_metadata(path) {
        Ok(meta) if meta.is_file() => pour(&mut File::open(path)?, &mut io::sink()).map(Some),
        Err(e) if e.kind() != ErrorKind::NotFound => Err(e),
        _ => Ok(None),
    };
    read().map_err(|e| Error::io(format!("read {}", path.display()), &e))
}

/// Copies all that can be read, and tells its SHA-256.
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
        // A String takes everything.
        let _ = write!(text, "{byte:02x}");
        text
    }))
}

/// Gives a file a second name, in place of what has that name; by way of `temporary`, so that the name always leads to a whole
/// file. Where the file system has no hard links, it is a copy.
pub fn keep(from: &Path, to: &Path, temporary: &Path) -> Result<()> {
    remove(temporary)?;
    let copy = || match fs::symlink_metadata(from)? {
        meta if meta.is_symlink() => symlink(fs::read_link(from)?, temporary),
        _ => {
            fs::copy(from, temporary)?;
            File::open(temporary)?.sync_all()
        }
    };
    let kept = fs::hard_link(from, temporary).or_else(|_| copy()).and_then(|()| fs::rename(temporary, to));
    kept.map_err(|e| Error::io(format!("keep {} as {}", from.display(), to.display()), &e))
}

/// Removes a file that may be missing.
pub fn remove(path: &Path) -> Result<()> {
    system::file::missing_is_fine(fs::remove_file(path))
        .map_err(|e| Error::io(format!("remove {}", path.display()), &e))
}

/// Moves a file over another one of the same file system.
pub fn rename(from: &Path, to: &Path) -> Result<()> {
    fs::rename(from, to).map_err(|e| Error::io(format!("rename {} to {}", from.display(), to.display()), &e))
}

/// Makes a directory that may be there.
pub fn make_dir(path: &Path) -> Result<()> {
    match fs::create_dir(path) {
        Err(e) if e.kind() != ErrorKind::AlreadyExists => {
            Err(Error::io(format!("make the directory {}", path.display()), &e))
        }
        _ => Ok(()),
    }
}

/// Has a directory's names on the disk.
pub fn sync_dir(path: &Path) -> Result<()> {
    let synced = File::open(path).and_then(|dir| dir.sync_all());
    synced.map_err(|e| Error::io(format!("write the directory {} to the disk", path.display()), &e))
}
