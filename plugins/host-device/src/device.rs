//! Finding the device on the host.

use std::fs;
use std::path::{Path, PathBuf};

use cni::{Error, IfName, Interface, Result};
use iface::{Namespace, host_end, ownership};
use netlink::{HardwareAddress, Link};

use crate::conf::{By, PCI, Selector};
use crate::record::{self, Record};

/// Userspace drivers, whose devices have no network interface.
const USERSPACE_DRIVERS: [&str; 3] = ["vfio-pci", "uio_pci_generic", "igb_uio"];

impl Selector {
    /// Finds the device for an ADD. If the kernel moved it back when a container's namespace was destroyed, its name and state are restored
    /// first. `records` are those of all attachments.
    ///
    /// # Errors
    /// Code 7 if it does not exist, if several interfaces match, or if it is a loopback interface.
    pub fn find(&self, host: &Namespace, ifname: &IfName, records: &[Record]) -> Result<Link> {
        let pending = |link: &Link| {
            record::of_device(records, link).cloned().or_else(|| self.returned(link, Some(ifname)))
        };
        let mut found = self.link(host)?;
        if let (None, By::Name(name)) = (&found, &self.by) {
            let mut links = host.nl.links()?.into_iter();
            found = links.find(|link| pending(link).is_some_and(|record| record.device == **name));
        }
        let link = found.ok_or_else(|| {
            Error::config(format!("{self}: no such interface is in the host's namespace"))
                .detail("it may be in another container: run DEL of that container to move it back")
        })?;
        if link.loopback {
            return Err(Error::config(format!(
                "{self}: a loopback interface cannot be moved to another namespace"
            ))
            .detail("select another device of the host"));
        }
        let Some(record) = pending(&link) else { return Ok(link) };
        record.restore(host, &link)?;
        let link = host.nl.link_by_index(link.index)?.unwrap_or(link);
        // The state to which the device will be restored, for the next record.
        Ok(Link { up: link.up || record.up, ..link })
    }

    /// Moves back a device without a record, for example after the reference's ADD. In the container it is CNI_IFNAME. If its record could
    /// not be read, its name on the host stays as its alias, for a later DEL that can read the record.
    ///
    /// `listed` is CNI_IFNAME in the result of ADD. The interface may then be the device even if the selector does not find it: the container
    /// may have changed the MAC, and an administrator the configuration. Otherwise, it may be another network's.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn move_back(
        &self,
        host: &Namespace,
        sandbox: Option<&Namespace>,
        ifname: Option<&IfName>,
        listed: Option<&Interface>,
        may_have_record: bool,
    ) -> Result<()> {
        if let (Some(sandbox), Some(ifname)) = (sandbox, ifname)
            && let Some(link) = sandbox.nl.link(ifname)?
            && (self.is_in_container(&link) && !self.is_home(host, &link)
                || listed.map_or(Ok(false), |listed| was_moved(host, sandbox, &link, listed))?)
        {
            let record = Record::from_link(&link);
            record.move_out(sandbox, &link, host)?;
            return if may_have_record { Ok(()) } else { record.move_back(host, None).map(drop) };
        }
        let records = record::all()?;
        for link in host.nl.links()? {
            let recorded = self.recorded(&records, &link).cloned();
            if let Some(record) = recorded.or_else(|| self.returned(&link, ifname)) {
                record.restore(host, &link)?;
            }
        }
        Ok(())
    }

    /// The record of another attachment, whose DEL comes later, if the interface of the host is its device, moved by the kernel.
    fn recorded<'a>(&self, records: &'a [Record], link: &Link) -> Option<&'a Record> {
        let record = record::of_device(records, link).filter(|record| record.device != link.name)?;
        let is_selected = match &self.by {
            By::Name(name) => record.device == **name,
            By::Address(_) | By::Directory(_) => self.is_on_host(link),
        };
        is_selected.then_some(record)
    }

    /// A record for an interface of the host if it is the device, moved by the kernel when the container's namespace was destroyed, and no
    /// record exists. It is then a physical one, down and named `CNI_IFNAME` or `devN`. Aliases of administrators do not match: only the key
    /// `device` says which alias the device has. With another key, an interface of the name `CNI_IFNAME` may be an administrator's, and GC,
    /// which comes without an attachment, does not change any. `ifname` is `None` for GC.
    fn returned(&self, link: &Link, ifname: Option<&IfName>) -> Option<Record> {
        let record = Record::from_link(link);
        let was_away = IfName::parse(&link.alias).is_ok() && link.alias != link.name && !record.is_virtual();
        let number = link.name.strip_prefix("dev");
        let numbered = number.is_some_and(|n| !n.is_empty() && n.bytes().all(|digit| digit.is_ascii_digit()));
        let is_named = matches!(&self.by, By::Name(_));
        let makeshift = numbered || is_named && ifname.is_some_and(|ifname| **ifname == *link.name);
        let is_likely = is_named || ifname.is_some() && !link.up;
        (was_away && makeshift && is_likely && self.is_on_host(link)).then_some(record)
    }

    /// Whether an interface that was moved, in any namespace and under any name, is the device.
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

    /// Like [`Selector::is_of`], for `CNI_IFNAME` in the container. A device keeps its alternative names there. Before Linux 5.14 the kernel
    /// does not report a device's bus address; then any physical interface whose alias is an interface name matches.
    fn is_in_container(&self, link: &Link) -> bool {
        let by_alt_name =
            matches!(&self.by, By::Name(name) if link.alt_names.iter().any(|alt| *alt == **name));
        let by_bus = matches!(self.by, By::Directory(_)) && link.bus_address.is_empty();
        let has_name_as_alias = IfName::parse(&link.alias).is_ok();
        !link.loopback
            && (self.is_of(link) || by_alt_name || by_bus && link.kind.is_none() && has_name_as_alias)
    }

    /// Like [`Selector::is_of`], for an interface on the host. If the kernel does not report its bus address, sysfs does.
    fn is_on_host(&self, link: &Link) -> bool {
        let shown = |bus: PathBuf| bus.join("net").join(&link.name).exists();
        self.is_of(link) || link.bus_address.is_empty() && self.buses().into_iter().any(shown)
    }

    /// Whether the host has the device, so that an interface of the container with its alias or MAC is the container's own.
    fn is_home(&self, host: &Namespace, other: &Link) -> bool {
        self.link(host).ok().flatten().is_some_and(|found| may_be_containers(other, &found))
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

    /// PCI address of a device with a userspace driver. ADD then moves nothing.
    ///
    /// # Errors
    /// Code 7 if the device does not exist or has no driver.
    pub fn userspace_device(&self) -> Result<Option<String>> {
        let Some(pci) = self.pci() else { return Ok(None) };
        let device = Path::new(PCI).join(&pci);
        if !device.exists() {
            return Err(Error::config(format!("{self}: this host has no such PCI device")));
        }
        let driver = fs::read_link(device.join("driver")).map_err(|_| {
            Error::config(format!("{self}: the device has no driver"))
                .detail("without one it has no interface; load the driver's module, or bind the device to it")
        })?;
        let has_it = |driver: &std::ffi::OsStr| USERSPACE_DRIVERS.iter().any(|name| driver == *name);
        Ok(driver.file_name().is_some_and(has_it).then_some(pci))
    }

    /// PCI address, if the device is selected by it.
    pub fn pci(&self) -> Option<String> {
        let directory = self.directory().filter(|directory| directory.parent() == Some(Path::new(PCI)))?;
        Some(directory.file_name()?.to_str()?.to_owned())
    }

    /// The device's directory in sysfs, or the last candidate if none exists.
    fn directory(&self) -> Option<&PathBuf> {
        let By::Directory(all) = &self.by else { return None };
        all.iter().find(|directory| directory.exists()).or(all.last())
    }

    /// The device, and the virtio devices on it, which have the interface of a virtual machine's card.
    fn buses(&self) -> Vec<PathBuf> {
        let Some(device) = self.directory() else { return vec![] };
        let below = entries(device).into_iter().filter(|name| name.starts_with("virtio"));
        let below: Vec<PathBuf> = below.map(|name| device.join(name)).collect();
        [vec![device.clone()], below].concat()
    }
}

/// Whether the container may have created an interface with the alias or MAC of `found`, which the selector finds on the host. It cannot
/// create physical interfaces. If the kinds differ, `found` has only the name of the device.
fn may_be_containers(link: &Link, found: &Link) -> bool {
    Record::from_link(link).is_virtual() && link.kind_name() == found.kind_name()
}

/// Whether a container's interface was moved from the host: its alias is its name there, and the host has no interface of that name.
///
/// The container can create a virtual interface and choose its alias. So this must be a veth whose other end is on the host and is not
/// Ferrule's, or have the MAC in the result of ADD, which no interface of its kind on the host has. The result for a device with a userspace
/// driver has no MAC.
fn was_moved(host: &Namespace, sandbox: &Namespace, link: &Link, listed: &Interface) -> Result<bool> {
    if IfName::parse(&link.alias).is_err() || host.nl.link(&link.alias)?.is_some() {
        return Ok(false);
    }
    let record = Record::from_link(link);
    if !record.is_virtual() {
        return Ok(true);
    }
    if listed.mac.is_none() {
        return Ok(false);
    }
    if let Some(end) = host_end::find(host, sandbox, link)? {
        return Ok(!ownership::is_owned(&end));
    }
    Ok(record.mac == listed.mac && !host.nl.links()?.iter().any(|other| record.matches_link(other)))
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

/// Names in a directory of sysfs, sorted. Empty if it does not exist.
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
    fn a_card_in_the_container_is_not_its_own_although_a_new_card_of_the_host_has_its_name() {
        let of = |kind: Option<&str>| Link {
            kind: kind.map(|kind| LinkKind::Other(kind.to_owned())),
            ..Link::default()
        };
        for (kind, on_host, expected) in [
            (None, None, false),
            (Some("can"), Some("can"), false),
            (Some("veth"), Some("veth"), true),
            (Some("veth"), None, false),
        ] {
            assert_eq!(may_be_containers(&of(kind), &of(on_host)), expected, "{kind:?}");
        }
    }

    fn selector(keys: &serde_json::Value) -> Selector {
        let document = cni::json::parse(keys.to_string().as_bytes(), "it");
        lenient_selector(&AsWritten::from(document.unwrap())).unwrap()
    }

    #[test]
    fn without_a_record_only_a_physical_device_that_the_kernel_has_named_has_returned() {
        let ifname = IfName::parse("eth0").unwrap();
        let [by_name, by_bus] =
            [json!({"device": "ens3"}), json!({"pciBusID": "0000:3b:02.5"})].map(|keys| selector(&keys));
        let moved = Link {
            name: "dev7".to_owned(),
            alias: "ens3".to_owned(),
            bus_address: "0000:3b:02.5".to_owned(),
            ..Link::default()
        };
        let named = Link { name: "eth0".to_owned(), ..moved.clone() };
        let storage = Link { alias: "storage".to_owned(), ..moved.clone() };
        let veth = Link { kind: Some(LinkKind::Veth), ..moved.clone() };
        // GC has no CNI_IFNAME.
        for (selector, link, by_del, by_gc) in [
            (&by_name, &moved, true, true),
            (&by_name, &named, true, false),
            (&by_name, &storage, false, false),
            (&by_name, &veth, false, false),
            (&by_bus, &moved, true, false),
            (&by_bus, &named, false, false),
            (&by_bus, &veth, false, false),
        ] {
            assert_eq!(selector.returned(link, Some(&ifname)).is_some(), by_del, "{selector} {link:?}");
            assert_eq!(selector.returned(link, None).is_some(), by_gc, "{selector} {link:?}");
        }
        assert_eq!(by_name.returned(&moved, None).unwrap().device, "ens3");
    }

    /// As before Linux 5.14, which does not report a device's bus address.
    #[test]
    fn without_a_bus_address_a_device_on_the_host_is_found_through_sysfs() {
        let device = std::env::temp_dir().join(format!("host-device-{}", std::process::id()));
        fs::create_dir_all(device.join("virtio3/net/dev7")).unwrap();
        let mut selector = selector(&json!({"device": "it"}));
        selector.by = By::Directory(vec![device.clone()]);
        let link = |name: &str| Link { name: name.to_owned(), ..Link::default() };
        let found = ["dev7", "dev8"].map(|name| selector.is_on_host(&link(name)));
        fs::remove_dir_all(device).unwrap();
        assert_eq!(found, [true, false]);
    }

    #[test]
    fn without_a_bus_address_a_device_in_the_container_is_found_by_its_alias() {
        let selector = selector(&json!({"pciBusID": "0000:3b:02.5"}));
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
