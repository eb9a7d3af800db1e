//! Patterns of connections, for requests to the kernel (nfnetlink_conntrack.h).

use std::net::{IpAddr, SocketAddr};

use netlink::Family;
use netlink::wire::{Attributes, Message, read_ip, read_u8};

use crate::ruleset::uapi::TRACKED_PROTOCOLS;

macro_rules! numbers {
    ($type:ty: $($name:ident = $value:expr),* $(,)?) => { $(pub(super) const $name: $type = $value;)* };
}
numbers!(u16:
    NFNL_SUBSYS_CTNETLINK = 1, IPCTNL_MSG_CT_GET = 1, IPCTNL_MSG_CT_DELETE = 2, IPCTNL_MSG_CT_GET_STATS = 5,
    CTA_STATS_GLOBAL_ENTRIES = 1,
    CTA_TUPLE_ORIG = 1, CTA_TUPLE_REPLY = 2, CTA_ID = 12, CTA_ZONE = 18, CTA_FILTER = 25,
    CTA_FILTER_ORIG_FLAGS = 1, CTA_FILTER_REPLY_FLAGS = 2,
    CTA_TUPLE_IP = 1, CTA_TUPLE_PROTO = 2, CTA_IP_V4_SRC = 1, CTA_IP_V4_DST = 2, CTA_IP_V6_SRC = 3,
    CTA_IP_V6_DST = 4, CTA_PROTO_NUM = 1, CTA_PROTO_SRC_PORT = 2, CTA_PROTO_DST_PORT = 3,
);
// The fields of a tuple that a filter compares: their bit numbers in the kernel (nf_internals.h).
numbers!(u32:
    CTA_FILTER_F_CTA_IP_SRC = 1, CTA_FILTER_F_CTA_IP_DST = 1 << 1, CTA_FILTER_F_CTA_PROTO_NUM = 1 << 3,
    CTA_FILTER_F_CTA_PROTO_DST_PORT = 1 << 5,
);

/// `struct nfgenmsg`.
pub(super) const HEADER: usize = 4;

/// Pattern of flows: all fields that are set must match.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pattern {
    pub(super) family: Family,
    /// The number of the protocol.
    pub(super) protocol: u8,
    /// Destination address of the first packet.
    pub(super) to: Option<IpAddr>,
    /// Destination port of the first packet.
    pub(super) port: Option<u16>,
    /// Source of the answers.
    pub(super) answers_from: Option<IpAddr>,
}

/// A listed flow: the destination of the first packet, and the source of the answers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flow {
    pub(super) protocol: u8,
    pub(super) to: SocketAddr,
    pub(super) answers_from: SocketAddr,
}

impl Pattern {
    /// All flows of a family and protocol.
    pub(super) fn all(family: Family, protocol: u8) -> Self {
        Self { family, protocol, to: None, port: None, answers_from: None }
    }

    /// Whether flows to an address can match.
    pub(super) fn is_of(&self, ip: IpAddr) -> bool {
        self.family == Family::from(ip)
    }

    /// Writes the pattern as a filter for the kernel, as far as its filter supports it.
    pub(super) fn write(&self, message: &mut Message) {
        let answers_from = v4(self.answers_from);
        let mut flags = CTA_FILTER_F_CTA_PROTO_NUM;
        message.nest(CTA_TUPLE_ORIG, |tuple| {
            tuple.nest(CTA_TUPLE_IP, |nest| {
                if let Some(to) = v4(self.to) {
                    nest.put_ip(CTA_IP_V4_DST, to);
                    flags |= CTA_FILTER_F_CTA_IP_DST;
                }
            });
            tuple.nest(CTA_TUPLE_PROTO, |nest| {
                nest.put_u8(CTA_PROTO_NUM, self.protocol);
                if let Some(port) = self.port {
                    nest.put_be16(CTA_PROTO_DST_PORT, port);
                    flags |= CTA_FILTER_F_CTA_PROTO_DST_PORT;
                }
            });
        });
        if let Some(from) = answers_from {
            message.nest(CTA_TUPLE_REPLY, |tuple| {
                tuple.nest(CTA_TUPLE_IP, |nest| nest.put_ip(CTA_IP_V4_SRC, from));
            });
        }
        message.nest(CTA_FILTER, |filter| {
            filter.put_u32(CTA_FILTER_ORIG_FLAGS, flags);
            filter.put_u32(CTA_FILTER_REPLY_FLAGS, answers_from.map_or(0, |_| CTA_FILTER_F_CTA_IP_SRC));
        });
    }

    /// Whether a listed flow matches. Kernels before 5.8 list all.
    pub(super) fn fits(&self, flow: &Flow) -> bool {
        self.protocol == flow.protocol
            && self.to.is_none_or(|to| to == flow.to.ip())
            && self.port.is_none_or(|port| port == flow.to.port())
            && self.answers_from.is_none_or(|from| from == flow.answers_from.ip())
    }
}

impl Flow {
    /// None: the connection is of another protocol.
    pub(super) fn read(connection: Attributes<'_>) -> Option<Self> {
        let tuple = |kind| connection.get(kind).map(Attributes::of);
        let (original, reply) = (tuple(CTA_TUPLE_ORIG)?, tuple(CTA_TUPLE_REPLY)?);
        let protocol = Attributes::of(original.get(CTA_TUPLE_PROTO)?).get(CTA_PROTO_NUM).and_then(read_u8)?;
        TRACKED_PROTOCOLS.contains(&protocol).then_some(())?;
        let to = socket(original, [CTA_IP_V4_DST, CTA_IP_V6_DST], CTA_PROTO_DST_PORT)?;
        let answers_from = socket(reply, [CTA_IP_V4_SRC, CTA_IP_V6_SRC], CTA_PROTO_SRC_PORT)?;
        Some(Self { protocol, to, answers_from })
    }
}

/// The address and port of one end in a tuple.
fn socket(tuple: Attributes<'_>, address: [u16; 2], port: u16) -> Option<SocketAddr> {
    let (ips, ports) = (tuple.get(CTA_TUPLE_IP)?, tuple.get(CTA_TUPLE_PROTO)?);
    let ip = address.into_iter().find_map(|kind| Attributes::of(ips).get(kind)).and_then(read_ip)?;
    let port = Attributes::of(ports).get(port)?.first_chunk().copied()?;
    Some(SocketAddr::new(ip, u16::from_be_bytes(port)))
}

/// The address, if the kernel's filter can match it.
fn v4(ip: Option<IpAddr>) -> Option<IpAddr> {
    ip.filter(IpAddr::is_ipv4)
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
