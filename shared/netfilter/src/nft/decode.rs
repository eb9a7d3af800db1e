//! What a rule does, by its expressions.

use std::net::IpAddr;

use netlink::wire::{Attributes, read_be32, read_str};

use super::query::Found;
use crate::ruleset::uapi::*;

/// The number of the protocol UDP (RFC 5237's registry).
const UDP: u8 = 17;

/// Whether a rule of iptables-nft is for UDP alone: it has that protocol's match, or looks at the protocol's number itself.
pub(super) fn is_for_udp(rule: &Found) -> bool {
    Attributes::of(&rule.expressions).any(|(_, expression)| {
        let expression = Attributes::of(expression);
        let data = Attributes::of(expression.get(NFTA_EXPR_DATA).unwrap_or_default());
        match expression.get(NFTA_EXPR_NAME).and_then(read_str) {
            Some("match") => data.get(NFTA_MATCH_NAME).and_then(read_str) == Some("udp"),
            Some("cmp") => {
                let value = Attributes::of(data.get(NFTA_CMP_DATA).unwrap_or_default()).get(NFTA_DATA_VALUE);
                value == Some(&[UDP])
            }
            _ => false,
        }
    })
}

/// The chain that a rule jumps or goes to.
pub(super) fn jump(rule: &Found) -> Option<String> {
    let of_expression = |(_, expression)| {
        let data =
            Attributes::of(Attributes::of(expression).get(NFTA_EXPR_DATA)?).get(NFTA_IMMEDIATE_DATA)?;
        let verdict = Attributes::of(Attributes::of(data).get(NFTA_DATA_VERDICT)?);
        let code = verdict.get(NFTA_VERDICT_CODE).and_then(read_be32)?.cast_signed();
        let chain = verdict.get(NFTA_VERDICT_CHAIN).and_then(read_str)?;
        matches!(code, NFT_JUMP | NFT_GOTO).then(|| chain.to_owned())
    };
    Attributes::of(&rule.expressions).find_map(of_expression)
}

/// The container whose packets a rule of iptables-nft accepts, and does nothing else: those from it, or the answers to it.
pub(super) fn accepted(rule: &Found) -> Option<IpAddr> {
    let (mut ip, mut accepts) = (None, false);
    for (_, expression) in Attributes::of(&rule.expressions) {
        let expression = Attributes::of(expression);
        let data = Attributes::of(expression.get(NFTA_EXPR_DATA).unwrap_or_default());
        match expression.get(NFTA_EXPR_NAME).and_then(read_str)? {
            "payload" | "counter" => {}
            "cmp" if ip.is_none() && data.get(NFTA_CMP_OP).and_then(read_be32) == Some(NFT_CMP_EQ) => {
                ip = Some(address(Attributes::of(data.get(NFTA_CMP_DATA)?).get(NFTA_DATA_VALUE)?)?);
            }
            "match" if data.get(NFTA_MATCH_NAME).and_then(read_str) == Some("conntrack") => {}
            "immediate" => {
                let verdict =
                    Attributes::of(Attributes::of(data.get(NFTA_IMMEDIATE_DATA)?).get(NFTA_DATA_VERDICT)?);
                accepts =
                    verdict.get(NFTA_VERDICT_CODE).and_then(read_be32) == Some(NF_ACCEPT.cast_unsigned());
            }
            _ => return None,
        }
    }
    ip.filter(|_| accepts)
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = || <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    v4().or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok()
}
