//! What a device was like in the host, kept on disk between ADD and DEL.

use std::fs;
use std::path::{Path, PathBuf};

use cni::backup::{self, Backup};
use cni::{Attachment, Code, Error, Gc, NetworkName, Result, Undo};
use iface::Namespace;
use netlink::Link;
use serde::{Deserialize, Serialize};

/// Where the files are, until the host is started anew: the devices are home then.
const DIRECTORY: &str = "/run/cni/host-device";

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
    mac: Option<String>,
    kind: Option<String>,
    bus_address: String,
    /// Whose attachment has it, for GC, and where.
    network: String,
    netns: PathBuf,
}

impl Record {
    /// Of a device that an attachment is to have.
    pub fn new(device: &Link, network: &NetworkName, netns: &Path) -> Self {
        // An alias that is the name itself is what Debian's v1.1.1 leaves.
        let alias = if device.alias == device.name { String::new() } else { device.alias.clone() };
        Self {
            device: device.name.clone(),
            alias,
            up: device.up,
            mac: mac(device),
            kind: device.kind_name().map(str::to_owned),
            bus_address: device.bus_address.clone(),
            network: network.as_str().to_owned(),
            netns: netns.to_owned(),
        }
    }

    /// Whether an interface is the device, whatever its name and alias are by now.
    pub fn fits(&self, link: &Link) -> bool {
        self.mac == mac(link)
            && self.kind.as_deref() == link.kind_name()
            && self.bus_address == link.bus_address
    }

    /// Whether the device dies with the container's namespace. A physical one is moved to the host by the kernel, a moment later.
    pub fn is_virtual(&self) -> bool {
        self.kind.is_some()
    }

    /// Keeps it.
    ///
    /// # Errors
    /// Code 5: what failed on which file.
    pub fn save(&self, at: &Attachment, network: &NetworkName, undo: &mut Undo) -> Result<()> {
        let file = file(network, at);
        file.write(&serde_json::to_vec_pretty(self)?)?;
        undo.push(move || file.remove());
        Ok(())
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
    link.mac.map(|mac| mac.to_string())
}

/// The file of an attachment.
pub fn file(network: &NetworkName, at: &Attachment) -> Backup {
    Backup::new(Path::new(DIRECTORY), network, at)
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

/// GC: hands over what is kept for attachments of the network that are not valid any more, with the container's namespace if that is
/// still there, and forgets it.
///
/// # Errors
/// What the caller says; what could not be read or removed.
pub fn collect(
    call: &Gc,
    mut bring_home: impl FnMut(Record, Option<&Namespace>) -> Result<()>,
) -> Result<()> {
    let held = call.valid.iter().map(|at| load(&file(&call.net.name, at)));
    let held = held.filter_map(Result::transpose).collect::<Result<Vec<Record>>>()?;
    backup::collect(Path::new(DIRECTORY), call, |file, bytes| {
        let own = Record::read(bytes).filter(|record| record.is_of(&call.net.name));
        let Some(record) = own else { return Ok(()) };
        // A valid attachment may have it by now, where this one had it: processes' numbers come again.
        if !held.iter().any(|other| (&other.device, &other.netns) == (&record.device, &record.netns)) {
            let sandbox = Namespace::open_if_present(Some(&record.netns))?;
            bring_home(record, sandbox.as_ref())?;
        }
        file.remove()
    })
}
