//! An attachment's sources in firewalld's zones, stored on disk between ADD and DEL.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use cni::backup::{self, Backup};
use cni::{Attachment, Gc, NetworkName, Resource, Result};
use serde::{Deserialize, Serialize};

use super::Zone;

/// The directory of the files. It is emptied by a reboot, after which firewalld's zones have no sources either.
const DIRECTORY: &str = "/run/cni/firewalld";

/// The sources of one attachment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Record {
    zone: String,
    sources: Vec<String>,
    /// The network of the attachment, for GC.
    network: String,
}

impl Record {
    pub(super) fn new(network: &NetworkName, zone: &Zone) -> Self {
        Self { zone: zone.name.clone(), sources: zone.sources.clone(), network: network.as_str().to_owned() }
    }

    /// The zone with the sources.
    pub(super) fn zone(&self) -> Zone {
        Zone { name: self.zone.clone(), sources: self.sources.clone() }
    }

    /// Whether it belongs to an attachment of this network. ADD for another network may have failed because the
    /// interface existed.
    pub(super) fn is_of(&self, network: &NetworkName) -> bool {
        self.network == network.as_str()
    }

    /// Writes the record.
    pub(super) fn save(&self, file: &Backup) -> Result<()> {
        file.write(&serde_json::to_vec_pretty(self)?)
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok().filter(|record: &Self| !record.zone.is_empty())
    }
}

/// The file of an attachment.
pub(super) fn file(network: &NetworkName, at: &Attachment) -> Backup {
    Backup::of_one(Path::new(DIRECTORY), network, at)
}

/// The record of an attachment. The reference writes none.
///
/// # Errors
/// Code 5 if the file cannot be read.
pub(super) fn load(file: &Backup) -> Result<Option<Record>> {
    Ok(file.read_in_directory()?.as_deref().and_then(Record::read))
}

/// Whether no attachment has sources.
pub(super) fn are_none() -> bool {
    fs::read_dir(DIRECTORY).is_ok_and(|mut entries| entries.next().is_none())
        || fs::symlink_metadata(DIRECTORY).is_err_and(|e| e.kind() == std::io::ErrorKind::NotFound)
}

/// The sources of all attachments but one.
///
/// # Errors
/// Code 5 if a record cannot be read: a container may still need its sources.
pub(super) fn sources_of_others(but: &Backup) -> Result<BTreeSet<String>> {
    let files = backup::all(Path::new(DIRECTORY))?.into_iter().filter(|(path, _)| *path != but.path());
    Ok(files.filter_map(|(_, bytes)| Record::read(&bytes)).flat_map(|record| record.sources).collect())
}

/// GC: passes the sources of the network's invalid attachments to `withdraw`.
///
/// # Errors
/// Errors of `withdraw`, and of files that cannot be read or removed.
pub(super) fn stale(call: &Gc, mut withdraw: impl FnMut(&Backup, &Zone) -> Result<()>) -> Result<()> {
    let of_network = |bytes: &[u8]| Record::read(bytes).filter(|record| record.is_of(&call.net.name));
    let describe = |bytes: &[u8]| of_network(bytes).map(|_| Resource::new("sources in a firewalld zone", ""));
    backup::collect(Path::new(DIRECTORY), call, describe, |file, bytes| {
        of_network(bytes).map_or(Ok(()), |record| withdraw(file, &record.zone()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_records_are_read_again_and_other_files_are_ignored() {
        let zone = Zone::new("trusted", ["10.1.2.2".parse().unwrap()]);
        let record = Record::new(&NetworkName::parse("net").unwrap(), &zone);
        assert_eq!(Record::read(&serde_json::to_vec(&record).unwrap()).unwrap().zone(), zone);
        for other in ["", "{}", "[]", "null", r#"{"zone": 1}"#, r#"{"sources": ["10.1.2.2/32"]}"#] {
            assert_eq!(Record::read(other.as_bytes()), None, "{other}");
        }
    }
}
