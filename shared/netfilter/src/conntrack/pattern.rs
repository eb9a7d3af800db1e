//! Patterns of connections, for requests to the kernel (nfnetlink_conntrack.h).

use std::net::IpAddr;

use netlink::Family;
use netlink::wire::{Attributes, Message, read_ip, read_u8};

macro_rules! numbers {
    ($type:ty: $($name:ident = $value:expr),* $(,)?) => { $(pub(super) const $name: $type = $value;)* };
}
numbers!(u16:
    NFNL_SUBSYS_CTNETLINK = 1, IPCTNL_MSG_CT_GET = 1, IPCTNL_MSG_CT_DELETE = 2,
    CTA_TUPLE_ORIG = 1, CTA_TUPLE_REPLY = 2, CTA_ID = 12, CTA_ZONE = 18, CTA_FILTER = 25,
    CTA_FILTER_ORIG_FLAGS = 1, CTA_FILTER_REPLY_FLAGS = 2,
    CTA_TUPLE_IP = 1, CTA_TUPLE_PROTO = 2, CTA_IP_V4_SRC = 1, CTA_IP_V4_DST = 2, CTA_IP_V6_SRC = 3,
    CTA_IP_V6_DST = 4, CTA_PROTO_NUM = 1, CTA_PROTO_DST_PORT = 3,
);
// The fields of a tuple that a filter compares: their bit numbers in the kernel (nf_internals.h).
numbers!(u32:
    CTA_FILTER_F_CTA_IP_SRC = 1, CTA_FILTER_F_CTA_IP_DST = 2, CTA_FILTER_F_CTA_PROTO_NUM = 1 << 3,
    CTA_FILTER_F_CTA_PROTO_DST_PORT = 1 << 5,
);

/// The number of the protocol (RFC 5237's registry).
const UDP: u8 = 17;
/// `struct nfgenmsg`.
pub(super) const HEADER: usize = 4;

/// Pattern of UDP flows: all fields that are set must match, in one direction's tuple.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pattern {
    pub(super) family: Family,
    pub(super) direction: Direction,
    pub(super) from: Option<IpAddr>,
    pub(super) to: Option<IpAddr>,
    /// Destination port.
    pub(super) port: Option<u16>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    /// The direction of the first packet.
    Original,
    /// The direction of the answers.
    Reply,
}

impl Pattern {
    /// Writes the pattern as a filter for the kernel, as far as its filter supports it.
    pub(super) fn write(&self, message: &mut Message) {
        let (tuple, direction) = match self.direction {
            Direction::Original => (CTA_TUPLE_ORIG, CTA_FILTER_ORIG_FLAGS),
            Direction::Reply => (CTA_TUPLE_REPLY, CTA_FILTER_REPLY_FLAGS),
        };
        let addresses = [
            (CTA_IP_V4_SRC, CTA_FILTER_F_CTA_IP_SRC, self.from),
            (CTA_IP_V4_DST, CTA_FILTER_F_CTA_IP_DST, self.to),
        ];
        let mut flags = 0;
        message.nest(tuple, |tuple| {
            tuple.nest(CTA_TUPLE_IP, |ip| {
                for (kind, flag, value) in addresses {
                    let Some(value) = value.filter(IpAddr::is_ipv4) else { continue };
                    ip.put_ip(kind, value);
                    flags |= flag;
                }
            });
            tuple.nest(CTA_TUPLE_PROTO, |nest| {
                nest.put_u8(CTA_PROTO_NUM, UDP);
                flags |= CTA_FILTER_F_CTA_PROTO_NUM;
                if let Some(port) = self.port {
                    nest.put_be16(CTA_PROTO_DST_PORT, port);
                    flags |= CTA_FILTER_F_CTA_PROTO_DST_PORT;
                }
            });
        });
        message.nest(CTA_FILTER, |filter| {
            for kind in [CTA_FILTER_ORIG_FLAGS, CTA_FILTER_REPLY_FLAGS] {
                filter.put_u32(kind, if kind == direction { flags } else { 0 });
            }
        });
    }

    /// Whether a listed connection matches. Kernels before 5.8 list all.
    pub(super) fn fits(&self, connection: Attributes<'_>) -> bool {
        let tuple = match self.direction {
            Direction::Original => connection.get(CTA_TUPLE_ORIG),
            Direction::Reply => connection.get(CTA_TUPLE_REPLY),
        };
        let tuple = Attributes::of(tuple.unwrap_or_default());
        let ip = Attributes::of(tuple.get(CTA_TUPLE_IP).unwrap_or_default());
        let proto = Attributes::of(tuple.get(CTA_TUPLE_PROTO).unwrap_or_default());
        let address = |v4, v6| ip.get(self.family.choose(v4, v6)).and_then(read_ip);
        let port = proto.get(CTA_PROTO_DST_PORT).and_then(|value| value.first_chunk().copied());
        let is_udp = proto.get(CTA_PROTO_NUM).and_then(read_u8) == Some(UDP);
        is_udp
            && self.from.is_none_or(|from| address(CTA_IP_V4_SRC, CTA_IP_V6_SRC) == Some(from))
            && self.to.is_none_or(|to| address(CTA_IP_V4_DST, CTA_IP_V6_DST) == Some(to))
            && self.port.is_none_or(|number| port.map(u16::from_be_bytes) == Some(number))
    }
}

/// The attributes that identify a connection: its original tuple, zone and id.
pub(super) fn identity(connection: Attributes<'_>) -> Vec<(u16, Vec<u8>)> {
    let named = [CTA_TUPLE_ORIG, CTA_ZONE, CTA_ID].into_iter();
    named.filter_map(|kind| Some((kind, connection.get(kind)?.to_vec()))).collect()
}

/// A message of the subsystem, with `struct nfgenmsg`.
pub(super) fn message(kind: u16, family: Family) -> Message {
    Message::new(NFNL_SUBSYS_CTNETLINK << 8 | kind, 0, &[family.number(), 0, 0, 0])
}
