//! CHECK: comparing a result with the kernel's state.

use std::fmt::Display;
use std::net::IpAddr;

use cni::{AddResult, Attachment, Check, Code, Error, Interface, Result, Route, Undo, Version};
use netlink::{Address, Link, RouteFilter, uapi};

use crate::{Namespace, apply, ownership, tables, veth};

/// The container's interface, as far as ADD's result does not state it.
#[derive(Clone, Copy, Debug)]
pub struct Expected<'a> {
    kind: &'a str,
    mtu: Option<u32>,
    most: u32,
}

impl<'a> Expected<'a> {
    /// An interface of a kind.
    pub fn kind(kind: &'a str) -> Self {
        Self { kind, mtu: None, most: u32::MAX }
    }

    /// With the configured MTU, if there is one. Only then CHECK compares the MTU, with the result's: a later plugin of the chain may have
    /// set another one. Results before 1.1.0 have no MTU, and CHECK then compares none. Without a configured MTU, the result's is
    /// informational: plugins of other vendors and programs on the node may set another one.
    pub fn mtu(self, mtu: Option<u32>) -> Self {
        Self { mtu, ..self }
    }

    /// On a parent: if the parent's MTU is lowered, the kernel lowers the interface's.
    pub fn on(self, parent: &Link) -> Self {
        Self { most: parent.mtu, ..self }
    }
}

/// Checks the container's interface: listed in the result, its kind, up, hardware address, configured MTU, addresses and routes.
///
/// # Errors
/// Code 7 if the result does not list the interface; code 999 if something differs.
pub fn container<C>(sandbox: &Namespace, call: &Check<C>, expected: Expected<'_>) -> Result<Link> {
    let listed = listed(&call.prev_result, &call.attachment)?;
    let link = interface(sandbox, listed)?;
    of_kind(&link, expected.kind)?;
    mtu(&link, expected.mtu.and(listed.mtu).map(|mtu| mtu.min(expected.most)))?;
    up(&link)?;
    addresses_and_routes(sandbox, &link, call)?;
    Ok(link)
}

/// The attachment's interface in the container, as listed in ADD's result.
///
/// # Errors
/// Code 7 if it is not listed.
pub fn listed<'a>(prev: &'a AddResult, at: &Attachment) -> Result<&'a Interface> {
    prev.container_interface(&at.ifname).ok_or_else(|| {
        Error::config(format!("prevResult does not list interface {} in the container", at.ifname))
    })
}

/// Checks the kind of a link.
///
/// # Errors
/// If it has another kind.
pub fn of_kind(link: &Link, kind: &str) -> Result<()> {
    if link.is(kind) {
        return Ok(());
    }
    Err(differs(link, "kind", kind, link.kind_name().unwrap_or("none")))
}

/// Checks that a link is up.
///
/// # Errors
/// If it is down.
pub fn up(link: &Link) -> Result<()> {
    if link.up { Ok(()) } else { Err(differs(link, "state", "up", "down")) }
}

/// Checks that a link on the host is up. While it is down, it loses only IPv6 addresses, which a later check reports.
///
/// # Errors
/// If it is down, with the command that sets it up.
pub fn up_on_host(link: &Link) -> Result<()> {
    up(link).map_err(|down| down.detail(format!("run `ip link set {} up`", link.name)))
}

/// Checks the MTU of a link. `None`: any.
///
/// # Errors
/// If it differs.
pub fn mtu(link: &Link, expected: Option<u32>) -> Result<()> {
    expected.map_or(Ok(()), |expected| same(link, "MTU", expected, link.mtu))
}

/// Checks that an interface of the result exists with its hardware address.
///
/// # Errors
/// If it is missing or differs.
pub fn interface(namespace: &Namespace, expected: &Interface) -> Result<Link> {
    let link = namespace.link(&expected.name)?;
    mac(&link, expected)?;
    Ok(link)
}

/// Checks that a link has the hardware address of an interface of the result.
///
/// # Errors
/// If it differs.
pub fn mac(link: &Link, expected: &Interface) -> Result<()> {
    let mac = link.address().map(|address| address.to_string()).unwrap_or_default();
    match expected.mac.as_deref().filter(|expected| !expected.eq_ignore_ascii_case(&mac)) {
        Some(expected) => Err(differs(link, "MAC", expected, &mac)),
        None => Ok(()),
    }
}

/// Checks the result's addresses and routes of the interface, each route in its table. Many plugins' results before 1.1.0 have no tables,
/// and plugins such as sbr and vrf move routes: without a table, any is then accepted.
///
/// # Errors
/// If one is missing.
pub fn addresses_and_routes<C>(sandbox: &Namespace, link: &Link, call: &Check<C>) -> Result<()> {
    addresses_and_routes_of(sandbox, link, call, ownership::is_owned(link))
}

/// Like [`addresses_and_routes`]. `is_ferrules` is whether Ferrule's ADD configured the link, which its alias need not say.
///
/// # Errors
/// If one is missing.
pub fn addresses_and_routes_of<C>(
    sandbox: &Namespace,
    link: &Link,
    call: &Check<C>,
    is_ferrules: bool,
) -> Result<()> {
    let prev = &call.prev_result;
    let own: Vec<_> = prev.ips_of_name(&link.name).collect();
    let addresses = sandbox.nl.addresses(Some(link))?;
    if let Some(lost) = own.iter().find(|ip| !addresses.iter().any(|a| a.net == ip.address)) {
        return Err(missing(&format!("address {}", lost.address), link));
    }
    let says_tables = call.net.version >= Version::V1_1_0;
    let routes = sandbox.nl.routes(RouteFilter { link: Some(link.index), table: None })?;
    for expected in &prev.routes {
        let kernel = apply::kernel_route(link, expected, &own);
        match find(&routes, &kernel, says_tables) {
            Some(found) => metrics(link, call, (found, &kernel), is_ferrules)?,
            None if is_on_another(sandbox, link, prev, expected, says_tables)? => {}
            None => return Err(missing(&format!("route to {}", expected.dst), link)),
        }
    }
    Ok(())
}

/// Compares the metrics of a route.
fn metrics<C>(
    link: &Link,
    call: &Check<C>,
    (route, expected): (&netlink::Route, &netlink::Route),
    is_ferrules: bool,
) -> Result<()> {
    let Some((metric, number, found)) = other_metric(route, expected) else { return Ok(()) };
    let (network, at) = (&call.net.name, &call.attachment);
    // The reference has metrics in its result, but does not set them.
    if found.is_none() && !is_ferrules && !veth::is_of_ferrule(network, at, &call.prev_result)? {
        return Ok(());
    }
    let found = found.map_or_else(|| "none".to_owned(), |number| number.to_string());
    Err(differs(link, &format!("{metric} of the route to {}", expected.dst), &number.to_string(), &found))
}

/// Whether another interface of the container has a route of the result. The chain may have created several interfaces, and a route in a
/// result does not name one.
fn is_on_another(
    sandbox: &Namespace,
    link: &Link,
    prev: &AddResult,
    expected: &Route,
    says_tables: bool,
) -> Result<bool> {
    for other in prev.interfaces.iter().filter(|i| i.sandbox.is_some() && i.name != link.name) {
        let Some(other) = sandbox.nl.link(&other.name)? else { continue };
        let own: Vec<_> = prev.ips_of(&other.name).collect();
        let routes = sandbox.nl.routes(RouteFilter { link: Some(other.index), table: None })?;
        // The plugin of the other interface compares the metrics.
        if find(&routes, &apply::kernel_route(&other, expected, &own), says_tables).is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Runs `work` for an attachment that exists: the container's interface, with the result's hardware address and addresses. The attachment
/// may be deleted meanwhile, so it is checked again, and the work is undone.
///
/// # Errors
/// Code 3 if the attachment does not exist; otherwise the error of `work` or of the second check, and nothing is undone.
pub fn while_attached<C, T>(call: &Check<C>, work: impl FnOnce(&mut Undo) -> Result<T>) -> Result<T> {
    is_attached(call)?;
    let mut undo = Undo::new();
    let outcome = work(&mut undo);
    match is_attached(call) {
        Ok(()) => {
            undo.commit();
            outcome
        }
        Err(gone) if gone.code() == Code::UnknownContainer as u32 => Err(undo.unwind_after(gone)),
        // The container may run. If it does not, GC removes what `work` has made.
        Err(unknown) => {
            undo.commit();
            outcome.and(Err(unknown))
        }
    }
}

/// Checks that the container's interface exists, with the result's hardware address and addresses.
///
/// # Errors
/// Code 3 if it does not.
pub fn is_attached<C>(call: &Check<C>) -> Result<()> {
    let (sandbox, at) = (Namespace::open(&call.netns)?, &call.attachment);
    let gone = |what: String| Err(Error::new(Code::UnknownContainer, format!("{what} in {sandbox}")));
    let Some(link) = sandbox.nl.link(&at.ifname)? else {
        return gone(format!("interface {} no longer exists", at.ifname));
    };
    let mac = link.mac.map(|mac| mac.to_string()).unwrap_or_default();
    let expected = call.prev_result.container_interface(&at.ifname);
    if expected.and_then(|it| it.mac.as_deref()).is_some_and(|expected| !expected.eq_ignore_ascii_case(&mac))
    {
        return gone(format!("interface {} has a different MAC address, {mac},", at.ifname));
    }
    let addresses = sandbox.nl.addresses(Some(&link))?;
    match call.prev_result.ips_of(&at.ifname).find(|ip| !addresses.iter().any(|a| a.net == ip.address)) {
        Some(lost) => gone(format!("interface {} no longer has address {}", at.ifname, lost.address)),
        None => Ok(()),
    }
}

/// The kernel's route for a route of a result, preferably with its metrics.
fn find<'a>(
    routes: &'a [netlink::Route],
    expected: &netlink::Route,
    says_tables: bool,
) -> Option<&'a netlink::Route> {
    let found = routes.iter().filter(|route| {
        tables::is_same_way(route, expected)
            && match expected.table.filter(|id| *id != 0) {
                None => !says_tables || route.table == Some(uapi::RT_TABLE_MAIN),
                table => route.table == table,
            }
            && other_number(route.priority, expected.priority).is_none()
    });
    found.min_by_key(|route| other_metric(route, expected).is_some())
}

/// The largest MTU and MSS of a route, to which the kernel lowers others (net/ipv4/metrics.c).
const MAX_ROUTE_MTU: u32 = 65_520;
const MAX_ROUTE_MSS: u32 = 65_495;

/// The first metric that differs: its name, the expected number, and the route's.
fn other_metric(
    route: &netlink::Route,
    expected: &netlink::Route,
) -> Option<(&'static str, u32, Option<u32>)> {
    let all = [
        ("mtu", route.mtu, expected.mtu, MAX_ROUTE_MTU),
        ("advmss", route.advmss, expected.advmss, MAX_ROUTE_MSS),
    ];
    all.into_iter().find_map(|(metric, found, expected, max)| {
        Some((metric, other_number(found, expected.map(|number| number.min(max)))?, found))
    })
}

/// The expected number, if the kernel's differs. For 0, the kernel chooses the number: an IPv6 route gets the priority 1024. It does not
/// report a 0.
fn other_number(found: Option<u32>, expected: Option<u32>) -> Option<u32> {
    expected.filter(|number| *number != 0 && found != Some(*number))
}

/// Compares a property of a link.
///
/// # Errors
/// If it differs.
pub fn same<T: PartialEq + Display>(link: &Link, property: &str, expected: T, found: T) -> Result<()> {
    if expected == found {
        return Ok(());
    }
    Err(differs(link, property, &expected.to_string(), &found.to_string()))
}

/// The error for a property that differs.
pub fn differs(link: &Link, property: &str, expected: &str, found: &str) -> Error {
    Error::new(
        Code::Internal,
        format!("link {}: {property} is {found}, but was {expected} after ADD", link.name),
    )
}

/// Checks that a link on the host has the address of a gateway. `present` are the link's addresses.
///
/// # Errors
/// Code 999 with the remedy if the address is missing.
pub fn gateway(link: &Link, present: &[Address], gateway: IpAddr, remedy: &str) -> Result<()> {
    match present.iter().any(|address| address.net.ip() == gateway) {
        true => Ok(()),
        false => Err(without_remedy(&format!("the gateway's address {gateway}"), link).detail(remedy)),
    }
}

/// The remedy for a part of an attachment that only ADD can create.
pub const RECREATE: &str =
    "it was removed after ADD; delete the pod, or restart the container: its runtime calls DEL and ADD";

/// The error of CHECK for a part of the attachment that no longer exists.
pub fn missing(what: &str, link: &Link) -> Error {
    without_remedy(what, link).detail(RECREATE)
}

fn without_remedy(what: &str, link: &Link) -> Error {
    Error::new(Code::Internal, format!("link {}: {what} is missing", link.name))
}
