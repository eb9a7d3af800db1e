//! Hardware addresses.

use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::str::FromStr;

/// An Ethernet address, EUI-48.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mac([u8; 6]);

impl Mac {
    /// From bytes in the order of transmission.
    pub const fn new(bytes: [u8; 6]) -> Self {
        Self(bytes)
    }

    /// Its bytes.
    pub const fn bytes(self) -> [u8; 6] {
        self.0
    }

    /// A locally administered unicast address with these last five bytes (IEEE 802-2014, section 8.4).
    pub const fn local(tail: [u8; 5]) -> Self {
        let [a, b, c, d, e] = tail;
        Self([0x02, a, b, c, d, e])
    }

    /// A random address for a new link. Without an address in the request, the kernel chooses one at random, and on many hosts udev replaces
    /// it a moment later (`MACAddressPolicy=persistent`, systemd.link(5)).
    pub fn random() -> Self {
        let [a, b, c, d, e, ..] = RandomState::new().build_hasher().finish().to_ne_bytes();
        Self::local([a, b, c, d, e])
    }

    /// Whether it is a multicast address.
    pub const fn is_multicast(self) -> bool {
        self.0[0] & 1 != 0
    }

    /// Whether it is all zero, which is not a valid address.
    pub fn is_zero(self) -> bool {
        self.0 == [0; 6]
    }

    pub(crate) fn read(value: &[u8]) -> Option<Self> {
        <[u8; 6]>::try_from(value).ok().map(Self)
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl FromStr for Mac {
    type Err = String;

    /// Parses six bytes: `02:42:ac:11:00:02`, `02-42-ac-11-00-02` or `0242.ac11.0002`.
    fn from_str(text: &str) -> Result<Self, String> {
        let bytes = parse_hardware_address(text).and_then(|bytes| bytes.try_into().ok());
        bytes.map(Self).ok_or_else(|| format!("{text:?} is not a MAC address such as 02:42:ac:11:00:02"))
    }
}

/// Parses a hardware address of any length in the notations of Go's `net.ParseMAC`, which the reference uses: groups of two hexadecimal
/// digits, separated by `:` or `-`, or groups of four, separated by `.`.
pub fn parse_hardware_address(text: &str) -> Option<Vec<u8>> {
    let (separator, length) = match text.find(['.', '-']).map(|at| text.as_bytes()[at]) {
        Some(b'.') => ('.', 4),
        Some(_) => ('-', 2),
        None => (':', 2),
    };
    let mut bytes = Vec::new();
    for group in text.split(separator) {
        if group.len() != length || !group.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        let number = u16::from_str_radix(group, 16).ok()?.to_be_bytes();
        bytes.extend(&number[2 - length / 2..]);
    }
    Some(bytes)
}

/// Length of an IP over InfiniBand address (INFINIBAND_ALEN): a queue pair and a port's GID (RFC 4391, section 9.1.1).
const INFINIBAND: usize = 20;

/// A hardware address of Ethernet or of IP over InfiniBand. Tunnels have an IP address instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HardwareAddress(Vec<u8>);

impl HardwareAddress {
    /// Parses an IP over InfiniBand address: twenty bytes, in the notations of a [`Mac`].
    pub fn infiniband(text: &str) -> Option<Self> {
        parse_hardware_address(text).map(Self).filter(|address| address.0.len() == INFINIBAND)
    }

    pub(crate) fn read(value: &[u8]) -> Option<Self> {
        (value.len() == INFINIBAND).then(|| Self(value.to_owned()))
    }
}

impl From<Mac> for HardwareAddress {
    fn from(mac: Mac) -> Self {
        Self(mac.bytes().to_vec())
    }
}

impl fmt::Display for HardwareAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes: Vec<String> = self.0.iter().map(|byte| format!("{byte:02x}")).collect();
        f.write_str(&bytes.join(":"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_infiniband_has_twenty_bytes() {
        let text = "80:00:02:08:fe:80:00:00:00:00:00:00:F4:52:14:03:00:7b:cb:a1";
        let read = HardwareAddress::infiniband(text).unwrap();
        assert_eq!(read.to_string(), text.to_lowercase());
        assert_eq!(HardwareAddress::read(&read.0), Some(read));
        assert_eq!(HardwareAddress::infiniband(&text.replace(':', "-")), HardwareAddress::infiniband(text));
        for bad in ["02:00:00:00:00:07", &text[3..], &text.replace("80", "+8")] {
            assert_eq!(HardwareAddress::infiniband(bad), None, "{bad}");
        }
        // A tunnel over IPv4.
        assert_eq!(HardwareAddress::read(&[192, 0, 2, 1]), None);
    }

    #[test]
    fn a_mac_reads_in_each_notation_and_writes_in_one() {
        for text in ["0A:00:00:00:00:ff", "0a-00-00-00-00-FF", "0a00.0000.00Ff"] {
            assert_eq!(text.parse::<Mac>().unwrap().to_string(), "0a:00:00:00:00:ff");
        }
        for bad in [
            "",
            "0a:00:00:00:00",
            "0a:00:00:00:00:ff:00",
            "0a:0:00:00:00:ff",
            "0g:00:00:00:00:ff",
            "+a:00:00:00:00:ff",
            "0a00.0000",
            "0a00.00.00.00ff",
            "0a00:0000:00ff",
            "0a-00:00-00:00-ff",
        ] {
            assert!(bad.parse::<Mac>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_random_mac_is_locally_administered_and_unicast() {
        for mac in [Mac::local([0xff; 5]), Mac::random()] {
            assert!(mac.bytes()[0] == 2 && !mac.is_multicast() && !mac.is_zero());
        }
        assert_ne!(Mac::random(), Mac::random());
        assert!("01:00:5e:00:00:01".parse::<Mac>().unwrap().is_multicast());
    }
}
