//! The configuration: keys that ptp shares with others. No I/O.

use cni::{AsWritten, Error, Result};
use iface::InterfaceConf;
use iface::conf::VethMtu;
use netfilter::MasqueradeConf;

/// The configuration as checked.
#[derive(Debug)]
pub struct Conf {
    /// What the container's interface is to be.
    pub interface: InterfaceConf,
    /// For both ends of the pair.
    pub mtu: VethMtu,
    /// What leaves the container's subnet leaves with the host's address.
    pub masquerade: MasqueradeConf,
}

impl TryFrom<AsWritten> for Conf {
    type Error = Error;

    fn try_from(document: AsWritten) -> Result<Self> {
        Ok(Self {
            interface: InterfaceConf::read(&document)?,
            mtu: VethMtu::read(&document)?,
            masquerade: MasqueradeConf::read(&document)?,
        })
    }
}
