//! Atomic file writes: each file is written under a temporary name and renamed, so a kill never leaves half a file.
//!
//! A temporary name belongs to one process: if two shared it, one would rename the other's incomplete file. It is `.new.PID.NUMBER.LABEL`.
//! The number distinguishes processes of other PID namespaces. The label identifies the owner of a stale file.

use std::fs::{self, DirEntry, File};
use std::io::{self, ErrorKind, Write};
use std::path::Path;
use std::process;
use std::time::SystemTime;

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, renameat};
use nix::sys::stat::{FchmodatFlags, Mode, fchmodat};
use nix::unistd::{UnlinkatFlags, linkat, unlinkat};
use rustix::fs::{RenameFlags, renameat_with};

use super::open_in;

/// Prefix of temporary names.
const PREFIX: &str = ".new.";

/// Attempts to find a free temporary name. Names are taken only by stale files of killed processes.
const TRIES: u32 = 1000;

/// NAME_MAX of limits.h.
const LONGEST_NAME: usize = 255;

/// Maximum length of the part before the label.
const BEFORE_LABEL: usize = 25;

/// The mode of a file that everybody can read.
const READABLE: Mode = Mode::from_bits_truncate(0o644);

/// A file in an open directory, readable only by its owner, unless it is written for all.
#[derive(Clone, Copy, Debug)]
pub struct AtomicFile<'a> {
    /// The directory.
    pub dir: &'a File,
    /// Its name.
    pub name: &'a str,
    /// The label of its temporary name.
    pub label: &'a str,
}

impl AtomicFile<'_> {
    /// Writes the file, and replaces an existing one.
    ///
    /// # Errors
    /// If writing fails. An existing file is then unchanged.
    pub fn replace(&self, content: &[u8]) -> io::Result<()> {
        self.write_and(content, |new| Ok(renameat(self.dir, new, self.dir, self.name)?))
    }

    /// Writes a file that every user can read, and replaces an existing one. It is for a daemon of another user.
    ///
    /// # Errors
    /// If writing fails. An existing file is then unchanged.
    pub fn replace_for_all(&self, content: &[u8]) -> io::Result<()> {
        self.write_and(content, |new| {
            // Before the rename: the daemon may open the file at any time.
            fchmodat(self.dir, new, READABLE, FchmodatFlags::FollowSymlink)?;
            Ok(renameat(self.dir, new, self.dir, self.name)?)
        })
    }

    /// Writes the file unless the name exists; then returns false. This works without any lock.
    ///
    /// # Errors
    /// If writing fails.
    pub fn create(&self, content: &[u8]) -> io::Result<bool> {
        let renamed = self.write_and(content, |new| {
            match renameat_with(self.dir, new, self.dir, self.name, RenameFlags::NOREPLACE) {
                // The file system does not support it, such as ZFS before 2.2.
                Err(rustix::io::Errno::INVAL) => self.link(new),
                renamed => Ok(renamed?),
            }
        });
        match renamed {
            Ok(()) => Ok(true),
            Err(e) if e.kind() == ErrorKind::AlreadyExists => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Gives a temporary file its name unless the name exists. On a file system without links, only the caller's lock prevents that it
    /// replaces a file.
    fn link(&self, new: &str) -> io::Result<()> {
        match linkat(self.dir, new, self.dir, self.name, AtFlags::empty()) {
            Ok(()) => {
                // If that fails, it stays like the file of a killed process.
                unlinkat(self.dir, new, UnlinkatFlags::NoRemoveDir).ok();
                Ok(())
            }
            Err(Errno::EEXIST) => Err(ErrorKind::AlreadyExists.into()),
            Err(_) => Ok(renameat(self.dir, new, self.dir, self.name)?),
        }
    }

    /// Like [`AtomicFile::replace`], and syncs file and directory to disk.
    ///
    /// # Errors
    /// If writing or syncing fails. After a failed sync, the file may exist.
    pub fn replace_on_disk(&self, content: &[u8]) -> io::Result<()> {
        self.replace(content)?;
        self.sync()
    }

    /// Like [`AtomicFile::create`], and syncs file and directory to disk.
    ///
    /// # Errors
    /// If writing or syncing fails. After a failed sync, the file may exist.
    pub fn create_on_disk(&self, content: &[u8]) -> io::Result<bool> {
        let created = self.create(content)?;
        if created { self.sync().map(|()| true) } else { Ok(false) }
    }

    /// Syncs the content, then the name.
    fn sync(&self) -> io::Result<()> {
        open_in(self.dir, self.name, OFlag::O_RDONLY)?.sync_all()?;
        self.dir.sync_all()
    }

    fn write_and(&self, content: &[u8], rename: impl FnOnce(&str) -> io::Result<()>) -> io::Result<()> {
        let (name, mut file) = self.open_temporary()?;
        let written = file.write_all(content);
        drop(file);
        written.and_then(|()| rename(&name)).map_err(|e| {
            match unlinkat(self.dir, name.as_str(), UnlinkatFlags::NoRemoveDir) {
                Ok(()) | Err(Errno::ENOENT) => e,
                Err(failure) => and_stays(&e, &name, failure),
            }
        })
    }

    fn open_temporary(&self) -> io::Result<(String, File)> {
        let (process, label) = (process::id(), shortened(self.label));
        let mut number = 0;
        loop {
            let name = format!("{PREFIX}{process}.{number}.{label}");
            match open_in(self.dir, &name, OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL) {
                Err(e) if e.kind() == ErrorKind::AlreadyExists && number < TRIES => number += 1,
                opened => return Ok((name, opened?)),
            }
        }
    }
}

/// Adds to an error that the temporary file stays.
fn and_stays(error: &io::Error, temporary: &str, failure: Errno) -> io::Error {
    let cause =
        error.raw_os_error().map_or_else(|| error.to_string(), |n| Errno::from_raw(n).desc().to_owned());
    let text = format!("{cause}; the rollback failed too: delete {temporary}: {}", failure.desc());
    io::Error::new(error.kind(), text)
}

/// The end of a label that is too long for a name. Names of attachments differ at the end.
fn shortened(label: &str) -> &str {
    let start = label.len().saturating_sub(LONGEST_NAME - BEFORE_LABEL);
    let start = (start..label.len()).find(|at| label.is_char_boundary(*at));
    start.and_then(|start| label.get(start..)).unwrap_or_default()
}

/// Whether a name is temporary.
pub fn is_temporary(name: &str) -> bool {
    label_of(name).is_some()
}

/// The label of a temporary name, or the end of a long label.
pub fn label_of(temporary: &str) -> Option<&str> {
    let mut parts = temporary.strip_prefix(PREFIX)?.splitn(3, '.');
    let mut is_number = || parts.next().is_some_and(|part| part.parse::<u32>().is_ok());
    if is_number() && is_number() { parts.next() } else { None }
}

/// Deletes stale temporary files with a label. The directory may be missing.
///
/// # Errors
/// If the directory cannot be read or a file not be deleted.
pub fn remove_temporary(dir: &Path, label: &str) -> io::Result<()> {
    remove_temporary_if(
        dir,
        |file| Ok(file.file_name().to_str().and_then(label_of) == Some(shortened(label))),
    )
}

/// Deletes temporary files that were written before a time. A killed process or a loss of power has left them. The directory may be missing.
///
/// # Errors
/// If the directory cannot be read or a file not be deleted.
pub fn remove_temporary_before(dir: &Path, time: SystemTime) -> io::Result<()> {
    remove_temporary_if(dir, |file| Ok(file.metadata()?.modified()? < time))
}

/// Deletes the temporary files that a condition holds for.
fn remove_temporary_if(dir: &Path, is_stale: impl Fn(&DirEntry) -> io::Result<bool>) -> io::Result<()> {
    let entries = match fs::read_dir(dir) {
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_name().to_str().is_some_and(is_temporary) {
            // Its writer may rename the file meanwhile.
            let removed =
                is_stale(&entry).and_then(|stale| if stale { fs::remove_file(entry.path()) } else { Ok(()) });
            match removed {
                Err(e) if e.kind() != ErrorKind::NotFound => return Err(e),
                _ => {}
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn names(dir: &Path) -> BTreeSet<String> {
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn a_file_is_replaced_or_created_and_no_other_name_is_left() {
        let place = tempfile::tempdir().unwrap();
        let dir = File::open(place.path()).unwrap();
        let file = AtomicFile { dir: &dir, name: "file", label: "label" };
        let read = || fs::read_to_string(place.path().join("file")).unwrap();
        file.replace(b"one").unwrap();
        assert_eq!(fs::metadata(place.path().join("file")).unwrap().permissions().mode() & 0o777, 0o600);
        file.replace(b"two").unwrap();
        assert_eq!(read(), "two");
        assert!(!file.create(b"three").unwrap());
        assert_eq!(read(), "two");
        assert!(AtomicFile { name: "other", ..file }.create(b"four").unwrap());
        fs::create_dir(place.path().join("directory")).unwrap();
        AtomicFile { name: "directory", ..file }.replace(b"five").unwrap_err();
        assert_eq!(names(place.path()), ["directory", "file", "other"].map(str::to_owned).into());
    }

    #[test]
    fn an_error_names_the_temporary_file_that_could_not_be_deleted() {
        let place = tempfile::tempdir().unwrap();
        let dir = File::open(place.path()).unwrap();
        let file = AtomicFile { dir: &dir, name: "file", label: "label" };
        let fails = |new: &str| {
            let temporary = place.path().join(new);
            fs::remove_file(&temporary).and_then(|()| fs::create_dir(&temporary)).unwrap();
            Err(io::Error::from(Errno::ENOSPC))
        };
        let error = file.write_and(b"text", fails).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StorageFull);
        let text = error.to_string();
        let temporary = format!("delete .new.{}.0.label: Is a directory", process::id());
        assert!(text.starts_with("No space left on device; ") && text.ends_with(&temporary), "{text}");
    }

    #[test]
    fn a_file_for_all_can_be_read_by_all() {
        let place = tempfile::tempdir().unwrap();
        let dir = File::open(place.path()).unwrap();
        AtomicFile { dir: &dir, name: "file", label: "label" }.replace_for_all(b"text").unwrap();
        assert_eq!(fs::metadata(place.path().join("file")).unwrap().permissions().mode() & 0o777, 0o644);
        assert_eq!(fs::read(place.path().join("file")).unwrap(), b"text");
        assert_eq!(names(place.path()), ["file".to_owned()].into());
    }

    /// A stale file of a killed process, or somebody else's link.
    #[test]
    fn an_existing_temporary_name_is_not_used() {
        let place = tempfile::tempdir().unwrap();
        let dir = File::open(place.path()).unwrap();
        let taken = |number: u32| place.path().join(format!(".new.{}.{number}.label", process::id()));
        fs::write(taken(0), "half").unwrap();
        symlink("/no/such/file", taken(1)).unwrap();
        AtomicFile { dir: &dir, name: "file", label: "label" }.replace(b"whole").unwrap();
        assert_eq!(fs::read(place.path().join("file")).unwrap(), b"whole");
        assert_eq!(fs::read(taken(0)).unwrap(), b"half");
    }

    #[test]
    fn files_of_a_killed_process_are_found_by_their_label() {
        let place = tempfile::tempdir().unwrap();
        let long = "x".repeat(250);
        let dir = File::open(place.path()).unwrap();
        for label in ["net-a-eth0", "net-a-eth0.5", "b", &long] {
            let (name, _) = AtomicFile { dir: &dir, name: "", label }.open_temporary().unwrap();
            assert!(is_temporary(&name) && label.ends_with(label_of(&name).unwrap()), "{name}");
        }
        remove_temporary(place.path(), "net-a-eth0").unwrap();
        remove_temporary(place.path(), &long).unwrap();
        remove_temporary(&place.path().join("missing"), "b").unwrap();
        let left = names(place.path());
        let left: Vec<_> = left.iter().filter_map(|name| label_of(name)).collect();
        assert_eq!(left, ["b", "net-a-eth0.5"]);
        fs::write(place.path().join("net-b-eth0"), "").unwrap();
        remove_temporary_before(place.path(), SystemTime::UNIX_EPOCH).unwrap();
        assert_eq!(names(place.path()).len(), 3);
        let later = SystemTime::now() + std::time::Duration::from_secs(60);
        remove_temporary_before(place.path(), later).unwrap();
        remove_temporary_before(&place.path().join("missing"), later).unwrap();
        assert_eq!(names(place.path()), BTreeSet::from(["net-b-eth0".to_owned()]));
    }

    #[test]
    fn other_names_are_not_temporary() {
        for name in
            ["10.0.0.1", "fd00::1", "lock", "net-a-eth0", "x.new.1.0.b", ".newer-notes", ".new.notes.0.b"]
        {
            assert!(!is_temporary(name) && label_of(name).is_none(), "{name}");
        }
        assert_eq!(label_of(".new"), None);
    }
}
