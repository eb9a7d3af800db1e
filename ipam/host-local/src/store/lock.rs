//! The lock on a network's leases. Unprivileged processes cannot block it, it survives an `rm -r` of the directory, and it
//! excludes the reference.
//!
//! It consists of three flock(2) locks, taken in this order. The kernel releases them when their holder exits. A process that
//! can open a file for reading can lock it, so only a file that root alone can open may be waited for without a timeout.
//!
//! | lock on | who else can hold it | excludes | timeout |
//! |---|---|---|---|
//! | the file `.lock`, mode 600 | nobody | other runs of this plugin | none |
//! | the directory | any process | runs that started under a `.lock` that was removed since | 5 s, only after creating `.lock` |
//! | the file `lock`, the reference's | nobody, unless its mode was changed | the reference | 5 s |
//!
//! - *Removed files.* If `.lock` is removed, the next run creates it again while the holder of the old one may still be running.
//!   So a holder also locks the directory, if it is free. A run that creates `.lock` waits for the lock on the directory. The size
//!   of the file records whether a run has done so: see [`Note`]. If an unrelated process holds the directory, the wait ends after
//!   5 s, once for each new `.lock`. By then the earlier runs have ended.
//! - *An unrelated process holds `lock`.* After 5 s the plugin continues without it, and records that. Later runs only try to get
//!   it, until it is free again. Meanwhile the reference is not excluded, see [`Lock::excludes_reference`].
//! - *No space for `.lock`*, for example on a full disk after the reference was replaced: the run waits for the lock on the directory instead.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use cni::{Error, Result};
use nix::fcntl::OFlag;
use system::lock::try_lock;
use system::{Retry, file};

use super::directory::Directory;

/// Our lock file. The reference reads it like every file, and finds no container in it.
const OWN: &str = ".lock";
/// The reference's lock file.
const SHARED: &str = "lock";
/// Timeout for locks that other programs can hold.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);

/// State for later holders of `.lock`, stored as its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Note {
    /// No process has yet waited for processes that may still run under an older `.lock`.
    New = 0,
    Settled = 1,
    /// Waiting for `lock` has timed out.
    InVain = 2,
}

/// The lock, held until it is dropped.
#[derive(Debug)]
pub struct Lock {
    /// None: another process held it for too long.
    shared: Option<File>,
    /// Closing it unlocks it. It is dropped last. None: there was no space for it.
    _own: Option<File>,
}

/// The name of the file in the directory, and the error.
type Failure = (&'static str, io::Error);

impl Lock {
    /// Opens a network's directory and locks it. None if it does not exist.
    ///
    /// # Errors
    /// Code 5 if the directory or a lock file cannot be opened or locked.
    pub fn take(path: &Path) -> Result<Option<(Directory, Self)>> {
        let failed = |(name, e): Failure| Error::io(format!("lock {}", path.join(name).display()), &e);
        while let Some(dir) = Directory::open(path).map_err(|e| failed((OWN, e)))? {
            match Self::of(&dir) {
                Ok(Some(lock)) => return Ok(Some((dir, lock))),
                Ok(None) => {}
                // The directory was removed in the meantime.
                Err((_, e)) if e.kind() == ErrorKind::NotFound => {}
                Err(failure) => return Err(failed(failure)),
            }
        }
        Ok(None)
    }

    /// Whether the reference is excluded too. If not, it may be running now: its files are empty until it has written
    /// them, and its leases may be added between our change and the seal.
    pub fn excludes_reference(&self) -> bool {
        self.shared.is_some()
    }

    /// None if the directory or its `.lock` was replaced in the meantime.
    fn of(dir: &Directory) -> Result<Option<Self>, Failure> {
        let locked = match own(dir) {
            Err(e) if is_full(&e) => return Self::without_own(dir).map(Some),
            own => own.and_then(|own| Ok(note(dir, &own)?.map(|note| (own, note)))),
        };
        let Some((own, mut note)) = locked.map_err(|e| (OWN, e))? else { return Ok(None) };
        note = outlast(dir, &own, note).map_err(|e| (OWN, e))?;
        let shared = shared_after(dir, &own, note).map_err(|e| (SHARED, e))?;
        Ok(Some(Self { shared, _own: Some(own) }))
    }

    /// Without space for `.lock`, so that DEL and GC can release leases. The first run that creates `.lock` waits for the lock on the directory,
    /// too.
    fn without_own(dir: &Directory) -> Result<Self, Failure> {
        wait_for_directory(dir).map_err(|e| (OWN, e))?;
        let shared = match Retry::new(LOCK_TIMEOUT).wait_for(|| shared(dir)) {
            Err(e) if is_full(&e) => None,
            shared => shared.map_err(|e| (SHARED, e))?,
        };
        Ok(Self { shared, _own: None })
    }
}

/// Opens and locks `.lock`. A file that other users can open is replaced, because they could lock it.
fn own(dir: &Directory) -> io::Result<File> {
    let open = || dir.file(OWN, OFlag::O_RDWR | OFlag::O_CREAT);
    let mut file = open()?;
    if file.metadata()?.mode() & 0o077 != 0 {
        // Another process of this plugin may have removed it.
        dir.unlink(OWN).ok();
        file = open()?;
    }
    file.lock()?;
    Ok(file)
}

/// The state in the locked `.lock`. None if the path leads to another file now.
fn note(dir: &Directory, own: &File) -> io::Result<Option<Note>> {
    if !file::is_still(own, fs::symlink_metadata(dir.path(OWN)))? {
        return Ok(None);
    }
    Ok(Some(match own.metadata()?.len() {
        0 => Note::New,
        1 => Note::Settled,
        _ => Note::InVain,
    }))
}

fn write_note(own: &File, note: Note) -> io::Result<Note> {
    own.set_len(note as u64)?;
    Ok(note)
}

/// Locks the directory if it is free. With a new `.lock`, waits for processes that started under an older one.
fn outlast(dir: &Directory, own: &File, note: Note) -> io::Result<Note> {
    if note != Note::New {
        try_lock(dir.as_file())?;
        return Ok(note);
    }
    wait_for_directory(dir)?;
    write_note(own, Note::Settled)
}

/// Waits for the lock on the directory. If an unrelated process holds it, the wait ends after 5 s.
fn wait_for_directory(dir: &Directory) -> io::Result<()> {
    Retry::new(LOCK_TIMEOUT).wait_for(|| Ok(try_lock(dir.as_file())?.then_some(()))).map(drop)
}

/// Whether the file system or the quota is full.
fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

/// Locks `lock`. None if another program holds it, and waiting has timed out.
fn shared_after(dir: &Directory, own: &File, note: Note) -> io::Result<Option<File>> {
    let immediate = shared(dir)?;
    if immediate.is_some() {
        if note == Note::InVain {
            write_note(own, Note::Settled)?;
        }
        return Ok(immediate);
    }
    if note == Note::InVain {
        return Ok(None);
    }
    let later = Retry::new(LOCK_TIMEOUT).wait_for(|| shared(dir))?;
    if later.is_none() {
        write_note(own, Note::InVain)?;
        let path = dir.path(SHARED);
        let (path, seconds) = (path.display(), LOCK_TIMEOUT.as_secs());
        cni::warn(&format!(
            "another process has held the lock {path} for {seconds} s; the plugin continues without the \
             lock; `fuser -v {path}` shows the process"
        ));
    }
    Ok(later)
}

/// Opens `lock`, and locks it if it is free.
fn shared(dir: &Directory) -> io::Result<Option<File>> {
    let file = dir.file(SHARED, OFlag::O_RDWR | OFlag::O_CREAT)?;
    // A removed file excludes no other process.
    Ok((try_lock(&file)? && file.metadata()?.nlink() > 0).then_some(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An attempt is repeated only if the directory was removed meanwhile. Any other error would be repeated forever.
    #[test]
    fn a_lock_file_of_another_kind_is_an_error_that_names_it() {
        for name in [OWN, SHARED] {
            let dir = tempfile::tempdir().unwrap();
            fs::create_dir(dir.path().join(name)).unwrap();
            let error = Lock::take(dir.path()).unwrap_err();
            assert_eq!(error.code(), 5);
            assert!(error.msg().contains(&format!("lock {}", dir.path().join(name).display())), "{error}");
        }
    }
}
