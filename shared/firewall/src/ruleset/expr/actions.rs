//! What a rule does to the packets that fulfil its conditions.

use super::Expressions;
use super::Value::{Be32, Data, Verdict};
use crate::ruleset::uapi::*;

impl Expressions {
    /// Sets a bit of the connection's mark, by way of a register.
    pub(crate) fn mark(self, bit: u8, register: u32) -> Self {
        let bit = 1_u32 << bit;
        self.load_ct(NFT_CT_MARK, register)
            .bitwise(register, &(!bit).to_ne_bytes(), &bit.to_ne_bytes())
            .push("ct", [(NFTA_CT_KEY, Be32(NFT_CT_MARK)), (NFTA_CT_SREG, Be32(register))])
    }

    pub(crate) fn immediate(self, register: u32, value: &[u8]) -> Self {
        let data = [(NFTA_IMMEDIATE_DREG, Be32(register)), (NFTA_IMMEDIATE_DATA, Data(value.to_vec()))];
        self.push("immediate", data)
    }

    /// Rewrites the destination to the address and port in two registers.
    pub(crate) fn dnat(self, v4: bool, address: u32, port: u32) -> Self {
        let family = if v4 { NFPROTO_IPV4 } else { NFPROTO_IPV6 };
        self.push(
            "nat",
            [
                (NFTA_NAT_TYPE, Be32(NFT_NAT_DNAT)),
                (NFTA_NAT_FAMILY, Be32(family.into())),
                (NFTA_NAT_REG_ADDR_MIN, Be32(address)),
                (NFTA_NAT_REG_PROTO_MIN, Be32(port)),
            ],
        )
    }

    /// Rewrites the source to the address of the interface that the packet leaves by.
    pub(crate) fn masquerade(self) -> Self {
        self.push("masq", [])
    }

    pub(crate) fn verdict(self, code: i32) -> Self {
        let verdict = Verdict(code, None);
        self.push("immediate", [(NFTA_IMMEDIATE_DREG, Be32(NFT_REG_VERDICT)), (NFTA_IMMEDIATE_DATA, verdict)])
    }

    pub(crate) fn jump(self, chain: &str) -> Self {
        let verdict = Verdict(NFT_JUMP, Some(chain.to_owned()));
        self.push("immediate", [(NFTA_IMMEDIATE_DREG, Be32(NFT_REG_VERDICT)), (NFTA_IMMEDIATE_DATA, verdict)])
    }
}
