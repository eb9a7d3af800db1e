//! Finds the address where containers reach the server: on the host's interface that has their gateway.

use std::net::IpAddr;

use cni::{AddResult, Error, IfName, Result, addr};
use iface::Namespace;
use netlink::{Address, Link};

use crate::masq::Listen;

/// The server's interface and addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerLocation {
    /// The host's interface on which the container's packets arrive.
    pub interface: IfName,
    /// The interface or addresses in the server's configuration.
    pub listen: Listen,
    /// The addresses for the containers' resolvers. The gateways come first.
    pub addresses: Vec<IpAddr>,
}

impl ServerLocation {
    /// Finds the host's interface that has the gateway of the container's address. Without a gateway, this is the
    /// bridge in the result.
    ///
    /// # Errors
    /// Code 7 if the host has no address in the container's network.
    pub fn find(host: &Namespace, result: &AddResult, ifname: &IfName) -> Result<Self> {
        let gateways: Vec<IpAddr> = result.ips_of(ifname).filter_map(|ip| ip.gateway).collect();
        let addresses = host.nl.addresses(None)?;
        let is_gateway = |address: &&Address| gateways.contains(&address.net.ip());
        let mut link = None;
        for address in addresses.iter().filter(is_gateway) {
            let found = host.nl.link_by_index(address.index)?;
            if let Some(found) = found.filter(|_| link.is_none())
                && is_of_network(host, &found, result)?
            {
                link = Some(found);
            }
        }
        match &link {
            Some(link) if leads_to_a_container(link) => {
                let is_here = |ip: &IpAddr| addresses.iter().any(|address| address.net.ip() == *ip);
                let gateways: Vec<IpAddr> = gateways.into_iter().filter(is_here).collect();
                let listen = Listen::Addresses(gateways.clone());
                Ok(Self { interface: name_of(link)?, listen, addresses: gateways })
            }
            Some(link) => Self::on(host, link, &gateways),
            None => match bridge(host, result)? {
                Some(bridge) => Self::on(host, &bridge, &[]),
                None => Err(unreachable(ifname)),
            },
        }
        .and_then(|this| if this.addresses.is_empty() { Err(unreachable(ifname)) } else { Ok(this) })
    }

    fn on(host: &Namespace, link: &Link, gateways: &[IpAddr]) -> Result<Self> {
        let interface = name_of(link)?;
        let listen = Listen::Interface(interface.clone());
        let mut addresses = addresses(host, &listen)?;
        addresses.sort_by_key(|ip| gateways.iter().position(|gateway| gateway == ip).unwrap_or(usize::MAX));
        Ok(Self { interface, listen, addresses })
    }
}

/// The name of a link as an interface name. It becomes part of dnsmasq's configuration, where some characters have a
/// meaning: wildcards, quotes, lists and comments.
fn name_of(link: &Link) -> Result<IfName> {
    if let Some(c) = link.name.chars().find(|c| matches!(c, '*' | '"' | '\'' | '#' | ',' | '\\')) {
        let text = format!("dnsname: dnsmasq cannot listen on interface {}: {c:?} is in its name", link.name);
        return Err(Error::config(text));
    }
    IfName::parse(&link.name).map_err(Error::config)
}

/// The current addresses on which a server listens. Empty: its interface has none or does not exist.
///
/// # Errors
/// If the kernel does not list links or addresses.
pub fn addresses(host: &Namespace, listen: &Listen) -> Result<Vec<IpAddr>> {
    match listen {
        // An address is removed with the last container that has it as its gateway.
        Listen::Addresses(addresses) => {
            let all = host.nl.addresses(None)?;
            let is_here = |ip: &&IpAddr| all.iter().any(|address| address.net.ip() == **ip);
            Ok(addresses.iter().filter(is_here).copied().collect())
        }
        Listen::Interface(name) => {
            let Some(link) = host.nl.link(name)? else { return Ok(Vec::new()) };
            let all = host.nl.addresses(Some(&link))?;
            Ok(all.iter().map(|address| address.net.ip()).filter(|ip| addr::can_be_reached(*ip)).collect())
        }
    }
}

/// Whether a link belongs to the container's network: the result lists the link, or the link is the host's port in a
/// VLAN of a bridge that the result lists. The gateway may also be an address of the host in its LAN, as on a network
/// of macvlan. Such a link does not count, because machines in the LAN must not reach the server.
fn is_of_network(host: &Namespace, link: &Link, result: &AddResult) -> Result<bool> {
    let is_listed = |link: &Link| result.host_interfaces().any(|listed| listed.name == link.name);
    if is_listed(link) {
        return Ok(true);
    }
    // Results of bridge do not list the host's port in a VLAN. It is one end of a veth pair, and the other end is a
    // port of the bridge.
    let (true, None, Some(peer)) = (link.is("veth"), link.peer_netns_id, link.peer) else { return Ok(false) };
    let master = host.nl.link_by_index(peer)?.and_then(|peer| peer.master);
    let bridge = master.map(|index| host.nl.link_by_index(index)).transpose()?.flatten();
    Ok(bridge.is_some_and(|bridge| bridge.is("bridge") && is_listed(&bridge)))
}

/// Whether a link is the host's end of a veth pair to a single container.
fn leads_to_a_container(link: &Link) -> bool {
    link.is("veth") && link.master.is_none() && link.peer_netns_id.is_some()
}

fn bridge(host: &Namespace, result: &AddResult) -> Result<Option<Link>> {
    for interface in result.host_interfaces() {
        if let Some(link) = host.nl.link(&interface.name)?.filter(|link| link.is("bridge")) {
            return Ok(Some(link));
        }
    }
    Ok(None)
}

fn unreachable(ifname: &IfName) -> Error {
    Error::config(format!("the host has no address in the network of {ifname} that dnsmasq could answer on")).detail(
        "dnsname needs the container's gateway on this host: use bridge with isGateway, or ptp. Containers on macvlan, ipvlan \
         and vlan do not reach their host: remove dnsname from such a network",
    )
}
