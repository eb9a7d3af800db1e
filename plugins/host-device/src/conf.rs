//! The configuration as checked. No I/O.

use std::path::{Component, PathBuf};

use cni::{AsWritten, Error, IfName, Result};
use iface::{InterfaceConf, unicast_mac};
use netlink::Mac;
use serde::Deserialize;

/// Where `kernelpath` must be.
const DEVICES: &str = "/sys/devices";

/// By what the device is found. Names and paths cannot leave their directories.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selector {
    /// `runtimeConfig.deviceID`: the name of a device on the PCI bus or the auxiliary one.
    Id(String),
    /// `device`: the interface's name.
    Name(IfName),
    /// `hwaddr`: its MAC.
    Mac(Mac),
    /// `kernelpath`: below /sys/devices.
    Path(PathBuf),
    /// `pciBusID`: an address on the PCI bus.
    Pci(String),
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
    enabledad: bool,
    accept_ra: Option<bool>,
    runtime_config: RawRuntime,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RawRuntime {
    #[serde(rename = "deviceID")]
    device_id: String,
}

impl RawConf {
    /// All that are given, the first one counts: device plugins hand out devices by `deviceID`, and Multus writes `pciBusID` beside it.
    fn selectors(&self) -> impl Iterator<Item = Result<Selector>> {
        type Read = fn(&str, &str) -> Result<Selector>;
        let ways: [(&str, &str, Read); 5] = [
            ("runtimeConfig.deviceID", &self.runtime_config.device_id, |key, text| {
                bus_address(key, text).map(Selector::Id)
            }),
            ("device", &self.device, |key, text| {
                IfName::parse(text).map(Selector::Name).map_err(|e| Error::config(format!("{key} {e}")))
            }),
            ("hwaddr", &self.hwaddr, |key, text| unicast_mac(key, text).map(Selector::Mac)),
            ("kernelpath", &self.kernelpath, |key, text| kernel_path(key, text).map(Selector::Path)),
            ("pciBusID", &self.pci_bus_id, |key, text| bus_address(key, text).map(Selector::Pci)),
        ];
        ways.into_iter().filter(|(_, text, _)| !text.is_empty()).map(|(key, text, read)| read(key, text))
    }
}

/// The configuration as checked.
#[derive(Debug)]
pub struct Conf {
    /// None: STATUS has no `runtimeConfig`.
    selector: Option<Selector>,
    /// What every interface has. The MAC is the device's.
    pub interface: InterfaceConf,
}

impl Conf {
    /// By what the device is found.
    ///
    /// # Errors
    /// Code 7 if the configuration does not say it.
    pub fn selector(&self) -> Result<&Selector> {
        self.selector.as_ref().ok_or_else(|| {
            Error::config("device, hwaddr, kernelpath, pciBusID and runtimeConfig.deviceID are all missing")
                .detail("one of them must say which device to move")
        })
    }
}

impl TryFrom<AsWritten> for Conf {
    type Error = Error;

    fn try_from(document: AsWritten) -> Result<Self> {
        let raw: RawConf = document.decode()?;
        let selectors = raw.selectors().collect::<Result<Vec<_>>>()?;
        let mut interface = InterfaceConf::default();
        (interface.enable_dad, interface.accept_ra) = (raw.enabledad, raw.accept_ra);
        Ok(Self { selector: selectors.into_iter().next(), interface })
    }
}

/// By what DEL and GC may find the device, as far as the configuration can be read.
pub fn lenient_selector(document: &AsWritten) -> Option<Selector> {
    let text = |keys: &[&str]| document.key::<String>(keys).unwrap_or_default();
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

/// A device's address on its bus, which is the name of a directory.
fn bus_address(key: &str, text: &str) -> Result<String> {
    let wrong = text.contains(['/', '\0']) || matches!(text, "." | "..");
    if wrong {
        return Err(Error::config(format!("{key} {text:?} is not an address such as 0000:00:1f.6")));
    }
    Ok(text.to_owned())
}

fn kernel_path(key: &str, text: &str) -> Result<PathBuf> {
    let path = PathBuf::from(text);
    let climbs = path.components().any(|part| part == Component::ParentDir);
    if climbs || text.contains('\0') || !path.starts_with(DEVICES) {
        return Err(Error::config(format!("{key} {text:?} is not a path below {DEVICES}, without \"..\"")));
    }
    Ok(path)
}
