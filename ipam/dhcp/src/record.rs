//! What is known of an attachment that has a lease, as it is kept on disk.

use std::fmt;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use cni::{Attachment, ContainerId, IfName, NetworkName};
use dhcp_client::options::Number;
use dhcp_client::{Identity, Lease};
use ipnetwork::{IpNetwork, Ipv4Network};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::store::Kept;
use crate::v6;

/// The version of the file.
const VERSION: u32 = 1;

/// What an attachment is found by: `CONTAINER/NETWORK/IFNAME`. No name has a slash in it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    text: String,
}

impl Key {
    /// That of an attachment.
    pub fn new(network: &NetworkName, at: &Attachment) -> Self {
        Self { text: format!("{}/{network}/{}", at.container, at.ifname) }
    }

    /// The names of an attachment, which are checked.
    ///
    /// # Errors
    /// Which one is none.
    pub fn parse(network: &str, container: &str, ifname: &str) -> Result<Self, String> {
        let network = NetworkName::parse(network).map_err(|e| format!("network {e}"))?;
        let container = ContainerId::parse(container).map_err(|e| format!("containerId {e}"))?;
        let ifname = IfName::parse(ifname).map_err(|e| format!("ifName {e}"))?;
        Ok(Self::new(&network, &Attachment { container, ifname }))
    }

    /// The client's identifier (option 61): of type 0, as the reference's. Servers have reservations on it.
    pub fn client_id(&self) -> Vec<u8> {
        let name = self.text.as_bytes().iter().take(LONGEST_NAME);
        std::iter::once(&0).chain(name).copied().collect()
    }

    /// The first half of a digest of it.
    pub fn digest(&self) -> [u8; 16] {
        let mut half = [0; 16];
        half.copy_from_slice(&Sha256::digest(self.text.as_bytes())[..16]);
        half
    }

    /// The name of a file, which ends with this.
    pub fn file(&self, end: &str) -> String {
        let hex: String = self.digest().iter().map(|byte| format!("{byte:02x}")).collect();
        hex + end
    }
}

/// Bytes of a client's identifier behind its type.
const LONGEST_NAME: usize = 254;

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// An attachment and its lease.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// The version of the file.
    v: u32,
    /// The network's name.
    pub network: String,
    /// The container's id.
    pub container_id: String,
    /// The interface's name.
    pub if_name: String,
    /// Where the container is.
    pub place: Place,
    /// The metric of all routes. None: the kernel's.
    pub priority: Option<u32>,
    /// Whether the server's MTU is put on the link.
    pub sets_mtu: bool,
    /// Who asks, and for what.
    pub asks: Asks,
    /// The lease is being given back: who finds it so after a kill gives it back once more, and never uses it.
    #[serde(default)]
    pub leaves: bool,
    /// None: it was lost, and another one is being asked for.
    pub lease: Option<Lease>,
    /// The address that the link has by this lease, with its prefix length. It differs from the lease's while that is put on the link.
    #[serde(with = "as_text")]
    pub on_link: Option<Ipv4Network>,
}

/// `10.1.2.3/24`.
mod as_text {
    use ipnetwork::Ipv4Network;
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

    pub fn serialize<S: Serializer>(net: &Option<Ipv4Network>, serializer: S) -> Result<S::Ok, S::Error> {
        net.map(|net| net.to_string()).serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Ipv4Network>, D::Error> {
        let text: Option<String> = Deserialize::deserialize(deserializer)?;
        text.map(|text| text.parse().map_err(D::Error::custom)).transpose()
    }
}

/// Where an interface is, and what tells it from another one that comes to have its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Place {
    /// The path of the container's namespace, on the host.
    pub netns: PathBuf,
    /// The numbers of the namespace's device and inode.
    pub netns_id: (u64, u64),
    /// The link's index.
    pub index: u32,
    /// Its hardware address.
    pub mac: [u8; 6],
}

/// [`Identity`] without what the place says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Asks {
    /// Option 61.
    pub client_id: Vec<u8>,
    /// Whether servers are asked to answer by broadcast.
    pub broadcast: bool,
    /// Options to send.
    pub provide: Vec<(Number, Vec<u8>)>,
    /// Options to ask for.
    pub request: Vec<Number>,
    /// Those that have to come.
    pub required: Vec<Number>,
}

impl Record {
    /// One of an attachment that has no lease yet.
    pub fn new(network: &str, container: &str, ifname: &str, place: Place, asks: Asks) -> Self {
        Self {
            v: VERSION,
            network: network.to_owned(),
            container_id: container.to_owned(),
            if_name: ifname.to_owned(),
            place,
            priority: None,
            sets_mtu: false,
            asks,
            leaves: false,
            lease: None,
            on_link: None,
        }
    }

    /// Who asks.
    pub fn identity(&self) -> Identity {
        let Asks { client_id, broadcast, provide, request, required } = self.asks.clone();
        Identity { mac: self.place.mac, client_id, broadcast, provide, request, required }
    }
}

impl Kept for Record {
    const END: &str = ".json";

    fn is_named(name: &str) -> bool {
        name.ends_with(Self::END) && !v6::Record::is_named(name)
    }

    fn key(&self) -> Option<Key> {
        Key::parse(&self.network, &self.container_id, &self.if_name).ok().filter(|_| self.v == VERSION)
    }
}

/// A path of the host as a daemon sees it that has the host's root directory elsewhere.
pub fn below(host_prefix: &Path, path: &Path) -> PathBuf {
    match host_prefix.as_os_str().is_empty() {
        true => path.to_owned(),
        false => host_prefix.join(path.strip_prefix("/").unwrap_or(path)),
    }
}

/// A lease's address, with its prefix length.
pub fn address_of(lease: &Lease) -> Option<Ipv4Network> {
    Ipv4Network::new(lease.address, lease.prefix).ok()
}

/// Whether a link has an address, whatever its prefix length is.
pub fn has(addresses: &[netlink::Address], wanted: Ipv4Addr) -> bool {
    addresses.iter().any(|address| matches!(address.net, IpNetwork::V4(v4) if v4.ip() == wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clients_identifier_is_the_references() {
        let key = Key::parse("net", "pod", "eth0").unwrap();
        assert_eq!(key.client_id(), b"\0pod/net/eth0");
        let long = Key::parse(&"n".repeat(200), &"c".repeat(200), "eth0").unwrap();
        assert_eq!(long.client_id().len(), 255);
    }

    #[test]
    fn attachments_have_files_of_their_own() {
        let names = [("a", "b", "eth0"), ("b", "a", "eth0"), ("a", "b", "eth1"), ("ab", "b", "eth0")];
        let files = names.map(|(n, c, i)| Key::parse(n, c, i).unwrap().file(Record::END));
        let distinct: std::collections::BTreeSet<_> = files.iter().collect();
        assert_eq!(distinct.len(), files.len());
        assert!(Key::parse("../a", "b", "eth0").is_err() && Key::parse("a", "b", "").is_err());
    }

    #[test]
    fn a_path_of_the_host_is_found_below_the_prefix() {
        let run = Path::new("/run/netns/a");
        assert_eq!(below(Path::new(""), run), run);
        assert_eq!(below(Path::new("/host"), run), Path::new("/host/run/netns/a"));
    }
}
