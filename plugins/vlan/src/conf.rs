//! The checked configuration. No I/O.

use cni::{AsWritten, Error, Result};
use iface::stacked::StackedConf;
use iface::{conf, verify};
use netlink::{Link, LinkKind, VlanProtocol};
use serde::Deserialize;

/// Highest VLAN id; 4095 is reserved (IEEE 802.1Q, table 9-2).
const HIGHEST: u32 = 4094;

/// Supported tags. The first is the default.
const PROTOCOLS: [VlanProtocol; 2] = [VlanProtocol::Customer, VlanProtocol::Provider];

/// The plugin's own keys as written.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawConf {
    vlan_id: Option<u32>,
    protocol: String,
}

/// The checked configuration.
#[derive(Clone, Debug)]
pub struct Conf {
    /// Keys about the interface and its master.
    pub stacked: StackedConf,
    /// `vlanId`. 0 is a priority tag only.
    pub id: u16,
    /// `protocol`: kind of tag.
    pub protocol: VlanProtocol,
}

impl Conf {
    /// The kind of link to create.
    pub fn kind(&self) -> LinkKind {
        LinkKind::Vlan { id: self.id, protocol: self.protocol }
    }

    /// CHECK: compares a link with the configuration.
    ///
    /// # Errors
    /// If something differs.
    pub fn verify(&self, link: &Link) -> Result<()> {
        let Some(LinkKind::Vlan { id, protocol }) = link.kind else {
            return verify::of_kind(link, self.kind().name());
        };
        verify::same(link, "vlanId", self.id, id)?;
        verify::same(link, "protocol", self.protocol, protocol)
    }
}

impl TryFrom<AsWritten> for Conf {
    type Error = Error;

    fn try_from(document: AsWritten) -> Result<Self> {
        let raw: RawConf = document.decode()?;
        let mut stacked = StackedConf::read(&document)?;
        stacked.parent.or_default_route = false;
        Ok(Self {
            stacked,
            id: id(raw.vlan_id)?,
            protocol: conf::one_of("protocol", &raw.protocol, &PROTOCOLS)?,
        })
    }
}

fn id(written: Option<u32>) -> Result<u16> {
    match written.map(|id| (id, u16::try_from(id))) {
        Some((id, Ok(number))) if id <= HIGHEST => Ok(number),
        Some((id, _)) => Err(Error::config(format!("vlanId {id} is out of range, 0 to {HIGHEST}"))),
        None => Err(Error::config("vlanId is missing").detail(
            "set vlanId to a number from 1 to 4094; 0 means frames that are tagged with a priority only",
        )),
    }
}
