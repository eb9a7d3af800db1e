//! What an IPAM plugin leased, put on a container's interface.

use std::net::IpAddr;
use std::time::Duration;

use cni::{AddResult, Code, Error, IpConfig, Result};
use ipnetwork::IpNetwork;
use netlink::Link;

use crate::Namespace;

/// Duplicate address detection sends RetransTimer times DupAddrDetectTransmits, one second by default, after a random
/// delay of up to one (RFC 4862, section 5.4).
const DUPLICATE_DETECTION: Duration = Duration::from_secs(10);

/// The scope of a route through a gateway, see rtnetlink(7).
const GLOBAL: u8 = 0;

/// Gives a link the addresses of the result that are for it (`position` in its list of interfaces), sets it up, and
/// adds the routes. With `test_for_duplicates`, waits until the IPv6 addresses can be used.
///
/// Nothing is taken back on failure: it all goes with the link.
///
/// # Errors
/// What the kernel refuses, named.
pub fn addresses_and_routes(
    sandbox: &Namespace,
    link: &Link,
    result: &AddResult,
    position: usize,
    test_for_duplicates: bool,
) -> Result<()> {
    let own: Vec<&IpConfig> = result.ips.iter().filter(|ip| ip.interface == Some(position)).collect();
    let v6 = own.iter().any(|ip| ip.address.is_ipv6());
    set_ways(sandbox, link, v6, test_for_duplicates)?;
    for ip in &own {
        add_address(sandbox, link, ip.address, test_for_duplicates)?;
    }
    sandbox.nl.set_up(link)?;
    if test_for_duplicates && v6 {
        sandbox.nl.wait_for_addresses(link, DUPLICATE_DETECTION)?;
    }
    for route in &result.routes {
        add_route(sandbox, link, route, &own)?;
    }
    Ok(())
}

/// How the link treats its addresses: they are announced when they are ready, IPv6 ones stay while the link is down, and
/// are tested for duplicates or not. That is for the link's own addresses (fe80::...) too: they would not be usable
/// for a second or two.
fn set_ways(sandbox: &Namespace, link: &Link, v6: bool, test_for_duplicates: bool) -> Result<()> {
    let test = if test_for_duplicates { "1" } else { "0" };
    let wanted = [
        ("ipv4", "arp_notify", "1", true),
        ("ipv6", "ndisc_notify", "1", true),
        ("ipv6", "accept_dad", test, true),
        ("ipv6", "enhanced_dad", test, test_for_duplicates),
        ("ipv6", "keep_addr_on_down", "1", v6),
    ];
    let wanted = wanted.iter().filter(|way| way.3);
    let pairs: Vec<_> =
        wanted.map(|(ip, key, value, _)| (format!("{ip}/conf/{}/{key}", link.name), *value)).collect();
    let pairs: Vec<_> = pairs.iter().map(|(key, value)| (key.as_str(), *value)).collect();
    sandbox.try_sysctls(&pairs)
}

fn add_address(sandbox: &Namespace, link: &Link, net: IpNetwork, test_for_duplicates: bool) -> Result<()> {
    let added = sandbox.nl.add_address(link, net, test_for_duplicates);
    if added.is_ok() || net.is_ipv4() {
        return Ok(added?);
    }
    match enable_ipv6(sandbox, link) {
        Ok(true) => Ok(sandbox.nl.add_address(link, net, test_for_duplicates)?),
        Err(e) if e.code() == Code::UnsupportedField as u32 => added.map_err(|e| {
            Error::from(e).detail("this kernel has no IPv6 (ipv6.disable=1?): leave IPv6 ranges out")
        }),
        other => Ok(other.map(|_| added)??),
    }
}

/// A runtime may have switched IPv6 off for a container that turns out to get an IPv6 address. Whether it had.
fn enable_ipv6(sandbox: &Namespace, link: &Link) -> Result<bool> {
    let mut was_off = false;
    for name in ["lo", &link.name] {
        let key = format!("ipv6/conf/{name}/disable_ipv6");
        if sandbox.sysctl(&key)? == "1" {
            sandbox.set_sysctl(&key, "0")?;
            was_off = true;
        }
    }
    Ok(was_off)
}

fn add_route(sandbox: &Namespace, link: &Link, wanted: &cni::Route, own: &[&IpConfig]) -> Result<()> {
    let route = kernel_route(link, wanted, own);
    let via_link = route.gateway.is_some_and(|gateway| !own.iter().any(|ip| ip.address.contains(gateway)));
    match sandbox.nl.add_route(&route) {
        Ok(()) => Ok(()),
        // Listed twice, or the address brought it along.
        Err(e) if e.is_exists() => Ok(()),
        Err(e) if via_link => Err(Error::from(e).detail("the gateway is in none of the interface's subnets")),
        Err(e) => Err(e.into()),
    }
}

/// A route of a result in the kernel's terms: without a next hop it goes to the gateway of its family, unless its scope
/// says that the destination is nearer than a gateway can be.
pub(crate) fn kernel_route(link: &Link, wanted: &cni::Route, own: &[&IpConfig]) -> netlink::Route {
    let on_link = wanted.scope.is_some_and(|scope| scope != GLOBAL);
    netlink::Route {
        gateway: wanted.gw.or_else(|| gateway(own, wanted.dst.is_ipv4()).filter(|_| !on_link)),
        link: Some(link.index),
        table: wanted.table,
        scope: wanted.scope,
        priority: wanted.priority,
        mtu: wanted.mtu,
        advmss: wanted.advmss,
        ..netlink::Route::to(wanted.dst)
    }
}

fn gateway(own: &[&IpConfig], v4: bool) -> Option<IpAddr> {
    own.iter().filter_map(|ip| ip.gateway).find(|gateway| gateway.is_ipv4() == v4)
}
