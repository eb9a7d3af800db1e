//! Lock that excludes GC from ADD and DEL, in all processes (SPEC.md, section 3, "Lifecycle & Ordering").

use std::fs::{DirBuilder, File};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use crate::Result;

/// Held until it is dropped.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

impl Lock {
    /// Waits until no GC runs.
    pub(crate) fn shared(dir: &Path) -> Result<Self> {
        Self::take(dir, File::lock_shared)
    }

    /// Waits until no ADD, DEL or GC runs.
    pub(crate) fn exclusive(dir: &Path) -> Result<Self> {
        Self::take(dir, File::lock)
    }

    fn take(dir: &Path, lock: impl FnOnce(&File) -> std::io::Result<()>) -> Result<Self> {
        let path = dir.join("results.lock");
        // Only root may open the file, because each process that opens it can hold the lock.
        let open = || system::file::open_own(File::options().create(true).append(true).mode(0o600), &path);
        let make = || DirBuilder::new().recursive(true).mode(0o755).create(dir);
        let file = open().or_else(|_| make().and_then(|()| open()));
        let locked = file.and_then(|file| lock(&file).map(|()| Self { _file: file }));
        Ok(locked.map_err(|e| cni::Error::io(format!("lock {}", path.display()), &e))?)
    }
}
