//! Compares a listed rule with the rule that was written.

use std::iter::zip;

use netlink::wire::{Attributes, read_be32};

use super::decode::expressions;
use super::query::RawRule;
use crate::ruleset::Expressions;
use crate::ruleset::uapi::*;

/// Whether a rule has these expressions. Its comment and its counters are ignored.
pub(super) fn is_same(expressions_of: &Expressions, found: &RawRule) -> bool {
    let expected = RawRule { expressions: expressions_of.bytes().to_vec(), ..RawRule::default() };
    let expected: Vec<_> = expressions(&expected).collect();
    let found: Vec<_> = expressions(found).filter(|(name, _)| *name != "counter").collect();
    expected.len() == found.len()
        && zip(expected, found).all(|((expected_name, expected), (name, found))| {
            expected_name == name
                && expected
                    .clone()
                    .all(|(kind, value)| found.get(kind).is_some_and(|found| is_equal(value, found)))
                && found
                    .clone()
                    .all(|(kind, value)| expected.get(kind).is_some() || is_default(found, kind, value))
        })
}

/// Whether two values are equal: byte by byte, as lists of attributes, or as two numbers of one register.
fn is_equal(expected: &[u8], found: &[u8]) -> bool {
    if expected == found {
        return true;
    }
    if let ([_, _, _, _], [_, _, _, _]) = (expected, found) {
        return register(expected) == register(found);
    }
    let (expected, found): (Vec<_>, Vec<_>) =
        (Attributes::of(expected).collect(), Attributes::of(found).collect());
    !expected.is_empty()
        && expected.len() == found.len()
        && zip(expected, found)
            .all(|((kind, expected), (other, found))| kind == other && is_equal(expected, found))
}

/// The kernel lists the first of four small registers by the number of the large register that they form.
fn register(value: &[u8]) -> Option<u32> {
    read_be32(value).map(|number| match number.checked_sub(NFT_REG32_00) {
        Some(small) if small < 16 && small % 4 == 0 => small / 4 + 1,
        _ => number,
    })
}

/// Whether an attribute that was not written has its default value: zero, or the end of a range of one value.
fn is_default(expression: Attributes<'_>, kind: u16, value: &[u8]) -> bool {
    value.iter().all(|byte| *byte == 0)
        || [NFTA_NAT_REG_ADDR_MIN, NFTA_NAT_REG_PROTO_MIN].contains(&(kind - 1))
            && expression.get(kind - 1) == Some(value)
}
