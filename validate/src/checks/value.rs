//! Checks strings against their type in the schema.

use cni::addr::{parse_cidr, parse_ip};
use cni::{IfName, LinkName};

use crate::schema::Type;

/// Whether values of the type are strings with a format.
pub fn takes_text(takes: Type) -> bool {
    !matches!(
        takes,
        Type::Bool | Type::Number(..) | Type::List(_) | Type::Object(_) | Type::Map(_) | Type::Plugin
    )
}

/// The problem of a string of such a type. None: it is valid.
pub fn read(takes: Type, text: &str) -> Result<(), String> {
    match takes {
        Type::OneOf(words) if !text.is_empty() => match words.contains(&text) {
            true => Ok(()),
            false => Err(format!("{text:?} is none of {}", words.join(", "))),
        },
        // Plugins treat an empty string as unset.
        _ if text.is_empty() => Ok(()),
        // Whether a version is supported depends on the other versions of the network.
        Type::Version if is_version(text) => Ok(()),
        Type::Version => Err(format!("{text:?} is not a version, such as {}", cni::Version::LATEST)),
        Type::BoolOrText if ["true", "false"].iter().any(|word| text.eq_ignore_ascii_case(word)) => Ok(()),
        Type::BoolOrText => Err(format!("{text:?} is neither true nor false")),
        Type::Ip => parse_ip(text).map(drop),
        Type::Cidr => parse_cidr(text).map(drop),
        Type::IpOrCidr => parse_ip(text).map(drop).or_else(|_| parse_cidr(text).map(drop)),
        Type::Mac if is_mac(text) => Ok(()),
        Type::Mac => Err(format!("{text:?} is not a MAC address, such as 0a:58:0a:00:00:05")),
        Type::IfName => IfName::parse(text).map(drop),
        Type::LinkName => LinkName::parse(text).map(drop),
        _ => Ok(()),
    }
}

/// Three numbers, separated by dots.
pub fn is_version(text: &str) -> bool {
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    text.split('.').count() == 3 && text.split('.').all(is_number)
}

/// A MAC address of 6 bytes (Ethernet), or of 8 or 20 bytes (InfiniBand). The reference accepts the same lengths and notations.
fn is_mac(text: &str) -> bool {
    netlink::parse_hardware_address(text).is_some_and(|bytes| matches!(bytes.len(), 6 | 8 | 20))
}
