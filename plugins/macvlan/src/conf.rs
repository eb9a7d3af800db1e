//! The configuration as checked. No I/O.

use cni::{AsWritten, Error, Result};
use iface::parent::ParentConf;
use iface::{InterfaceConf, conf, verify};
use netlink::{Link, LinkKind, MacvlanMode};
use serde::Deserialize;

/// The modes that a configuration may ask for; without the key it is the first one.
const MODES: [MacvlanMode; 4] =
    [MacvlanMode::Bridge, MacvlanMode::Private, MacvlanMode::Vepa, MacvlanMode::Passthru];

/// The plugin's own keys as written.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RawConf {
    mode: String,
    bcqueuelen: u32,
}

/// The configuration as checked.
#[derive(Debug)]
pub struct Conf {
    /// The link that the interface is on.
    pub parent: ParentConf,
    /// Whom the interface can talk to among those on the same parent.
    pub mode: MacvlanMode,
    /// How many broadcast and multicast packets may wait. None: the kernel's default, 1000.
    pub broadcast_queue: Option<u32>,
    /// `mtu`, in bytes. None: the parent's.
    pub mtu: Option<u32>,
    /// What every interface has.
    pub interface: InterfaceConf,
}

impl Conf {
    /// What to make.
    pub fn kind(&self) -> LinkKind {
        LinkKind::Macvlan { mode: self.mode, broadcast_queue: self.broadcast_queue }
    }

    /// CHECK: a link is what ADD made.
    ///
    /// # Errors
    /// What is different.
    pub fn verify(&self, link: &Link) -> Result<()> {
        let Some(LinkKind::Macvlan { mode, broadcast_queue }) = link.kind else {
            return verify::of_kind(link, self.kind().name());
        };
        verify::same(link, "mode", self.mode, mode)?;
        match (self.broadcast_queue, broadcast_queue) {
            (Some(wanted), Some(found)) => verify::same(link, "bcqueuelen", wanted, found),
            _ => Ok(()),
        }
    }
}

impl TryFrom<AsWritten> for Conf {
    type Error = Error;

    fn try_from(document: AsWritten) -> Result<Self> {
        let raw: RawConf = document.decode()?;
        Ok(Self {
            parent: ParentConf::read(&document)?,
            mode: conf::one_of("mode", &raw.mode, &MODES)?,
            broadcast_queue: Some(raw.bcqueuelen).filter(|packets| *packets != 0),
            mtu: conf::mtu(&document)?,
            interface: InterfaceConf::read(&document)?,
        })
    }
}
