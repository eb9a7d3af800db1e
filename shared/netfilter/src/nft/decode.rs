//! What a rule does, by its expressions.

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
