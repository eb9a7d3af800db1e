//! Moving a link's routes to another routing table and back.

use std::collections::BTreeSet;

use cni::{AddResult, Code, Error, IpConfig, Result, Undo};
use ipnetwork::IpNetwork;
use netlink::{Link, LinkKind, NextHop, Route, RouteFilter, Rule, uapi};

use crate::{Namespace, apply};

/// The kernel's own tables, which plugins must not choose.
const OF_THE_KERNEL: [u32; 4] = [0, uapi::RT_TABLE_DEFAULT, uapi::RT_TABLE_MAIN, uapi::RT_TABLE_LOCAL];

/// Whether a table is one of the kernel's own.
pub fn is_of_the_kernel(table: u32) -> bool {
    OF_THE_KERNEL.contains(&table)
}

/// Tables in use by a rule, a route or a VRF.
///
/// # Errors
/// If the kernel refuses to list routes or links.
pub fn used(sandbox: &Namespace, rules: &[Rule]) -> Result<BTreeSet<u32>> {
    let mut used = in_effect(sandbox, rules)?;
    used.extend(sandbox.nl.all_routes(RouteFilter::default())?.iter().filter_map(|route| route.table));
    Ok(used)
}

/// Tables that a rule or a VRF looks up.
///
/// # Errors
/// If the kernel refuses to list links.
pub fn in_effect(sandbox: &Namespace, rules: &[Rule]) -> Result<BTreeSet<u32>> {
    let mut tables = BTreeSet::from(OF_THE_KERNEL);
    tables.extend(rules.iter().map(|rule| rule.table));
    tables.extend(sandbox.nl.links()?.into_iter().filter_map(|link| of_vrf(&link)));
    Ok(tables)
}

fn of_vrf(link: &Link) -> Option<u32> {
    match link.kind {
        Some(LinkKind::Vrf { table }) => Some(table),
        _ => None,
    }
}

/// Table of the VRF of a link. `None` without a VRF.
///
/// # Errors
/// If the kernel refuses to list links.
pub fn of_master(sandbox: &Namespace, link: &Link) -> Result<Option<u32>> {
    let Some(master) = link.master else { return Ok(None) };
    Ok(sandbox.nl.link_by_index(master)?.as_ref().and_then(of_vrf))
}

/// First unused table number from `from`.
///
/// # Errors
/// Code 999 if there is none.
pub fn first_free(used: &BTreeSet<u32>, from: u32) -> Result<u32> {
    let free = (from..=u32::MAX).find(|table| !used.contains(table));
    free.ok_or_else(|| Error::new(Code::Internal, "no routing table is free"))
}

/// Routes with a next hop through a link, in one table or all, in the order in which they are restored. Without the kernel's routes for its
/// own addresses.
///
/// # Errors
/// If the kernel refuses to list routes.
pub fn of_link(sandbox: &Namespace, link: &Link, table: Option<u32>) -> Result<Vec<Route>> {
    let filter = RouteFilter { link: Some(link.index), table };
    let mut routes = sandbox.nl.all_routes(filter)?;
    routes.retain(|route| route.table != Some(uapi::RT_TABLE_LOCAL));
    netlink::in_order_of_restoring(&mut routes);
    Ok(routes)
}

/// Adds a route. Succeeds if it exists.
///
/// # Errors
/// If the kernel refuses.
pub fn put(sandbox: &Namespace, route: &Route) -> netlink::Result<()> {
    match sandbox.nl.add_route(route) {
        Err(e) if e.is_exists() => Ok(()),
        other => other,
    }
}

/// Like [`put`], but IPv4 prefers the other routes to the same destination.
///
/// # Errors
/// If the kernel refuses.
pub fn put_last(sandbox: &Namespace, route: &Route) -> netlink::Result<()> {
    match sandbox.nl.append_route(route) {
        Err(e) if e.is_exists() => Ok(()),
        other => other,
    }
}

/// Adds a route that does not exist. The rollback keeps it if it could not undo a later step: DEL recognizes a table by its first routes.
///
/// # Errors
/// If the kernel refuses.
pub fn add(sandbox: &Namespace, route: &Route, undo: &mut Undo) -> Result<()> {
    let (nl, added) = (sandbox.nl.clone(), route.clone());
    undo.push_record(move || nl.delete_route(&added));
    Ok(sandbox.nl.add_route(route)?)
}

/// Removes the next hops through a link from a route, or the whole route if it has no others.
///
/// IPv4 routes can only be replaced as a whole. The kernel deletes the first one whose next hops begin with the given ones
/// (`fib_nh_match`), so the new route must come after the old one.
///
/// # Errors
/// If the kernel refuses.
pub fn take(sandbox: &Namespace, link: &Link, route: &Route) -> netlink::Result<()> {
    match (route.only_by(link.index), route.without(link.index)) {
        (Some(own), Some(_)) if route.dst.is_ipv6() => sandbox.nl.delete_route(&own)?,
        (Some(_), Some(others)) => {
            put_last(sandbox, &others)?;
            sandbox.nl.delete_route(route)?;
        }
        _ => sandbox.nl.delete_route(route)?,
    }
    Ok(())
}

/// Undoes [`take`].
///
/// # Errors
/// If the kernel refuses.
pub fn restore(sandbox: &Namespace, link: &Link, route: &Route) -> netlink::Result<()> {
    match (route.only_by(link.index), route.without(link.index)) {
        (Some(own), Some(_)) if route.dst.is_ipv6() => put(sandbox, &own),
        (Some(_), Some(others)) => {
            put_last(sandbox, route)?;
            sandbox.nl.delete_route(&others)
        }
        _ => put(sandbox, route),
    }
}

/// Whether a route has the destination and gateway of another one. IPv6 routes of one metric are listed as one multipath route: any next
/// hop through the wanted link matches.
pub(crate) fn is_same_way(route: &Route, expected: &Route) -> bool {
    let is_expected = |hop: &NextHop| Some(hop.link) == expected.link && hop.gateway == expected.gateway;
    let by_gateway = match route.hops.is_empty() {
        true => route.gateway == expected.gateway,
        false => route.hops.iter().any(is_expected),
    };
    is_same_net(route.dst, expected.dst) && by_gateway
}

fn is_same_net(one: IpNetwork, other: IpNetwork) -> bool {
    (one.network(), one.prefix()) == (other.network(), other.prefix())
}

/// Sets the table of each moved route in the result.
pub fn report(result: &mut AddResult, link: &Link, moved: &[Route]) {
    let ips: Vec<IpConfig> = result.ips_of_name(&link.name).cloned().collect();
    let own: Vec<&IpConfig> = ips.iter().collect();
    for listed in &mut result.routes {
        let expected = apply::kernel_route(link, listed, &own);
        if let Some(found) = moved.iter().find(|route| is_same_way(route, &expected)) {
            listed.table = found.table;
        }
    }
}

/// Routes of a link in a result that are missing in the main table and in this one. Only routes through a gateway in the link's subnets,
/// because a result does not name a route's interface.
///
/// # Errors
/// If the kernel refuses to list routes.
pub fn lost(sandbox: &Namespace, link: &Link, table: u32, result: &AddResult) -> Result<Vec<Route>> {
    let main = of_link(sandbox, link, Some(uapi::RT_TABLE_MAIN))?;
    let own: Vec<&IpConfig> = result.ips_of_name(&link.name).collect();
    let is_own = |gateway| own.iter().any(|ip| ip.address.contains(gateway));
    let listed = result
        .routes
        .iter()
        .filter(|route| route.table.is_none_or(|of| [0, table, uapi::RT_TABLE_MAIN].contains(&of)));
    let expected = listed
        .map(|route| Route { table: Some(uapi::RT_TABLE_MAIN), ..apply::kernel_route(link, route, &own) });
    let own = expected.filter(|expected| expected.gateway.is_some_and(is_own));
    Ok(own.filter(|expected| !main.iter().any(|route| is_same_way(route, expected))).collect())
}
