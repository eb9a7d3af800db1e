//! Routes between container and host. No subnet is on the link: the container sends everything through the gateway, the host's end, and the
//! host has a route to each address of the container.

use std::net::IpAddr;

use cni::{AddResult, Error, Result};
use iface::{Namespace, ipv6_refused, verify as shared};
use ipnetwork::IpNetwork;
use netlink::{Link, Route, RouteFilter, uapi};

/// An address of the container and its gateway.
#[derive(Clone, Copy, Debug)]
pub struct Path {
    address: IpNetwork,
    gateway: IpAddr,
}

/// Pairs the leased addresses with their gateways.
///
/// # Errors
/// Code 7 for an address without a gateway.
pub fn paths(leases: &AddResult) -> Result<Vec<Path>> {
    let path = |ip: &cni::IpConfig| {
        let (address, own) = (ip.address, ip.address.ip());
        match ip.gateway.filter(|gateway| gateway.is_ipv4() == address.is_ipv4() && *gateway != own) {
            Some(gateway) => Ok(Path { address, gateway }),
            None => Err(Error::config(format!(
                "ipam: address {address} needs a gateway of the same family, other than itself"
            ))
            .detail(
                "the host's end of the pair becomes the gateway, and the container sends all packets there",
            )),
        }
    };
    leases.ips.iter().map(path).collect()
}

/// Configures the host's end before it carries packets: it accepts no router advertisements from the container, and does not test its
/// link-local address, which is its own. That test takes one or two seconds, during which it could not look for neighbours.
pub fn prepare(host: &Namespace, end: &Link) -> Result<()> {
    let [ra, dad] = ["accept_ra", "accept_dad"].map(|key| format!("ipv6/conf/{}/{key}", end.name));
    host.try_sysctls(&[(&ra, "0"), (&dad, "0")])
}

/// Adds the container's routes: to its gateways, through them to its subnets, and the leased routes, whose gateways are on the link too.
pub fn in_container(sandbox: &Namespace, link: &Link, paths: &[Path], leases: &AddResult) -> Result<()> {
    let mut known = Vec::new();
    let mut add = |route: Route| {
        // Several addresses may share a subnet and a gateway.
        if known.contains(&route.dst) {
            return Ok(());
        }
        known.push(route.dst);
        match sandbox.nl.add_route(&route) {
            Err(e) if e.is_exists() => Ok(()),
            other => other,
        }
    };
    for path in paths {
        let source = Some(path.address.ip());
        let to = |dst| Route { link: Some(link.index), source, ..Route::to(dst) };
        add(to(alone(path.gateway)))?;
        let subnet = network(path.address)?;
        if subnet != alone(path.address.ip()) {
            add(Route { gateway: Some(path.gateway), ..to(subnet) })?;
        }
    }
    let gateways = leases.routes.iter().filter_map(|route| route.gw);
    // 0.0.0.0 and :: mean no gateway.
    for gateway in gateways.filter(|gateway| !gateway.is_unspecified()) {
        add(Route { link: Some(link.index), ..Route::to(alone(gateway)) })?;
    }
    Ok(())
}

/// Sets the gateways' addresses on the host's end, as on those of other containers of the network, and adds the routes to the container.
/// Paths may share a gateway, or an address with another prefix length.
pub fn in_host(host: &Namespace, end: &Link, paths: &[Path]) -> Result<()> {
    for (i, path) in paths.iter().enumerate() {
        let earlier = &paths[..i];
        if earlier.iter().all(|other| other.gateway != path.gateway) {
            let gateway = alone(path.gateway);
            let added = host.nl.add_flagged_address(end, gateway, false, uapi::IFA_F_NOPREFIXROUTE);
            added.map_err(|e| ipv6_refused(host, end, gateway, e))?;
        }
        if earlier.iter().all(|other| other.address.ip() != path.address.ip()) {
            let route = Route { link: Some(end.index), ..Route::to(alone(path.address.ip())) };
            host.nl.add_route(&route)?;
        }
    }
    Ok(())
}

/// Checks that the host's end is up, with its addresses and routes.
pub fn verify(host: &Namespace, end: &Link, container: &Link, prev: &AddResult) -> Result<()> {
    shared::up(end)?;
    let addresses = host.nl.addresses(Some(end))?;
    let routes = host.nl.routes(RouteFilter { link: Some(end.index), table: Some(uapi::RT_TABLE_MAIN) })?;
    for ip in prev.ips_of(&container.name) {
        // Before the routes, which the kernel deletes with the link's last address.
        ip.gateway.map_or(Ok(()), |gateway| shared::gateway(end, &addresses, gateway, shared::RECREATE))?;
        let address = alone(ip.address.ip());
        if !routes.iter().any(|route| route.dst == address) {
            return Err(shared::missing(&format!("the host's route to {address}"), end));
        }
    }
    Ok(())
}

/// An address as a /32 or /128.
fn alone(ip: IpAddr) -> IpNetwork {
    IpNetwork::from(ip)
}

fn network(address: IpNetwork) -> Result<IpNetwork> {
    Ok(IpNetwork::new(address.network(), address.prefix())?)
}
