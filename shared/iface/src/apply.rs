//! Configuring a container's interface with leased addresses and routes.

use std::net::IpAddr;

use cni::{Code, Error, IpConfig, Result};
use ipnetwork::IpNetwork;
use netlink::{Link, Mac, uapi};
use nix::errno::Errno;

use crate::{InterfaceConf, Namespace};

/// Explains EADDRINUSE of a link with a MAC. The kernel returns it when the link is set up, not when it is created, and when the MAC of a link
/// that is up is changed.
pub fn mac_taken(mac: Option<Mac>, cause: netlink::Error) -> Error {
    match (cause.errno(), mac) {
        (Some(Errno::EADDRINUSE), Some(mac)) => Error::from(cause).with_code(Code::InvalidConfig).detail(
            format!("its master has the MAC {mac}, or another interface on the same master has it: each needs its own"),
        ),
        _ => cause.into(),
    }
}

/// Configures the link before it is up. Addresses are announced, IPv6 addresses survive setting the link down, and are tested for
/// duplicates or not. This includes the link-local address (fe80::...), which would otherwise be unusable for one or two seconds.
///
/// # Errors
/// If the namespace cannot be entered.
pub(crate) fn prepare(sandbox: &Namespace, link: &Link, conf: &InterfaceConf, v6: bool) -> Result<()> {
    let digit = |on| if on { "1" } else { "0" };
    let accept_ra = conf.accept_ra.map(digit);
    let requested = [
        ("ipv4", "arp_notify", Some("1")),
        ("ipv6", "ndisc_notify", Some("1")),
        ("ipv6", "accept_dad", Some(digit(conf.enable_dad))),
        ("ipv6", "enhanced_dad", Some("1").filter(|_| conf.enable_dad)),
        ("ipv6", "keep_addr_on_down", Some("1").filter(|_| v6)),
        ("ipv6", "accept_ra", accept_ra),
        ("ipv6", "autoconf", accept_ra),
    ];
    let requested = requested.iter().filter_map(|(family, key, value)| {
        value.map(|value| (format!("{family}/conf/{}/{key}", link.name), value))
    });
    let pairs: Vec<_> = requested.collect();
    let pairs: Vec<_> = pairs.iter().map(|(key, value)| (key.as_str(), *value)).collect();
    sandbox.try_sysctls(&pairs)
}

pub(crate) fn add_address(
    sandbox: &Namespace,
    link: &Link,
    net: IpNetwork,
    test_for_duplicates: bool,
    subnet_route: bool,
) -> Result<()> {
    let flags = if subnet_route { 0 } else { uapi::IFA_F_NOPREFIXROUTE };
    let add = || sandbox.nl.add_flagged_address(link, net, test_for_duplicates, flags);
    let added = add();
    if added.as_ref().is_err_and(|e| e.errno() == Some(Errno::EADDRINUSE)) {
        let own = sandbox.nl.addresses(Some(link))?;
        let (code, why) = if own.iter().any(|one| one.net.ip() == net.ip()) {
            // With another prefix length. Interfaces of other kinds accept it.
            let why = "the interface already has this address, and an interface of ipvlan accepts it only once: configure it with one \
                       prefix length";
            (Code::InvalidConfig, why)
        } else {
            let why = "another container on the same master has this address: if it is being deleted, try again later, otherwise choose another address";
            (Code::TryAgainLater, why)
        };
        return added.map_err(|e| Error::from(e).with_code(code).detail(why));
    }
    if added.is_ok() || net.is_ipv4() {
        return Ok(added?);
    }
    match enable_ipv6_of(sandbox, &link.name) {
        Ok(true) => Ok(add()?),
        Err(e) if e.code() == Code::UnsupportedField as u32 => added.map_err(|e| {
            Error::from(e)
                .detail("this kernel has no IPv6 (ipv6.disable=1?); remove IPv6 from the configuration")
        }),
        other => Ok(other.map(|_| added)??),
    }
}

/// Enables IPv6 on a link if the runtime disabled it. Returns whether it was disabled.
///
/// # Errors
/// If the kernel has no IPv6, or the setting cannot be written.
pub fn enable_ipv6(sandbox: &Namespace, link: &Link) -> Result<bool> {
    let was_off = enable_ipv6_of(sandbox, &link.name)?;
    Ok(enable_ipv6_of_loopback(sandbox)? || was_off)
}

/// Enables IPv6 on the loopback interface, through which a container reaches its own addresses. Returns whether it was disabled.
///
/// # Errors
/// If the kernel has no IPv6, or the setting cannot be written.
pub(crate) fn enable_ipv6_of_loopback(sandbox: &Namespace) -> Result<bool> {
    enable_ipv6_of(sandbox, "lo")
}

/// Enables IPv6 on a new link of the host that gets these addresses: it may have inherited `net.ipv6.conf.default.disable_ipv6=1`.
///
/// # Errors
/// Code 5 if the sysctl cannot be written.
pub fn enable_ipv6_of_new(host: &Namespace, link: &Link, addresses: &[IpNetwork]) -> Result<()> {
    let needs_it = link.disable_ipv6 == Some(1) && addresses.iter().any(IpNetwork::is_ipv6);
    // An administrator has turned it off for the whole host.
    if needs_it && host.sysctl("ipv6/conf/all/disable_ipv6")? != "1" {
        enable_ipv6_of(host, &link.name)?;
    }
    Ok(())
}

/// Explains EACCES of an IPv6 address for a link of the host on which IPv6 is disabled.
pub fn ipv6_refused(host: &Namespace, link: &Link, address: IpNetwork, cause: netlink::Error) -> Error {
    if address.is_ipv4() || cause.errno() != Some(Errno::EACCES) {
        return cause.into();
    }
    let is_off_everywhere = host.sysctl("ipv6/conf/all/disable_ipv6").is_ok_and(|value| value == "1");
    let disabled = if is_off_everywhere { "all" } else { &link.name };
    Error::from(cause).detail(format!("run `sysctl -w net/ipv6/conf/{disabled}/disable_ipv6=0`"))
}

fn enable_ipv6_of(sandbox: &Namespace, name: &str) -> Result<bool> {
    let key = format!("ipv6/conf/{name}/disable_ipv6");
    let is_off = sandbox.sysctl(&key)? == "1";
    if is_off {
        sandbox.set_sysctl(&key, "0")?;
    }
    Ok(is_off)
}

pub(crate) fn add_route(
    sandbox: &Namespace,
    link: &Link,
    requested: &cni::Route,
    own: &[&IpConfig],
) -> Result<()> {
    let route = kernel_route(link, requested, own);
    let via_link = route.gateway.is_some_and(|gateway| !own.iter().any(|ip| ip.address.contains(gateway)));
    match sandbox.nl.add_route(&route) {
        Ok(()) => Ok(()),
        // The route is listed twice, or the kernel added it with the address.
        Err(e) if e.is_exists() => Ok(()),
        // A gateway named together with an address is on the link, even outside of all subnets (169.254.1.1 of a /32).
        Err(_) if via_link && own.iter().any(|ip| ip.gateway == route.gateway) => {
            Ok(sandbox.nl.add_route(&netlink::Route { on_link: true, ..route })?)
        }
        Err(e) if via_link => Err(Error::from(e)
            .detail("the gateway is in none of the interface's subnets, so it cannot be reached")),
        Err(e) => Err(e.into()),
    }
}

/// Converts a route of a result. Without a next hop, it uses the gateway of its family, unless its scope excludes a gateway. The gateway
/// 0.0.0.0 or :: means that the destination is on the link.
pub(crate) fn kernel_route(link: &Link, requested: &cni::Route, own: &[&IpConfig]) -> netlink::Route {
    let on_link = requested.scope.is_some_and(|scope| scope != uapi::RT_SCOPE_UNIVERSE);
    let gateway = requested.gw.or_else(|| gateway(own, requested.dst.is_ipv4()).filter(|_| !on_link));
    netlink::Route {
        gateway: gateway.filter(|gateway| !gateway.is_unspecified()),
        link: Some(link.index),
        table: requested.table,
        scope: requested.scope,
        priority: requested.priority,
        mtu: requested.mtu,
        advmss: requested.advmss,
        ..netlink::Route::to(requested.dst)
    }
}

fn gateway(own: &[&IpConfig], v4: bool) -> Option<IpAddr> {
    own.iter().filter_map(|ip| ip.gateway).find(|gateway| gateway.is_ipv4() == v4)
}
