//! Finding the device in the host.

use std::fs;
use std::path::{Path, PathBuf};

use cni::{Error, IfName, Result};
use iface::Namespace;
use netlink::{HardwareAddress, Link};

use crate::conf::{By, PCI, Selector};
use crate::record::{self, Record};

/// Drivers that give a device to a program, not to the kernel's network.
const FOR_PROGRAMS: [&str; 3] = ["vfio-pci", "uio_pci_generic", "igb_uio"];

impl Selector {
    /// Finds the device for an ADD. One that is back from a container that died gets its name and its state again first.
    ///
    /// # Errors
    /// Code 7 if there is none, or several that it could be.
    pub fn find(&self, host: &Namespace, ifname: &IfName) -> Result<Link> {
        let pending = |link: &Link| record::of_device(link).or_else(|| self.returned(link, Some(ifname)));
        let found = match (self.link(host)?, &self.by) {
            (None, By::Name(name)) => {
                host.nl.links()?.into_iter().find(|link| link.alias == **name && pending(link).is_some())
            }
            (found, _) => found,
        };
        let link = found.ok_or_else(|| {
            Error::config(format!("{self}: no such interface is in the host's namespace"))
                .detail("it may be in another container; the DEL of that one, or its end, brings it back")
        })?;
        let Some(record) = pending(&link) else { return Ok(link) };
        record.restore(host, &link)?;
        let link = host.nl.link_by_index(link.index)?.unwrap_or(link);
        // As it is to be: the next record is made of this.
        Ok(Link { up: link.up || record.up, ..link })
    }

    /// Brings home a device without a record, as one that the reference moved. In the container it is CNI_IFNAME. If its record
    /// could not be read, its name stays as its alias in the host: a later DEL that can read the record restores the state.
    ///
    /// # Errors
    /// What the kernel refuses.
    pub fn move_back(
        &self,
        host: &Namespace,
        sandbox: Option<&Namespace>,
        ifname: Option<&IfName>,
        may_have_record: bool,
    ) -> Result<()> {
        if let (Some(sandbox), Some(ifname)) = (sandbox, ifname)
            && let Some(link) = sandbox.nl.link(ifname)?.filter(|link| self.is_in_container(link))
        {
            let record = Record::from_link(&link);
            return match may_have_record {
                true => record.move_from_container(host, Some(sandbox)),
                false => record.move_back(host, Some(sandbox)).map(drop),
            };
        }
        for link in host.nl.links()? {
            if let Some(record) = self.returned(&link, ifname) {
                record.restore(host, &link)?;
            }
        }
        Ok(())
    }

    /// Of an interface of the host: whether it is the device, and the kernel has put it there, as the container's namespace died. It is
    /// down then, and called `CNI_IFNAME` or `devN`. People's own aliases do not count. None for `ifname`: GC does not know it.
    fn returned(&self, link: &Link, ifname: Option<&IfName>) -> Option<Record> {
        let was_away = IfName::parse(&link.alias).is_ok() && link.alias != link.name;
        let number = link.name.strip_prefix("dev");
        let numbered = number.is_some_and(|n| !n.is_empty() && n.bytes().all(|digit| digit.is_ascii_digit()));
        let makeshift = numbered || ifname.map_or(!link.up, |ifname| **ifname == *link.name);
        let is_named = matches!(&self.by, By::Name(_));
        let is_it = was_away && makeshift && (is_named || !link.up) && self.is_back(link);
        is_it.then(|| Record::from_link(link))
    }

    /// Whether an interface that was moved, in whatever namespace and under whatever name, is the device.
    fn is_of(&self, link: &Link) -> bool {
        match &self.by {
            By::Name(name) => link.alias == **name,
            By::Address(address) => link.address().as_ref() == Some(address),
            By::Directory(_) => {
                let mut buses = self.buses().into_iter();
                buses.any(|bus| bus.file_name().is_some_and(|name| name == link.bus_address.as_str()))
            }
        }
    }

    /// As [`Selector::is_of`], of `CNI_IFNAME` in the container. Before Linux 5.14 the kernel does not tell a device's bus: there it is
    /// any physical one with an interface's name as its alias.
    fn is_in_container(&self, link: &Link) -> bool {
        let by_bus = matches!(self.by, By::Directory(_)) && link.bus_address.is_empty();
        self.is_of(link) || by_bus && link.kind.is_none() && IfName::parse(&link.alias).is_ok()
    }

    /// As [`Selector::is_of`], of an interface of the host. Where the kernel does not tell its bus, sysfs does.
    fn is_back(&self, link: &Link) -> bool {
        let shown = |bus: PathBuf| bus.join("net").join(&link.name).exists();
        self.is_of(link) || link.bus_address.is_empty() && self.buses().into_iter().any(shown)
    }

    fn link(&self, host: &Namespace) -> Result<Option<Link>> {
        match &self.by {
            By::Name(name) => Ok(host.nl.link(name)?),
            By::Address(address) => with_address(host, address),
            By::Directory(_) => {
                let mut names = self.buses().into_iter().flat_map(|bus| entries(&bus.join("net")));
                Ok(names.find_map(|name| host.nl.link(&name).transpose()).transpose()?)
            }
        }
    }

    /// The address of the PCI device, if a program has it: ADD moves nothing then.
    ///
    /// # Errors
    /// Code 7 if there is no such device, or it has no driver.
    pub fn device_of_a_program(&self) -> Result<Option<String>> {
        let Some(pci) = self.pci() else { return Ok(None) };
        let device = Path::new(PCI).join(&pci);
        if !device.exists() {
            return Err(Error::config(format!("{self}: this host has no such PCI device")));
        }
        let driver = fs::read_link(device.join("driver")).map_err(|_| {
            Error::config(format!("{self}: the device has no driver"))
                .detail("without one it has no interface; load the driver's module, or bind the device to it")
        })?;
        let has_it = |driver: &std::ffi::OsStr| FOR_PROGRAMS.iter().any(|name| driver == *name);
        Ok(driver.file_name().is_some_and(has_it).then_some(pci))
    }

    /// Its address on the PCI bus, if it is found by that.
    pub fn pci(&self) -> Option<String> {
        let directory = self.directory().filter(|directory| directory.parent() == Some(Path::new(PCI)))?;
        Some(directory.file_name()?.to_str()?.to_owned())
    }

    /// The device's directory in sysfs: the last one if there is none.
    fn directory(&self) -> Option<&PathBuf> {
        let By::Directory(all) = &self.by else { return None };
        all.iter().find(|directory| directory.exists()).or(all.last())
    }

    /// The device itself, and the virtio devices on it: those have the interface of a virtual machine's card.
    fn buses(&self) -> Vec<PathBuf> {
        let Some(device) = self.directory() else { return vec![] };
        let below = entries(device).into_iter().filter(|name| name.starts_with("virtio"));
        let below: Vec<PathBuf> = below.map(|name| device.join(name)).collect();
        [vec![device.clone()], below].concat()
    }
}

fn with_address(host: &Namespace, address: &HardwareAddress) -> Result<Option<Link>> {
    let has_it = |link: &Link| link.address().as_ref() == Some(address);
    let mut all: Vec<Link> = host.nl.links()?.into_iter().filter(has_it).collect();
    if all.len() > 1 {
        let names: Vec<&str> = all.iter().map(|link| link.name.as_str()).collect();
        return Err(Error::config(format!("hwaddr {address}: {} have it", names.join(", ")))
            .detail("bonds, VLANs and their ports share a MAC; name the interface with the key device"));
    }
    Ok(all.pop())
}

/// The names in a directory of sysfs, in order. None if it is not there.
fn entries(directory: &Path) -> Vec<String> {
    let listed = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<String> = listed.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use cni::AsWritten;
    use netlink::LinkKind;
    use serde_json::json;

    use super::*;
    use crate::conf::lenient_selector;

    #[test]
    fn without_its_bus_a_device_in_the_container_is_told_by_its_alias() {
        let document = cni::json::parse(json!({"pciBusID": "0000:3b:02.5"}).to_string().as_bytes(), "it");
        let selector = lenient_selector(&AsWritten::from(document.unwrap())).unwrap();
        let moved = Link { alias: "ens3".to_owned(), ..Link::default() };
        assert!(selector.is_in_container(&moved));
        for other in [
            Link { alias: String::new(), ..moved.clone() },
            Link { alias: "people's own words".to_owned(), ..moved.clone() },
            Link { kind: Some(LinkKind::Veth), ..moved.clone() },
            Link { bus_address: "0000:3b:02.6".to_owned(), ..moved.clone() },
        ] {
            assert!(!selector.is_in_container(&other), "{other:?}");
        }
    }
}
