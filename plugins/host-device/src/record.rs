//! What a device was like in the host, kept on disk between ADD and DEL.

use std::fs;
use std::path::{Path, PathBuf};

use cni::backup::{self, Backup};
use cni::{Attachment, Code, Error, Gc, NetworkName, Result, Thing};
use iface::Namespace;
use netlink::Link;
use serde::{Deserialize, Serialize};

use crate::network::Network;

/// Where the files are, until the host is started anew: the devices are home then.
const DIRECTORY: &str = "/run/cni/host-device";

/// Kinds of physical devices: the others are of no kind, or virtual (`netns_refund` in the kernel).
const PHYSICAL: [&str; 2] = ["can", "dsa"];

/// A device before ADD.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Record {
    /// Its name in the host.
    pub device: String,
    /// The text for people that it had. Empty: none.
    pub alias: String,
    /// Whether it was up.
    pub up: bool,
    /// The bridge or bond that it was a port of.
    pub master: Option<String>,
    /// The addresses and routes that went with it.
    pub had: Network,
    mac: Option<String>,
    kind: Option<String>,
    bus_address: String,
    /// Whose attachment has it, for GC.
    network: String,
    /// Where it is then.
    pub netns: PathBuf,
}

impl Record {
    /// Of a device that an attachment is to have.
    ///
    /// # Errors
    /// If the kernel refuses to tell.
    pub fn new(host: &Namespace, device: &Link, network: &NetworkName, netns: &Path) -> Result<Self> {
        // An alias that is the name itself is what Debian's v1.1.1 leaves.
        let alias = if device.alias == device.name { String::new() } else { device.alias.clone() };
        Ok(Self {
            device: device.name.clone(),
            alias,
            up: device.up,
            master: host.nl.link_named_by(device.master)?.map(|master| master.name),
            network: network.as_str().to_owned(),
            netns: netns.to_owned(),
            ..Self::from_link(device)
        })
    }

    /// Of a device that was moved and of which nothing was kept: its alias is its name.
    pub fn from_link(link: &Link) -> Self {
        let device = if link.alias.is_empty() { &link.name } else { &link.alias };
        Self {
            device: device.clone(),
            mac: mac(link),
            kind: link.kind_name().map(str::to_owned),
            bus_address: link.bus_address.clone(),
            ..Self::default()
        }
    }

    /// Whether an interface is the device, whatever its name and alias are by now. Tunnels have nothing to be told by.
    pub fn fits(&self, link: &Link) -> bool {
        let is_known = self.mac.is_some() || !self.bus_address.is_empty();
        is_known
            && self.mac == mac(link)
            && self.kind.as_deref() == link.kind_name()
            && self.bus_address == link.bus_address
    }

    /// Whether the device dies with the container's namespace. A physical one is moved to the host by the kernel, a moment later.
    pub fn is_virtual(&self) -> bool {
        self.kind.as_deref().is_some_and(|kind| !PHYSICAL.contains(&kind))
    }

    /// Keeps it.
    ///
    /// # Errors
    /// Code 5: what failed on which file.
    pub fn save(&self, file: &Backup) -> Result<()> {
        file.write(&serde_json::to_vec_pretty(self)?)
    }

    /// Whether it is of a device that is in the host. The container may have given it another MAC.
    fn is_about(&self, name: &str, device: &Link) -> bool {
        let on_its_bus = !self.bus_address.is_empty() && self.bus_address == device.bus_address;
        self.device == name && (on_its_bus || self.fits(device))
    }

    /// Whether it is of an attachment to this network: of another one it may be that the same name was refused.
    pub fn is_of(&self, network: &NetworkName) -> bool {
        self.network == network.as_str()
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok().filter(|record: &Self| !record.device.is_empty())
    }
}

fn mac(link: &Link) -> Option<String> {
    link.address().map(|address| address.to_string())
}

/// The file of an attachment.
pub fn file(network: &NetworkName, at: &Attachment) -> Backup {
    Backup::of_one(Path::new(DIRECTORY), network, at)
}

/// What was kept for an attachment, if anything was: the reference keeps nothing.
///
/// # Errors
/// Code 5: what failed on which file.
pub fn load(file: &Backup) -> Result<Option<Record>> {
    // Behind something else in the directory's place there may be a record, which the next DEL can read.
    if fs::symlink_metadata(DIRECTORY).is_ok_and(|found| !found.is_dir()) {
        return Err(Error::new(Code::Io, format!("read records: {DIRECTORY} is not a directory")));
    }
    Ok(file.read()?.as_deref().and_then(Record::read))
}

/// What is kept of a device that is back in the host: its alias is its name. Its attachment is dead, or a DEL of it did not end.
pub fn of_device(device: &Link) -> Option<Record> {
    if device.alias.is_empty() {
        return None;
    }
    all().map(|(_, record)| record).find(|record| record.is_about(&device.alias, device))
}

/// Forgets what earlier attachments of a device kept, as it has a new one: theirs would take it out of that one's container.
///
/// # Errors
/// Code 5: what could not be removed.
pub fn remove_stale(device: &Link, but: &Backup) -> Result<()> {
    let mut earlier =
        all().filter(|(path, record)| *path != but.path() && record.is_about(&device.name, device));
    let remove = |path: PathBuf| {
        fs::remove_file(&path).map_err(|e| Error::io(format!("remove record {}", path.display()), &e))
    };
    earlier.try_for_each(|(path, _)| remove(path))
}

/// What is kept of all attachments. A record is no hidden file: that would be one that is being written.
fn all() -> impl Iterator<Item = (PathBuf, Record)> {
    let entries = fs::read_dir(DIRECTORY).into_iter().flatten().flatten();
    let files = entries.filter(|entry| entry.file_type().is_ok_and(|found| found.is_file()));
    let paths =
        files.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|it| it == "json"));
    paths.filter_map(|path| Some((path.clone(), Record::read(&fs::read(path).ok()?)?)))
}

/// GC: hands over what is kept for attachments of the network that are not valid any more, and forgets it if nothing is left to do.
///
/// # Errors
/// What the caller says; what could not be read or removed.
pub fn collect(call: &Gc, mut move_back: impl FnMut(&Record) -> Result<bool>) -> Result<()> {
    let of_network = |bytes: &[u8]| Record::read(bytes).filter(|record| record.is_of(&call.net.name));
    let describe = |bytes: &[u8]| Some(Thing::new("device", "").netns(&of_network(bytes)?.netns));
    backup::collect(Path::new(DIRECTORY), call, describe, |file, bytes| match of_network(bytes) {
        Some(record) if move_back(&record)? => file.remove(),
        _ => Ok(()),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use netlink::{LinkKind, Mac};

    use super::*;

    #[test]
    fn a_device_without_mac_and_bus_is_no_other_one_of_its_kind() {
        let tunnel = Link::default();
        assert!(!Record::from_link(&tunnel).fits(&tunnel));
        for known in [
            Link { mac: Some("02:00:00:00:00:07".parse::<Mac>().unwrap()), ..Link::default() },
            Link { bus_address: "0000:3b:02.5".to_owned(), ..Link::default() },
        ] {
            assert!(Record::from_link(&known).fits(&known) && !Record::from_link(&known).fits(&tunnel));
        }
    }

    #[test]
    fn the_kernel_sends_home_what_has_hardware() {
        let of = |kind: Option<&str>| {
            Record::from_link(&Link {
                kind: kind.map(|kind| LinkKind::Other(kind.to_owned())),
                ..Link::default()
            })
        };
        assert!([None, Some("can"), Some("dsa")].iter().all(|kind| !of(*kind).is_virtual()));
        assert!([Some("veth"), Some("vcan")].iter().all(|kind| of(*kind).is_virtual()));
    }
}
