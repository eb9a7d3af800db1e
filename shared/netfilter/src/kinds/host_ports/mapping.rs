//! Host ports as a configuration asks for them.

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU16;

use ipnetwork::IpNetwork;
use netlink::Family;

use super::conditions::Conditions;
use super::forward::{Forward, Protocol};
use super::mark::Mark;
use crate::networks::{any, loopback, subnet};

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
    /// The addresses that ports lead to: at most one in each family.
    pub(crate) fn targets(&self) -> impl Iterator<Item = IpNetwork> {
        let first = |family| self.addresses.iter().copied().find(move |a| Family::from(*a) == family);
        first(Family::V4).into_iter().chain(first(Family::V6))
    }

    /// Each mapping with the address that it leads to, for every family that it is in.
    pub(crate) fn forwards(&self) -> impl Iterator<Item = Forward> {
        self.targets()
            .flat_map(|target| self.mappings.iter().filter_map(move |mapping| mapping.towards(target.ip())))
    }

    /// Whether the mappings do not fit the maps, and are rules of their own.
    pub(crate) fn are_conditional(&self) -> bool {
        self.mark != Mark::default() || !self.conditions.is_empty()
    }

    /// Each container address with the networks whose connections to it get the host's source address.
    pub(crate) fn sources(&self) -> impl Iterator<Item = (IpAddr, IpNetwork)> {
        let masq = self.source_nat;
        self.targets()
            .filter(|target| self.forwards().any(|f| Family::from(f.to) == Family::from(*target)))
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
        match self {
            Self::None => Vec::new(),
            Self::Hairpin => vec![subnet(target), loopback(Family::from(target))],
            Self::All => vec![any(Family::from(target))],
        }
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
