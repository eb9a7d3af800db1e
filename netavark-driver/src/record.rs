//! Files with the chains that the driver writes for `--opt type=`. `cnitool gc` reads them: if a setup is killed, it
//! leaves no result, and no other file of the host contains the network's configuration.

use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cni::{Error, NetworkName, Result, json};
use runtime::{Cache, Network as Chain, NetworkEntries, Runtime};
use system::file::{self, AtomicFile};

use crate::source::{Source, flat};

/// The directory below libcni's directory that `cnitool` reads.
const DIR: &str = "netavark";

/// Maximum number of attempts to lock the file. An attempt fails if another process deletes or replaces the file
/// meanwhile.
const TRIES: u32 = 100;

/// Timeout of a plugin that lists its resources.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A network's file. No teardown deletes the file until this is dropped.
#[derive(Debug)]
pub struct Record {
    _locked: File,
}

impl Record {
    /// Writes the chain of a network before its first ADD. `None`: the chain is in a file of the administrator.
    ///
    /// # Errors
    /// Code 5 if the file cannot be written.
    pub fn write(cache: &Cache, name: &NetworkName, source: &Source) -> Result<Option<Self>> {
        if source.file.is_some() {
            return Ok(None);
        }
        let path = path(cache, name);
        let written = write_and_lock(&path, source.text.as_bytes());
        let written = written.map_err(|e| Error::io(format!("write {}", path.display()), &e))?;
        Ok(Some(Self { _locked: written }))
    }
}

/// Whether the driver has written the chain of a network, which has containers or stale resources.
pub fn exists(cache: &Cache, name: &NetworkName) -> bool {
    path(cache, name).exists()
}

/// Deletes the file of a network that has neither containers nor resources on the host. Does nothing if the file does
/// not exist, or during a setup.
///
/// # Errors
/// Code 5 if the file cannot be deleted, or the cache cannot be read.
pub fn delete_unused(runtime: &Runtime, chain: &Chain) -> Result<()> {
    let path = path(runtime.results(), &chain.name);
    // NFS grants an exclusive lock only on a file that is open for writing (flock(2)).
    let Ok(locked) = file::open_own(File::options().read(true).write(true), &path) else { return Ok(()) };
    let is_still = || file::is_still(&locked, fs::symlink_metadata(&path)).unwrap_or(false);
    if locked.try_lock().is_err() || !is_still() || is_used(runtime, chain)? {
        return Ok(());
    }
    file::missing_is_fine(fs::remove_file(&path))
        .map_err(|e| Error::io(format!("delete {}", path.display()), &e))
}

/// Whether the network has containers, or resources of a killed setup that `cnitool gc` will remove.
fn is_used(runtime: &Runtime, chain: &Chain) -> Result<bool> {
    let NetworkEntries { entries, ambiguous, unreadable, .. } =
        runtime.results().of_network(&chain.name).map_err(|e| flat(&e))?;
    if !entries.is_empty() || !ambiguous.is_empty() || !unreadable.is_empty() {
        return Ok(true);
    }
    let listed = runtime.clone().timeout(TIMEOUT).survey(chain);
    Ok(listed.outcome.is_err() || !listed.resources.is_empty() || !listed.foreign.is_empty())
}

fn path(cache: &Cache, name: &NetworkName) -> PathBuf {
    cache.dir().join(DIR).join(format!("{name}.conflist"))
}

/// Locks the file. Several setups of the network may hold the lock, but not together with a teardown that deletes the
/// file.
fn write_and_lock(path: &Path, text: &[u8]) -> io::Result<File> {
    for _ in 0..TRIES {
        let locked = match open_or_write(path, text) {
            // A teardown has deleted the file meanwhile.
            Err(e) if e.kind() == ErrorKind::NotFound => continue,
            opened => opened?,
        };
        locked.lock_shared()?;
        if file::is_still(&locked, fs::symlink_metadata(path))? {
            return Ok(locked);
        }
    }
    Err(io::Error::other("other processes keep replacing it; find out which, and stop them"))
}

fn open_or_write(path: &Path, text: &[u8]) -> io::Result<File> {
    let known = file::missing_is_fine(file::read_own(path, json::MAX_BYTES).map(Some))?;
    if known.as_deref() != Some(text) {
        replace(path, text)?;
    }
    file::open_own(File::options().read(true), path)
}

fn replace(path: &Path, text: &[u8]) -> io::Result<()> {
    let (Some(dir), Some(name)) = (path.parent(), path.file_name().and_then(|name| name.to_str())) else {
        return Err(ErrorKind::InvalidInput.into());
    };
    // Only root may open a file in this directory, because any opener could hold the lock.
    DirBuilder::new().recursive(true).mode(0o755).create(dir.parent().unwrap_or(dir))?;
    match DirBuilder::new().mode(0o700).create(dir) {
        Err(e) if e.kind() != ErrorKind::AlreadyExists => return Err(e),
        _ => {}
    }
    AtomicFile { dir: &File::open(dir)?, name, label: name }.replace_for_all(text)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use super::*;

    const LIST: &str = r#"{"cniVersion": "1.1.0", "name": "n", "plugins": [{"type": "t"}]}"#;

    struct Host {
        dir: tempfile::TempDir,
        chain: Chain,
    }

    impl Host {
        fn new() -> Self {
            Self { dir: tempfile::tempdir().unwrap(), chain: Chain::from_bytes(LIST.as_bytes()).unwrap() }
        }

        fn cache(&self) -> Cache {
            Cache::new(self.dir.path().join("cni"))
        }

        fn file(&self) -> PathBuf {
            path(&self.cache(), &self.chain.name)
        }

        fn write(&self, text: &str) -> Result<Option<Record>> {
            let source =
                Source { file: None, text: text.to_owned(), chain: Chain::from_bytes(text.as_bytes()) };
            Record::write(&self.cache(), &self.chain.name, &source)
        }
    }

    #[test]
    fn the_file_is_written_whole_and_again_only_if_the_chain_has_changed() {
        let host = Host::new();
        let first = host.write(LIST).unwrap();
        let metadata = host.file().metadata().unwrap();
        assert_eq!(
            (fs::read_to_string(host.file()).unwrap(), metadata.mode() & 0o777),
            (LIST.to_owned(), 0o644)
        );
        let dir = host.file().parent().unwrap().metadata().unwrap();
        assert_eq!(dir.permissions().mode() & 0o777, 0o700);
        let second = host.write(LIST).unwrap();
        assert_eq!(host.file().metadata().unwrap().ino(), metadata.ino(), "two setups share it");
        drop((first, second));
        let other = LIST.replace('t', "u");
        host.write(&other).unwrap();
        assert_eq!(fs::read_to_string(host.file()).unwrap(), other);
        assert_eq!(fs::read_dir(host.file().parent().unwrap()).unwrap().count(), 1, "nothing temporary");
    }

    #[test]
    fn a_link_or_a_fifo_in_its_place_is_an_error() {
        let host = Host::new();
        drop(host.write(LIST).unwrap());
        fs::remove_file(host.file()).unwrap();
        let outside = host.dir.path().join("outside");
        fs::write(&outside, "text").unwrap();
        symlink(&outside, host.file()).unwrap();
        let error = host.write(LIST).unwrap_err();
        assert!(error.to_string().contains("not a regular file"), "{error}");
        assert_eq!(fs::read_to_string(&outside).unwrap(), "text");
    }

    #[test]
    fn only_an_unused_file_is_deleted() {
        let host = Host::new();
        let runtime = Runtime::new(["/no/such/directory"]).cache(host.cache());
        let record = host.write(LIST).unwrap();
        // The network's plugin is not installed, so it cannot list its resources.
        delete_unused(&runtime, &host.chain).unwrap();
        drop(record);
        delete_unused(&runtime, &host.chain).unwrap();
        assert!(host.file().exists());
        let alone = Chain::from_bytes(br#"{"cniVersion": "1.1.0", "name": "n"}"#).unwrap();
        let record = host.write(LIST).unwrap();
        delete_unused(&runtime, &alone).unwrap();
        assert!(host.file().exists(), "a setup is running");
        drop(record);
        let attach = runtime::AttachmentParameters::new("c", "eth0").unwrap();
        host.cache().write(&host.chain, &attach, &serde_json::json!({})).unwrap();
        delete_unused(&runtime, &alone).unwrap();
        assert!(host.file().exists(), "it has a container");
        host.cache().remove(&host.chain.name, &attach.attachment).unwrap();
        delete_unused(&runtime, &alone).unwrap();
        assert!(!host.file().exists());
    }
}
