//! Host ports.

use std::fmt::{self, Display};
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU16;
use std::str::FromStr;

use ipnetwork::IpNetwork;

use super::{ANY_V4, ANY_V6, LOOPBACK_V4, LOOPBACK_V6, Protocol, subnet};
use crate::{Backend, Conditions};

/// Ports of this host's own addresses that lead to the container (an entry of `portMappings`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPorts {
    /// The container's addresses with their subnets. The first of each family is what the ports lead to.
    pub addresses: Vec<IpNetwork>,
    /// The mappings.
    pub mappings: Vec<HostPort>,
    /// Whose connections through a mapping get the host's source address.
    pub source_nat: SourceNat,
    /// How connections that need source NAT are told apart from others on their way.
    pub mark: Mark,
    /// What else a packet must fulfil to be mapped.
    pub conditions: Conditions,
}

impl HostPorts {
    /// The backend that alone can do what they ask for, if it is so: whose words the conditions are, or
    /// iptables if marks are set by a chain.
    pub fn backend(&self) -> Option<Backend> {
        match self.mark {
            Mark::Chain(_) => Some(Backend::Iptables),
            Mark::Bit(_) => self.conditions.backend(),
        }
    }

    /// The addresses that ports lead to: at most one in each family.
    pub(crate) fn targets(&self) -> impl Iterator<Item = IpNetwork> {
        let first = |v4| self.addresses.iter().copied().find(move |a| a.is_ipv4() == v4);
        first(true).into_iter().chain(first(false))
    }

    /// Each mapping with the address that it leads to, for every family that it is in.
    pub(crate) fn forwards(&self) -> impl Iterator<Item = Forward> {
        self.targets()
            .flat_map(|target| self.mappings.iter().filter_map(move |mapping| mapping.towards(target.ip())))
    }

    /// Each container address with the networks whose connections to it get the host's source address.
    pub(crate) fn sources(&self) -> impl Iterator<Item = (IpAddr, IpNetwork)> {
        let masq = self.source_nat;
        self.targets()
            .filter(|target| self.forwards().any(|f| f.to.is_ipv4() == target.is_ipv4()))
            .flat_map(move |target| masq.networks(target).into_iter().map(move |from| (target.ip(), from)))
    }
}

/// Whose connections through a host port get the host's source address (the keys `snat` and `masqAll`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum SourceNat {
    /// Nobody's.
    None,
    /// Those of the container's own subnet (hairpin) and of the host's loopback addresses: without, answers
    /// would not come back through the host.
    #[default]
    Hairpin,
    /// Everybody's.
    All,
}

impl SourceNat {
    fn networks(self, target: IpNetwork) -> Vec<IpNetwork> {
        match (self, target) {
            (Self::None, _) => Vec::new(),
            (Self::Hairpin, IpNetwork::V4(_)) => vec![subnet(target), IpNetwork::V4(LOOPBACK_V4)],
            (Self::Hairpin, IpNetwork::V6(_)) => vec![subnet(target), IpNetwork::V6(LOOPBACK_V6)],
            (Self::All, IpNetwork::V4(_)) => vec![IpNetwork::V4(ANY_V4)],
            (Self::All, IpNetwork::V6(_)) => vec![IpNetwork::V6(ANY_V6)],
        }
    }
}

/// How a mapped connection that needs source NAT is told apart on its way through the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mark {
    /// By this bit of a mark, 0 to 31 (the key `markMasqBit`): the packet's with iptables, the connection's with nftables.
    Bit(u8),
    /// By jumping to a chain of somebody else, who does the source NAT too (the key `externalSetMarkChain`).
    /// The iptables backend only.
    Chain(ChainName),
}

impl Mark {
    /// The bit that is used if the configuration does not say: 13. Kubernetes uses 14 and 15, Calico 20 to
    /// 31.
    pub const DEFAULT_BIT: u8 = 13;

    /// A bit, checked.
    ///
    /// # Errors
    /// If it is not within 0 to 31.
    pub fn bit(bit: i64) -> Result<Self, String> {
        match u8::try_from(bit) {
            Ok(bit @ 0..=31) => Ok(Self::Bit(bit)),
            _ => Err(format!("{bit} is not a bit of a mark: 0 to 31")),
        }
    }
}

impl Default for Mark {
    fn default() -> Self {
        Self::Bit(Self::DEFAULT_BIT)
    }
}

/// The name of an iptables chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainName(String);

impl ChainName {
    /// Checks the name: 1 to 28 printable characters, no white space, no quotes, not beginning with `-` or
    /// `!` (as iptables(8) itself checks it).
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let plain = |c: char| c.is_ascii_graphic() && !matches!(c, '"' | '\'' | '\\' | ':' | '#');
        if text.is_empty() || text.len() > 28 || !text.chars().all(plain) || text.starts_with(['-', '!']) {
            return Err(format!("{text:?} is not the name of an iptables chain"));
        }
        Ok(Self(text.to_owned()))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A port of the host that leads to a port of the container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HostPort {
    /// The protocol.
    pub protocol: Protocol,
    /// The host's address. None, or an unspecified address (of its family): all of them.
    pub host_ip: Option<IpAddr>,
    /// The host's port.
    pub host_port: NonZeroU16,
    /// The container's port.
    pub container_port: NonZeroU16,
}

impl HostPort {
    /// The mapping to a container's address, if it is in that address's family.
    fn towards(&self, target: IpAddr) -> Option<Forward> {
        if self.host_ip.is_some_and(|ip| ip.is_ipv4() != target.is_ipv4()) {
            return None;
        }
        Some(Forward {
            protocol: self.protocol,
            host_ip: self.host_ip.filter(|ip| !ip.is_unspecified()),
            host_port: self.host_port.get(),
            to: SocketAddr::new(target, self.container_port.get()),
        })
    }
}

/// A mapping in one family, with the address that it leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Forward {
    pub(crate) protocol: Protocol,
    /// None: all of the host's addresses in the family of `to`.
    pub(crate) host_ip: Option<IpAddr>,
    pub(crate) host_port: u16,
    pub(crate) to: SocketAddr,
}

/// As a record in the ruleset: `tcp 192.0.2.1:8080 to 10.1.0.5:80`, or `tcp 8080 to 10.1.0.5:80`.
impl Display for Forward {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host_ip {
            Some(ip) => write!(f, "{} {} to {}", self.protocol, SocketAddr::new(ip, self.host_port), self.to),
            None => write!(f, "{} {} to {}", self.protocol, self.host_port, self.to),
        }
    }
}

impl FromStr for Forward {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut words = text.split(' ');
        let mut word = || words.next().ok_or(());
        let protocol = word()?.parse().map_err(|_| ())?;
        let from = word()?;
        let (host_ip, host_port) = match from.parse::<SocketAddr>() {
            Ok(from) => (Some(from.ip()), from.port()),
            Err(_) => (None, from.parse().map_err(|_| ())?),
        };
        if word()? != "to" {
            return Err(());
        }
        let to: SocketAddr = word()?.parse().map_err(|_| ())?;
        let fits = host_ip.is_none_or(|ip| ip.is_ipv4() == to.is_ipv4());
        if fits && words.next().is_none() { Ok(Self { protocol, host_ip, host_port, to }) } else { Err(()) }
    }
}
