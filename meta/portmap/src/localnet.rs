//! 127.0.0.1 of the host as a host port's address: connections from there to a container, and their answers.

use std::net::IpAddr;

use cni::Result;
use firewall::{HostPorts, SourceNat};
use iface::Namespace;

/// Lets answers of the container through to 127/8 on the link that leads to it, if any of the ports can be
/// asked for there. The setting stays, like the bridge: other containers behind the link share it.
///
/// # Errors
/// If it cannot be set.
pub fn admit(ports: &HostPorts) -> Result<()> {
    let Some(container) = ports.addresses.iter().map(|a| a.ip()).find(IpAddr::is_ipv4) else { return Ok(()) };
    // Without source NAT the container would answer to its own loopback.
    if ports.source_nat == SourceNat::None || !ports.mappings.iter().any(|m| is_local(m.host_ip)) {
        return Ok(());
    }
    let host = Namespace::host()?;
    let Some(link) = host.nl.link_towards(container)? else { return Ok(()) };
    let key = format!("ipv4/conf/{}/route_localnet", link.name);
    if host.sysctl(&key)? == "1" { Ok(()) } else { host.set_sysctl(&key, "1") }
}

fn is_local(host_ip: Option<IpAddr>) -> bool {
    match host_ip {
        None => true,
        Some(IpAddr::V4(ip)) => ip.is_unspecified() || ip.is_loopback(),
        Some(IpAddr::V6(_)) => false,
    }
}
