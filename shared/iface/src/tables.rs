//! Moving a link's routes from one routing table to another, and back.

use std::collections::BTreeSet;
use std::net::IpAddr;

use cni::{AddResult, Code, Error, IpConfig, Result, Undo};
use ipnetwork::IpNetwork;
use netlink::{Link, LinkKind, NextHop, Route, RouteFilter, Rule, uapi};

use crate::{Namespace, apply};

/// The tables that the kernel has by itself: they are no plugin's to choose.
const OF_THE_KERNEL: [u32; 4] = [0, uapi::RT_TABLE_DEFAULT, uapi::RT_TABLE_MAIN, uapi::RT_TABLE_LOCAL];

/// Whether a table is one that the kernel has by itself.
pub fn is_of_the_kernel(table: u32) -> bool {
    OF_THE_KERNEL.contains(&table)
}

/// The tables of a namespace that are in use: by a rule, a route or a VRF.
///
/// # Errors
/// If the kernel refuses to tell.
pub fn used(sandbox: &Namespace, rules: &[Rule]) -> Result<BTreeSet<u32>> {
    let mut used = in_effect(sandbox, rules)?;
    used.extend(sandbox.nl.all_routes(RouteFilter::default())?.iter().filter_map(|route| route.table));
    Ok(used)
}

/// The tables of a namespace that packets are looked up in: by a rule or a VRF.
///
/// # Errors
/// If the kernel refuses to tell.
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

/// The table of the VRF that a link is in. None: it is in none.
///
/// # Errors
/// If the kernel refuses to tell.
pub fn of_master(sandbox: &Namespace, link: &Link) -> Result<Option<u32>> {
    let Some(master) = link.master else { return Ok(None) };
    Ok(sandbox.nl.link_by_index(master)?.as_ref().and_then(of_vrf))
}

/// The first number, from one on, of a table that is not in use.
///
/// # Errors
/// Code 999 if there is none.
pub fn first_free(used: &BTreeSet<u32>, from: u32) -> Result<u32> {
    let free = (from..=u32::MAX).find(|table| !used.contains(table));
    free.ok_or_else(|| Error::new(Code::Internal, "no routing table is free"))
}

/// The routes that have a next hop by a link, in a table or in all, in the order in which they are put back. Not those by which the
/// kernel knows its own addresses.
///
/// # Errors
/// If the kernel refuses to tell.
pub fn of_link(sandbox: &Namespace, link: &Link, table: Option<u32>) -> Result<Vec<Route>> {
    let filter = RouteFilter { link: Some(link.index), table };
    let mut routes = sandbox.nl.all_routes(filter)?;
    routes.retain(|route| route.table != Some(uapi::RT_TABLE_LOCAL));
    netlink::in_order_of_restoring(&mut routes);
    Ok(routes)
}

/// Adds a route. That it is there already is fine.
///
/// # Errors
/// What the kernel refuses.
pub fn put(sandbox: &Namespace, route: &Route) -> netlink::Result<()> {
    match sandbox.nl.add_route(route) {
        Err(e) if e.is_exists() => Ok(()),
        other => other,
    }
}

/// Adds a route that is not there.
///
/// # Errors
/// What the kernel refuses.
pub fn add(sandbox: &Namespace, route: &Route, undo: &mut Undo) -> Result<()> {
    let (nl, added) = (sandbox.nl.clone(), route.clone());
    undo.push(move || nl.delete_route(&added));
    Ok(sandbox.nl.add_route(route)?)
}

/// Takes out of a route the next hops by a link: the whole route, if it has no others.
///
/// # Errors
/// What the kernel refuses.
pub fn take(sandbox: &Namespace, link: &Link, route: &Route) -> netlink::Result<()> {
    match (route.only_by(link.index), route.without(link.index)) {
        (Some(own), Some(_)) if route.dst.is_ipv6() => sandbox.nl.delete_route(&own)?,
        // IPv4 knows the route as a whole only.
        (Some(_), Some(others)) => {
            put(sandbox, &others)?;
            sandbox.nl.delete_route(route)?;
        }
        _ => sandbox.nl.delete_route(route)?,
    }
    Ok(())
}

/// Takes back [`take`].
///
/// # Errors
/// What the kernel refuses.
pub fn give_back(sandbox: &Namespace, link: &Link, route: &Route) -> netlink::Result<()> {
    match (route.only_by(link.index), route.without(link.index)) {
        (Some(own), Some(_)) if route.dst.is_ipv6() => put(sandbox, &own),
        (Some(_), Some(others)) => {
            put(sandbox, route)?;
            sandbox.nl.delete_route(&others)
        }
        _ => put(sandbox, route),
    }
}

/// Whether a route leads to the destination of another one by its gateway. IPv6 routes of one metric are listed as one route with several
/// next hops, of different links: any of them counts that is by the wanted link.
pub(crate) fn is_same_way(route: &Route, wanted: &Route) -> bool {
    let is_wanted = |hop: &NextHop| Some(hop.link) == wanted.link && hop.gateway == wanted.gateway;
    let by_gateway = match route.hops.is_empty() {
        true => route.gateway == wanted.gateway,
        false => route.hops.iter().any(is_wanted),
    };
    is_same_net(route.dst, wanted.dst) && by_gateway
}

fn is_same_net(one: IpNetwork, other: IpNetwork) -> bool {
    (one.network(), one.prefix()) == (other.network(), other.prefix())
}

/// Says in the result in which table each route of the link is now that was moved. Before 1.1.0 a result cannot say it.
pub fn report(result: &mut AddResult, link: &Link, moved: &[Route]) {
    let ips: Vec<IpConfig> = result.ips_of(&link.name).cloned().collect();
    let own: Vec<&IpConfig> = ips.iter().collect();
    for listed in &mut result.routes {
        let wanted = apply::kernel_route(link, listed, &own);
        if let Some(found) = moved.iter().find(|route| is_same_way(route, &wanted)) {
            listed.table = found.table;
        }
    }
}

/// The routes that a result gives a link, in the main table or this one, and that the main table lacks. Only those by a gateway in the
/// link's subnets: a result does not say which interface a route is of.
///
/// # Errors
/// If the kernel refuses to tell.
pub fn lost(sandbox: &Namespace, link: &Link, table: u32, result: &AddResult) -> Result<Vec<Route>> {
    let main = of_link(sandbox, link, Some(uapi::RT_TABLE_MAIN))?;
    let own: Vec<&IpConfig> = result.ips_of(&link.name).collect();
    let is_own = |gateway| own.iter().any(|ip| ip.address.contains(gateway));
    let listed = result
        .routes
        .iter()
        .filter(|route| route.table.is_none_or(|of| [table, uapi::RT_TABLE_MAIN].contains(&of)));
    let wanted = listed
        .map(|route| Route { table: Some(uapi::RT_TABLE_MAIN), ..apply::kernel_route(link, route, &own) });
    let own = wanted.filter(|wanted| wanted.gateway.is_some_and(is_own));
    Ok(own.filter(|wanted| !main.iter().any(|route| is_same_way(route, wanted))).collect())
}

/// The addresses of a result that an interface of the container has.
pub fn addresses_of<'a>(result: &'a AddResult, ifname: &'a str) -> impl Iterator<Item = IpAddr> + 'a {
    result.ips_of(ifname).map(|ip| ip.address.ip())
}
