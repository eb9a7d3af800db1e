//! The statements of a rule: what it does with packets that match.

use netlink::Family;

use super::{Expressions, put_value};
use crate::ruleset::uapi::*;

impl Expressions {
    /// Sets a bit of the connection's mark, using a register.
    pub(crate) fn mark(self, bit: u8, register: u32) -> Self {
        self.change_mark(!(1 << bit), 1 << bit, register)
    }

    /// Clears a bit of the connection's mark, using a register.
    pub(crate) fn unmark(self, bit: u8, register: u32) -> Self {
        self.change_mark(!(1 << bit), 0, register)
    }

    /// Inverts a bit of the connection's mark, using a register.
    pub(crate) fn invert_mark(self, bit: u8, register: u32) -> Self {
        self.change_mark(u32::MAX, 1 << bit, register)
    }

    /// `mark = (mark & mask) ^ xor`
    fn change_mark(self, mask: u32, xor: u32, register: u32) -> Self {
        let this = self.load_ct(NFT_CT_MARK, register);
        this.bitwise(register, &mask.to_ne_bytes(), &xor.to_ne_bytes()).push("ct", &|data| {
            data.put_be32(NFTA_CT_KEY, NFT_CT_MARK);
            data.put_be32(NFTA_CT_SREG, register);
        })
    }

    /// Sets a bit of the packet's mark, using a register.
    pub(crate) fn mark_packet(self, bit: u8, register: u32) -> Self {
        self.change_packet_mark(bit, 1 << bit, register)
    }

    /// Clears a bit of the packet's mark, using a register.
    pub(crate) fn unmark_packet(self, bit: u8, register: u32) -> Self {
        self.change_packet_mark(bit, 0, register)
    }

    fn change_packet_mark(self, bit: u8, value: u32, register: u32) -> Self {
        let this = self.load_meta(NFT_META_MARK, register);
        let others = !(1_u32 << bit);
        this.bitwise(register, &others.to_ne_bytes(), &value.to_ne_bytes()).push("meta", &|data| {
            data.put_be32(NFTA_META_KEY, NFT_META_MARK);
            data.put_be32(NFTA_META_SREG, register);
        })
    }

    pub(crate) fn immediate(self, register: u32, value: &[u8]) -> Self {
        self.push("immediate", &|data| {
            data.put_be32(NFTA_IMMEDIATE_DREG, register);
            put_value(data, NFTA_IMMEDIATE_DATA, value);
        })
    }

    /// Rewrites the destination to the address and port in two registers.
    pub(crate) fn dnat(self, family: Family, address: u32, port: u32) -> Self {
        self.push("nat", &|data| {
            data.put_be32(NFTA_NAT_TYPE, NFT_NAT_DNAT);
            data.put_be32(NFTA_NAT_FAMILY, family.number().into());
            data.put_be32(NFTA_NAT_REG_ADDR_MIN, address);
            data.put_be32(NFTA_NAT_REG_PROTO_MIN, port);
            data.put_be32(NFTA_NAT_FLAGS, NF_NAT_RANGE_MAP_IPS | NF_NAT_RANGE_PROTO_SPECIFIED);
        })
    }

    /// Rewrites the source to the address of the outgoing interface.
    pub(crate) fn masquerade(self) -> Self {
        self.push("masq", &|_| {})
    }

    pub(crate) fn verdict(self, code: i32) -> Self {
        self.end(code, None)
    }

    pub(crate) fn jump(self, chain: &str) -> Self {
        self.end(NFT_JUMP, Some(chain))
    }

    fn end(self, code: i32, chain: Option<&str>) -> Self {
        self.push("immediate", &|data| {
            data.put_be32(NFTA_IMMEDIATE_DREG, NFT_REG_VERDICT);
            data.nest(NFTA_IMMEDIATE_DATA, |data| {
                data.nest(NFTA_DATA_VERDICT, |verdict| {
                    verdict.put(NFTA_VERDICT_CODE, &code.to_be_bytes());
                    if let Some(chain) = chain {
                        verdict.put_str(NFTA_VERDICT_CHAIN, chain);
                    }
                });
            });
        })
    }
}
