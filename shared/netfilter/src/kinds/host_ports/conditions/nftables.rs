//! Conditions in the syntax of nft(8). The common ones are supported, such as `ip saddr != { 192.0.2.0/24, 198.51.100.7
//! } tcp sport 1024-65535`.

use std::cmp::Ordering;
use std::net::IpAddr;

use cni::IfName;
use ipnetwork::IpNetwork;
use netlink::Family;

use super::values::{self, Words};
use crate::kinds::host_ports::forward::Protocol;
use crate::ruleset::uapi::*;
use crate::ruleset::{Expressions, Field, R0, octets, padded};

/// Maximum number of rules for the alternatives of one mapping.
const ALTERNATIVES_MAX: usize = 64;

/// One condition: a packet has to pass one of these tests.
pub(super) type Match = Vec<Expressions>;

/// A field of a packet, or a property of it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Address(Field, Family),
    /// None: of any protocol.
    Port(Field, Option<Protocol>),
    Protocol,
    Interface,
    Mark,
    CtMark,
    CtState,
}

/// Parses conditions.
///
/// # Errors
/// The condition that is malformed.
pub(super) fn parse(text: &str, family: Family) -> Result<Vec<Match>, String> {
    let spaced = text.replace('{', " { ").replace('}', " } ").replace(',', " , ");
    let mut words = spaced.split_whitespace().peekable();
    let mut matches = Vec::new();
    while words.peek().is_some() {
        if words.next_if_eq(&"comment").is_some() {
            values::skip_comment(&mut words)?;
            continue;
        }
        let part = part(&mut words, family)?;
        let negated = words.next_if(|word| ["==", "!="].contains(word)) == Some("!=");
        let tests = tests(&mut words, part, negated)?;
        // With `!=`, no value may match: the packet has to pass all tests.
        let all = || vec![tests.iter().cloned().fold(Expressions::new(), Expressions::and)];
        matches.push(if negated { all() } else { tests });
    }
    let choices = matches.iter().map(Vec::len);
    if choices.fold(1, usize::saturating_mul) > ALTERNATIVES_MAX {
        return Err(format!("there are too many alternatives: at most {ALTERNATIVES_MAX} are allowed"));
    }
    Ok(matches)
}

fn part<'a>(words: &mut impl Iterator<Item = &'a str>, family: Family) -> Result<Part, String> {
    let first = words.next().unwrap_or_default();
    if matches!(first, "iifname" | "iif") {
        return Ok(Part::Interface);
    }
    let second = words.next().unwrap_or_default();
    let protocol = first.parse().ok();
    match (first, second) {
        ("ip" | "ip6", "saddr" | "daddr") if (first == "ip") != (family == Family::V4) => {
            Err(format!("\"{first} {second}\" can never be true in this address family"))
        }
        ("ip" | "ip6", "saddr") => Ok(Part::Address(Field::saddr(family), family)),
        ("ip" | "ip6", "daddr") => Ok(Part::Address(Field::daddr(family), family)),
        ("meta", "l4proto") | ("ip", "protocol") => Ok(Part::Protocol),
        ("meta", "iifname" | "iif") => Ok(Part::Interface),
        ("meta", "mark") => Ok(Part::Mark),
        ("ct", "mark") => Ok(Part::CtMark),
        ("ct", "state") => Ok(Part::CtState),
        (_, "sport") if protocol.is_some() || first == "th" => Ok(Part::Port(Field::TH_SPORT, protocol)),
        (_, "dport") if protocol.is_some() || first == "th" => Ok(Part::Port(Field::TH_DPORT, protocol)),
        _ => Err(format!(
            "\"{first} {second}\" is not supported; supported are ip/ip6 saddr/daddr, tcp/udp/sctp/th sport/dport, \
             iifname, meta l4proto/mark, ct state/mark, comment"
        )),
    }
}

/// A test for each value.
fn tests(words: &mut Words<'_>, part: Part, negated: bool) -> Result<Vec<Expressions>, String> {
    let this = Expressions::new();
    if part == Part::CtState {
        return values::states(words).map(|bits| vec![this.state(bits, negated)]);
    }
    let first = words.next().ok_or("the last condition has no value")?;
    if first != "{" {
        return Ok(vec![test(first, part, negated)?]);
    }
    let mut tests = Vec::new();
    loop {
        tests.push(test(words.next().ok_or("the closing brace of a set is missing")?, part, negated)?);
        match words.next() {
            Some("}") => return Ok(tests),
            Some(",") => {}
            _ => return Err("the closing brace of a set is missing".into()),
        }
    }
}

fn test(text: &str, part: Part, negated: bool) -> Result<Expressions, String> {
    let wrong = || format!("{text:?} is not a value here");
    let (equal, within) = if negated { (NFT_CMP_NEQ, NFT_RANGE_NEQ) } else { (NFT_CMP_EQ, NFT_RANGE_EQ) };
    let this = Expressions::new();
    match part {
        Part::Address(field, family) => {
            address(this.load(field, R0), text, family, (equal, within)).ok_or_else(wrong)
        }
        Part::Port(field, protocol) => {
            let this = match protocol {
                Some(protocol) => this.protocol(NFT_CMP_EQ, protocol.number()),
                None => this,
            };
            port(this.load(field, R0), text, (equal, within)).ok_or_else(wrong)
        }
        Part::Protocol => text.parse().map(|protocol: Protocol| this.protocol(equal, protocol.number())),
        Part::Interface => {
            interface(text).map(|name| this.load_meta(NFT_META_IIFNAME, R0).compare(R0, equal, &name))
        }
        Part::Mark => {
            Ok(this.load_meta(NFT_META_MARK, R0).compare(R0, equal, &mark(text).ok_or_else(wrong)?))
        }
        Part::CtMark => Ok(this.load_ct(NFT_CT_MARK, R0).compare(R0, equal, &mark(text).ok_or_else(wrong)?)),
        // Parsed as a whole before.
        Part::CtState => Err(wrong()),
    }
}

fn address(
    this: Expressions,
    text: &str,
    family: Family,
    (equal, within): (u32, u32),
) -> Option<Expressions> {
    if let Some((from, to)) = text.split_once('-') {
        let (from, to): (IpAddr, IpAddr) = (from.parse().ok()?, to.parse().ok()?);
        let fits = Family::from(from) == family && Family::from(to) == family && from <= to;
        return fits.then(|| this.range(R0, within, &octets(from), &octets(to)));
    }
    let network = match text.contains('/') {
        true => cni::addr::parse_cidr(text).ok()?,
        false => IpNetwork::from(text.parse::<IpAddr>().ok()?),
    };
    let is_host = network.prefix() == family.choose(32, 128);
    let this = if is_host { this } else { this.prefix(R0, network.mask()) };
    (Family::from(network) == family).then(|| this.compare(R0, equal, &octets(network.network())))
}

fn port(this: Expressions, text: &str, (equal, within): (u32, u32)) -> Option<Expressions> {
    let (from, to) = text.split_once('-').unwrap_or((text, text));
    let (from, to): (u16, u16) = (from.parse().ok()?, to.parse().ok()?);
    match from.cmp(&to) {
        Ordering::Less => Some(this.range(R0, within, &from.to_be_bytes(), &to.to_be_bytes())),
        Ordering::Equal => Some(this.compare(R0, equal, &from.to_be_bytes())),
        Ordering::Greater => None,
    }
}

/// The bytes of a name, or of the prefix in `eth*`.
fn interface(text: &str) -> Result<Vec<u8>, String> {
    let text = text.trim_matches('"');
    match text.strip_suffix('*') {
        Some(prefix) => IfName::parse(prefix).map(|prefix| prefix.as_bytes().to_vec()),
        None => IfName::parse(text).map(|name| padded(&name)),
    }
}

fn mark(text: &str) -> Option<[u8; 4]> {
    let number: u32 = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok()?,
        None => text.parse().ok()?,
    };
    Some(number.to_ne_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_common_conditions_are_understood() {
        for good in [
            "ip saddr 192.0.2.0/24",
            "ip saddr != { 192.0.2.0/24, 198.51.100.7 } tcp sport 1024-65535",
            "ip daddr == 10.0.0.1-10.0.0.9",
            "iifname \"eth0\" meta mark 0x10",
            "meta iifname {eth0,wlan*}",
            "meta l4proto udp",
            "ct state new",
            "ct state != {established, related} ct mark 0x20",
            "ct state new,untracked tcp dport 80",
            "comment \"for the {office}, only\" ip saddr 192.0.2.1 comment web",
        ] {
            parse(good, Family::V4).unwrap_or_else(|e| panic!("{good}: {e}"));
        }
        assert!(parse("ip6 saddr fd00::/64", Family::V6).is_ok());
    }

    #[test]
    fn a_malformed_condition_is_named() {
        for (bad, culprit) in [
            ("ip saddr 192.0.2.1 drop", "drop"),
            ("ip saddr 192.0.2.1; flush ruleset", "192.0.2.1;"),
            ("accept", "accept"),
            ("ip saddr", "no value"),
            ("ip saddr { 192.0.2.1", "closing brace"),
            ("ip saddr fd00::1", "fd00::1"),
            ("ip6 saddr fd00::1", "can never be true"),
            ("tcp dport 70000", "70000"),
            ("tcp dport 9-1", "9-1"),
            ("iifname a/b", "a/b"),
            ("jump evil", "jump"),
            ("ip saddr @set", "@set"),
            ("ct state old", "old"),
            ("ct state { new", "closing brace"),
            ("ct helper ftp", "helper"),
            ("limit rate 10/second", "\"limit rate\" is not supported"),
            ("meta day Monday", "\"meta day\" is not supported"),
            ("meta hour 08:00-17:00", "\"meta hour\" is not supported"),
            ("comment \"without end", "closing quote"),
            ("comment", "text of a comment is missing"),
            ("comment \"x\" drop", "drop"),
        ] {
            let error = parse(bad, Family::V4).unwrap_err();
            assert!(error.contains(culprit), "{bad}: {error}");
        }
        let many = |count: u32| (1..=count).map(|port| port.to_string()).collect::<Vec<_>>().join(",");
        let sets = |text: String| parse(&text, Family::V4);
        assert!(sets(format!("tcp sport {{{}}}", many(65))).unwrap_err().contains("too many"));
        assert!(sets(format!("tcp sport {{{0}}} tcp dport {{{0}}}", many(8))).is_ok());
    }

    /// 64 doublings: the product is 0 in 64 bits.
    #[test]
    fn too_many_alternatives_are_refused_even_if_their_number_overflows() {
        let error = parse(&"tcp sport {1,2} ".repeat(64), Family::V4).unwrap_err();
        assert!(error.contains("too many"), "{error}");
    }

    #[test]
    fn a_set_is_a_choice_and_a_negated_set_is_none() {
        let matches =
            parse("ip saddr {10.0.0.1,10.0.0.2} tcp sport {1,2} ip daddr != {10.0.0.3,10.0.0.4}", Family::V4);
        let choices: Vec<usize> = matches.unwrap().iter().map(Vec::len).collect();
        assert_eq!(choices, [2, 2, 1]);
    }
}
