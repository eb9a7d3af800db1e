//! Configuration: the keys that DEL and GC read leniently, and [`Conf`]. No I/O.

use std::ops::RangeInclusive;

use cni::{AsWritten, Error, IfName, Result};
use iface::conf::{self, VethMtu};
use iface::{InterfaceConf, MacKeys};
use netfilter::MasqueradeConf;
use serde::Deserialize;

/// Default name of the bridge.
const DEFAULT_BRIDGE: &str = "cni0";

/// VLAN of a trunk port's untagged frames if `vlan` is not set.
const DEFAULT_NATIVE_VLAN: u16 = 1;

/// Valid VLAN ids: 0 and 4095 are reserved (IEEE 802.1Q-2018, table 9-2).
const VLAN_IDS: RangeInclusive<i64> = 1..=4094;

/// The configuration as ADD reads it.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawConf {
    bridge: Option<String>,
    is_gateway: bool,
    is_default_gateway: bool,
    force_address: bool,
    hairpin_mode: bool,
    promisc_mode: bool,
    vlan: i64,
    vlan_trunk: Vec<RawTrunk>,
    preserve_default_vlan: bool,
    macspoofchk: bool,
    disable_container_interface: bool,
    port_isolation: bool,
    allow_uplink_port: bool,
    ipam: RawIpam,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RawTrunk {
    #[serde(rename = "minID")]
    min: Option<i64>,
    #[serde(rename = "maxID")]
    max: Option<i64>,
    id: Option<i64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RawIpam {
    r#type: String,
}

/// Name of the bridge, for DEL and GC. `None` if it is invalid.
pub fn bridge(raw: &AsWritten) -> Option<IfName> {
    IfName::parse(raw.key(&["bridge"]).unwrap_or(DEFAULT_BRIDGE)).ok()
}

/// VLAN of the container's port, for DEL and GC. `None` if it is invalid.
pub fn vlan(raw: &AsWritten) -> Option<u16> {
    vlan_id("vlan", raw.key(&["vlan"])?, &VLAN_IDS).ok()
}

/// The checked configuration.
#[derive(Debug)]
pub struct Conf {
    /// Name of the bridge.
    pub bridge: IfName,
    /// Whether the bridge gets each subnet's gateway address.
    pub is_gateway: bool,
    /// Whether the container gets a default route through it.
    pub is_default_gateway: bool,
    /// Whether to replace a conflicting address of the bridge.
    pub force_address: bool,
    /// MTU of the veth, and of a new bridge.
    pub mtu: VethMtu,
    /// Whether frames may leave through the port on which they arrived.
    pub hairpin: bool,
    /// Whether the bridge receives all frames.
    pub promisc: bool,
    /// VLANs of the port. `None`: the bridge need not filter VLANs.
    pub vlans: Option<Vlans>,
    /// Name of the port of a new veth pair. `None`: derived from the attachment.
    pub host_interface: Option<IfName>,
    /// Settings of the container's interface.
    pub interface: InterfaceConf,
    /// Whether the container's end stays down.
    pub container_down: bool,
    /// Whether the port cannot reach other isolated ports.
    pub isolated: bool,
    /// Whether the host's own uplink may become a port if `prevResult` lists it.
    pub allow_uplink: bool,
    /// Masquerade of packets that leave the container's subnet.
    pub masquerade: MasqueradeConf,
    /// Whether to drop frames with another source address than the container's.
    pub spoof_check: bool,
}

/// VLANs of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vlans {
    /// VLAN of untagged frames.
    pub native: u16,
    /// Whether `native` comes from `vlan`; the gateway address is then in that VLAN.
    pub access: bool,
    /// VLANs whose frames keep their tag.
    pub tagged: Vec<RangeInclusive<u16>>,
    /// Whether the port stays in the bridge's default VLAN.
    pub keep_default: bool,
}

impl Conf {
    /// The VLAN in which the gateway's addresses are. `None`: the bridge has them.
    pub fn gateway_vlan(&self) -> Option<u16> {
        self.vlans.as_ref().filter(|vlans| vlans.access).map(|vlans| vlans.native)
    }
}

impl TryFrom<AsWritten> for Conf {
    type Error = Error;

    fn try_from(document: AsWritten) -> Result<Self> {
        let raw: RawConf = document.decode()?;
        refuse_contradictions(&raw)?;
        let bridge = raw.bridge.as_deref().unwrap_or(DEFAULT_BRIDGE);
        let bridge = IfName::parse(bridge).map_err(|e| Error::config(format!("bridge {e}")))?;
        let host_interface = conf::host_interface(&document)?;
        if let Some(name) = &host_interface
            && (*name == bridge || name.strip_prefix(&*bridge).is_some_and(|rest| rest.starts_with('.')))
        {
            let text =
                format!("hostInterface {name} is the name of the bridge, or of its interface in a VLAN");
            return Err(Error::config(text).detail("choose another name for the bridge's port"));
        }
        Ok(Self {
            bridge,
            is_gateway: raw.is_gateway || raw.is_default_gateway,
            is_default_gateway: raw.is_default_gateway,
            force_address: raw.force_address,
            mtu: VethMtu::read(&document)?,
            hairpin: raw.hairpin_mode,
            promisc: raw.promisc_mode,
            vlans: vlans(&raw)?,
            host_interface,
            interface: InterfaceConf::read(&document, MacKeys::Requests)?,
            container_down: raw.disable_container_interface,
            isolated: raw.port_isolation,
            allow_uplink: raw.allow_uplink_port,
            masquerade: MasqueradeConf::read(&document)?,
            spoof_check: raw.macspoofchk,
        })
    }
}

fn refuse_contradictions(raw: &RawConf) -> Result<()> {
    if raw.hairpin_mode && raw.promisc_mode {
        return Err(Error::config("hairpinMode and promiscMode exclude each other")
            .detail("with both, the bridge would get the reflected frames too, and answer twice"));
    }
    if raw.disable_container_interface && !raw.ipam.r#type.is_empty() {
        return Err(Error::config("disableContainerInterface and ipam exclude each other")
            .detail("an interface that stays down has no use for an address; remove one of the two keys"));
    }
    Ok(())
}

fn vlans(raw: &RawConf) -> Result<Option<Vlans>> {
    let tagged = raw.vlan_trunk.iter().map(trunk).collect::<Result<Vec<_>>>()?.concat();
    let native = match raw.vlan {
        0 if tagged.is_empty() => return Ok(None),
        0 => DEFAULT_NATIVE_VLAN,
        // The key also accepts 0: no VLAN.
        id => vlan_id("vlan", id, &(0..=*VLAN_IDS.end()))?,
    };
    Ok(Some(Vlans { native, access: raw.vlan != 0, tagged, keep_default: raw.preserve_default_vlan }))
}

fn trunk(raw: &RawTrunk) -> Result<Vec<RangeInclusive<u16>>> {
    let tag = |key: &str, id| vlan_id(&format!("vlanTrunk: {key}"), id, &VLAN_IDS);
    let range = match (raw.min, raw.max) {
        (None, None) => None,
        (Some(min), Some(max)) if min > max => {
            return Err(Error::config(format!("vlanTrunk: minID {min} is greater than maxID {max}")));
        }
        (Some(min), Some(max)) => Some(tag("minID", min)?..=tag("maxID", max)?),
        (None, Some(_)) => return Err(Error::config("vlanTrunk: maxID is given without minID")),
        (Some(_), None) => return Err(Error::config("vlanTrunk: minID is given without maxID")),
    };
    let single = raw.id.map(|id| tag("id", id)).transpose()?;
    Ok(range.into_iter().chain(single.map(|id| id..=id)).collect())
}

fn vlan_id(key: &str, id: i64, allowed: &RangeInclusive<i64>) -> Result<u16> {
    u16::try_from(id).ok().filter(|_| allowed.contains(&id)).ok_or_else(|| {
        Error::config(format!("{key} {id} is out of range, {} to {}", allowed.start(), allowed.end()))
    })
}
