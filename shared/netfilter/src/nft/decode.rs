//! Decodes what a rule does from its expressions.

use std::net::IpAddr;

use netlink::Family;
use netlink::wire::{Attributes, read_be32, read_str};

use super::query::RawRule;
use crate::listing::Content;
use crate::ruleset::Field;
use crate::ruleset::uapi::*;

/// The transport protocol of a rule of iptables-nft, if the kernel may keep its flows: by the protocol's match, or by a
/// test of the protocol number.
pub(super) fn tracked(rule: &RawRule) -> Option<u8> {
    expressions(rule).find_map(|(name, data)| match name {
        "match" => tracked_match(data).map(|(protocol, _)| protocol),
        "cmp" => match value(data, NFTA_CMP_DATA)? {
            [number] => TRACKED_PROTOCOLS.contains(number).then_some(*number),
            _ => None,
        },
        _ => None,
    })
}

/// The protocol of a match, and where its data have the destination port (`struct xt_udp` and `struct xt_sctp_info`).
fn tracked_match(data: Attributes<'_>) -> Option<(u8, usize)> {
    match match_name(data)? {
        "udp" => Some((UDP, 4)),
        "sctp" => Some((SCTP, 0)),
        _ => None,
    }
}

/// The transport protocol of a rule of iptables-nft. None: any, or in a way that is unknown here.
pub(super) fn protocol(rule: &RawRule) -> Option<u8> {
    let expressions: Vec<_> = expressions(rule).collect();
    expressions.windows(2).find_map(|pair| {
        let [(load, field), ("cmp", equal)] = pair else { return None };
        let is_loaded = match *load {
            "meta" => field.get(NFTA_META_KEY).and_then(read_be32) == Some(NFT_META_L4PROTO),
            // iptables 1.8.13 does so for IPv4.
            "payload" => Family::ALL.into_iter().any(|family| loads(*field, Field::protocol(family))),
            _ => false,
        };
        let [number] = value(*equal, NFTA_CMP_DATA)? else { return None };
        Some(*number).filter(|_| is_loaded && is_equal(*equal))
    })
}

/// The destination port of a rule of iptables-nft, in the protocol's match or as a field of the packet.
pub(super) fn port(rule: &RawRule) -> Option<u16> {
    let in_match = |(name, data): &(&str, Attributes<'_>)| {
        let (_, at) = tracked_match(*data).filter(|_| *name == "match")?;
        Some(u16::from_ne_bytes(*data.get(NFTA_MATCH_INFO)?.get(at..)?.first_chunk()?))
    };
    let in_field = |pair: &[(&str, Attributes<'_>)]| match pair {
        [("payload", field), ("cmp", equal)] if loads(*field, Field::TH_DPORT) && is_equal(*equal) => {
            Some(u16::from_be_bytes(*value(*equal, NFTA_CMP_DATA)?.first_chunk()?))
        }
        _ => None,
    };
    let expressions: Vec<_> = expressions(rule).collect();
    expressions.iter().find_map(in_match).or_else(|| expressions.windows(2).find_map(in_field))
}

/// The destination address of a rule of iptables-nft. None: it has none, or a subnet.
pub(super) fn destination(rule: &RawRule) -> Option<IpAddr> {
    let expressions: Vec<_> = expressions(rule).collect();
    expressions.windows(2).find_map(|pair| match pair {
        [("payload", field), ("cmp", equal)] if is_equal(*equal) => {
            let ip = address(value(*equal, NFTA_CMP_DATA)?)?;
            Some(ip).filter(|ip| loads(*field, Field::daddr(Family::from(*ip))))
        }
        _ => None,
    })
}

/// The address to which a rule of iptables-nft redirects packets of a family. None: it does not, or in a way that is
/// unknown here.
pub(super) fn redirection(rule: &RawRule, family: Family) -> Option<IpAddr> {
    expressions(rule).filter(|(name, _)| *name == "target").find_map(|(_, data)| {
        let revision = data.get(NFTA_TARGET_REV).and_then(read_be32)?;
        let is_known = data.get(NFTA_TARGET_NAME).and_then(read_str)? == "DNAT" && matches!(revision, 1 | 2);
        // `struct nf_nat_range` and `struct nf_nat_range2`: the flags, and the first address.
        let (flags, range) = data.get(NFTA_TARGET_INFO)?.split_first_chunk()?;
        let has_address = u32::from_ne_bytes(*flags) & NF_NAT_RANGE_MAP_IPS != 0;
        address(range.get(..family.choose(4, 16))?).filter(|_| is_known && has_address)
    })
}

/// The protocol and the destination ports of a rule of iptables-nft with the match `multiport`.
pub(super) fn multiport(rule: &RawRule) -> Option<(u8, Vec<u16>)> {
    // `struct xt_multiport_v1`: the flags, the number of ports, and the ports.
    const XT_MULTIPORT_DESTINATION: u8 = 1;
    let mut found =
        expressions(rule).filter(|(name, data)| *name == "match" && match_name(*data) == Some("multiport"));
    let (kind, count, ports) = match found.next()?.1.get(NFTA_MATCH_INFO)? {
        [kind, count, ports @ ..] => (*kind, usize::from(*count), ports),
        _ => return None,
    };
    let ports = ports.as_chunks().0.iter().take(count).map(|port| u16::from_ne_bytes(*port)).collect();
    (kind == XT_MULTIPORT_DESTINATION).then_some((protocol(rule)?, ports))
}

/// The target chain of a jump or goto.
pub(super) fn jump(rule: &RawRule) -> Option<String> {
    let verdicts = expressions(rule).filter_map(|(_, data)| verdict(data));
    let mut jumps = verdicts.filter(|(code, _)| matches!(*code, NFT_JUMP | NFT_GOTO));
    jumps.next().map(|(_, chain)| chain.to_owned())
}

/// What a rule in an iptables table does.
pub(super) fn content(rule: &RawRule) -> Content {
    let expressions: Vec<_> = expressions(rule).filter(|(name, data)| !is_note(name, *data)).collect();
    let verdict = |data| verdict(data).map(|(code, chain)| (code, chain.to_owned()));
    match &expressions[..] {
        [] => Content::Nothing,
        [("immediate", end)] => match verdict(*end) {
            Some((NFT_JUMP | NFT_GOTO, chain)) => Content::Jump(chain),
            _ => Content::Other,
        },
        [matches @ .., ("immediate", end)] if verdict(*end) == Some((NF_ACCEPT, String::new())) => {
            accepted(matches).unwrap_or(Content::Other)
        }
        [matches @ .., ("immediate", end)] => {
            let target = verdict(*end).and_then(|(code, chain)| match code {
                NF_DROP => Some("DROP".to_owned()),
                NFT_JUMP => Some(chain),
                _ => None,
            });
            let text = target.and_then(|target| Some(format!("{} -j {target}", interfaces(matches)?)));
            text.map_or(Content::Other, Content::Interfaces)
        }
        _ => Content::Other,
    }
}

/// Conditions about interfaces, in iptables' syntax. None: there are other conditions, or a pattern of names.
fn interfaces(matches: &[(&str, Attributes<'_>)]) -> Option<String> {
    let mut words = Vec::new();
    for pair in matches.chunks(2) {
        let [("meta", meta), ("cmp", compared)] = pair else { return None };
        let option = match meta.get(NFTA_META_KEY).and_then(read_be32)? {
            NFT_META_IIFNAME => "-i",
            NFT_META_OIFNAME => "-o",
            _ => return None,
        };
        let sign = match compared.get(NFTA_CMP_OP).and_then(read_be32)? {
            NFT_CMP_EQ => "",
            NFT_CMP_NEQ => "! ",
            _ => return None,
        };
        let value = Attributes::of(compared.get(NFTA_CMP_DATA)?).get(NFTA_DATA_VALUE)?;
        // Without a NUL at its end, it is a prefix of names.
        let name = value.contains(&0).then(|| read_str(value)).flatten()?;
        words.push(format!("{sign}{option} {name}"));
    }
    (!words.is_empty()).then(|| words.join(" "))
}

/// The name and the data of each expression.
pub(super) fn expressions(rule: &RawRule) -> impl Iterator<Item = (&str, Attributes<'_>)> {
    Attributes::of(&rule.expressions).filter_map(|(_, expression)| {
        let expression = Attributes::of(expression);
        let data = expression.get(NFTA_EXPR_DATA).unwrap_or_default();
        Some((expression.get(NFTA_EXPR_NAME).and_then(read_str)?, Attributes::of(data)))
    })
}

/// Whether an expression has no effect on packets.
fn is_note(name: &str, data: Attributes<'_>) -> bool {
    name == "counter" || name == "match" && match_name(data) == Some("comment")
}

fn match_name(data: Attributes<'_>) -> Option<&str> {
    data.get(NFTA_MATCH_NAME).and_then(read_str)
}

/// A verdict, with its target chain if there is one.
pub(super) fn verdict(data: Attributes<'_>) -> Option<(i32, &str)> {
    let verdict = Attributes::of(Attributes::of(data.get(NFTA_IMMEDIATE_DATA)?).get(NFTA_DATA_VERDICT)?);
    let code = verdict.get(NFTA_VERDICT_CODE).and_then(read_be32)?.cast_signed();
    Some((code, verdict.get(NFTA_VERDICT_CHAIN).and_then(read_str).unwrap_or_default()))
}

/// The packets that a rule with these matches accepts.
fn accepted(matches: &[(&str, Attributes<'_>)]) -> Option<Content> {
    match matches {
        [("match", mark)] if match_name(*mark) == Some("mark") => {
            bit_of(mark.get(NFTA_MATCH_INFO)?).map(Content::Accept)
        }
        [("meta", meta), ("bitwise", mask), ("cmp", equal)] if is_equal(*equal) => {
            let is_mark = meta.get(NFTA_META_KEY).and_then(read_be32) == Some(NFT_META_MARK);
            let mask = value(*mask, NFTA_BITWISE_MASK).filter(|_| is_mark)?;
            let bit = bit_of(&[mask, value(*equal, NFTA_CMP_DATA)?, &[0; 8]].concat());
            bit.map(Content::AcceptNatively)
        }
        [("payload", field), ("cmp", ip), rest @ ..] if is_equal(*ip) => {
            let ip = address(value(*ip, NFTA_CMP_DATA)?)?;
            let (from, to) = (Field::saddr(Family::from(ip)), Field::daddr(Family::from(ip)));
            let is_accepted = match rest {
                [] => loads(*field, from),
                [("match", state)] => loads(*field, to) && is_for_answers(*state),
                _ => false,
            };
            is_accepted.then_some(Content::AcceptAddress(ip))
        }
        _ => None,
    }
}

/// The value in an attribute of an expression.
pub(super) fn value<'a>(data: Attributes<'a>, kind: u16) -> Option<&'a [u8]> {
    Attributes::of(data.get(kind)?).get(NFTA_DATA_VALUE)
}

/// Whether the expression `cmp` tests for equality.
fn is_equal(data: Attributes<'_>) -> bool {
    data.get(NFTA_CMP_OP).and_then(read_be32) == Some(NFT_CMP_EQ)
}

/// Whether the expression `payload` loads this field.
fn loads(data: Attributes<'_>, field: Field) -> bool {
    let number = |kind| data.get(kind).and_then(read_be32);
    let loaded = [NFTA_PAYLOAD_BASE, NFTA_PAYLOAD_OFFSET, NFTA_PAYLOAD_LEN].map(number);
    loaded == [field.base, field.offset, field.length].map(Some)
}

/// Whether a match is `conntrack --ctstate RELATED,ESTABLISHED`, without other conditions: the fields `match_flags`,
/// `invert_flags` and `state_mask` of `struct xt_conntrack_mtinfo3`.
fn is_for_answers(data: Attributes<'_>) -> bool {
    const FLAGS_AT: usize = 146;
    const XT_CONNTRACK_STATE: u16 = 1;
    let answers = [XT_CONNTRACK_STATE, 0, (IP_CT_ESTABLISHED_BIT | IP_CT_RELATED_BIT) as u16];
    let info = data.get(NFTA_MATCH_INFO).filter(|_| match_name(data) == Some("conntrack"));
    let flags = info.and_then(|info| info.get(FLAGS_AT..)?.first_chunk::<6>());
    flags.is_some_and(|flags| flags[..] == answers.map(u16::to_ne_bytes).concat())
}

/// The single bit that `struct xt_mark_mtinfo1` tests: mark, mask, and whether the test is inverted.
fn bit_of(info: &[u8]) -> Option<u8> {
    let (mark, rest) = info.split_first_chunk::<4>()?;
    let (mask, rest) = rest.split_first_chunk::<4>()?;
    let mark = u32::from_ne_bytes(*mark);
    let is_bit = mark.is_power_of_two() && mark == u32::from_ne_bytes(*mask) && rest.first() == Some(&0);
    is_bit.then(|| mark.trailing_zeros() as u8)
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = || <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    v4().or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ruleset::{Expressions, R0};

    #[test]
    fn the_protocol_of_a_rule_is_not_confused_with_the_first_byte_of_an_address() {
        let start = || {
            let network = Field::saddr(Family::V4).first_byte();
            Expressions::new().load(network, R0).compare(R0, NFT_CMP_EQ, &[17])
        };
        let by_field = Field::protocol(Family::V4);
        for (rule, found) in [
            (start(), None),
            (start().load(by_field, R0).compare(R0, NFT_CMP_EQ, &[TCP]), Some(TCP)),
            (start().load_meta(NFT_META_L4PROTO, R0).compare(R0, NFT_CMP_EQ, &[TCP]), Some(TCP)),
            (start().load_meta(NFT_META_L4PROTO, R0).compare(R0, NFT_CMP_NEQ, &[TCP]), None),
        ] {
            let rule = RawRule { expressions: rule.bytes().to_vec(), ..RawRule::default() };
            assert_eq!(protocol(&rule), found);
        }
    }
}
