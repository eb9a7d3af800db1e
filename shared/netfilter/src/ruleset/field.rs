//! Fields of packets.

use netlink::Family;

use super::uapi::*;

/// The position of a field in a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Field {
    pub(crate) base: u32,
    pub(crate) offset: u32,
    pub(crate) length: u32,
}

impl Field {
    /// `ether saddr`
    pub(crate) const ETHER_SADDR: Self = Self { base: NFT_PAYLOAD_LL_HEADER, offset: 6, length: 6 };
    /// `th sport`
    pub(crate) const TH_SPORT: Self = Self { base: NFT_PAYLOAD_TRANSPORT_HEADER, offset: 0, length: 2 };
    /// `th dport`
    pub(crate) const TH_DPORT: Self = Self { base: NFT_PAYLOAD_TRANSPORT_HEADER, offset: 2, length: 2 };

    /// `ip saddr` or `ip6 saddr`
    pub(crate) fn saddr(family: Family) -> Self {
        let (offset, length) = family.choose((12, 4), (8, 16));
        Self { base: NFT_PAYLOAD_NETWORK_HEADER, offset, length }
    }

    /// `ip daddr` or `ip6 daddr`
    pub(crate) fn daddr(family: Family) -> Self {
        let (offset, length) = family.choose((16, 4), (24, 16));
        Self { base: NFT_PAYLOAD_NETWORK_HEADER, offset, length }
    }

    /// `ip protocol` or `ip6 nexthdr`
    pub(crate) fn protocol(family: Family) -> Self {
        Self { base: NFT_PAYLOAD_NETWORK_HEADER, offset: family.choose(9, 6), length: 1 }
    }

    /// The field's first byte.
    pub(crate) fn first_byte(self) -> Self {
        Self { length: 1, ..self }
    }

    /// The number of registers for the field.
    pub(crate) fn registers(self) -> u32 {
        self.length.div_ceil(4)
    }
}
