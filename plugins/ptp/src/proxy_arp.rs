//! Proxy ARP (RFC 1027): the host's end answers the container's ARP requests for addresses that the host reaches through its other
//! interfaces.

use cni::Result;
use iface::{Namespace, verify as shared};
use netlink::Link;

/// Turns it on. The kernel would wait up to 0.8 s before each answer, to let the owner of the address answer first. Only the container
/// is on this link, so the host answers without this delay.
///
/// # Errors
/// Code 5 if the sysctl cannot be written.
pub fn enable(host: &Namespace, end: &Link) -> Result<()> {
    let key = key(end);
    // /proc/sys may be read-only.
    if host.sysctl(&key)? != "1" {
        host.set_sysctl(&key, "1")?;
    }
    host.try_sysctls(&[(&format!("ipv4/neigh/{}/proxy_delay", end.name), "0")])
}

/// Checks that it is on.
pub fn verify(host: &Namespace, end: &Link) -> Result<()> {
    shared::same(end, "proxy_arp", "1", host.sysctl(&key(end))?.as_str())
}

fn key(end: &Link) -> String {
    format!("ipv4/conf/{}/proxy_arp", end.name)
}
