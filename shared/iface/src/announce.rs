//! Telling the neighbours where an address is now.
//!
//! An address that another container had a moment ago would be unreachable for those who remember that one, for 20
//! seconds and more.

use cni::{AddResult, Result};
use netlink::{Link, LinkChange};

use crate::Namespace;

/// Announces the link's addresses: a gratuitous ARP for each IPv4 address (RFC 5227, section 3), an unsolicited
/// neighbour advertisement for each IPv6 one (RFC 4861, section 7.2.6). The link must be able to carry packets by now.
///
/// The kernel does it when the hardware address is set, even to what it was (arp_notify and ndisc_notify in
/// Documentation/networking/ip-sysctl.rst, set by [`crate::apply`]), which takes microseconds: to close a packet socket takes
/// a grace period.
///
/// # Errors
/// If the kernel refuses.
pub fn addresses(sandbox: &Namespace, link: &Link) -> Result<()> {
    Ok(sandbox.nl.change_link(link, &LinkChange { mac: link.mac, ..LinkChange::default() })?)
}

/// The host forgets where it saw the addresses before, on the link that it sees them through.
///
/// # Errors
/// If the kernel refuses.
pub fn forget(host: &Namespace, link: &Link, result: &AddResult) -> Result<()> {
    for address in result.addresses() {
        host.nl.delete_neighbour(link, address.ip())?;
    }
    Ok(())
}
