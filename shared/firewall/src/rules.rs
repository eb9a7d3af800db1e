//! The rules as data: what is wanted, whichever backend installs it.

mod host_ports;

use std::fmt::{self, Display};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use cni::IfName;
use ipnetwork::{IpNetwork, Ipv4Network, Ipv6Network};
use netlink::Mac;

use crate::Backend;
pub(crate) use host_ports::Forward;
pub use host_ports::{ChainName, HostPort, HostPorts, Mark, SourceNat};

/// What the rules of an attachment are for. Each kind is installed and removed as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// See [`Masquerade`].
    Masquerade,
    /// See [`HostPorts`].
    HostPorts,
    /// See [`SpoofCheck`].
    SpoofCheck,
}

impl Kind {
    /// The name in the ruleset.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Masquerade => "masquerade",
            Self::HostPorts => "hostports",
            Self::SpoofCheck => "spoofcheck",
        }
    }
}

impl Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The rules of one attachment, of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rules {
    /// Source NAT of what leaves the container's subnet.
    Masquerade(Masquerade),
    /// Ports of the host that lead to the container.
    HostPorts(HostPorts),
    /// Only frames with the container's own source address.
    SpoofCheck(SpoofCheck),
}

impl Rules {
    /// Their kind.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Masquerade(_) => Kind::Masquerade,
            Self::HostPorts(_) => Kind::HostPorts,
            Self::SpoofCheck(_) => Kind::SpoofCheck,
        }
    }

    /// The backend that alone can do what they ask for, if it is so.
    pub fn backend(&self) -> Option<Backend> {
        match self {
            Self::HostPorts(rules) => rules.backend(),
            Self::Masquerade(_) | Self::SpoofCheck(_) => None,
        }
    }
}

/// What the container sends to outside of its subnet leaves with the host's address (the key `ipMasq`).
/// Multicast does not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Masquerade {
    /// The container's addresses, each with the subnet that it is at home in.
    pub addresses: Vec<IpNetwork>,
}

/// A transport protocol (the key `protocol`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

impl Protocol {
    /// Its number (RFC 5237's registry).
    pub fn number(self) -> u8 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
            Self::Sctp => 132,
        }
    }

    /// Its name, as the configuration and the tools write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Sctp => "sctp",
        }
    }
}

impl Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Protocol {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        [Self::Tcp, Self::Udp, Self::Sctp]
            .into_iter()
            .find(|p| p.as_str().eq_ignore_ascii_case(text))
            .ok_or_else(|| format!("protocol {text:?} is none of tcp, udp, sctp"))
    }
}

const ANY_V4: Ipv4Network = v4(Ipv4Addr::UNSPECIFIED, 0);
const ANY_V6: Ipv6Network = v6(Ipv6Addr::UNSPECIFIED, 0);
const LOOPBACK_V4: Ipv4Network = v4(Ipv4Addr::new(127, 0, 0, 0), 8);
const LOOPBACK_V6: Ipv6Network = v6(Ipv6Addr::LOCALHOST, 128);

/// What is never masqueraded: containers may talk to those beside them by multicast.
pub(crate) const MULTICAST_V4: IpNetwork = IpNetwork::V4(v4(Ipv4Addr::new(224, 0, 0, 0), 4));
pub(crate) const MULTICAST_V6: IpNetwork = IpNetwork::V6(v6(Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8));

const fn v4(ip: Ipv4Addr, prefix: u8) -> Ipv4Network {
    match Ipv4Network::new_checked(ip, prefix) {
        Some(network) => network,
        None => panic!("a prefix length out of range"),
    }
}

const fn v6(ip: Ipv6Addr, prefix: u8) -> Ipv6Network {
    match Ipv6Network::new_checked(ip, prefix) {
        Some(network) => network,
        None => panic!("a prefix length out of range"),
    }
}

/// The subnet that an address with a prefix length is in.
pub(crate) fn subnet(address: IpNetwork) -> IpNetwork {
    IpNetwork::new(address.network(), address.prefix()).unwrap_or(address)
}

/// Frames that come from a bridge port with another source address than the container's are dropped (the key
/// `macspoofchk`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpoofCheck {
    /// The bridge port: the host's end of the container's veth.
    pub port: IfName,
    /// The container's address.
    pub mac: Mac,
}
