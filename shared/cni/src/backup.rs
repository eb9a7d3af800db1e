//! Backup of a plugin for an attachment, on disk from ADD to DEL: one file, written atomically.

use std::collections::HashSet;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use system::file::{self, AtomicFile, label_of};

use crate::{Attachment, Error, Failures, Gc, NetworkName, Result, Scope, Thing};

/// Bytes of a file, most of them the path of a namespace, and some more.
const LARGEST: u64 = 64 << 10;

/// The file of an attachment.
#[derive(Clone, Debug)]
pub struct Backup {
    dir: PathBuf,
    name: String,
    /// The label of what is being written. It tells the network, so that GC knows whose it is after a kill.
    label: String,
}

impl Backup {
    /// That of an attachment, in a plugin's directory.
    pub fn new(dir: &Path, network: &NetworkName, at: &Attachment) -> Self {
        Self::named(dir, network, file_name(at, SHARED))
    }

    /// As [`Backup::new`], in a directory that no other suite writes to: no two attachments have one name there.
    pub fn of_one(dir: &Path, network: &NetworkName, at: &Attachment) -> Self {
        Self::named(dir, network, file_name(at, OWN))
    }

    fn named(dir: &Path, network: &NetworkName, name: String) -> Self {
        let label = format!("{}{name}", label_prefix(network));
        Self { dir: dir.to_owned(), name, label }
    }

    /// Its path.
    pub fn path(&self) -> PathBuf {
        self.dir.join(&self.name)
    }

    /// What was written, if anything was.
    ///
    /// # Errors
    /// Code 5: what failed on which file.
    pub fn read(&self) -> Result<Option<Vec<u8>>> {
        let path = self.path();
        let read = file::missing_is_fine(file::read_own(&path, LARGEST).map(Some));
        read.map_err(|e| Error::io(format!("read backup {}", path.display()), &e))
    }

    /// Writes it, over an earlier one.
    ///
    /// # Errors
    /// Code 5: what failed on which file.
    pub fn write(&self, bytes: &[u8]) -> Result<()> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&self.dir);
        let written = made.and_then(|()| {
            let dir = &File::open(&self.dir)?;
            AtomicFile { dir, name: &self.name, label: &self.label }.replace(bytes)
        });
        written.map_err(|e| Error::io(format!("write backup {}", self.path().display()), &e))
    }

    /// Removes the file, and unfinished files of killed processes next to it. A missing file is not an error.
    ///
    /// # Errors
    /// Code 5: what failed on which file.
    pub fn remove(&self) -> Result<()> {
        let mut failures = Failures::new();
        failures.note(remove(&self.path()));
        let removed = file::missing_is_fine(file::remove_temporary(&self.dir, &self.label));
        failures.note(removed.map_err(|e| Error::io(format!("remove files in {}", self.dir.display()), &e)));
        failures.into_result()
    }
}

/// Between the container's id and the interface's name, as the reference's tuning has it. Both names may have one, too.
const SHARED: char = '_';

/// The same, which no container's id has.
const OWN: char = '~';

/// Both names were checked, and neither has a slash in it.
fn file_name(at: &Attachment, separator: char) -> String {
    format!("{}{separator}{}.json", at.container, at.ifname)
}

fn remove(path: &Path) -> Result<()> {
    let removed = file::missing_is_fine(fs::remove_file(path));
    removed.map_err(|e| Error::io(format!("remove backup {}", path.display()), &e))
}

/// No name of a network has a `~` in it.
fn label_prefix(network: &NetworkName) -> String {
    format!("{network}~")
}

/// GC: hands over each file that the scope takes, with its content. `describe` says what a file is from its content; none
/// for a file of another network. Unfinished files of killed plugins are removed.
///
/// # Errors
/// What the caller says; code 5: what could not be read or removed.
pub fn collect(
    dir: &Path,
    call: &Gc,
    describe: impl Fn(&[u8]) -> Option<Thing>,
    mut remove_file: impl FnMut(&Backup, &[u8]) -> Result<()>,
) -> Result<()> {
    let failed = |e: &io::Error| Error::io(format!("list the backups in {}", dir.display()), e);
    let Some(entries) = file::missing_is_fine(fs::read_dir(dir).map(Some)).map_err(|e| failed(&e))? else {
        return Ok(());
    };
    let names = |at: &Attachment| [SHARED, OWN].map(|separator| file_name(at, separator));
    let valid: HashSet<String> = call.scope.valid().iter().flat_map(names).collect();
    let (mut failures, unfinished) = (Failures::new(), label_prefix(&call.net.name));
    for entry in entries {
        let Some(entry) = failures.note(entry.map_err(|e| failed(&e))) else { continue };
        let Ok(name) = entry.file_name().into_string() else { continue };
        if let Some(of) = label_of(&name).and_then(|label| label.strip_prefix(&unfinished)) {
            let unfinished = named(Thing::new("unfinished file", ""), of, &dir.join(&name));
            if takes(&call.scope, unfinished, of) {
                failures.note(remove(&dir.join(&name)));
            }
        } else if !name.starts_with('.') && !valid.contains(&name) {
            let backup = Backup::named(dir, &call.net.name, name);
            let Some(bytes) = failures.note(backup.read()).flatten() else { continue };
            let Some(thing) = describe(&bytes) else { continue };
            if takes(&call.scope, named(thing, &backup.name, &backup.path()), &backup.name) {
                failures.note(remove_file(&backup, &bytes));
            }
        }
    }
    failures.into_result()
}

/// With the path for a name, and the attachment, if the file's name tells it: containers and interfaces may have the separator
/// in their names.
fn named(thing: Thing, file: &str, path: &Path) -> Thing {
    let thing = Thing { name: path.display().to_string(), ..thing };
    let parts = file.strip_suffix(".json").unwrap_or(file);
    let separator = if parts.contains(OWN) { OWN } else { SHARED };
    match parts.split_once(separator) {
        Some((container, ifname)) if !ifname.contains(separator) => thing.of(container, ifname),
        _ => thing,
    }
}

fn takes(scope: &Scope, thing: Thing, file: &str) -> bool {
    if thing.container.is_empty() {
        return scope.takes_hashed(thing, |at| [SHARED, OWN].iter().any(|one| file_name(at, *one) == file));
    }
    scope.takes(thing)
}
