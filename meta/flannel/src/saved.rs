//! State for DEL: the other plugin's configuration. Name and content of the file are the reference's, so each suite deletes the other's
//! attachments.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use cni::backup::remove;
use cni::{Attachment, ContainerId, Error, Failures, Gc, IfName, NetworkName, Resource, Result, json};
use runtime::ConfDir;
use serde_json::Value;
use system::file::{self, AtomicFile, label_of};

use crate::document::{is_of, name_of};

/// Not allowed in names of containers and networks.
const SEPARATOR: char = '@';

/// The key with the attachment's interface. The reference writes no such key, and ignores it.
const IFNAME: &str = "ferrule.ifname";

/// The saved configuration of an attachment, in `CONTAINERID`, or, if another interface of the container uses that file, in
/// `CONTAINERID@NETWORK@IFNAME`.
#[derive(Clone, Debug)]
pub struct Saved {
    dir: PathBuf,
    network: NetworkName,
    ifname: IfName,
    plain: String,
    own: String,
}

impl Saved {
    /// The file of an attachment.
    pub fn new(dir: &Path, network: &NetworkName, at: &Attachment) -> Self {
        let own = format!("{}{SEPARATOR}{network}{SEPARATOR}{}", at.container, at.ifname);
        let (plain, ifname) = (at.container.to_string(), at.ifname.clone());
        Self { dir: dir.to_owned(), network: network.clone(), ifname, plain, own }
    }

    /// Reads the file. `None` if it does not exist or is not JSON.
    ///
    /// # Errors
    /// Code 5 if it cannot be read.
    pub fn read(&self) -> Result<Option<Value>> {
        let own = self.document(&self.own)?;
        let found = if own == SavedFile::Nothing { self.document(&self.plain)? } else { own };
        Ok(match found {
            SavedFile::Document(mut document) if self.is_ours(&document) => {
                take_ifname(&mut document);
                Some(document)
            }
            _ => None,
        })
    }

    /// Writes the file, over an earlier one of the attachment.
    ///
    /// # Errors
    /// Code 5 if it cannot be written. It may exist nevertheless.
    pub fn write(&self, document: &Value) -> Result<()> {
        let mut document = document.clone();
        document[IFNAME] = self.ifname.as_str().into();
        let bytes = document.to_string();
        let failed = |name: &str, e: &io::Error| Error::io(format!("write {}", self.path(name).display()), e);
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.dir)
            .map_err(|e| Error::io(format!("create dataDir {}", self.dir.display()), &e))?;
        let dir = file::open_directory(&self.dir)
            .map_err(|e| Error::io(format!("open dataDir {}", self.dir.display()), &e))?;
        let file =
            |name| AtomicFile { dir: &dir, name, label: &self.label(name) }.replace_on_disk(bytes.as_bytes());
        let label = self.label(&self.plain);
        let plain = AtomicFile { dir: &dir, name: &self.plain, label: &label };
        if self.document(&self.own)? == SavedFile::Nothing {
            // Of two concurrent interfaces, the first gets the plain name.
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

    /// Deletes the file and temporary files of killed processes. Succeeds if it does not exist.
    ///
    /// # Errors
    /// Code 5 if it cannot be deleted.
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

    /// The network may have been renamed since the ADD. If a network with the earlier name is still configured, the file is an attachment's of
    /// that network. The reference's files do not name the interface.
    fn is_ours(&self, document: &Value) -> bool {
        let is_of_network = is_of(document, &self.network);
        match document[IFNAME].as_str() {
            Some(ifname) => *ifname == *self.ifname && (is_of_network || !is_configured(document)),
            None => is_of_network,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Label of the temporary file. It contains the network, for GC.
    fn label(&self, name: &str) -> String {
        format!("{}~{name}", self.network)
    }
}

/// Whether the host has a network with the document's name.
fn is_configured(document: &Value) -> bool {
    name_of(document).is_some_and(|name| ConfDir::new(ConfDir::DEFAULT).find(name).is_ok())
}

/// Content of a file.
#[derive(Debug, PartialEq, Eq)]
enum SavedFile {
    Nothing,
    Document(Value),
    /// Not JSON: the reference writes in place, and the host crashed.
    Garbage,
}

/// Removes the interface from a saved document. The rest is the other plugin's configuration.
fn take_ifname(document: &mut Value) -> Option<String> {
    match document.as_object_mut()?.remove(IFNAME)? {
        Value::String(ifname) => Some(ifname),
        _ => None,
    }
}

fn read(path: &Path) -> Result<SavedFile> {
    let read = file::missing_is_fine(file::read_own(path, json::MAX_BYTES).map(Some));
    let read = read.map_err(|e| Error::io(format!("read {}", path.display()), &e))?;
    let Some(bytes) = read else { return Ok(SavedFile::Nothing) };
    let document = json::parse(&bytes, "it").ok().filter(|document| document["type"].is_string());
    Ok(document.map_or(SavedFile::Garbage, SavedFile::Document))
}

/// GC: passes the saved configurations of the network's invalid attachments to `is_collected`, and deletes those for which it returns true.
/// Also deletes temporary files of killed processes.
///
/// # Errors
/// Errors of `is_collected`; code 5 if a file cannot be read or deleted.
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
            if should_delete(of, "", &entry.path(), call) {
                failures.note(remove(&entry.path()));
            }
        } else if !name.starts_with('.') {
            let Some(SavedFile::Document(mut document)) = failures.note(read(&entry.path())) else {
                continue;
            };
            if !is_of(&document, &call.net.name) {
                continue;
            }
            let ifname = take_ifname(&mut document).unwrap_or_default();
            let is_taken = should_delete(&name, &ifname, &entry.path(), call);
            // A dry run also lists what the other plugin would delete.
            let is_due = is_taken || call.scope.is_dry();
            if is_due && failures.note(is_collected(document)) == Some(true) && is_taken {
                failures.note(remove(&entry.path()));
            }
        }
    }
    failures.into_result()
}

/// Whether GC deletes the file. `ifname` is empty if only the container is known.
fn should_delete(name: &str, ifname: &str, path: &Path, call: &Gc) -> bool {
    let mut parts = name.splitn(3, SEPARATOR);
    let container = parts.next().unwrap_or_default();
    if ContainerId::parse(container).is_err() {
        return false;
    }
    let file = Resource::new("saved network of flannel", path.display().to_string());
    match (parts.next(), parts.next()) {
        (None, _) => call.scope.should_delete(file.of(container, ifname)),
        (Some(network), Some(ifname)) if network == &*call.net.name && IfName::parse(ifname).is_ok() => {
            call.scope.should_delete(file.of(container, ifname))
        }
        _ => false,
    }
}
