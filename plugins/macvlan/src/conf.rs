//! The checked configuration. No I/O.

use cni::{AsWritten, Error, Result};
use iface::stacked::StackedConf;
use iface::{conf, verify};
use netlink::{Link, LinkKind, MacvlanMode};
use serde::Deserialize;

/// Supported modes. The first is the default.
const MODES: [MacvlanMode; 4] =
    [MacvlanMode::Bridge, MacvlanMode::Private, MacvlanMode::Vepa, MacvlanMode::Passthru];

/// The plugin's own keys as written.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RawConf {
    tap: bool,
    mode: String,
    bcqueuelen: u32,
}

/// The checked configuration.
#[derive(Debug)]
pub struct Conf {
    /// Keys about the interface and its master.
    pub stacked: StackedConf,
    /// `tap`: whether the interface is a macvtap.
    pub tap: bool,
    /// `mode`: reachability between macvlans of the parent.
    pub mode: MacvlanMode,
    /// Length of the queue for broadcast and multicast packets. `None`: the kernel's default, 1000.
    pub broadcast_queue: Option<u32>,
}

impl Conf {
    /// The kind of link to create.
    pub fn kind(&self) -> LinkKind {
        LinkKind::Macvlan { tap: self.tap, mode: self.mode, broadcast_queue: self.broadcast_queue }
    }

    /// CHECK: compares a link with the configuration.
    ///
    /// # Errors
    /// If something differs.
    pub fn verify(&self, link: &Link) -> Result<()> {
        let Some(LinkKind::Macvlan { mode, broadcast_queue, .. }) = link.kind else {
            return verify::of_kind(link, self.kind().name());
        };
        verify::same(link, "mode", self.mode, mode)?;
        match (self.broadcast_queue, broadcast_queue) {
            (Some(expected), Some(found)) => verify::same(link, "bcqueuelen", expected, found),
            _ => Ok(()),
        }
    }
}

impl TryFrom<AsWritten> for Conf {
    type Error = Error;

    fn try_from(document: AsWritten) -> Result<Self> {
        let raw: RawConf = document.decode()?;
        Ok(Self {
            stacked: StackedConf::read(&document)?,
            tap: raw.tap,
            mode: conf::one_of("mode", &raw.mode, &MODES)?,
            broadcast_queue: Some(raw.bcqueuelen).filter(|packets| *packets != 0),
        })
    }
}
