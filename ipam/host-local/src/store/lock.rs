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
//!   it, until it is free again. Meanwhile the reference is not excluded, see [`Lock::is_whole`].

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use cni::{Error, Result};
use nix::fcntl::OFlag;
use system::Retry;
use system::lock::try_lock;

use super::directory::Directory;

/// Ours. The reference reads it as it reads every file, and finds no container in it.
const OWN: &str = ".lock";
/// The reference's.
const SHARED: &str = "lock";
/// For how long others may hold what others can lock.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);

/// What holders of `.lock` leave to those who come later: the size of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Note {
    /// Nobody has yet waited for those that may be at work under an older one.
    New = 0,
    Settled = 1,
    /// `lock` was waited for in vain.
    InVain = 2,
}

/// The lock, held until it is dropped.
#[derive(Debug)]
pub struct Lock {
    /// None: somebody held it for too long.
    shared: Option<File>,
    /// Closing it unlocks. It goes last.
    _own: File,
}

/// What failed, on which file of the directory.
type Failure = (&'static str, io::Error);

impl Lock {
    /// Opens a network's directory and locks it. None if there is none.
    ///
    /// # Errors
    /// Code 5 if the directory or a lock file cannot be opened or locked.
    pub fn take(path: &Path) -> Result<Option<(Directory, Self)>> {
        let failed = |(name, e): Failure| Error::io(format!("lock {}", path.join(name).display()), &e);
        while let Some(dir) = Directory::open(path).map_err(|e| failed((OWN, e)))? {
            match Self::of(&dir) {
                Ok(Some(lock)) => return Ok(Some((dir, lock))),
                Ok(None) => {}
                // The directory was removed meanwhile.
                Err((_, e)) if e.kind() == ErrorKind::NotFound => {}
                Err(failure) => return Err(failed(failure)),
            }
        }
        Ok(None)
    }

    /// Whether the reference is excluded, too. Otherwise it may be at work at this moment: it creates files that are empty
    /// until it has written to them, and its leases may come between a change of ours and the seal.
    pub fn is_whole(&self) -> bool {
        self.shared.is_some()
    }

    /// None if the directory or its `.lock` was replaced meanwhile.
    fn of(dir: &Directory) -> Result<Option<Self>, Failure> {
        let locked = own(dir).and_then(|own| Ok(note(dir, &own)?.map(|note| (own, note))));
        let Some((own, mut note)) = locked.map_err(|e| (OWN, e))? else { return Ok(None) };
        note = outlast(dir, &own, note).map_err(|e| (OWN, e))?;
        let shared = shared_after(dir, &own, note).map_err(|e| (SHARED, e))?;
        Ok(Some(Self { shared, _own: own }))
    }
}

/// Opens and locks `.lock`. A file that other users can open is replaced, because they could lock it.
fn own(dir: &Directory) -> io::Result<File> {
    let open = || dir.file(OWN, OFlag::O_RDWR | OFlag::O_CREAT);
    let mut file = open()?;
    if file.metadata()?.mode() & 0o077 != 0 {
        // Another one of us may be faster.
        dir.unlink(OWN).ok();
        file = open()?;
    }
    file.lock()?;
    Ok(file)
}

/// What `.lock` says, now that it is locked. None if it is not the one that the path leads to any more.
fn note(dir: &Directory, own: &File) -> io::Result<Option<Note>> {
    let held = own.metadata()?;
    let is_current = |there: fs::Metadata| (there.ino(), there.dev()) == (held.ino(), held.dev());
    if !fs::symlink_metadata(dir.path(OWN)).is_ok_and(is_current) {
        return Ok(None);
    }
    Ok(Some(match held.len() {
        0 => Note::New,
        1 => Note::Settled,
        _ => Note::InVain,
    }))
}

fn write_note(own: &File, note: Note) -> io::Result<Note> {
    own.set_len(note as u64)?;
    Ok(note)
}

/// Locks the directory, if that is to be had. Under a new `.lock`, those are waited for who began under an older one.
fn outlast(dir: &Directory, own: &File, note: Note) -> io::Result<Note> {
    let alone = || Ok(try_lock(dir.as_file())?.then_some(()));
    let immediate = alone()?;
    if note != Note::New {
        return Ok(note);
    }
    if immediate.is_none() {
        Retry::new(LOCK_TIMEOUT).wait_for(alone)?;
    }
    write_note(own, Note::Settled)
}

/// Locks `lock`. None if others hold it, and did so for too long.
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

/// Opens `lock`, and locks it if nobody else holds it.
fn shared(dir: &Directory) -> io::Result<Option<File>> {
    let file = dir.file(SHARED, OFlag::O_RDWR | OFlag::O_CREAT)?;
    // One that was removed meanwhile keeps nobody out.
    Ok((try_lock(&file)? && file.metadata()?.nlink() > 0).then_some(file))
}
