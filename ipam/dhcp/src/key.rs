//! Key of a lease: attachment and address family.

use std::fmt;

use cni::{Attachment, ContainerId, IfName, NetworkName};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The family of an address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Family {
    /// Leased by DHCP (RFC 2131).
    #[default]
    #[serde(rename = "ipv4")]
    V4,
    /// Leased by DHCPv6 (RFC 8415).
    #[serde(rename = "ipv6")]
    V6,
}

impl Family {
    /// Both families.
    pub const ALL: [Self; 2] = [Self::V4, Self::V6];

    /// Suffix of the family's record files.
    fn end(self) -> &'static str {
        match self {
            Self::V4 => ".json",
            Self::V6 => ".v6.json",
        }
    }
}

/// An attachment, as `CONTAINER/NETWORK/IFNAME`, and a family. None of the names contains a slash.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    attachment: String,
    pub family: Family,
}

impl Key {
    /// The key of an attachment.
    pub fn new(network: &NetworkName, at: &Attachment, family: Family) -> Self {
        Self { attachment: format!("{}/{network}/{}", at.container, at.ifname), family }
    }

    /// Checks the names of an attachment.
    ///
    /// # Errors
    /// The invalid name.
    pub fn parse(network: &str, container: &str, ifname: &str, family: Family) -> Result<Self, String> {
        let network = NetworkName::parse(network).map_err(|e| format!("network {e}"))?;
        let container = ContainerId::parse(container).map_err(|e| format!("containerId {e}"))?;
        let ifname = IfName::parse(ifname).map_err(|e| format!("ifName {e}"))?;
        Ok(Self::new(&network, &Attachment { container, ifname }, family))
    }

    /// The same attachment with another family.
    pub fn of(&self, family: Family) -> Self {
        Self { family, ..self.clone() }
    }

    /// The attachment, for errors. For IPv6, with the family.
    pub fn describe(&self) -> String {
        match self.family {
            Family::V4 => self.attachment.clone(),
            Family::V6 => format!("{} (IPv6)", self.attachment),
        }
    }

    /// The client identifier (option 61), of type 0 and equal to the reference's: servers may have reservations for it.
    pub fn client_id(&self) -> Vec<u8> {
        let name = self.attachment.as_bytes().iter().take(LONGEST_NAME);
        std::iter::once(&0).chain(name).copied().collect()
    }

    /// The name of the record file: the first half of a digest of the attachment, and the family's suffix.
    pub fn file(&self) -> String {
        let digest = Sha256::digest(self.attachment.as_bytes());
        let hex: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        hex + self.family.end()
    }
}

/// Maximum length of a client identifier without its type, in bytes.
const LONGEST_NAME: usize = 254;

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.attachment)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn the_clients_identifier_is_the_references() {
        let key = Key::parse("net", "pod", "eth0", Family::V4).unwrap();
        assert_eq!(key.client_id(), b"\0pod/net/eth0");
        let long = Key::parse(&"n".repeat(200), &"c".repeat(200), "eth0", Family::V4).unwrap();
        assert_eq!(long.client_id().len(), 255);
    }

    #[test]
    fn attachments_have_files_of_their_own() {
        let names = [("a", "b", "eth0"), ("b", "a", "eth0"), ("a", "b", "eth1"), ("ab", "b", "eth0")];
        let keys = names.map(|(n, c, i)| Key::parse(n, c, i, Family::V4).unwrap());
        let files = keys.iter().flat_map(|key| Family::ALL.map(|family| key.of(family).file()));
        let distinct: std::collections::BTreeSet<_> = files.collect();
        assert_eq!(distinct.len(), 2 * keys.len());
        let parse = |n, i| Key::parse(n, "b", i, Family::V4);
        assert!(parse("../a", "eth0").is_err() && parse("a", "").is_err());
    }
}
