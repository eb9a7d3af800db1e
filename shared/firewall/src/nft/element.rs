//! What belongs to an attachment: records, and the elements of sets and maps that follow from them.
//!
//! The records stand in the set `attachments` under a digest of the owner. They are all that a removal needs
//! to know.

use std::fmt::{self, Display};
use std::net::IpAddr;
use std::str::FromStr;

use cni::IfName;
use ipnetwork::IpNetwork;
use netlink::Mac;

use super::expr::octets;
use super::set::Set;
use crate::rules::{Forward, Rules, subnet};

/// The most records that an attachment can have: 16 bits of index.
pub(super) const RECORDS_MAX: usize = u16::MAX as usize;

/// One fact about an attachment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Record {
    /// A container's address in its subnet, masqueraded.
    Masquerade(IpNetwork),
    /// A host port in the maps.
    Forward(Forward),
    /// A host port that is a rule of its own.
    OwnRule(Forward),
    /// Connections to the container from a network get the host's address.
    Hairpin { to: IpAddr, from: IpNetwork },
    /// A bridge port with the address that may be used there.
    Port(IfName, Mac),
}

impl Record {
    /// The records of an attachment's rules.
    pub(super) fn all(rules: &Rules) -> Vec<Self> {
        match rules {
            Rules::Masquerade(rules) => rules.addresses.iter().copied().map(Self::Masquerade).collect(),
            Rules::HostPorts(rules) => {
                let own = super::own::needed(rules);
                let record = if own { Self::OwnRule } else { Self::Forward };
                let sources = rules.sources().map(|(to, from)| Self::Hairpin { to, from });
                rules.forwards().map(record).chain(sources).collect()
            }
            Rules::SpoofCheck(rules) => vec![Self::Port(rules.port.clone(), rules.mac)],
        }
    }

    /// The elements that follow from the record.
    pub(super) fn elements(&self) -> Vec<Element> {
        match self {
            Self::Masquerade(address) => {
                let (ip, prefix, v4) = (octets(address.ip()), address.prefix(), address.is_ipv4());
                let pair = [&ip[..], &octets(address.network())].concat();
                vec![
                    Element::in_set(Set::masquerade(v4), ip),
                    Element::in_set(Set::subnets(v4, prefix), pair),
                ]
            }
            Self::Forward(forward) => vec![map_element(forward)],
            Self::Hairpin { to, from } => {
                let pair = [octets(*to), octets(from.ip())].concat();
                vec![Element::in_set(Set::hairpin(from.is_ipv4(), from.prefix()), pair)]
            }
            Self::Port(port, mac) => {
                let pair = concatenated(&[&name(port), &mac.bytes()]);
                vec![Element::in_set(Set::ports(), name(port)), Element::in_set(Set::macs(), pair)]
            }
            Self::OwnRule(_) => Vec::new(),
        }
    }
}

fn map_element(forward: &Forward) -> Element {
    let v4 = forward.to.is_ipv4();
    let (protocol, port) = ([forward.protocol.number()], forward.host_port.to_be_bytes());
    let data = concatenated(&[&octets(forward.to.ip()), &forward.to.port().to_be_bytes()]);
    match forward.host_ip {
        None => Element { set: Set::host_ports(v4), key: concatenated(&[&protocol, &port]), data },
        Some(ip) => {
            let key = concatenated(&[&octets(ip), &protocol, &port]);
            Element { set: Set::host_ip_ports(v4), key, data }
        }
    }
}

/// As text, which an operator reads as the comment of an element of `attachments`.
impl Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Masquerade(address) => write!(f, "masquerade {address}"),
            Self::Forward(forward) => write!(f, "map {forward}"),
            Self::OwnRule(forward) => write!(f, "rule {forward}"),
            Self::Hairpin { to, from } => write!(f, "hairpin {to} from {from}"),
            Self::Port(port, mac) => write!(f, "port {port} {mac}"),
        }
    }
}

impl FromStr for Record {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (kind, rest) = text.split_once(' ').ok_or(())?;
        match kind {
            "masquerade" => cidr(rest).map(Self::Masquerade),
            "map" => rest.parse().map(Self::Forward),
            "rule" => rest.parse().map(Self::OwnRule),
            "hairpin" => {
                let (to, from) = rest.split_once(" from ").ok_or(())?;
                Ok(Self::Hairpin { to: to.parse().map_err(|_| ())?, from: subnet(cidr(from)?) })
            }
            "port" => {
                let (port, mac) = rest.split_once(' ').ok_or(())?;
                Ok(Self::Port(IfName::parse(port).map_err(|_| ())?, mac.parse().map_err(|_| ())?))
            }
            _ => Err(()),
        }
    }
}

fn cidr(text: &str) -> Result<IpNetwork, ()> {
    cni::addr::parse_cidr(text).map_err(|_| ())
}

/// An element of a set, or of a map if it has data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Element {
    pub(super) set: Set,
    pub(super) key: Vec<u8>,
    pub(super) data: Vec<u8>,
}

impl Element {
    fn in_set(set: Set, key: Vec<u8>) -> Self {
        Self { set, key, data: Vec::new() }
    }

    /// An attachment's place in the set of records. 0 is for its label.
    pub(super) fn record(digest: &str, index: u16) -> Self {
        Self::in_set(Set::attachments(), concatenated(&[&padded(digest), &index.to_be_bytes()]))
    }

    /// The digest in the key of a record.
    pub(super) fn digest_of(key: &[u8]) -> Option<String> {
        netlink::wire::read_str(key.get(..16)?).map(str::to_owned)
    }
}

/// An interface's name, as the kernel compares it: padded with NULs to IFNAMSIZ.
fn name(ifname: &IfName) -> Vec<u8> {
    padded(ifname)
}

fn padded(text: &str) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    bytes.resize(16, 0);
    bytes
}

/// Each part begins a new register of 4 bytes.
fn concatenated(parts: &[&[u8]]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for part in parts {
        bytes.extend_from_slice(part);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_says_all_that_its_elements_are_made_of() {
        for text in [
            "masquerade 10.1.0.5/24",
            "masquerade fd00::5/64",
            "map tcp 8080 to 10.1.0.5:80",
            "map udp 192.0.2.1:53 to 10.1.0.5:53",
            "map sctp [fd00:2::1]:7 to [fd00::5]:7",
            "rule tcp 8080 to 10.1.0.5:80",
            "hairpin 10.1.0.5 from 127.0.0.0/8",
            "port veth0123 02:00:00:00:00:05",
        ] {
            let record: Record = text.parse().unwrap_or_else(|()| panic!("{text}"));
            assert_eq!(record.to_string(), text);
            assert_eq!(record.elements().is_empty(), text.starts_with("rule"), "{text}");
        }
    }

    #[test]
    fn what_is_no_record_is_none() {
        for text in [
            "",
            "hostports cbr0/c1/eth0",
            "masquerade cbr0/c1/eth0",
            "masquerade 10.1.0.5",
            "map tcp 8080",
            "map icmp 1 to 10.1.0.5:80",
            "map tcp 70000 to 10.1.0.5:80",
            "map tcp 192.0.2.1:1 to [fd00::5]:1",
            "map tcp 1 to 10.1.0.5:80 and more",
            "port a/b 02:00:00:00:00:05",
        ] {
            assert_eq!(text.parse::<Record>(), Err(()), "{text}");
        }
    }

    #[test]
    fn keys_are_as_the_kernel_concatenates_them() {
        let element = |text: &str| text.parse::<Record>().unwrap().elements().remove(0);
        let map = element("map udp 192.0.2.1:53 to 10.1.0.5:5353");
        assert_eq!(map.key, [192, 0, 2, 1, 17, 0, 0, 0, 0, 53, 0, 0]);
        assert_eq!(map.data, [10, 1, 0, 5, 0x14, 0xe9, 0, 0]);
        assert_eq!(element("hairpin 10.1.0.5 from 10.1.0.0/24").key, [10, 1, 0, 5, 10, 1, 0, 0]);
        assert_eq!(element("port eth0 02:00:00:00:00:05").key, *b"eth0\0\0\0\0\0\0\0\0\0\0\0\0");
    }
}
