//! Converts a chain's result to the status block that Podman displays, and to the settings of the container's
//! resolver.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;

use cni::{AddResult, IpConfig};
use netlink::Netlink;
use netns::NetNs;

use crate::document::{NetAddress, NetInterface, StatusBlock};

/// Builds the status block. `servers` are the name servers of the network's options. They come first, unless the
/// network has the plugin dnsname: only its server, in the result, resolves names of containers.
pub fn block(
    result: &AddResult,
    ifname: &str,
    netns: &Path,
    servers: &[IpAddr],
    has_dnsname: bool,
) -> StatusBlock {
    let mut interfaces: BTreeMap<String, NetInterface> = BTreeMap::new();
    for interface in result.interfaces.iter().filter(|interface| interface.sandbox.is_some()) {
        let mac_address = interface.mac.clone().unwrap_or_default();
        interfaces.insert(interface.name.clone(), NetInterface { mac_address, subnets: Vec::new() });
    }
    // Results of versions before 0.3.0 have no interfaces.
    interfaces
        .entry(ifname.to_owned())
        .or_insert_with(|| NetInterface { mac_address: String::new(), subnets: Vec::new() });
    for (name, interface) in &mut interfaces {
        interface.subnets =
            result.ips.iter().filter(|ip| is_of(result, ip, name, ifname)).map(address).collect();
        if interface.mac_address.is_empty() {
            interface.mac_address = mac(netns, name).unwrap_or_default();
        }
    }
    let of_result: Vec<IpAddr> = result.dns.nameservers.iter().filter_map(|text| text.parse().ok()).collect();
    let (first, second) = if has_dnsname { (&of_result[..], servers) } else { (servers, &of_result[..]) };
    let more = second.iter().filter(|server| !first.contains(server));
    let dns_server_ips = first.iter().chain(more).copied().collect();
    let domain = Some(result.dns.domain.clone()).filter(|domain| !domain.is_empty());
    let search = result.dns.search.iter().filter(|name| Some(*name) != domain.as_ref()).cloned();
    StatusBlock {
        dns_search_domains: domain.clone().into_iter().chain(search).collect(),
        dns_server_ips,
        interfaces,
    }
}

/// Whether an address belongs to the container's own interface. It does if the result does not name its interface.
fn is_of(result: &AddResult, ip: &IpConfig, name: &str, ifname: &str) -> bool {
    result.interface_of(ip).map_or(name == ifname, |interface| interface.is_in_container(name))
}

fn address(ip: &IpConfig) -> NetAddress {
    NetAddress { gateway: ip.gateway, ipnet: ip.address }
}

/// The hardware address of the container's interface in the kernel.
fn mac(netns: &Path, name: &str) -> Option<String> {
    let nl = NetNs::open_if_present(netns).ok()??.enter(Netlink::open).ok()?.ok()?;
    Some(nl.link(name).ok()??.mac?.to_string())
}

#[cfg(test)]
mod tests;
