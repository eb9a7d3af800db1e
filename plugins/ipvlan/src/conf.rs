//! The checked configuration. No I/O.

use cni::{AsWritten, Error, Result};
use iface::stacked::StackedConf;
use iface::{conf, verify};
use netlink::{IpvlanFlag, IpvlanMode, Link, LinkKind};
use serde::Deserialize;

/// Supported modes. The first is the default.
const MODES: [IpvlanMode; 3] = [IpvlanMode::L2, IpvlanMode::L3, IpvlanMode::L3s];

/// Supported flags. The first is the default.
const FLAGS: [IpvlanFlag; 3] = [IpvlanFlag::Bridge, IpvlanFlag::Private, IpvlanFlag::Vepa];

/// The plugin's own keys as written.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RawConf {
    mode: String,
    flag: String,
}

/// The checked configuration.
#[derive(Clone, Debug)]
pub struct Conf {
    /// Keys about the interface and its master.
    pub stacked: StackedConf,
    /// `mode`: the interface's layer.
    pub mode: IpvlanMode,
    /// `flag`: reachability between ipvlans of the parent.
    pub flag: IpvlanFlag,
}

impl Conf {
    /// The kind of link to create.
    pub fn kind(&self) -> LinkKind {
        LinkKind::Ipvlan { mode: self.mode, flag: self.flag }
    }

    /// CHECK: compares a link with the configuration.
    ///
    /// # Errors
    /// If something differs.
    pub fn verify(&self, link: &Link) -> Result<()> {
        let Some(LinkKind::Ipvlan { mode, flag }) = link.kind else {
            return verify::of_kind(link, self.kind().name());
        };
        let shared = |key: &'static str| {
            move |e: Error| {
                e.detail(format!(
                    "all ipvlan interfaces of a master have the same {key}, and a later ADD has changed it: configure the same {key} in all networks on this master"
                ))
            }
        };
        verify::same(link, "mode", self.mode, mode).map_err(shared("mode"))?;
        verify::same(link, "flag", self.flag, flag).map_err(shared("flag"))
    }
}

impl TryFrom<AsWritten> for Conf {
    type Error = Error;

    fn try_from(document: AsWritten) -> Result<Self> {
        let raw: RawConf = document.decode()?;
        Ok(Self {
            stacked: StackedConf::read(&document)?,
            mode: conf::one_of("mode", &raw.mode, &MODES)?,
            flag: conf::one_of("flag", &raw.flag, &FLAGS)?,
        })
    }
}
