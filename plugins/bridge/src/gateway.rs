//! The host as the containers' gateway: its address on the bridge, and forwarding.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use cni::{AddResult, Check, Error, IpConfig, Result, Route};
use iface::{Namespace, enable_ipv6_of_new, forwarding, ipv6_refused, verify as shared};
use ipnetwork::IpNetwork;
use netlink::{Link, uapi};

use crate::conf::Conf;
use crate::vlan;

/// Adds missing gateways, and default routes through them unless an earlier plugin of the chain added one.
pub fn complete(leases: &mut AddResult, prev: &AddResult, conf: &Conf) -> Result<()> {
    if !conf.is_gateway {
        return Ok(());
    }
    for ip in leases.ips.iter_mut().filter(|ip| ip.gateway.is_none()) {
        ip.gateway = Some(first_of(ip.address)?);
    }
    if conf.is_default_gateway {
        for ip in &leases.ips {
            let anywhere = default_destination(ip.address.is_ipv4())?;
            let is_default = |route: &Route| {
                route.dst == anywhere && matches!(route.table, None | Some(0 | uapi::RT_TABLE_MAIN))
            };
            if !leases.routes.iter().chain(&prev.routes).any(is_default) {
                leases.routes.push(Route { gw: ip.gateway, ..Route::to(anywhere) });
            }
        }
    }
    Ok(())
}

/// Sets the gateway addresses, on the bridge or on the VLAN's gateway interface, and turns on forwarding. Returns the VLAN's
/// gateway interface. None: the bridge has the addresses, or the host is not the gateway.
pub fn assign(host: &Namespace, bridge: &Link, leases: &AddResult, conf: &Conf) -> Result<Option<Link>> {
    if !conf.is_gateway || leases.ips.is_empty() {
        return Ok(None);
    }
    let requested: Vec<IpNetwork> = leases.ips.iter().filter_map(own).collect();
    let vlan_gateway = match conf.gateway_vlan() {
        Some(vlan) => {
            // Held until the addresses are set, because the DEL of the last user checks them.
            let _lock = vlan::lock()?;
            let gateway = vlan::ensure_gateway(host, bridge, vlan)?;
            configure(host, &gateway, &requested, conf)?;
            Some(gateway)
        }
        None => {
            configure(host, bridge, &requested, conf)?;
            None
        }
    };
    Ok(vlan_gateway)
}

/// The host's link to the containers: the bridge, or the gateway interface of a VLAN.
pub fn gateway_link(host: &Namespace, bridge: &Link, conf: &Conf) -> Result<Link> {
    let gateway = conf.gateway_vlan().map(|vlan| vlan::gateway_interface(host, bridge, vlan)).transpose()?;
    Ok(gateway.flatten().unwrap_or_else(|| bridge.clone()))
}

/// Checks that the bridge, or the gateway interface of the VLAN, is up and has the gateway addresses, and that the latter is in its VLAN.
/// Without `ipam`, an earlier plugin of the chain assigned the container's addresses and their gateways.
pub fn verify(host: &Namespace, bridge: &Link, call: &Check<Conf>) -> Result<()> {
    let expected: Vec<_> = call.prev_result.ips_of(&call.attachment.ifname).filter_map(own).collect();
    if !call.conf.is_gateway || call.net.ipam.is_none() || expected.is_empty() {
        return Ok(());
    }
    let link = match call.conf.gateway_vlan() {
        Some(vlan) => vlan::verify_gateway(host, bridge, vlan)?,
        None => bridge.clone(),
    };
    let present = host.nl.addresses(Some(&link))?;
    expected.iter().try_for_each(|expected| {
        let remedy = format!("run `ip addr add {expected} dev {}`", link.name);
        shared::gateway(&link, &present, expected.ip(), &remedy)
    })
}

/// The host's address on the link: the gateway, with the length of the container's subnet.
fn own(ip: &IpConfig) -> Option<IpNetwork> {
    IpNetwork::new(ip.gateway?, ip.address.prefix()).ok()
}

fn first_of(net: IpNetwork) -> Result<IpAddr> {
    let first = match net {
        IpNetwork::V4(v4) => IpAddr::V4(Ipv4Addr::from_bits(v4.network().to_bits().wrapping_add(1))),
        IpNetwork::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.network().to_bits().wrapping_add(1))),
    };
    if net.contains(first) && first != net.ip() {
        return Ok(first);
    }
    Err(Error::config(format!(
        "isGateway: cannot choose a gateway for {net}: the first address of the subnet is the container's, or is outside of the subnet"
    ))
    .detail("set `gateway` in ipam"))
}

fn default_destination(v4: bool) -> Result<IpNetwork> {
    let ip = if v4 { IpAddr::V4(Ipv4Addr::UNSPECIFIED) } else { IpAddr::V6(Ipv6Addr::UNSPECIFIED) };
    Ok(IpNetwork::new(ip, 0)?)
}

/// Adds missing gateway addresses to the link, and turns on forwarding.
fn configure(host: &Namespace, link: &Link, requested: &[IpNetwork], conf: &Conf) -> Result<()> {
    // Addresses with a narrower scope do not conflict with a gateway's.
    let present: Vec<IpNetwork> = host
        .nl
        .addresses(Some(link))?
        .iter()
        .filter(|a| a.scope == uapi::RT_SCOPE_UNIVERSE)
        .map(|a| a.net)
        .collect();
    // Created by this ADD, or by another one that failed or is still running.
    let new = present.is_empty().then_some(link);
    if let Some(link) = new {
        enable_ipv6_of_new(host, link, requested)?;
    }
    for &net in requested.iter().filter(|net| !present.contains(net)) {
        for &other in present.iter().filter(|other| !requested.contains(other) && conflicts(**other, net)) {
            if !conf.force_address {
                return Err(Error::config(format!(
                    "interface {} already has address {other}, which conflicts with the gateway address {net}",
                    link.name
                ))
                .detail(conflict_remedy(&link.name)));
            }
            host.nl.delete_address(link, other)?;
        }
        match host.nl.add_address(link, net, false) {
            // Another plugin added it first.
            Err(e) if e.is_exists() => {}
            other => other.map_err(|e| ipv6_refused(host, link, net, e))?,
        }
    }
    forwarding::enable(host, requested, new)
}

/// What to do about an address of the link that conflicts with a network's gateway.
pub fn conflict_remedy(link: &str) -> String {
    format!(
        "if the address is of the network's old subnet, delete the network's containers and run `ip link del {link}`: \
         the next ADD creates the bridge again. If another network uses the bridge, choose another bridge. forceAddress \
         replaces the address, and cuts off the containers that use it"
    )
}

/// Whether an address conflicts: a bridge has one IPv4 gateway address, and several IPv6 ones if their subnets do not overlap.
fn conflicts(other: IpNetwork, net: IpNetwork) -> bool {
    other.is_ipv4() == net.is_ipv4()
        && (net.is_ipv4() || other.contains(net.ip()) || net.contains(other.ip()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(text: &str) -> IpNetwork {
        text.parse().unwrap()
    }

    #[test]
    fn the_gateway_is_the_subnets_first_address() {
        assert_eq!(first_of(net("10.1.2.77/24")).unwrap().to_string(), "10.1.2.1");
        assert_eq!(first_of(net("fd00::77/64")).unwrap().to_string(), "fd00::1");
        for no_room in ["10.0.0.1/24", "10.0.0.5/32", "255.255.255.255/32"] {
            assert_eq!(first_of(net(no_room)).unwrap_err().code(), 7, "{no_room}");
        }
    }

    #[test]
    fn a_second_ipv4_address_conflicts_and_a_second_ipv6_subnet_does_not() {
        assert!(conflicts(net("10.0.0.1/24"), net("10.1.0.1/24")));
        assert!(conflicts(net("fd00::1/64"), net("fd00::2/48")));
        assert!(!conflicts(net("fd00::1/64"), net("fd01::1/64")));
        assert!(!conflicts(net("10.0.0.1/24"), net("fd01::1/64")));
    }
}
