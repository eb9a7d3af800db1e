//! Files that are there as a whole or not at all, whoever is killed when: each is written under a temporary name, and
//! renamed.
//!
//! The temporary name is the process's own: of two that share one, one would rename what the other has half written. It
//! is `.new.PID.NUMBER.LABEL`. The number tells processes of other PID namespaces apart; the label says whose the file
//! is that a kill has left.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::Path;
use std::process;

use nix::fcntl::{OFlag, renameat};
use nix::unistd::{UnlinkatFlags, unlinkat};
use rustix::fs::{RenameFlags, renameat_with};

use super::open_in;

/// What temporary names begin with. No other file of ours does.
const PREFIX: &str = ".new";

/// How many temporary names are tried. All but the first are taken by what kills have left.
const TRIES: u32 = 1000;

/// NAME_MAX of limits.h.
const LONGEST_NAME: usize = 255;

/// More bytes than all that stands before a label can have.
const BEFORE_LABEL: usize = 25;

/// A file in an open directory. Only its owner can read it.
#[derive(Clone, Copy, Debug)]
pub struct AtomicFile<'a> {
    /// The directory.
    pub dir: &'a File,
    /// Its name there.
    pub name: &'a str,
    /// What its temporary name ends with.
    pub label: &'a str,
}

impl AtomicFile<'_> {
    /// Writes it, over an earlier one.
    ///
    /// # Errors
    /// What the file system says. An earlier one is as it was then.
    pub fn replace(&self, content: &[u8]) -> io::Result<()> {
        self.write_and(content, |new| Ok(renameat(self.dir, new, self.dir, self.name)?))
    }

    /// Writes it unless there is something of its name: false then. This holds against everybody, whatever is locked.
    ///
    /// # Errors
    /// What the file system says.
    pub fn create(&self, content: &[u8]) -> io::Result<bool> {
        let renamed = self.write_and(content, |new| {
            match renameat_with(self.dir, new, self.dir, self.name, RenameFlags::NOREPLACE) {
                // The file system cannot: a lock has to do.
                Err(rustix::io::Errno::INVAL) => Ok(renameat(self.dir, new, self.dir, self.name)?),
                renamed => Ok(renamed?),
            }
        });
        match renamed {
            Ok(()) => Ok(true),
            Err(e) if e.kind() == ErrorKind::AlreadyExists => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// As [`AtomicFile::replace`], and it is on the disk, whatever happens to the machine afterwards.
    ///
    /// # Errors
    /// What the file system says. If the disk fails, the file may be there already.
    pub fn replace_on_disk(&self, content: &[u8]) -> io::Result<()> {
        self.replace(content)?;
        self.sync()
    }

    /// As [`AtomicFile::create`], and it is on the disk, whatever happens to the machine afterwards.
    ///
    /// # Errors
    /// As [`AtomicFile::replace_on_disk`].
    pub fn create_on_disk(&self, content: &[u8]) -> io::Result<bool> {
        let created = self.create(content)?;
        if created { self.sync().map(|()| true) } else { Ok(false) }
    }

    /// The content, and then the name.
    fn sync(&self) -> io::Result<()> {
        open_in(self.dir, self.name, OFlag::O_RDONLY)?.sync_all()?;
        self.dir.sync_all()
    }

    fn write_and(&self, content: &[u8], rename: impl FnOnce(&str) -> io::Result<()>) -> io::Result<()> {
        let (name, mut file) = self.open_temporary()?;
        let written = file.write_all(content);
        drop(file);
        written.and_then(|()| rename(&name)).inspect_err(|_| {
            unlinkat(self.dir, name.as_str(), UnlinkatFlags::NoRemoveDir).ok();
        })
    }

    fn open_temporary(&self) -> io::Result<(String, File)> {
        let (process, label) = (process::id(), shortened(self.label));
        let mut number = 0;
        loop {
            let name = format!("{PREFIX}.{process}.{number}.{label}");
            match open_in(self.dir, &name, OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL) {
                Err(e) if e.kind() == ErrorKind::AlreadyExists && number < TRIES => number += 1,
                opened => return Ok((name, opened?)),
            }
        }
    }
}

/// The end of a label, if it is too long for a name: names of attachments differ there.
fn shortened(label: &str) -> &str {
    let start = label.len().saturating_sub(LONGEST_NAME - BEFORE_LABEL);
    let start = (start..label.len()).find(|at| label.is_char_boundary(*at));
    start.and_then(|start| label.get(start..)).unwrap_or_default()
}

/// Whether a name is a temporary one.
pub fn is_temporary(name: &str) -> bool {
    name.starts_with(PREFIX)
}

/// The label of a temporary name, or its end if it is a long one.
pub fn label_of(temporary: &str) -> Option<&str> {
    temporary.strip_prefix(PREFIX)?.strip_prefix('.')?.splitn(3, '.').nth(2)
}

/// Removes what kills have left of files with a label, in a directory that may be missing.
///
/// # Errors
/// What the file system says.
pub fn remove_temporary(dir: &Path, label: &str) -> io::Result<()> {
    let entries = match fs::read_dir(dir) {
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let name = entry?.file_name();
        if name.to_str().and_then(label_of) == Some(shortened(label)) {
            match fs::remove_file(dir.join(name)) {
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

    /// Whatever has the temporary name: what a kill left, or a link of somebody else's.
    #[test]
    fn a_temporary_name_that_is_taken_is_left_alone() {
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
    fn what_a_kill_left_is_found_by_its_label() {
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
    }

    #[test]
    fn other_names_are_not_temporary() {
        for name in ["10.0.0.1", "fd00::1", "lock", "net-a-eth0", "x.new.1.0.b"] {
            assert!(!is_temporary(name) && label_of(name).is_none(), "{name}");
        }
        assert_eq!(label_of(".new"), None);
    }
}
