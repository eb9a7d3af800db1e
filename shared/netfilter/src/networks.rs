//! Networks with a special meaning.

use std::net::{Ipv4Addr, Ipv6Addr};

use ipnetwork::{IpNetwork, Ipv4Network, Ipv6Network};
use netlink::Family;

/// All addresses of a family.
pub(crate) const fn any(family: Family) -> IpNetwork {
    family.choose(v4(Ipv4Addr::UNSPECIFIED, 0), v6(Ipv6Addr::UNSPECIFIED, 0))
}

/// The loopback addresses of a family.
pub(crate) const fn loopback(family: Family) -> IpNetwork {
    family.choose(v4(Ipv4Addr::new(127, 0, 0, 0), 8), v6(Ipv6Addr::LOCALHOST, 128))
}

/// Destinations that are never masqueraded: containers may use multicast on their link.
pub(crate) const fn multicast(family: Family) -> IpNetwork {
    family.choose(v4(Ipv4Addr::new(224, 0, 0, 0), 4), v6(Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8))
}

/// The subnet of an address with a prefix length.
pub(crate) fn subnet(address: IpNetwork) -> IpNetwork {
    IpNetwork::new(address.network(), address.prefix()).unwrap_or(address)
}

const fn v4(ip: Ipv4Addr, prefix: u8) -> IpNetwork {
    match Ipv4Network::new_checked(ip, prefix) {
        Some(network) => IpNetwork::V4(network),
        None => panic!("a prefix length out of range"),
    }
}

const fn v6(ip: Ipv6Addr, prefix: u8) -> IpNetwork {
    match Ipv6Network::new_checked(ip, prefix) {
        Some(network) => IpNetwork::V6(network),
        None => panic!("a prefix length out of range"),
    }
}
