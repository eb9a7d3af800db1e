//! Kinds of links and their attributes.

use nix::libc;

use super::setting::{IpvlanFlag, IpvlanMode, MacvlanMode, VlanProtocol};
use crate::uapi::*;
use crate::wire::{Attributes, Message, read_str, read_u8, read_u16, read_u32};

/// Kind of a link, to create one or as read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkKind {
    /// A switch.
    Bridge {
        /// Whether it filters VLANs.
        vlan_filtering: bool,
    },
    /// Drops all packets.
    Dummy,
    /// Queues packets that are redirected to it.
    Ifb,
    /// IP addresses on its parent. Mode and flag belong to the parent: creating a link sets them for all ipvlans of the parent.
    Ipvlan {
        /// Layer.
        mode: IpvlanMode,
        /// Which ipvlans of the parent it reaches.
        flag: IpvlanFlag,
    },
    /// A hardware address on its parent.
    Macvlan {
        /// Whether it is a macvtap: a program exchanges the packets with it, by a character device.
        tap: bool,
        /// Which macvlans of the parent it reaches.
        mode: MacvlanMode,
        /// Length of the queue for broadcast and multicast packets. `None`: the kernel's default, 1000, or, when read, a kernel before
        /// 5.11, which has no such setting.
        broadcast_queue: Option<u32>,
    },
    /// Exchanges packets with a program. Created by [`Tun`](crate::Tun) only.
    Tun(TunKind),
    /// One end of a pair.
    Veth,
    /// The parent's frames with a tag.
    Vlan {
        /// VLAN id.
        id: u16,
        /// Kind of tag.
        protocol: VlanProtocol,
    },
    /// A routing table for its ports (Documentation/networking/vrf.rst).
    Vrf {
        /// The number of the table.
        table: u32,
    },
    /// Another kind, by its name in the kernel.
    Other(String),
}

impl LinkKind {
    /// The kernel's name, as in `ip link add type`.
    pub fn name(&self) -> &str {
        match self {
            Self::Bridge { .. } => "bridge",
            Self::Dummy => "dummy",
            Self::Ifb => "ifb",
            Self::Ipvlan { .. } => "ipvlan",
            Self::Macvlan { tap: false, .. } => "macvlan",
            Self::Macvlan { tap: true, .. } => "macvtap",
            Self::Tun(_) => "tun",
            Self::Veth => "veth",
            Self::Vlan { .. } => "vlan",
            Self::Vrf { .. } => "vrf",
            Self::Other(name) => name,
        }
    }

    /// Decodes an IFLA_LINKINFO. `None` for physical links and loopback.
    pub(super) fn read(info: Attributes<'_>) -> Option<Self> {
        let name = info.get(IFLA_INFO_KIND).and_then(read_str)?;
        let data = Attributes::of(info.get(IFLA_INFO_DATA).unwrap_or_default());
        let known = match name {
            // A kernel without CONFIG_BRIDGE_VLAN_FILTERING does not report it.
            "bridge" => Some(Self::Bridge {
                vlan_filtering: data.get(IFLA_BR_VLAN_FILTERING).and_then(read_u8).is_some_and(|on| on != 0),
            }),
            "dummy" => Some(Self::Dummy),
            "ifb" => Some(Self::Ifb),
            "ipvlan" => data.get(IFLA_IPVLAN_MODE).and_then(read_u16).and_then(IpvlanMode::of).map(|mode| {
                // A kernel before 4.15 has no flags.
                let flag = data.get(IFLA_IPVLAN_FLAGS).and_then(read_u16).and_then(IpvlanFlag::of);
                Self::Ipvlan { mode, flag: flag.unwrap_or(IpvlanFlag::Bridge) }
            }),
            "macvlan" | "macvtap" => {
                data.get(IFLA_MACVLAN_MODE).and_then(read_u32).and_then(MacvlanMode::of).map(|mode| {
                    let broadcast_queue = data.get(IFLA_MACVLAN_BC_QUEUE_LEN).and_then(read_u32);
                    Self::Macvlan { tap: name == "macvtap", mode, broadcast_queue }
                })
            }
            "tun" => TunKind::read(data).map(Self::Tun),
            "veth" => Some(Self::Veth),
            "vlan" => {
                let protocol = data.get(IFLA_VLAN_PROTOCOL).and_then(read_u16).map(u16::from_be);
                let protocol = protocol.and_then(VlanProtocol::of);
                let id = data.get(IFLA_VLAN_ID).and_then(read_u16);
                id.zip(protocol).map(|(id, protocol)| Self::Vlan { id, protocol })
            }
            "vrf" => data.get(IFLA_VRF_TABLE).and_then(read_u32).map(|table| Self::Vrf { table }),
            _ => None,
        };
        Some(known.unwrap_or_else(|| Self::Other(name.to_owned())))
    }

    /// Writes the kind's name and attributes, and `more`.
    pub(super) fn write(&self, message: &mut Message, more: impl FnOnce(&mut Message)) {
        message.put_str(IFLA_INFO_KIND, self.name());
        message.nest(IFLA_INFO_DATA, |m| {
            match self {
                // Some kernels do not know the attribute.
                Self::Bridge { vlan_filtering: true } => m.put_u8(IFLA_BR_VLAN_FILTERING, 1),
                Self::Ipvlan { mode, flag } => {
                    // The kernel's default is l3.
                    m.put_u16(IFLA_IPVLAN_MODE, mode.number());
                    m.put_u16(IFLA_IPVLAN_FLAGS, flag.number());
                }
                Self::Macvlan { mode, broadcast_queue, .. } => {
                    m.put_u32(IFLA_MACVLAN_MODE, mode.number());
                    m.put_optional(IFLA_MACVLAN_BC_QUEUE_LEN, *broadcast_queue);
                }
                Self::Vlan { id, protocol } => {
                    m.put_u16(IFLA_VLAN_ID, *id);
                    m.put_be16(IFLA_VLAN_PROTOCOL, protocol.number());
                }
                Self::Vrf { table } => m.put_u32(IFLA_VRF_TABLE, *table),
                Self::Bridge { .. }
                | Self::Dummy
                | Self::Ifb
                | Self::Tun(_)
                | Self::Veth
                | Self::Other(_) => {}
            }
            more(m);
        });
    }
}

/// A tun or tap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TunKind {
    /// Whether its packets are Ethernet frames.
    pub tap: bool,
    /// User who may open it.
    pub owner: Option<u32>,
    /// Group that may open it.
    pub group: Option<u32>,
    /// Whether a program may open several queues.
    pub multi_queue: bool,
    /// Whether it exists while no program has it open.
    pub persistent: bool,
}

impl TunKind {
    fn read(data: Attributes<'_>) -> Option<Self> {
        let is_on = |kind| data.get(kind).and_then(read_u8).is_some_and(|on| on != 0);
        Some(Self {
            tap: i32::from(data.get(IFLA_TUN_TYPE).and_then(read_u8)?) == libc::IFF_TAP,
            owner: data.get(IFLA_TUN_OWNER).and_then(read_u32),
            group: data.get(IFLA_TUN_GROUP).and_then(read_u32),
            multi_queue: is_on(IFLA_TUN_MULTI_QUEUE),
            persistent: is_on(IFLA_TUN_PERSIST),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Link, header};
    use super::*;

    fn read_back(kind: &LinkKind) -> Option<LinkKind> {
        let mut message = Message::new(0, 0, &header(AF_UNSPEC, 7, 0, 0));
        message.put_str(IFLA_IFNAME, "x");
        message.nest(IFLA_LINKINFO, |m| kind.write(m, |_| {}));
        Link::parse(&message.finish(1)[16..]).unwrap().kind
    }

    #[test]
    fn attributes_of_a_kind_are_read_back() {
        let flags = [IpvlanFlag::Bridge, IpvlanFlag::Private, IpvlanFlag::Vepa];
        let ipvlans = [IpvlanMode::L2, IpvlanMode::L3, IpvlanMode::L3s].into_iter().zip(flags);
        let vlans = [(0, VlanProtocol::Customer), (4094, VlanProtocol::Provider)];
        let kinds = ipvlans.map(|(mode, flag)| LinkKind::Ipvlan { mode, flag });
        let vrfs = [1, 254, u32::MAX].map(|table| LinkKind::Vrf { table });
        let vlans = vlans.map(|(id, protocol)| LinkKind::Vlan { id, protocol });
        let macvlans = [(false, MacvlanMode::Bridge, None), (true, MacvlanMode::Private, Some(7))];
        let macvlans =
            macvlans.map(|(tap, mode, broadcast_queue)| LinkKind::Macvlan { tap, mode, broadcast_queue });
        for kind in kinds.chain(vlans).chain(vrfs).chain(macvlans) {
            assert_eq!(read_back(&kind), Some(kind));
        }
    }

    /// `ip link add link up name x type vlan proto 802.1ad id 200`.
    #[test]
    fn the_kind_of_a_tag_is_in_network_order() {
        let mut message = Message::new(0, 0, &[]);
        LinkKind::Vlan { id: 200, protocol: VlanProtocol::Provider }.write(&mut message, |_| {});
        let bytes = message.finish(1);
        let attribute = [6_u16.to_ne_bytes(), IFLA_VLAN_PROTOCOL.to_ne_bytes(), [0x88, 0xa8]].concat();
        assert!(bytes.windows(6).any(|part| part == attribute), "{bytes:x?}");
    }
}
