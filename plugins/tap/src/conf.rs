//! The checked configuration. No I/O.

use cni::{AsWritten, Error, IfName, Result};
use iface::{InterfaceConf, MacKeys, conf, ownership, verify};
use netlink::{Link, LinkKind, TunKind};
use serde::Deserialize;

/// Maximum MTU of a tap in bytes: the kernel includes the Ethernet header in its limit.
const MTU_MAX: u32 = 65_521;

/// The plugin's own keys as written.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawConf {
    multi_queue: bool,
    owner: Option<u32>,
    group: Option<u32>,
    selinux_context: String,
    bridge: String,
}

/// The checked configuration.
#[derive(Debug)]
pub struct Conf {
    /// `multiQueue`: whether a program may open several queues.
    pub multi_queue: bool,
    /// `owner`: user who may open the tap. Without a user and a group, anyone in the container may.
    pub owner: Option<u32>,
    /// `group`: group that may open the tap.
    pub group: Option<u32>,
    /// `selinuxContext`. `None`: the plugin's own.
    pub selinux_context: Option<String>,
    /// `bridge`: bridge in the container to which the tap is added.
    pub bridge: Option<IfName>,
    /// `mtu`, in bytes. `None`: the kernel's default, 1500.
    pub mtu: Option<u32>,
    /// Settings common to all interfaces.
    pub interface: InterfaceConf,
}

impl Conf {
    /// CHECK: compares a link with the configuration.
    ///
    /// # Errors
    /// If something differs.
    pub fn verify(&self, link: &Link) -> Result<()> {
        let Some(LinkKind::Tun(found)) = link.kind else { return verify::of_kind(link, crate::KIND) };
        let name = |id: Option<u32>| id.map_or("none".to_owned(), |id| id.to_string());
        // For user or group 0, a tap of the reference may have none.
        let is_root_of_reference = |expected| expected == Some(0) && !ownership::is_owned(link);
        let same_id = |key, expected, found: Option<u32>| match found {
            None if is_root_of_reference(expected) => Ok(()),
            found => verify::same(link, key, name(expected), name(found)),
        };
        let TunKind { tap, owner, group, multi_queue, persistent } = found;
        verify::same(link, "tap", true, tap)?;
        same_id("owner", self.owner, owner)?;
        same_id("group", self.group, group)?;
        verify::same(link, "multiQueue", self.multi_queue, multi_queue)?;
        verify::same(link, "persistent", true, persistent)
    }
}

impl TryFrom<AsWritten> for Conf {
    type Error = Error;

    fn try_from(document: AsWritten) -> Result<Self> {
        let raw: RawConf = document.decode()?;
        let given = |text: String| Some(text).filter(|text| !text.is_empty());
        let bridge = given(raw.bridge).map(|name| IfName::parse(&name));
        Ok(Self {
            multi_queue: raw.multi_queue,
            owner: id("owner", raw.owner)?,
            group: id("group", raw.group)?,
            selinux_context: given(raw.selinux_context),
            bridge: bridge.transpose().map_err(|e| Error::config(format!("bridge {e}")))?,
            mtu: mtu(&document)?,
            interface: InterfaceConf::read(&document, MacKeys::All)?,
        })
    }
}

/// Checks the id of a user or group. The largest number means none (chown(2)).
fn id(key: &str, number: Option<u32>) -> Result<Option<u32>> {
    match number {
        Some(u32::MAX) => Err(Error::config(format!("{key} {} is not a valid id", u32::MAX))),
        number => Ok(number),
    }
}

fn mtu(document: &AsWritten) -> Result<Option<u32>> {
    match conf::mtu(document)? {
        Some(bytes) if bytes > MTU_MAX => {
            Err(Error::config(format!("mtu {bytes} is more than {MTU_MAX}, the maximum of a tap")))
        }
        mtu => Ok(mtu),
    }
}
