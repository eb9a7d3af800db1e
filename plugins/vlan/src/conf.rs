//! The configuration as checked. No I/O.

use cni::{AsWritten, Error, Result};
use iface::parent::ParentConf;
use iface::{InterfaceConf, conf, verify};
use netlink::{Link, LinkKind, VlanProtocol};
use serde::Deserialize;

/// The highest id; 4095 is reserved (IEEE 802.1Q, table 9-2).
const HIGHEST: u32 = 4094;

/// The tags that a configuration may ask for; without the key it is the first one.
const PROTOCOLS: [VlanProtocol; 2] = [VlanProtocol::Customer, VlanProtocol::Provider];

/// The plugin's own keys as written.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawConf {
    vlan_id: Option<u32>,
    protocol: String,
}

/// The configuration as checked.
#[derive(Clone, Debug)]
pub struct Conf {
    /// The link that carries the VLAN.
    pub parent: ParentConf,
    /// `vlanId`. 0 is a tag that has a priority only.
    pub id: u16,
    /// `protocol`: the kind of tag.
    pub protocol: VlanProtocol,
    /// `mtu`, in bytes. None: the parent's.
    pub mtu: Option<u32>,
    /// What every interface has.
    pub interface: InterfaceConf,
}

impl Conf {
    /// What to make.
    pub fn kind(&self) -> LinkKind {
        LinkKind::Vlan { id: self.id, protocol: self.protocol }
    }

    /// CHECK: a link is what ADD made.
    ///
    /// # Errors
    /// What is different.
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
        Ok(Self {
            parent: ParentConf { or_default_route: false, ..ParentConf::read(&document)? },
            id: id(raw.vlan_id)?,
            protocol: conf::one_of("protocol", &raw.protocol, &PROTOCOLS)?,
            mtu: conf::mtu(&document)?,
            interface: InterfaceConf::read(&document)?,
        })
    }
}

fn id(written: Option<u32>) -> Result<u16> {
    match written.map(|id| (id, u16::try_from(id))) {
        Some((id, Ok(number))) if id <= HIGHEST => Ok(number),
        Some((id, _)) => Err(Error::config(format!("vlanId {id} is out of range, 0 to {HIGHEST}"))),
        None => Err(Error::config("vlanId is missing")
            .detail("0 has to be written: its tag has a priority, and no VLAN")),
    }
}
