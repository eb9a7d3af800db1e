//! Conditions in the words of nft(8): the common ones, as `ip saddr != { 192.0.2.0/24, 198.51.100.7 } tcp
//! sport 1024-65535`.

use std::net::IpAddr;

use cni::IfName;
use ipnetwork::IpNetwork;

use super::matches::{Match, Operand, Part};
use super::values::{self, Words};

/// The most rules that the alternatives of one mapping may become.
const ALTERNATIVES_MAX: usize = 64;

/// Reads conditions.
///
/// # Errors
/// Which condition is not understood.
pub(super) fn parse(text: &str, v4: bool) -> Result<Vec<Match>, String> {
    let spaced = text.replace('{', " { ").replace('}', " } ").replace(',', " , ");
    let mut words = spaced.split_whitespace().peekable();
    let mut matches = Vec::new();
    while words.peek().is_some() {
        if words.next_if_eq(&"comment").is_some() {
            values::skip_comment(&mut words)?;
            continue;
        }
        let part = part(&mut words, v4)?;
        let operators: &[&str] = if part == Part::Limit { &["over"] } else { &["==", "!="] };
        let operator = words.next_if(|word| operators.contains(word));
        let negated = matches!(operator, Some("!=" | "over"));
        let operands = operands(&mut words, part)?;
        matches.push(Match { part, negated, operands });
    }
    let choices = matches.iter().filter(|m| !m.negated).map(|m| m.operands.len());
    if choices.fold(1, usize::saturating_mul) > ALTERNATIVES_MAX {
        return Err(format!("there are too many alternatives: at most {ALTERNATIVES_MAX} are allowed"));
    }
    Ok(matches)
}

fn part<'a>(words: &mut impl Iterator<Item = &'a str>, v4: bool) -> Result<Part, String> {
    let first = words.next().unwrap_or_default();
    if matches!(first, "iifname" | "iif") {
        return Ok(Part::Iifname);
    }
    let second = words.next().unwrap_or_default();
    let protocol = first.parse().ok();
    match (first, second) {
        ("ip" | "ip6", "saddr" | "daddr") if (first == "ip") != v4 => {
            Err(format!("\"{first} {second}\" can never be true in this address family"))
        }
        ("ip" | "ip6", "saddr") => Ok(Part::Saddr(v4)),
        ("ip" | "ip6", "daddr") => Ok(Part::Daddr(v4)),
        ("meta", "l4proto") | ("ip", "protocol") => Ok(Part::Protocol),
        ("meta", "iifname" | "iif") => Ok(Part::Iifname),
        ("meta", "mark") => Ok(Part::Mark),
        ("meta", "day") => Ok(Part::Day),
        ("meta", "hour") => Ok(Part::Hour),
        ("ct", "mark") => Ok(Part::CtMark),
        ("ct", "state") => Ok(Part::CtState),
        ("limit", "rate") => Ok(Part::Limit),
        (_, "sport") if protocol.is_some() || first == "th" => Ok(Part::Sport(protocol)),
        (_, "dport") if protocol.is_some() || first == "th" => Ok(Part::Dport(protocol)),
        _ => Err(format!(
            "\"{first} {second}\" is not supported; supported are ip/ip6 saddr/daddr, tcp/udp/sctp/th sport/dport, \
             iifname, meta l4proto/mark/day/hour, ct state/mark, limit rate, comment"
        )),
    }
}

fn operands(words: &mut Words<'_>, part: Part) -> Result<Vec<Operand>, String> {
    match part {
        Part::CtState => return values::states(words).map(|states| vec![states]),
        Part::Limit => return values::rate(words).map(|rate| vec![rate]),
        _ => {}
    }
    let first = words.next().ok_or("the last condition has no value")?;
    if first != "{" {
        return Ok(vec![operand(first, part)?]);
    }
    let mut operands = Vec::new();
    loop {
        operands.push(operand(words.next().ok_or("the closing brace of a set is missing")?, part)?);
        match words.next() {
            Some("}") => return Ok(operands),
            Some(",") => {}
            _ => return Err("the closing brace of a set is missing".into()),
        }
    }
}

fn operand(text: &str, part: Part) -> Result<Operand, String> {
    let wrong = || format!("{text:?} is not a value here");
    match part {
        Part::Saddr(v4) | Part::Daddr(v4) => addresses(text, v4).ok_or_else(wrong),
        Part::Sport(_) | Part::Dport(_) => {
            let (from, to) = text.split_once('-').unwrap_or((text, text));
            let (from, to) = (from.parse().map_err(|_| wrong())?, to.parse().map_err(|_| wrong())?);
            if from <= to { Ok(Operand::Ports(from, to)) } else { Err(wrong()) }
        }
        Part::Protocol => text.parse().map(Operand::Protocol),
        Part::Iifname => {
            let text = text.trim_matches('"');
            match text.strip_suffix('*') {
                Some(prefix) => IfName::parse(prefix).map(|name| Operand::Interfaces(name.to_string())),
                None => IfName::parse(text).map(Operand::Interface),
            }
        }
        Part::Day => values::day(text).ok_or_else(wrong),
        Part::Hour => values::hours(text).ok_or_else(wrong),
        // Read as a whole, before.
        Part::CtState | Part::Limit => Err(wrong()),
        Part::Mark | Part::CtMark => {
            let number = match text.strip_prefix("0x") {
                Some(digits) => u32::from_str_radix(digits, 16).ok(),
                None => text.parse().ok(),
            };
            number.map(Operand::Mark).ok_or_else(wrong)
        }
    }
}

fn addresses(text: &str, v4: bool) -> Option<Operand> {
    let operand = if let Some((from, to)) = text.split_once('-') {
        let (from, to): (IpAddr, IpAddr) = (from.parse().ok()?, to.parse().ok()?);
        (from.is_ipv4() == to.is_ipv4() && from <= to).then_some(Operand::Addresses(from, to))?
    } else if text.contains('/') {
        Operand::Network(cni::addr::parse_cidr(text).ok()?)
    } else {
        Operand::Network(IpNetwork::from(text.parse::<IpAddr>().ok()?))
    };
    let fits = match &operand {
        Operand::Network(network) => network.is_ipv4() == v4,
        Operand::Addresses(from, _) => from.is_ipv4() == v4,
        _ => false,
    };
    fits.then_some(operand)
}

#[cfg(test)]
mod tests {
    use super::super::matches::alternatives;
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
            "limit rate 10/second burst 20 packets",
            "limit rate over 3/minute ip saddr 192.0.2.1",
            "meta day { Monday, 2 } meta hour \"08:00\"-\"17:30\"",
            "comment \"for the {office}, only\" ip saddr 192.0.2.1 comment web",
        ] {
            parse(good, true).unwrap_or_else(|e| panic!("{good}: {e}"));
        }
        assert!(parse("ip6 saddr fd00::/64", false).is_ok());
    }

    #[test]
    fn what_is_not_understood_is_named() {
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
            ("limit rate 0/second", "0/second"),
            ("limit rate 1/fortnight", "1/fortnight"),
            ("limit rate 1/second burst many", "many"),
            ("meta day 7", "7"),
            ("meta hour 17:00-08:00", "17:00-08:00"),
            ("meta hour 24:00-25:00", "24:00"),
            ("comment \"without end", "closing quote"),
            ("comment", "text of a comment is missing"),
            ("comment \"x\" drop", "drop"),
        ] {
            let error = parse(bad, true).unwrap_err();
            assert!(error.contains(culprit), "{bad}: {error}");
        }
        let many = (0..=64).map(|i| i.to_string()).collect::<Vec<_>>().join(",");
        assert!(parse(&format!("tcp sport {{{many}}}"), true).unwrap_err().contains("too many"));
    }

    /// 64 times two: a product that is 0 in 64 bits.
    #[test]
    fn alternatives_are_too_many_also_where_their_number_is_too_large_for_a_word() {
        let error = parse(&"tcp sport {1,2} ".repeat(64), true).unwrap_err();
        assert!(error.contains("too many"), "{error}");
    }

    #[test]
    fn a_set_is_a_choice_and_a_negated_set_is_none() {
        let matches =
            parse("ip saddr {10.0.0.1,10.0.0.2} tcp sport {1,2} ip daddr != {10.0.0.3,10.0.0.4}", true);
        let matches = matches.unwrap();
        let alternatives = alternatives(&matches);
        assert_eq!(alternatives.len(), 4);
        assert!(alternatives.iter().all(|a| a.len() == 3 && a[2].1.len() == 2));
    }
}
