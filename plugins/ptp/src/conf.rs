//! The configuration. No I/O.

use cni::{AsWritten, Error, IfName, Result};
use iface::conf::{self, VethMtu};
use iface::{InterfaceConf, MacKeys};
use netfilter::MasqueradeConf;
use serde::Deserialize;

/// The keys that only this plugin has, as written.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawConf {
    proxy_arp: bool,
}

/// The checked configuration.
#[derive(Debug)]
pub struct Conf {
    /// Settings of the container's interface.
    pub interface: InterfaceConf,
    /// MTU of both ends.
    pub mtu: VethMtu,
    /// Masquerade of packets that leave the container's subnet.
    pub masquerade: MasqueradeConf,
    /// Name of the host's end. `None`: derived from the attachment.
    pub host_interface: Option<IfName>,
    /// Whether the host's end answers the container's ARP requests for addresses that the host reaches through other interfaces.
    pub proxy_arp: bool,
}

impl TryFrom<AsWritten> for Conf {
    type Error = Error;

    fn try_from(document: AsWritten) -> Result<Self> {
        let raw: RawConf = document.decode()?;
        Ok(Self {
            interface: InterfaceConf::read(&document, MacKeys::All)?,
            mtu: VethMtu::read(&document)?,
            masquerade: MasqueradeConf::read(&document)?,
            host_interface: conf::host_interface(&document)?,
            proxy_arp: raw.proxy_arp,
        })
    }
}
