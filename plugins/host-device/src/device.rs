//! Finding the device in the host.

use std::fs;
use std::path::{Path, PathBuf};

use cni::{Error, IfName, Result};
use iface::Namespace;
use netlink::{Link, Mac};

use crate::conf::Selector;
use crate::way_home::WayHome;

const PCI: &str = "/sys/bus/pci/devices";
const AUXILIARY: &str = "/sys/bus/auxiliary/devices";

/// Drivers that give a device to a program, not to the kernel's network.
const FOR_PROGRAMS: [&str; 3] = ["vfio-pci", "uio_pci_generic", "igb_uio"];

/// A device of the host.
#[derive(Debug)]
pub struct Device {
    /// Its interface. None: a program has the device itself.
    pub link: Option<Link>,
    /// Its address on the PCI bus, if it was found by that.
    pub pci: Option<String>,
}

impl Selector {
    /// Finds the device for an ADD. One that is back from a container that died gets its name again first.
    ///
    /// # Errors
    /// Code 7 if there is none, or several that it could be.
    pub fn find(&self, host: &Namespace, ifname: &IfName) -> Result<Device> {
        if let Some(pci) = self.device_of_a_program()? {
            return Ok(Device { link: None, pci: Some(pci) });
        }
        let home = WayHome { record: None, selector: Some(self.clone()), ifname: Some(ifname.clone()) };
        let link = match self.link(host)? {
            Some(link) if !home.is_back(&link) => Some(link),
            Some(link) => Some(home.settle_as_kept(host, link)?),
            None => home.returned(host)?.map(|link| home.settle_as_kept(host, link)).transpose()?,
        };
        let link = link.ok_or_else(|| {
            Error::config(format!("{self}: no such interface is in the host's namespace"))
                .detail("it may be in another container; the DEL of that one, or its end, brings it back")
        })?;
        Ok(Device { link: Some(link), pci: self.pci().map(str::to_owned) })
    }

    /// The address of the PCI device, if a program has it: ADD moves nothing then.
    ///
    /// # Errors
    /// Code 7 if there is no such device, or it has no driver.
    pub fn device_of_a_program(&self) -> Result<Option<String>> {
        let Some(pci) = self.pci() else { return Ok(None) };
        let device = Path::new(PCI).join(pci);
        if !device.exists() {
            return Err(Error::config(format!("{self}: this host has no such PCI device")));
        }
        let driver = fs::read_link(device.join("driver")).map_err(|_| {
            Error::config(format!("{self}: the device has no driver"))
                .detail("without one it has no interface; load the driver's module, or bind the device to it")
        })?;
        let programs =
            driver.file_name().is_some_and(|driver| FOR_PROGRAMS.iter().any(|name| driver == *name));
        Ok(programs.then(|| pci.to_owned()))
    }

    fn pci(&self) -> Option<&str> {
        match self {
            Self::Pci(address) => Some(address),
            Self::Id(id) if !Path::new(AUXILIARY).join(id).exists() => Some(id),
            _ => None,
        }
    }

    /// The device's directory in sysfs.
    fn directory(&self) -> Option<PathBuf> {
        match self {
            Self::Name(_) | Self::Mac(_) => None,
            Self::Path(path) => Some(path.clone()),
            Self::Pci(address) => Some(Path::new(PCI).join(address)),
            Self::Id(id) => Some(Path::new(self.pci().map_or(AUXILIARY, |_| PCI)).join(id)),
        }
    }

    fn link(&self, host: &Namespace) -> Result<Option<Link>> {
        match self {
            Self::Name(name) => Ok(host.nl.link(name)?),
            Self::Mac(mac) => with_mac(host, *mac),
            _ => {
                let directory = self.directory().unwrap_or_default();
                let names = buses(&directory).into_iter().flat_map(|bus| entries(&bus.join("net")));
                names
                    .map(|name| host.nl.link(&name))
                    .find_map(Result::transpose)
                    .transpose()
                    .map_err(Into::into)
            }
        }
    }

    /// Whether an interface, in whatever namespace and under whatever name, is one of the device.
    pub fn fits(&self, link: &Link) -> bool {
        match self {
            Self::Name(_) => false,
            Self::Mac(mac) => link.mac == Some(*mac),
            _ => self.directory().is_some_and(|directory| {
                let mut buses = buses(&directory).into_iter();
                buses.any(|bus| bus.file_name().is_some_and(|name| name == link.bus_address.as_str()))
            }),
        }
    }
}

impl std::fmt::Display for Selector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Id(id) => write!(f, "runtimeConfig.deviceID {id}"),
            Self::Name(name) => write!(f, "device {name}"),
            Self::Mac(mac) => write!(f, "hwaddr {mac}"),
            Self::Path(path) => write!(f, "kernelpath {}", path.display()),
            Self::Pci(address) => write!(f, "pciBusID {address}"),
        }
    }
}

fn with_mac(host: &Namespace, mac: Mac) -> Result<Option<Link>> {
    let mut all: Vec<Link> = host.nl.links()?.into_iter().filter(|link| link.mac == Some(mac)).collect();
    if all.len() > 1 {
        let names: Vec<&str> = all.iter().map(|link| link.name.as_str()).collect();
        return Err(Error::config(format!("hwaddr {mac}: {} have it", names.join(", ")))
            .detail("bonds, VLANs and their ports share a MAC; name the interface with the key device"));
    }
    Ok(all.pop())
}

/// The device itself, and the virtio devices on it: those have the interface of a virtual machine's card.
fn buses(device: &Path) -> Vec<PathBuf> {
    let below = entries(device).into_iter().filter(|name| name.starts_with("virtio"));
    let below: Vec<PathBuf> = below.map(|name| device.join(name)).collect();
    [vec![device.to_owned()], below].concat()
}

/// The names in a directory of sysfs, in order. None if it is not there.
fn entries(directory: &Path) -> Vec<String> {
    let listed = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<String> = listed.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}
