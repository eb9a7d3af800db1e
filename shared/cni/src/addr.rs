//! Addresses in the protocol's notation, parsed strictly: `10.0.0.5/24` is an address in CIDR notation; `10.0.0.5`, `/8` and `10.0.0.5/+8`
//! are not.
//!
//! An IPv4-mapped IPv6 address is treated as the IPv4 address, as in the reference. The modules here are for `#[serde(with = "...")]`.

use std::net::IpAddr;

use ipnetwork::IpNetwork;
use serde::{Deserialize, Deserializer, Serializer, de::Error as _};

/// Parses an address.
///
/// # Errors
/// The problem, as text.
pub fn parse_ip(text: &str) -> Result<IpAddr, String> {
    let ip: IpAddr = text.parse().map_err(|_| format!("{text:?} is not an IP address"))?;
    Ok(ip.to_canonical())
}

/// Parses the address of the host to which a port mapping is limited (`hostIP`). `None`: the port is mapped at all addresses, as with the
/// unspecified address, or the text is no address.
pub fn parse_host_ip(text: &str) -> Option<IpAddr> {
    parse_ip(text).ok().filter(|ip| !ip.is_unspecified())
}

/// Parses an address with a prefix length. Keeps the host bits.
///
/// # Errors
/// The problem, as text.
pub fn parse_cidr(text: &str) -> Result<IpNetwork, String> {
    let (ip, prefix) = text.split_once('/').ok_or_else(|| match text {
        "default" => format!("{text:?} is not an address: write 0.0.0.0/0 or ::/0"),
        _ => format!("{text:?} has no prefix length, such as {text}/24"),
    })?;
    let written: IpAddr = ip.parse().map_err(|_| format!("{text:?} is not an address in CIDR form"))?;
    let digits = !prefix.is_empty() && prefix.len() <= 3 && prefix.bytes().all(|b| b.is_ascii_digit());
    let mut prefix: u8 = Some(prefix)
        .filter(|_| digits)
        .and_then(|p| p.parse().ok())
        .ok_or_else(|| format!("{text:?} has no valid prefix length"))?;
    let ip = written.to_canonical();
    if ip.is_ipv4() != written.is_ipv4() {
        prefix = prefix.checked_sub(96).ok_or_else(|| {
            format!("{text:?} is an IPv4-mapped IPv6 network that is larger than the IPv4 part")
        })?;
    }
    IpNetwork::new(ip, prefix).map_err(|_| format!("{text:?}: the prefix length is out of range"))
}

/// Whether other hosts can reach an address without naming a link.
pub fn can_be_reached(ip: IpAddr) -> bool {
    let link_local = matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
    !ip.is_loopback() && !ip.is_unspecified() && !link_local
}

/// `4` or `6`.
pub fn family(ip: IpAddr) -> &'static str {
    if ip.is_ipv4() { "4" } else { "6" }
}

/// An address in CIDR notation.
pub mod cidr {
    use super::*;

    /// Serializes it.
    pub fn serialize<S: Serializer>(net: &IpNetwork, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(net)
    }

    /// Parses it.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<IpNetwork, D::Error> {
        parse_cidr(&String::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

/// An optional address. An empty string is treated as unset.
pub mod optional_ip {
    use super::*;

    /// Serializes it.
    pub fn serialize<S: Serializer>(ip: &Option<IpAddr>, serializer: S) -> Result<S::Ok, S::Error> {
        match ip {
            Some(ip) => serializer.collect_str(ip),
            None => serializer.serialize_none(),
        }
    }

    /// Parses it.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<IpAddr>, D::Error> {
        match String::deserialize(deserializer)? {
            text if text.is_empty() => Ok(None),
            text => parse_ip(&text).map(Some).map_err(D::Error::custom),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cidr_form_is_read_strictly() {
        assert_eq!(parse_cidr("10.0.0.5/24").unwrap().to_string(), "10.0.0.5/24");
        assert_eq!(parse_cidr("fd00::5/64").unwrap().to_string(), "fd00::5/64");
        for bad in [
            "10.0.0.5",
            "/8",
            "10.0.0.5/+8",
            "10.0.0.5/33",
            "fd00::/129",
            "10.0.0/8",
            "10.0.0.5/8/8",
            "x/8",
            "10.0.0.5/",
        ] {
            assert!(parse_cidr(bad).is_err(), "{bad}");
        }
        let error = parse_cidr("default").unwrap_err();
        assert_eq!(error, "\"default\" is not an address: write 0.0.0.0/0 or ::/0");
    }

    #[test]
    fn an_ipv4_mapped_address_is_the_ipv4_address() {
        assert_eq!(parse_ip("::ffff:10.0.0.5").unwrap().to_string(), "10.0.0.5");
        assert_eq!(parse_cidr("::ffff:10.0.0.5/120").unwrap().to_string(), "10.0.0.5/24");
        assert!(parse_cidr("::ffff:10.0.0.5/24").is_err());
    }
}
