//! The checked configuration. No I/O.

use std::fmt;
use std::path::{Component, Path, PathBuf};

use cni::{AsWritten, Error, LinkName, Result};
use iface::{InterfaceConf, MacKeys, Namespace, unicast_mac};
use netlink::{HardwareAddress, Link};
use serde::Deserialize;

use crate::network::Network;

/// Required prefix of `kernelpath`.
const DEVICES: &str = "/sys/devices";

/// Directory with the devices of the PCI bus.
pub const PCI: &str = "/sys/bus/pci/devices";

/// Directory with the devices of the auxiliary bus: parts of a PCI device.
const AUXILIARY: &str = "/sys/bus/auxiliary/devices";

/// Selects the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector {
    /// The key and its value as written, for messages.
    written: String,
    /// The parsed value.
    pub by: By,
}

/// Property that identifies the device. Names and paths are checked not to leave their directories.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum By {
    /// `device`: name or alternative name of the interface.
    Name(LinkName),
    /// `hwaddr`: hardware address.
    Address(HardwareAddress),
    /// `kernelpath`, `pciBusID` or `runtimeConfig.deviceID`: candidates for the device's directory in sysfs. The first existing one is
    /// used.
    Directory(Vec<PathBuf>),
}

impl Selector {
    fn new(key: &str, text: &str, by: By) -> Self {
        Self { written: format!("{key} {text}"), by }
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.written)
    }
}

/// The keys as written.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawConf {
    device: String,
    hwaddr: String,
    kernelpath: String,
    #[serde(rename = "pciBusID")]
    pci_bus_id: String,
    use_interface_network: bool,
    runtime_config: RawRuntime,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RawRuntime {
    #[serde(rename = "deviceID")]
    device_id: String,
}

impl RawConf {
    /// All configured selectors, in order of precedence. `deviceID` comes first: device plugins select devices by it, and Multus also sets
    /// `pciBusID`.
    fn selectors(&self) -> impl Iterator<Item = Result<Selector>> {
        type Read = fn(&str, &str) -> Result<By>;
        let keys: [(&str, &str, Read); 5] = [
            ("runtimeConfig.deviceID", &self.runtime_config.device_id, |key, text| {
                bus(key, text, &[AUXILIARY, PCI])
            }),
            ("device", &self.device, interface),
            ("hwaddr", &self.hwaddr, address),
            ("kernelpath", &self.kernelpath, kernel_path),
            ("pciBusID", &self.pci_bus_id, |key, text| bus(key, text, &[PCI])),
        ];
        let given = keys.into_iter().filter(|(_, text, _)| !text.is_empty());
        given.map(|(key, text, read)| Ok(Selector::new(key, text, read(key, text)?)))
    }
}

/// The checked configuration.
#[derive(Debug)]
pub struct Conf {
    /// `None` for STATUS, which has no `runtimeConfig`.
    selector: Option<Selector>,
    use_network: bool,
    /// Settings common to all interfaces. The MAC is the device's.
    pub interface: InterfaceConf,
}

impl Conf {
    /// The selector of the device.
    ///
    /// # Errors
    /// Code 7 if none is configured.
    pub fn selector(&self) -> Result<&Selector> {
        self.selector.as_ref().ok_or_else(|| {
            Error::config(r#"specify either "device", "hwaddr", "kernelpath" or "pciBusID""#)
                .detail("runtimeConfig.deviceID is missing, too: one of these keys must select the device")
        })
    }

    /// Addresses and routes to move with the device (`useInterfaceNetwork`). Empty without the key.
    ///
    /// # Errors
    /// If the kernel refuses to list addresses or routes.
    pub fn network(&self, host: &Namespace, device: &Link) -> Result<Network> {
        if self.use_network { Network::of(host, device) } else { Ok(Network::default()) }
    }

    /// Refuses `useInterfaceNetwork` for a device with a userspace driver.
    ///
    /// # Errors
    /// Code 7 if the key is set.
    pub fn refuse_network(&self) -> Result<()> {
        if !self.use_network {
            return Ok(());
        }
        Err(Error::config(
            "useInterfaceNetwork: the device has a userspace driver, so it has no addresses and routes; remove the key",
        ))
    }
}

impl TryFrom<AsWritten> for Conf {
    type Error = Error;

    fn try_from(document: AsWritten) -> Result<Self> {
        let raw: RawConf = document.decode()?;
        let selectors = raw.selectors().collect::<Result<Vec<_>>>()?;
        let interface = InterfaceConf::read(&document, MacKeys::None)?;
        let use_network = raw.use_interface_network;
        Ok(Self { selector: selectors.into_iter().next(), use_network, interface })
    }
}

/// The selector for DEL and GC, as far as the configuration is readable.
pub fn lenient_selector(document: &AsWritten) -> Option<Selector> {
    let text = |keys: &[&str]| document.key(keys).unwrap_or_default();
    let raw = RawConf {
        device: text(&["device"]),
        hwaddr: text(&["hwaddr"]),
        kernelpath: text(&["kernelpath"]),
        pci_bus_id: text(&["pciBusID"]),
        runtime_config: RawRuntime { device_id: text(&["runtimeConfig", "deviceID"]) },
        ..RawConf::default()
    };
    raw.selectors().find_map(Result::ok)
}

fn interface(key: &str, text: &str) -> Result<By> {
    LinkName::parse(text).map(By::Name).map_err(|e| Error::config(format!("{key} {e}")))
}

fn address(key: &str, text: &str) -> Result<By> {
    let address = match HardwareAddress::infiniband(text) {
        Some(address) => address,
        None => unicast_mac(key, text)?.into(),
    };
    Ok(By::Address(address))
}

/// Parses an address on a bus, which is the name of a directory.
fn bus(key: &str, text: &str, buses: &[&str]) -> Result<By> {
    let wrong = text.contains(['/', '\0']) || matches!(text, "." | "..");
    if wrong {
        return Err(Error::config(format!("{key} {text:?} is not an address such as 0000:00:1f.6")));
    }
    Ok(By::Directory(buses.iter().map(|bus| Path::new(bus).join(text)).collect()))
}

fn kernel_path(key: &str, text: &str) -> Result<By> {
    let path = PathBuf::from(text);
    let climbs = path.components().any(|part| part == Component::ParentDir);
    if climbs || text.contains('\0') || !path.starts_with(DEVICES) {
        return Err(Error::config(format!("{key} {text:?} is not a path below {DEVICES}, without \"..\"")));
    }
    Ok(By::Directory(vec![path]))
}
