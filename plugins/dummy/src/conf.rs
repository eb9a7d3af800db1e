//! The checked configuration. No I/O.

use cni::{AsWritten, Error, Result};
use iface::conf;
use iface::{InterfaceConf, MacKeys};

/// The checked configuration.
#[derive(Debug)]
pub struct Conf {
    /// `mtu`, in bytes. `None`: the kernel's default, 1500.
    pub mtu: Option<u32>,
    /// Settings common to all interfaces.
    pub interface: InterfaceConf,
}

impl TryFrom<AsWritten> for Conf {
    type Error = Error;

    fn try_from(document: AsWritten) -> Result<Self> {
        Ok(Self { mtu: conf::mtu(&document)?, interface: InterfaceConf::read(&document, MacKeys::All)? })
    }
}
