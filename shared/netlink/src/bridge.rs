//! Bridge ports and their VLANs.

use std::ops::RangeInclusive;

use crate::link::{self, Link};
use crate::uapi::*;
use crate::wire::{Attributes, Message, read_u16, read_u32};
use crate::{Netlink, Result};

/// Changes of a bridge port. `None`: unchanged.
#[derive(Clone, Copy, Debug, Default)]
pub struct PortChange {
    /// Whether frames may leave through the port on which they arrived.
    pub hairpin: Option<bool>,
    /// Whether the port cannot reach other isolated ports. Needs Linux 4.18.
    pub isolated: Option<bool>,
}

/// VLANs of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BridgeVlan {
    /// The VLAN ids, 1 to 4094.
    pub ids: RangeInclusive<u16>,
    /// Whether untagged incoming frames belong to it (the port VLAN id).
    pub pvid: bool,
    /// Whether frames leave without a tag.
    pub untagged: bool,
}

impl BridgeVlan {
    /// The VLAN of untagged frames, in both directions.
    pub fn native(id: u16) -> Self {
        Self { ids: id..=id, pvid: true, untagged: true }
    }

    /// VLANs whose frames keep their tags.
    pub fn tagged(ids: RangeInclusive<u16>) -> Self {
        Self { ids, pvid: false, untagged: false }
    }

    fn flags(&self) -> u16 {
        let flag = |on, flag| if on { flag } else { 0 };
        flag(self.pvid, BRIDGE_VLAN_INFO_PVID) | flag(self.untagged, BRIDGE_VLAN_INFO_UNTAGGED)
    }

    /// Writes `struct bridge_vlan_info`: one for a VLAN, two for a range.
    fn write(&self, message: &mut Message) {
        let mut put = |id: u16, flags: u16| {
            let [[a, b], [c, d]] = [flags.to_ne_bytes(), id.to_ne_bytes()];
            message.put(IFLA_BRIDGE_VLAN_INFO, &[a, b, c, d]);
        };
        let (first, last) = (*self.ids.start(), *self.ids.end());
        if first == last {
            put(first, self.flags());
        } else {
            put(first, self.flags() | BRIDGE_VLAN_INFO_RANGE_BEGIN);
            put(last, self.flags() | BRIDGE_VLAN_INFO_RANGE_END);
        }
    }

    /// Decodes the payload of an RTM_NEWLINK of the bridge family: a port's index, and its VLANs.
    pub fn parse(payload: &[u8]) -> Option<(u32, Vec<Self>)> {
        let index = read_u32(payload.get(4..)?)?;
        let spec = Attributes::after(link::HEADER, payload).get(IFLA_AF_SPEC).unwrap_or_default();
        let mut vlans: Vec<Self> = Vec::new();
        let mut begin = None;
        for (_, info) in Attributes::of(spec).filter(|(kind, _)| *kind == IFLA_BRIDGE_VLAN_INFO) {
            let (flags, id) = (read_u16(info)?, read_u16(info.get(2..)?)?);
            if flags & BRIDGE_VLAN_INFO_RANGE_BEGIN != 0 {
                begin = Some(id);
                continue;
            }
            let first = begin.take().filter(|_| flags & BRIDGE_VLAN_INFO_RANGE_END != 0).unwrap_or(id);
            let (pvid, untagged) =
                (flags & BRIDGE_VLAN_INFO_PVID != 0, flags & BRIDGE_VLAN_INFO_UNTAGGED != 0);
            vlans.push(Self { ids: first..=id, pvid, untagged });
        }
        Some((index, vlans))
    }
}

impl Netlink {
    /// Changes a bridge port.
    ///
    /// # Errors
    /// If the link is not a bridge port, or the kernel refuses.
    pub fn change_port(&self, port: &Link, change: PortChange) -> Result<()> {
        let mut message = Message::new(RTM_SETLINK, 0, &link::header(AF_BRIDGE, port.index, 0, 0));
        message.nest(IFLA_PROTINFO, |m| {
            for (kind, on) in [(IFLA_BRPORT_MODE, change.hairpin), (IFLA_BRPORT_ISOLATED, change.isolated)] {
                if let Some(on) = on {
                    m.put_u8(kind, on.into());
                }
            }
        });
        self.order(message, "change bridge port", &port.name)
    }

    /// Lists the VLANs of all bridges and their ports, by index.
    ///
    /// # Errors
    /// If the kernel refuses the request.
    pub fn vlans(&self) -> Result<Vec<(u32, Vec<BridgeVlan>)>> {
        let mut message = Message::new(RTM_GETLINK, 0, &link::header(AF_BRIDGE, 0, 0, 0));
        message.put_u32(IFLA_EXT_MASK, RTEXT_FILTER_BRVLAN_COMPRESSED);
        let vlans = self.socket.dump(message, |_, payload| BridgeVlan::parse(payload));
        vlans.map_err(|r| r.during("list", "bridge VLANs"))
    }

    /// Lists the VLANs of a port.
    ///
    /// # Errors
    /// If the kernel refuses the request.
    pub fn vlans_of(&self, port: &Link) -> Result<Vec<BridgeVlan>> {
        let all = self.vlans()?;
        Ok(all.into_iter().filter(|(index, _)| *index == port.index).flat_map(|(_, vlans)| vlans).collect())
    }

    /// Adds a port to VLANs.
    ///
    /// # Errors
    /// If the bridge does not filter VLANs (EOPNOTSUPP without kernel support), or the kernel refuses.
    pub fn add_vlan(&self, port: &Link, vlan: &BridgeVlan) -> Result<()> {
        let subject = format_args!("{:?} to bridge port {}", vlan.ids, port.name);
        self.order(vlan_request(RTM_SETLINK, port, vlan), "add VLAN", subject)
    }

    /// Removes a port from VLANs. Succeeds if it is not in them.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn delete_vlan(&self, port: &Link, vlan: &BridgeVlan) -> Result<()> {
        let subject = format_args!("{:?} from bridge port {}", vlan.ids, port.name);
        self.order_if_it_exists(vlan_request(RTM_DELLINK, port, vlan), "delete VLAN", subject)
    }
}

fn vlan_request(kind: u16, port: &Link, vlan: &BridgeVlan) -> Message {
    let mut message = Message::new(kind, 0, &link::header(AF_BRIDGE, port.index, 0, 0));
    message.nest(IFLA_AF_SPEC, |m| {
        // The request is for the bridge itself, which may also be a port of another bridge.
        if port.is("bridge") {
            m.put_u16(IFLA_BRIDGE_FLAGS, BRIDGE_FLAGS_SELF);
        }
        vlan.write(m);
    });
    message
}
