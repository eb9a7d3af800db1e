//! Announcing addresses to neighbours.
//!
//! Otherwise, neighbours that remember another container with the address cannot reach it for 20 seconds and more.

use cni::{AddResult, Result};
use netlink::{Link, LinkChange};

use crate::Namespace;

/// Announces the link's addresses: gratuitous ARP for IPv4 (RFC 5227, section 3), unsolicited neighbour advertisements for IPv6 (RFC 4861,
/// section 7.2.6). The link must be able to carry packets.
///
/// The kernel announces addresses when the hardware address is set, even to the same value (arp_notify and ndisc_notify in
/// Documentation/networking/ip-sysctl.rst, set by [`crate::apply`]). That takes microseconds, while closing a packet socket takes a grace
/// period.
///
/// # Errors
/// If the kernel refuses.
pub fn addresses(sandbox: &Namespace, link: &Link) -> Result<()> {
    Ok(sandbox.nl.change_link(link, &LinkChange { mac: link.mac, ..LinkChange::default() })?)
}

/// Deletes the host's neighbour entries for the addresses, except configured ones.
///
/// # Errors
/// If the kernel refuses.
pub fn forget_neighbours(host: &Namespace, link: &Link, result: &AddResult) -> Result<()> {
    for address in result.addresses() {
        host.nl.forget_neighbour(link, address.ip())?;
    }
    Ok(())
}
