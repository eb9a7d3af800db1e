//! What DEL needs to know of an ADD: the configuration that the other plugin got. It is in a file of the reference's
//! name and form, so that either's DEL can delete what the other has attached.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use cni::{Attachment, ContainerId, Error, Failures, Gc, IfName, NetworkName, Result, Thing, json};
use serde_json::Value;
use system::file::{self, AtomicFile, label_of};

use crate::document::is_of;

/// No container and no network has it in its name.
const SEPARATOR: char = '@';

/// What is saved of an attachment, in `CONTAINERID`; where another network of the container has that already, in
/// `CONTAINERID@NETWORK@IFNAME`.
#[derive(Clone, Debug)]
pub struct Saved {
    dir: PathBuf,
    network: NetworkName,
    plain: String,
    own: String,
}

impl Saved {
    /// That of an attachment, in the directory of all.
    pub fn new(dir: &Path, network: &NetworkName, at: &Attachment) -> Self {
        let own = format!("{}{SEPARATOR}{network}{SEPARATOR}{}", at.container, at.ifname);
        Self { dir: dir.to_owned(), network: network.clone(), plain: at.container.to_string(), own }
    }

    /// The document that was saved, if it is one. None: it is lost, or there was none.
    ///
    /// # Errors
    /// Code 5: what failed on which file.
    pub fn read(&self) -> Result<Option<Value>> {
        let own = self.document(&self.own)?;
        let found = if own == SavedFile::Nothing { self.document(&self.plain)? } else { own };
        Ok(match found {
            SavedFile::Document(document) if self.is_ours(&document) => Some(document),
            _ => None,
        })
    }

    /// Writes it, over an earlier one of the attachment.
    ///
    /// # Errors
    /// Code 5 if the file cannot be written. It may exist nevertheless.
    pub fn write(&self, document: &Value) -> Result<()> {
        let bytes = document.to_string();
        let failed = |name: &str, e: &io::Error| Error::io(format!("write {}", self.path(name).display()), e);
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.dir)
            .map_err(|e| Error::io(format!("create dataDir {}", self.dir.display()), &e))?;
        let dir = File::open(&self.dir)
            .map_err(|e| Error::io(format!("open dataDir {}", self.dir.display()), &e))?;
        let file =
            |name| AtomicFile { dir: &dir, name, label: &self.label(name) }.replace_on_disk(bytes.as_bytes());
        let label = self.label(&self.plain);
        let plain = AtomicFile { dir: &dir, name: &self.plain, label: &label };
        if self.document(&self.own)? == SavedFile::Nothing {
            // The first process gets the plain name, also if two run concurrently.
            if plain.create_on_disk(bytes.as_bytes()).map_err(|e| failed(&self.plain, &e))? {
                return Ok(());
            }
            match self.document(&self.plain)? {
                SavedFile::Document(other) if !self.is_ours(&other) => {}
                _ => return file(&self.plain).map_err(|e| failed(&self.plain, &e)),
            }
        }
        file(&self.own).map_err(|e| failed(&self.own, &e))
    }

    /// Removes the file, and unfinished files of killed processes next to it. A missing file is not an error.
    ///
    /// # Errors
    /// Code 5: what failed on which file.
    pub fn remove(&self) -> Result<()> {
        let mut failures = Failures::new();
        failures.note(remove(&self.path(&self.own)));
        match failures.note(self.document(&self.plain)) {
            Some(SavedFile::Document(other)) if !self.is_ours(&other) => {}
            Some(SavedFile::Document(_) | SavedFile::Garbage) => {
                failures.note(remove(&self.path(&self.plain)));
            }
            Some(SavedFile::Nothing) | None => {}
        }
        for name in [&self.plain, &self.own] {
            let removed = file::missing_is_fine(file::remove_temporary(&self.dir, &self.label(name)));
            failures
                .note(removed.map_err(|e| Error::io(format!("remove files in {}", self.dir.display()), &e)));
        }
        failures.into_result()
    }

    fn document(&self, name: &str) -> Result<SavedFile> {
        read(&self.path(name))
    }

    fn is_ours(&self, document: &Value) -> bool {
        is_of(document, &self.network)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// The label of what is being written. It tells the network, so that GC knows whose it is after a kill.
    fn label(&self, name: &str) -> String {
        format!("{}~{name}", self.network)
    }
}

/// What is in a file's place.
#[derive(Debug, PartialEq, Eq)]
enum SavedFile {
    Nothing,
    Document(Value),
    /// What a crash of the machine has left of the reference's, which does not write it as a whole.
    Garbage,
}

fn read(path: &Path) -> Result<SavedFile> {
    let read = file::missing_is_fine(file::read_own(path, json::MAX_BYTES).map(Some));
    let read = read.map_err(|e| Error::io(format!("read {}", path.display()), &e))?;
    let Some(bytes) = read else { return Ok(SavedFile::Nothing) };
    let document = json::parse(&bytes, "it").ok().filter(|document| document["type"].is_string());
    Ok(document.map_or(SavedFile::Garbage, SavedFile::Document))
}

fn remove(path: &Path) -> Result<()> {
    let removed = file::missing_is_fine(fs::remove_file(path));
    removed.map_err(|e| Error::io(format!("remove {}", path.display()), &e))
}

/// GC: hands over what was saved of each attachment of the network that is not among the valid ones. The file goes if that is said of
/// it, and so does what kills have left.
///
/// # Errors
/// What the caller says; code 5: what could not be read or removed.
pub fn collect(dir: &Path, call: &Gc, mut is_collected: impl FnMut(Value) -> Result<bool>) -> Result<()> {
    let failed = |e: &io::Error| Error::io(format!("list dataDir {}", dir.display()), e);
    let Some(entries) = file::missing_is_fine(fs::read_dir(dir).map(Some)).map_err(|e| failed(&e))? else {
        return Ok(());
    };
    let (mut failures, unfinished) = (Failures::new(), format!("{}~", call.net.name));
    for entry in entries {
        let Some(entry) = failures.note(entry.map_err(|e| failed(&e))) else { continue };
        let Ok(name) = entry.file_name().into_string() else { continue };
        if let Some(of) = label_of(&name).and_then(|label| label.strip_prefix(&unfinished)) {
            if takes(of, &entry.path(), call) {
                failures.note(remove(&entry.path()));
            }
        } else if !name.starts_with('.') {
            let Some(SavedFile::Document(document)) = failures.note(read(&entry.path())) else { continue };
            if !is_of(&document, &call.net.name) {
                continue;
            }
            let is_taken = takes(&name, &entry.path(), call);
            // A dry run lists what the other plugin has, too.
            let is_due = is_taken || call.scope.is_dry();
            if is_due && failures.note(is_collected(document)) == Some(true) && is_taken {
                failures.note(remove(&entry.path()));
            }
        }
    }
    failures.into_result()
}

/// Whether GC removes the file with a name.
fn takes(name: &str, path: &Path, call: &Gc) -> bool {
    let mut parts = name.splitn(3, SEPARATOR);
    let container = parts.next().unwrap_or_default();
    if ContainerId::parse(container).is_err() {
        return false;
    }
    let file = Thing::new("saved network of flannel", path.display().to_string());
    match (parts.next(), parts.next()) {
        (None, _) => call.scope.takes(file.of(container, "")),
        (Some(network), Some(ifname)) if network == &*call.net.name && IfName::parse(ifname).is_ok() => {
            call.scope.takes(file.of(container, ifname))
        }
        _ => false,
    }
}
