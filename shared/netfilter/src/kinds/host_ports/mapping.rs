//! Host ports in a configuration.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU16;

use ipnetwork::IpNetwork;
use netlink::Family;

use super::conditions::Conditions;
use super::forward::{Forward, Protocol};
use super::mark::Mark;
use crate::networks::{any, loopback, subnet};

/// Ports of this host's own addresses that are forwarded to the container (`portMappings`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPorts {
    /// The container's addresses with their subnets. The first address of each family is the destination.
    pub addresses: Vec<IpNetwork>,
    /// The mappings.
    pub mappings: Vec<HostPort>,
    /// Which connections through a mapping get the host's source address.
    pub source_nat: SourceNat,
    /// How connections that need source NAT are marked.
    pub mark: Mark,
    /// Conditions for a packet to be mapped.
    pub conditions: Conditions,
}

impl HostPorts {
    /// The destinations: at most one of each family.
    pub(crate) fn targets(&self) -> impl Iterator<Item = IpNetwork> {
        let first = |family| self.addresses.iter().copied().find(move |a| Family::from(*a) == family);
        first(Family::V4).into_iter().chain(first(Family::V6))
    }

    /// Each mapping in each of its families, with its destination. Of several mappings of one host port, only the first, as with the
    /// reference's rules: the first one applies to all packets.
    pub(crate) fn forwards(&self) -> impl Iterator<Item = Forward> {
        self.targets()
            .flat_map(|target| self.towards(target.ip()))
            .filter(Towards::is_first)
            .map(|it| it.forward)
    }

    /// The mappings without effect, because an earlier mapping of the same host port leads to another container port: the place of each in
    /// the list, and the place of the earlier one.
    pub fn repeated(&self) -> BTreeSet<(usize, usize)> {
        let all = self.targets().flat_map(|target| self.towards(target.ip()));
        let port = |place: usize| self.mappings[place].container_port;
        all.map(|it| (it.place, it.first)).filter(|(place, first)| port(*place) != port(*first)).collect()
    }

    /// The mappings of the family of a destination.
    fn towards(&self, target: IpAddr) -> impl Iterator<Item = Towards> {
        let mut first_of = BTreeMap::new();
        self.mappings.iter().enumerate().filter_map(move |(place, mapping)| {
            let forward = mapping.towards(target)?;
            let port = (forward.protocol, forward.host_ip, forward.host_port);
            Some(Towards { forward, place, first: *first_of.entry(port).or_insert(place) })
        })
    }

    /// Whether the mappings need separate rules, because they cannot be in the maps.
    pub(crate) fn are_conditional(&self) -> bool {
        self.mark != Mark::default() || !self.conditions.is_empty()
    }

    /// Each container address, with the networks whose connections to it get the host's source address.
    pub(crate) fn sources(&self) -> impl Iterator<Item = (IpAddr, IpNetwork)> {
        let masq = self.source_nat;
        self.targets()
            .filter(|target| self.forwards().any(|f| Family::from(f.to) == Family::from(*target)))
            .flat_map(move |target| masq.networks(target).into_iter().map(move |from| (target.ip(), from)))
    }
}

/// A mapping towards a destination.
struct Towards {
    forward: Forward,
    /// Its place in the list of mappings.
    place: usize,
    /// The place of the first mapping of the same host port.
    first: usize,
}

impl Towards {
    fn is_first(&self) -> bool {
        self.place == self.first
    }
}

/// Which connections through a host port get the host's source address (the keys `snat` and `masqAll`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum SourceNat {
    /// No connections.
    None,
    /// Connections from the container's own subnet (hairpin) and from the host's loopback addresses. Otherwise the
    /// answers would not return through the host.
    #[default]
    Hairpin,
    /// All connections.
    All,
}

impl SourceNat {
    fn networks(self, target: IpNetwork) -> Vec<IpNetwork> {
        match self {
            Self::None => Vec::new(),
            Self::Hairpin => vec![subnet(target), loopback(Family::from(target))],
            Self::All => vec![any(Family::from(target))],
        }
    }
}

/// A port of the host that is forwarded to a port of the container.
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
    /// The mapping to a container's address, if the families are equal.
    fn towards(&self, target: IpAddr) -> Option<Forward> {
        if self.host_ip.is_some_and(|ip| Family::from(ip) != Family::from(target)) {
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
