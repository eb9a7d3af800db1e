//! The configuration. No I/O.

use cni::{AsWritten, Error, Result};
use iface::conf::VethMtu;
use iface::{InterfaceConf, MacKeys};
use netfilter::MasqueradeConf;

/// The checked configuration.
#[derive(Debug)]
pub struct Conf {
    /// Settings of the container's interface.
    pub interface: InterfaceConf,
    /// MTU of both ends.
    pub mtu: VethMtu,
    /// Masquerade of packets that leave the container's subnet.
    pub masquerade: MasqueradeConf,
}

impl TryFrom<AsWritten> for Conf {
    type Error = Error;

    fn try_from(document: AsWritten) -> Result<Self> {
        Ok(Self {
            interface: InterfaceConf::read(&document, MacKeys::All)?,
            mtu: VethMtu::read(&document)?,
            masquerade: MasqueradeConf::read(&document)?,
        })
    }
}
