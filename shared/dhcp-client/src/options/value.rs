//! Values of options: decode, encode from the configuration's text, display.

use std::fmt::Display;
use std::net::Ipv4Addr;
use std::str::FromStr;

use super::names::{Type, kind};
use super::{Number, hex, name};

/// A route of option 121 or 33.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClasslessRoute {
    /// The destination, without host bits.
    pub destination: Ipv4Addr,
    /// The length of its prefix, in bits.
    pub prefix: u8,
    /// The next hop. 0.0.0.0: the destination is on the link.
    pub router: Ipv4Addr,
}

/// The routes of option 121 (RFC 3442), up to the first malformed one.
pub fn classless_routes(mut value: &[u8]) -> Vec<ClasslessRoute> {
    let mut routes = Vec::new();
    while let Some((&prefix @ 0..=32, rest)) = value.split_first() {
        let significant = usize::from(prefix.div_ceil(8));
        let Some((octets, rest)) = rest.split_at_checked(significant) else { break };
        let Some((router, rest)) = rest.split_first_chunk::<4>() else { break };
        let mut destination = [0; 4];
        destination[..significant].copy_from_slice(octets);
        // RFC 3442: bits beyond the prefix are ignored.
        let destination = u32::from_be_bytes(destination) & mask(prefix);
        routes.push(ClasslessRoute {
            destination: destination.into(),
            prefix,
            router: Ipv4Addr::from(*router),
        });
        value = rest;
    }
    routes
}

/// The routes of option 33. Each destination is a host, or a network of its address's class. A default route is not
/// allowed (RFC 2132, section 5.8).
pub fn classful_routes(value: &[u8]) -> Vec<ClasslessRoute> {
    let pairs = value.as_chunks::<8>().0.iter().map(|&[a, b, c, d, e, f, g, h]| {
        let (destination, router) = (Ipv4Addr::new(a, b, c, d), Ipv4Addr::new(e, f, g, h));
        let class = class_prefix(destination);
        let is_network = u32::from(destination) & !mask(class) == 0;
        ClasslessRoute { destination, prefix: if is_network { class } else { 32 }, router }
    });
    pairs.filter(|route| !route.destination.is_unspecified()).collect()
}

/// The prefix length of an address's class (RFC 791). 32 if the class has no networks.
pub fn class_prefix(address: Ipv4Addr) -> u8 {
    match address.octets()[0] {
        0..128 => 8,
        128..192 => 16,
        192..224 => 24,
        _ => 32,
    }
}

fn mask(prefix: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(prefix.min(32))).unwrap_or(0)
}

/// Maximum length of a domain (RFC 1035, section 2.3.4).
const LONGEST_DOMAIN: usize = 253;
/// Maximum number of domains.
const MOST_DOMAINS: usize = 64;

/// The domains of option 119, compressed as in DNS (RFC 3397), up to the first malformed one. A pointer may only point
/// backwards, so there are no loops.
pub fn domains(value: &[u8]) -> Vec<String> {
    let (mut domains, mut at) = (Vec::new(), 0);
    while at < value.len() && domains.len() < MOST_DOMAINS {
        let Some((domain, next)) = domain(value, at) else { break };
        if !domain.is_empty() {
            domains.push(domain);
        }
        at = next;
    }
    domains
}

/// The domain at a position, and the position after it.
fn domain(value: &[u8], mut at: usize) -> Option<(String, usize)> {
    let (mut domain, mut next) = (String::new(), None);
    let mut limit = value.len();
    loop {
        match *value.get(at..limit.max(at))? {
            [0, ..] => return Some((domain, next.unwrap_or(at + 1))),
            [high @ 0xc0..=0xff, low, ..] => {
                let target = usize::from(u16::from_be_bytes([high & 0x3f, low]));
                next = next.or(Some(at + 2));
                // The target must end before the pointer.
                if target >= at {
                    return None;
                }
                (limit, at) = (at, target);
            }
            [length @ 1..=63, ref rest @ ..] => {
                let label = std::str::from_utf8(rest.get(..length.into())?).ok()?;
                if !label.bytes().all(is_of_a_name) || domain.len() + label.len() >= LONGEST_DOMAIN {
                    return None;
                }
                if !domain.is_empty() {
                    domain.push('.');
                }
                domain.push_str(label);
                at += 1 + usize::from(length);
            }
            _ => return None,
        }
    }
}

/// Whether a name may contain the byte. Names from the network are written to resolv.conf, so spaces and line ends are
/// refused.
pub(crate) fn is_of_a_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.')
}

/// Text from the network for display: up to the first zero byte, with control characters replaced.
pub fn text(value: &[u8]) -> String {
    let end = value.iter().position(|byte| *byte == 0).unwrap_or(value.len());
    let text = String::from_utf8_lossy(&value[..end]);
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// Encodes an option's value from the configuration's text. The text is parsed if the option is an address, a number or
/// a flag, or a comma-separated list of these. Otherwise its bytes are the value. They are also the value if they have the
/// option's length and contain a control character: the reference sends the bytes of any text.
///
/// # Errors
/// The reason, for a message.
pub fn encode(number: Number, text: &str) -> Result<Vec<u8>, String> {
    let is_binary = text.contains(char::is_control) && Some(text.len()) == length(kind(number));
    parse(number, text).or_else(|e| if is_binary { Ok(text.as_bytes().to_vec()) } else { Err(e) })
}

/// The length of a value of a type, or of one item of its list, in bytes. None: any length.
fn length(kind: Type) -> Option<usize> {
    match kind {
        Type::Flag | Type::Number8 => Some(1),
        Type::Number16 | Type::Numbers16 => Some(2),
        Type::Address | Type::Addresses | Type::Number32 | Type::Signed32 => Some(4),
        Type::Pairs => Some(8),
        Type::Domains | Type::Routes | Type::Bytes | Type::Text => None,
    }
}

fn parse(number: Number, text: &str) -> Result<Vec<u8>, String> {
    let wrong = |what: &str| format!("option {}: {text:?} is not {what}", name(number));
    match kind(number) {
        Type::Address => one::<Ipv4Addr>(text)
            .map(|address| address.octets().to_vec())
            .ok_or_else(|| wrong("an IPv4 address")),
        Type::Addresses => {
            list(text, |address: Ipv4Addr| address.octets()).ok_or_else(|| wrong("a list of IPv4 addresses"))
        }
        Type::Pairs => list(text, |address: Ipv4Addr| address.octets())
            .filter(|bytes| bytes.len() % 8 == 0)
            .ok_or_else(|| wrong("a list of pairs of IPv4 addresses")),
        Type::Flag => one::<bool>(text).map(|flag| vec![flag.into()]).ok_or_else(|| wrong("true or false")),
        Type::Number8 => one::<u8>(text).map(|n| vec![n]).ok_or_else(|| wrong("a number from 0 to 255")),
        Type::Number16 => one::<u16>(text)
            .map(|n| n.to_be_bytes().to_vec())
            .ok_or_else(|| wrong("a number from 0 to 65535")),
        Type::Numbers16 => {
            list(text, u16::to_be_bytes).ok_or_else(|| wrong("a list of numbers from 0 to 65535"))
        }
        Type::Number32 => {
            one::<u32>(text).map(|n| n.to_be_bytes().to_vec()).ok_or_else(|| wrong("a number of 32 bits"))
        }
        Type::Signed32 => {
            one::<i32>(text).map(|n| n.to_be_bytes().to_vec()).ok_or_else(|| wrong("a number of 32 bits"))
        }
        Type::Domains | Type::Routes | Type::Bytes | Type::Text => Ok(text.as_bytes().to_vec()),
    }
}

fn one<T: FromStr>(text: &str) -> Option<T> {
    text.trim().parse().ok()
}

fn list<T: FromStr, const N: usize>(text: &str, bytes: impl Fn(T) -> [u8; N]) -> Option<Vec<u8>> {
    text.split([',', ' ']).filter(|item| !item.is_empty()).try_fold(Vec::new(), |mut all, item| {
        all.extend(bytes(one(item)?));
        Some(all)
    })
}

/// An option's value for display: according to its type, otherwise as text, otherwise in hexadecimal digits.
pub fn display(number: Number, value: &[u8]) -> String {
    let typed = match kind(number) {
        Type::Address | Type::Addresses | Type::Pairs => chunks(value, <Ipv4Addr as From<[u8; 4]>>::from),
        Type::Flag => chunks(value, |[byte]: [u8; 1]| byte != 0),
        Type::Number8 => chunks(value, u8::from_be_bytes),
        Type::Number16 | Type::Numbers16 => chunks(value, u16::from_be_bytes),
        Type::Number32 => chunks(value, u32::from_be_bytes),
        Type::Signed32 => chunks(value, i32::from_be_bytes),
        Type::Domains => Some(domains(value).join(", ")).filter(|text| !text.is_empty()),
        Type::Routes => Some(routes(value)).filter(|text| !text.is_empty()),
        Type::Bytes => None,
        Type::Text => printable(value),
    };
    typed.unwrap_or_else(|| format!("0x{}", hex::write(value)))
}

fn routes(value: &[u8]) -> String {
    let route =
        |ClasslessRoute { destination, prefix, router }| format!("{destination}/{prefix} via {router}");
    classless_routes(value).into_iter().map(route).collect::<Vec<_>>().join(", ")
}

/// Text without control characters. Old servers append a zero byte.
fn printable(value: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(value.strip_suffix(&[0]).unwrap_or(value)).ok()?;
    (!text.is_empty() && !text.chars().any(char::is_control)).then(|| text.to_owned())
}

fn chunks<T: Display, const N: usize>(value: &[u8], read: impl Fn([u8; N]) -> T) -> Option<String> {
    let (items, rest) = value.as_chunks::<N>();
    let texts: Vec<String> = items.iter().map(|bytes| read(*bytes).to_string()).collect();
    (rest.is_empty() && !texts.is_empty()).then(|| texts.join(", "))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn classless_routes_are_read_as_the_rfc_writes_them() {
        // RFC 3442, the table of destination descriptors, each with the router 10.0.0.1.
        let rows: &[(&[u8], &str)] = &[
            (&[0], "0.0.0.0/0"),
            (&[8, 10], "10.0.0.0/8"),
            (&[24, 10, 0, 0], "10.0.0.0/24"),
            (&[16, 10, 17], "10.17.0.0/16"),
            (&[24, 10, 27, 129], "10.27.129.0/24"),
            (&[25, 10, 229, 0, 128], "10.229.0.128/25"),
            (&[32, 10, 198, 122, 47], "10.198.122.47/32"),
            // Bits beyond the prefix are cleared.
            (&[12, 10, 255], "10.240.0.0/12"),
        ];
        let value: Vec<u8> =
            rows.iter().flat_map(|(bytes, _)| [bytes, &[10, 0, 0, 1][..]].concat()).collect();
        let expected: Vec<String> = rows.iter().map(|(_, text)| format!("{text} via 10.0.0.1")).collect();
        assert_eq!(display(121, &value), expected.join(", "));
        for length in 0..value.len() {
            assert!(classless_routes(&value[..length]).len() < rows.len());
        }
        assert!(classless_routes(&[33, 1, 2, 3, 4, 5, 10, 0, 0, 1]).is_empty());
    }

    #[test]
    fn a_classful_route_is_to_a_network_of_its_class_or_to_a_host() {
        let value = [[10, 0, 0, 0], [172, 16, 0, 0], [192, 168, 1, 0], [10, 0, 0, 9], [0, 0, 0, 0]];
        let value: Vec<u8> =
            value.iter().flat_map(|address| [&address[..], &[10, 0, 0, 1]].concat()).collect();
        let routes = classful_routes(&[&value[..], &[1, 2, 3]].concat());
        let texts: Vec<_> =
            routes.iter().map(|r| format!("{}/{} {}", r.destination, r.prefix, r.router)).collect();
        let expected = ["10.0.0.0/8", "172.16.0.0/16", "192.168.1.0/24", "10.0.0.9/32"];
        assert_eq!(texts, expected.map(|to| format!("{to} 10.0.0.1")));
    }

    #[test]
    fn domains_are_read_as_the_rfc_compresses_them_and_no_pointer_leads_round() {
        // RFC 3397, section 2: eng.apple.com and marketing.apple.com.
        let value = b"\x03eng\x05apple\x03com\x00\x09marketing\xc0\x04";
        assert_eq!(domains(value), ["eng.apple.com", "marketing.apple.com"]);
        for hostile in [
            &b"\xc0\x00"[..],
            b"\x01a\xc0\x00",
            b"\x01a\xc0\x02",
            b"\x01a\xc0\x09",
            b"\xc0",
            b"\x05a",
            b"\x40a",
            b"\x03a\nb\x00",
            b"\x03a b\x00",
            b"\x00\x00",
        ] {
            assert!(domains(hostile).is_empty(), "{hostile:?}");
        }
        let long = [&[63; 1][..], &[b'a'; 63]].concat().repeat(5);
        assert!(domains(&[&long[..], &[0]].concat()).is_empty());
        assert!(domains(&b"\x01a\x00".repeat(1000)).len() <= MOST_DOMAINS);
    }

    #[test]
    fn a_text_is_encoded_according_to_the_options_type_and_displayed_again() {
        for (number, text, bytes) in [
            (12, "pod-1", &b"pod-1"[..]),
            (61, "01:02", b"01:02"),
            (224, "site", b"site"),
            (1, "255.255.255.0", &[255, 255, 255, 0]),
            (6, "10.0.0.1, 10.0.0.2", &[10, 0, 0, 1, 10, 0, 0, 2]),
            (26, "1400", &[5, 120]),
            (2, "-3600", &[255, 255, 241, 240]),
            (51, "3600", &[0, 0, 14, 16]),
            (19, "true", &[1]),
            (23, "64", &[64]),
        ] {
            assert_eq!(encode(number, text).unwrap(), bytes, "option {number}");
            assert_eq!(display(number, bytes), text, "option {number}");
        }
        for (number, wrong) in [
            (1, "255.255.255"),
            (6, "ten"),
            (26, "65536"),
            (19, "1"),
            (33, "10.0.0.1"),
            (23, "-1"),
            (51, "1h30"),
        ] {
            let error = encode(number, wrong).unwrap_err();
            assert!(error.contains(&name(number)) && error.contains(wrong), "{error}");
        }
        assert_eq!(display(12, b"a\x1b[2J"), "0x611b5b324a");
        assert_eq!(text(b"no\nway\0rest"), "no\u{fffd}way");
    }

    /// As the reference's configurations contain them.
    #[test]
    fn binary_values_of_the_options_length_are_sent_as_written() {
        for (number, binary) in [
            (51, "\0\0\u{e}\u{10}"),
            (50, "\n\u{1}\u{2}\u{3}"),
            (6, "\n\u{1}\u{2}\u{3}"),
            (57, "\u{5}x"),
            (19, "\u{1}"),
        ] {
            assert_eq!(encode(number, binary).unwrap(), binary.as_bytes(), "option {number}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_values_never_panic(number in any::<u8>(), value in proptest::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(!display(number, &value).chars().any(char::is_control));
            prop_assert!(domains(&value).iter().all(|domain| domain.len() <= LONGEST_DOMAIN));
            for route in classless_routes(&value).into_iter().chain(classful_routes(&value)) {
                prop_assert_eq!(u32::from(route.destination) & !mask(route.prefix), 0);
            }
        }
    }
}
