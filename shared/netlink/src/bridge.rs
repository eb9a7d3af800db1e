//! Ports of a bridge, and their VLANs.

use std::ops::RangeInclusive;

use crate::link::{self, Link};
use crate::uapi::*;
use crate::wire::{Attributes, Message, read_u16, read_u32};
use crate::{Netlink, Result};

/// What to change about a bridge port. None: it stays as it is.
#[derive(Clone, Copy, Debug, Default)]
pub struct PortChange {
    /// Frames may leave through the port that they came from.
    pub hairpin: Option<bool>,
    /// Isolated ports cannot reach each other. Needs Linux 4.18.
    pub isolated: Option<bool>,
}

/// VLANs that a port belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BridgeVlan {
    /// The VLAN ids, 1 to 4094.
    pub ids: RangeInclusive<u16>,
    /// Frames that come in without a tag belong to it (the port VLAN id).
    pub pvid: bool,
    /// Frames leave without a tag.
    pub untagged: bool,
}

impl BridgeVlan {
    /// The VLAN of untagged frames, in and out.
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

    /// `struct bridge_vlan_info`, one for a VLAN, two for a range.
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
    /// If the link is no bridge port, or the kernel refuses.
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

    /// The VLANs of every port of every bridge, and of the bridges themselves, by index.
    ///
    /// # Errors
    /// If the kernel refuses to tell.
    pub fn vlans(&self) -> Result<Vec<(u32, Vec<BridgeVlan>)>> {
        let mut message = Message::new(RTM_GETLINK, 0, &link::header(AF_BRIDGE, 0, 0, 0));
        message.put_u32(IFLA_EXT_MASK, RTEXT_FILTER_BRVLAN_COMPRESSED);
        let vlans = self.socket.dump(message, |_, payload| BridgeVlan::parse(payload));
        vlans.map_err(|r| r.during("list", "bridge VLANs"))
    }

    /// The VLANs of a port.
    ///
    /// # Errors
    /// If the kernel refuses to tell.
    pub fn vlans_of(&self, port: &Link) -> Result<Vec<BridgeVlan>> {
        let all = self.vlans()?;
        Ok(all.into_iter().filter(|(index, _)| *index == port.index).flat_map(|(_, vlans)| vlans).collect())
    }

    /// Puts a port into VLANs.
    ///
    /// # Errors
    /// If the bridge does not look at VLANs (EOPNOTSUPP without kernel support), or the kernel refuses.
    pub fn add_vlan(&self, port: &Link, vlan: &BridgeVlan) -> Result<()> {
        let subject = format_args!("{:?} to bridge port {}", vlan.ids, port.name);
        self.order(vlan_request(RTM_SETLINK, port, vlan), "add VLAN", subject)
    }

    /// Takes a port out of VLANs. That it is out already is fine.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn delete_vlan(&self, port: &Link, vlan: &BridgeVlan) -> Result<()> {
        let subject = format_args!("{:?} from bridge port {}", vlan.ids, port.name);
        self.order_if_there(vlan_request(RTM_DELLINK, port, vlan), "delete VLAN", subject)
    }
}

fn vlan_request(kind: u16, port: &Link, vlan: &BridgeVlan) -> Message {
    let mut message = Message::new(kind, 0, &link::header(AF_BRIDGE, port.index, 0, 0));
    message.nest(IFLA_AF_SPEC, |m| {
        // A bridge itself is addressed, not the port that it might be of another one.
        if port.is("bridge") {
            m.put_u16(IFLA_BRIDGE_FLAGS, BRIDGE_FLAGS_SELF);
        }
        vlan.write(m);
    });
    message
}
