//! Hardware addresses.

use std::fmt;
use std::str::FromStr;

/// An Ethernet address, EUI-48.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mac([u8; 6]);

impl Mac {
    /// From its bytes, in the order of transmission.
    pub const fn new(bytes: [u8; 6]) -> Self {
        Self(bytes)
    }

    /// Its bytes.
    pub const fn bytes(self) -> [u8; 6] {
        self.0
    }

    /// A locally administered unicast address made of five bytes (IEEE 802-2014, section 8.4).
    pub const fn local(tail: [u8; 5]) -> Self {
        let [a, b, c, d, e] = tail;
        Self([0x02, a, b, c, d, e])
    }

    /// Whether it addresses a group.
    pub const fn is_multicast(self) -> bool {
        self.0[0] & 1 != 0
    }

    /// Whether it is all zero, which is no address.
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

    /// Reads six bytes of two hexadecimal digits, separated by `:` or by `-`.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not a MAC address such as 02:42:ac:11:00:02");
        let separator = if text.contains('-') { '-' } else { ':' };
        let mut bytes = [0; 6];
        let mut parts = text.split(separator);
        for byte in &mut bytes {
            let part = parts.next().filter(|p| p.len() == 2 && p.bytes().all(|b| b.is_ascii_hexdigit()));
            *byte = part.and_then(|p| u8::from_str_radix(p, 16).ok()).ok_or_else(wrong)?;
        }
        if parts.next().is_some() { Err(wrong()) } else { Ok(Self(bytes)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mac_reads_in_either_notation_and_writes_in_one() {
        for text in ["0A:00:00:00:00:ff", "0a-00-00-00-00-FF"] {
            assert_eq!(text.parse::<Mac>().unwrap().to_string(), "0a:00:00:00:00:ff");
        }
        for bad in [
            "",
            "0a:00:00:00:00",
            "0a:00:00:00:00:ff:00",
            "0a:0:00:00:00:ff",
            "0g:00:00:00:00:ff",
            "+a:00:00:00:00:ff",
        ] {
            assert!(bad.parse::<Mac>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_made_up_address_is_local_and_unicast() {
        let mac = Mac::local([0xff; 5]);
        assert!(!mac.is_multicast() && !mac.is_zero());
        assert!("01:00:5e:00:00:01".parse::<Mac>().unwrap().is_multicast());
    }
}
