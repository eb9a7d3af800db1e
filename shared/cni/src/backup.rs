//! State of an attachment on disk between ADD and DEL: one file, written atomically.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use system::file::{self, AtomicFile, label_of};

use crate::{Attachment, Code, Error, Failures, Gc, NetworkName, Resource, Result, Scope};

/// Maximum size in bytes: enough for the tens of thousands of routes that host-device may move with a device. Most files
/// have less than a kilobyte.
const LARGEST: u64 = 16 << 20;

/// The file of an attachment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backup {
    dir: PathBuf,
    name: String,
    /// Label of the temporary file. It contains the network, for GC.
    label: String,
}

impl Backup {
    /// The file of an attachment in a plugin's directory, with the reference's name. If another attachment's file may have this name, it is the
    /// one of [`Backup::of_one`].
    pub fn new(dir: &Path, network: &NetworkName, at: &Attachment) -> Self {
        let shared = Self::of_reference(dir, network, at);
        if shared.is_ambiguous() { Self::of_one(dir, network, at) } else { shared }
    }

    /// The file with the reference's name.
    pub fn of_reference(dir: &Path, network: &NetworkName, at: &Attachment) -> Self {
        Self::named(dir, network, file_name(at, SHARED))
    }

    /// Whether several attachments have this file: `a` with `b_c` and `a_b` with `c`.
    fn is_ambiguous(&self) -> bool {
        self.name.matches(SHARED).count() > 1 || self.name.contains(OWN)
    }

    /// Like [`Backup::new`], in a directory that only Ferrule uses: the names of two attachments never coincide.
    pub fn of_one(dir: &Path, network: &NetworkName, at: &Attachment) -> Self {
        Self::named(dir, network, file_name(at, OWN))
    }

    fn named(dir: &Path, network: &NetworkName, name: String) -> Self {
        let label = format!("{}{name}", label_prefix(network));
        Self { dir: dir.to_owned(), name, label }
    }

    /// Path of the file.
    pub fn path(&self) -> PathBuf {
        self.dir.join(&self.name)
    }

    /// Reads the file. `None` if it does not exist.
    ///
    /// # Errors
    /// Code 5 if it cannot be read.
    pub fn read(&self) -> Result<Option<Vec<u8>>> {
        let path = self.path();
        let read = file::missing_is_fine(file::read_own(&path, LARGEST).map(Some));
        read.map_err(|e| Error::io(format!("read backup {}", path.display()), &e))
    }

    /// Like [`Backup::read`], but fails if the directory was replaced by another file: a later DEL may find a backup.
    ///
    /// # Errors
    /// Code 5 if the directory is none, or the file cannot be read.
    pub fn read_in_directory(&self) -> Result<Option<Vec<u8>>> {
        if fs::symlink_metadata(&self.dir).is_ok_and(|found| !found.is_dir()) {
            let text = format!("read backups: {} is not a directory", self.dir.display());
            return Err(Error::new(Code::Io, text));
        }
        self.read()
    }

    /// Writes the file, over an existing one.
    ///
    /// # Errors
    /// Code 5 if it cannot be written, or would be too large to be read.
    pub fn write(&self, bytes: &[u8]) -> Result<()> {
        if bytes.len() as u64 > LARGEST {
            let text =
                format!("write backup {}: it would be larger than {LARGEST} bytes", self.path().display());
            return Err(Error::new(Code::Io, text));
        }
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&self.dir);
        let written = made.and_then(|()| {
            let dir = &file::open_directory(&self.dir)?;
            AtomicFile { dir, name: &self.name, label: &self.label }.replace(bytes)
        });
        written.map_err(|e| Error::io(format!("write backup {}", self.path().display()), &e))
    }

    /// Deletes the file and temporary files of killed processes. Succeeds if it does not exist.
    ///
    /// # Errors
    /// Code 5 if it cannot be deleted.
    pub fn remove(&self) -> Result<()> {
        let mut failures = Failures::new();
        failures.note(remove(&self.path()));
        let removed = file::missing_is_fine(file::remove_temporary(&self.dir, &self.label));
        failures.note(removed.map_err(|e| Error::io(format!("remove files in {}", self.dir.display()), &e)));
        failures.into_result()
    }
}

/// Separator between container id and interface, as in the reference's tuning. Both names may contain it: see [`Backup::new`].
const SHARED: char = '_';

/// Separator that container ids cannot contain.
const OWN: char = '~';

/// Both names were checked and contain no slash.
fn file_name(at: &Attachment, separator: char) -> String {
    format!("{}{separator}{}.json", at.container, at.ifname)
}

/// Deletes a backup. Succeeds if it does not exist.
///
/// # Errors
/// Code 5 if it cannot be deleted.
pub fn remove(path: &Path) -> Result<()> {
    let removed = file::missing_is_fine(fs::remove_file(path));
    removed.map_err(|e| Error::io(format!("remove backup {}", path.display()), &e))
}

/// Names of networks cannot contain `~`.
fn label_prefix(network: &NetworkName) -> String {
    format!("{network}~")
}

/// The files of a directory with their content, without hidden ones, which are still being written. Ignores links, other kinds of files, and
/// files that are too large: no plugin has written them.
///
/// # Errors
/// Code 5 if the directory or a file cannot be read.
pub fn all(dir: &Path) -> Result<Vec<(PathBuf, Vec<u8>)>> {
    // The directory is closed before a file is opened: a process at the limit of its descriptors has only one.
    let names: io::Result<Vec<OsString>> = file::missing_is_fine(fs::read_dir(dir).map(Some))
        .and_then(|entries| entries.into_iter().flatten().map(|entry| Ok(entry?.file_name())).collect());
    let mut files = Vec::new();
    for name in names.map_err(|e| listing_failed(dir, &e))? {
        let path = dir.join(&name);
        if name.as_encoded_bytes().starts_with(b".") || path.extension().is_none_or(|it| it != "json") {
            continue;
        }
        match file::missing_is_fine(file::read_own(&path, LARGEST).map(Some)) {
            Ok(bytes) => files.extend(bytes.map(|bytes| (path, bytes))),
            Err(e) if file::is_irregular(&e) || e.kind() == io::ErrorKind::FileTooLarge => {}
            Err(e) => return Err(Error::io(format!("read {}", path.display()), &e)),
        }
    }
    Ok(files)
}

fn listing_failed(dir: &Path, cause: &io::Error) -> Error {
    Error::io(format!("list the backups in {}", dir.display()), cause)
}

/// GC: passes each file in the scope, with its content, to the caller. `describe` returns what a file is, and `None` for a file of another
/// network. Temporary files of killed plugins are deleted.
///
/// # Errors
/// Errors of the caller; code 5 if a file cannot be read or deleted.
pub fn collect(
    dir: &Path,
    call: &Gc,
    describe: impl Fn(&[u8]) -> Option<Resource>,
    mut remove_file: impl FnMut(&Backup, &[u8]) -> Result<()>,
) -> Result<()> {
    let entries = file::missing_is_fine(fs::read_dir(dir).map(Some));
    let Some(entries) = entries.map_err(|e| listing_failed(dir, &e))? else { return Ok(()) };
    let names = |at: &Attachment| [SHARED, OWN].map(|separator| file_name(at, separator));
    let valid: HashSet<String> = call.scope.valid().iter().flat_map(names).collect();
    let (mut failures, unfinished) = (Failures::new(), label_prefix(&call.net.name));
    for entry in entries {
        let Some(entry) = failures.note(entry.map_err(|e| listing_failed(dir, &e))) else { continue };
        let Ok(name) = entry.file_name().into_string() else { continue };
        if let Some(of) = label_of(&name).and_then(|label| label.strip_prefix(&unfinished)) {
            let unfinished = named(Resource::new("unfinished file", ""), of, &dir.join(&name));
            if should_delete(&call.scope, unfinished, of) {
                failures.note(remove(&dir.join(&name)));
            }
        } else if !name.starts_with('.') && !valid.contains(&name) {
            let backup = Backup::named(dir, &call.net.name, name);
            let Some(bytes) = failures.note(backup.read()).flatten() else { continue };
            let Some(resource) = describe(&bytes) else { continue };
            if should_delete(&call.scope, named(resource, &backup.name, &backup.path()), &backup.name) {
                failures.note(remove_file(&backup, &bytes));
            }
        }
    }
    failures.into_result()
}

/// Adds the path as name, and the attachment if the file name identifies it: containers and interfaces may contain the separator.
fn named(resource: Resource, file: &str, path: &Path) -> Resource {
    let resource = Resource { name: path.display().to_string(), ..resource };
    let parts = file.strip_suffix(".json").unwrap_or(file);
    let separator = if parts.contains(OWN) { OWN } else { SHARED };
    match parts.split_once(separator) {
        Some((container, ifname)) if !ifname.contains(separator) => resource.of(container, ifname),
        _ => resource,
    }
}

fn should_delete(scope: &Scope, resource: Resource, file: &str) -> bool {
    if resource.container.is_empty() {
        return scope.should_delete_hashed(resource, |at| {
            [SHARED, OWN].iter().any(|one| file_name(at, *one) == file)
        });
    }
    scope.should_delete(resource)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ContainerId, IfName};

    #[test]
    fn the_files_of_two_attachments_never_have_one_name() {
        let network = NetworkName::parse("net").unwrap();
        let name = |container: &str, ifname: &str| {
            let container = ContainerId::parse(container).unwrap();
            let at = Attachment { container, ifname: IfName::parse(ifname).unwrap() };
            Backup::new(Path::new("/x"), &network, &at).name
        };
        assert_eq!(name("a", "eth0"), "a_eth0.json");
        let names =
            [name("a", "b_c"), name("a_b", "c"), name("a", "b~c"), name("a_b", "c~d"), name("a", "b_c~d")];
        assert_eq!(names.iter().collect::<HashSet<_>>().len(), names.len(), "{names:?}");
    }

    #[test]
    fn a_file_that_is_too_large_is_neither_written_nor_an_obstacle_to_others() {
        let dir = tempfile::tempdir().unwrap();
        let network = NetworkName::parse("net").unwrap();
        let backup = |container: &str| {
            let container = ContainerId::parse(container).unwrap();
            let at = Attachment { container, ifname: IfName::parse("eth0").unwrap() };
            Backup::of_one(dir.path(), &network, &at)
        };
        let too_large = backup("large").write(&vec![b' '; LARGEST as usize + 1]).unwrap_err();
        assert!(too_large.msg().contains("large~eth0.json"), "{too_large}");
        assert!(all(dir.path()).unwrap().is_empty());
        backup("small").write(b"{}").unwrap();
        fs::File::create(backup("large").path()).unwrap().set_len(LARGEST + 1).unwrap();
        let files = all(dir.path()).unwrap();
        assert_eq!(files, [(backup("small").path(), b"{}".to_vec())]);
    }
}
