//! Moving routes to the tables of the addresses and back.

use std::collections::BTreeSet;

use cni::{Failures, Result, Undo};
use iface::{Namespace, tables};
use ipnetwork::{IpNetwork, Ipv6Network};
use netlink::{Link, Route, RouteFilter, in_order_of_appending, uapi};

use crate::source::Source;

/// Protocol of added default routes. DEL does not move them to the main table.
const ADDED: u8 = uapi::RTPROT_STATIC;

/// Fills the tables with the link's routes of the main table and one default route each. Existing routes of an earlier ADD are kept.
/// Returns all routes of the tables.
///
/// # Errors
/// If the kernel refuses.
pub fn fill(sandbox: &Namespace, link: &Link, sources: &[Source], undo: &mut Undo) -> Result<Vec<Route>> {
    let main = own_routes(sandbox, link)?;
    let mut filled: Vec<Route> = Vec::new();
    for source in sources {
        let mut there = tables::of_link(sandbox, link, Some(source.table))?;
        for route in routes_for(source, sources, link, &main) {
            if there.iter().any(|one| is_alike(one, &route)) {
                continue;
            }
            tables::add(sandbox, &route, undo)?;
            there.push(route);
        }
        filled.extend(there);
    }
    Ok(filled)
}

/// The link's routes to move out of the main table. Routes to link-local addresses stay: they are the same on every link.
fn own_routes(sandbox: &Namespace, link: &Link) -> Result<Vec<Route>> {
    let mut routes = tables::of_link(sandbox, link, Some(uapi::RT_TABLE_MAIN))?;
    routes.retain(|route| !is_link_local(route.dst));
    Ok(routes)
}

/// Whether a destination is in fe80::/10 (RFC 4291, section 2.5.6). Links have fe80::/64.
fn is_link_local(dst: IpNetwork) -> bool {
    matches!(dst, IpNetwork::V6(v6) if is_within_fe80(v6))
}

fn is_within_fe80(net: Ipv6Network) -> bool {
    net.prefix() >= 10 && net.ip().is_unicast_link_local()
}

/// The routes for a source's table, in the order of adding.
fn routes_for(source: &Source, all: &[Source], link: &Link, main: &[Route]) -> Vec<Route> {
    let of_family = main.iter().filter(|route| route.dst.is_ipv4() == source.net.is_ipv4());
    let own = of_family.filter(|route| is_of(source, all, route));
    let moved = own.filter_map(|route| route.only_by(link.index));
    let mut routes: Vec<Route> = moved.map(|route| Route { table: Some(source.table), ..route }).collect();
    let defaults: Vec<&Route> = routes.iter().filter(|route| route.dst.prefix() == 0).collect();
    if let Some(gateway) = source.gateway
        && defaults.iter().all(|route| route.gateway != Some(gateway))
    {
        // Of one metric, IPv4 prefers the newest route, and IPv6 would use both.
        let lowest = defaults.iter().filter_map(|route| route.priority).min();
        let priority = lowest.filter(|_| source.net.is_ipv6()).map(|metric| metric.saturating_sub(1));
        routes.push(Route {
            gateway: Some(gateway),
            link: Some(link.index),
            table: Some(source.table),
            protocol: Some(ADDED),
            priority,
            ..Route::to(anywhere(source.net))
        });
    }
    routes
}

fn anywhere(net: IpNetwork) -> IpNetwork {
    let any = if net.is_ipv4() { [0; 4].into() } else { [0_u16; 8].into() };
    IpNetwork::new(any, 0).unwrap_or(net)
}

/// Whether a route is for packets from an address. A route that belongs to no address of the interface is for all of them.
fn is_of(source: &Source, all: &[Source], route: &Route) -> bool {
    let claims = |one: &Source| one.net.is_ipv4() == route.dst.is_ipv4() && claims(one.net, route);
    claims(source) || !all.iter().any(claims)
}

fn claims(net: IpNetwork, route: &Route) -> bool {
    let is_subnet = route.dst.prefix() > 0 && route.dst.contains(net.ip());
    match (route.gateway, route.source) {
        (Some(gateway), _) if net.contains(gateway) => true,
        (None, None) => true,
        (None, Some(_)) if is_subnet => true,
        (_, Some(preferred)) => preferred == net.ip(),
        (Some(_), None) => false,
    }
}

/// Whether an existing route equals a wanted one, whose metric may be the kernel's default.
fn is_alike(one: &Route, expected: &Route) -> bool {
    let of = |route: &Route| (route.dst.network(), route.dst.prefix(), route.gateway, route.link, route.tos);
    of(one) == of(expected) && expected.priority.is_none_or(|metric| one.priority == Some(metric))
}

/// Removes the link's routes from the main table. With `hints`, routes to the subnets of its addresses stay, with the address as preferred
/// source. Routes of a family without addresses stay too: they are in no other table.
///
/// # Errors
/// If the kernel refuses.
pub fn clear_main(
    sandbox: &Namespace,
    link: &Link,
    sources: &[Source],
    hints: bool,
    undo: &mut Undo,
) -> Result<()> {
    let is_moved = |route: &&Route| sources.iter().any(|source| source.net.is_ipv4() == route.dst.is_ipv4());
    // In the reverse order of restoring.
    for route in own_routes(sandbox, link)?.iter().filter(is_moved).rev() {
        let of_subnet = sources.iter().find(|source| is_subnet_of(source, route));
        let hint = of_subnet.filter(|_| hints).map(|source| source.net.ip());
        if hint.is_some() && route.source.is_some() {
            continue;
        }
        let (ns, device, moved) = (sandbox.clone(), link.clone(), route.clone());
        undo.push(move || tables::restore(&ns, &device, &moved));
        tables::take(sandbox, link, route)?;
        if hint.is_some() {
            tables::add(sandbox, &Route { source: hint, ..route.clone() }, undo)?;
        }
    }
    Ok(())
}

fn is_subnet_of(source: &Source, route: &Route) -> bool {
    route.gateway.is_none()
        && (route.dst.network(), route.dst.prefix()) == (source.net.network(), source.net.prefix())
}

/// Moves the link's routes of these tables back to the main table, as far as possible. If the result for one route is unknown, the tables
/// keep all of them for the next DEL.
///
/// The container's other default route stays the preferred one: the next plugin deletes the interface, and until then, the container
/// continues to use the other one.
pub fn restore(sandbox: &Namespace, link: &Link, tables: &BTreeSet<u32>, failures: &mut Failures) {
    let filter = RouteFilter { link: Some(link.index), table: None };
    let Some(mut routes) = failures.note(sandbox.nl.all_routes(filter)) else { return };
    routes.retain(|route| route.table.is_some_and(|table| tables.contains(&table)));
    // A gateway may be in the subnet of an address whose route is in another table.
    in_order_of_appending(&mut routes);
    let Some(main) = failures.note(own_routes(sandbox, link)) else { return };
    for route in routes.iter().filter(|route| !is_added(route)) {
        let moved = move_back(sandbox, link, &main, route);
        // A later DEL would get the same refusal.
        let is_unknown = moved.as_ref().is_err_and(netlink::Error::is_unanswered);
        failures.note(moved);
        if is_unknown {
            return;
        }
    }
    // The routes to the link's subnets come last: the next DEL recognizes the table by them.
    for route in routes.iter().rev() {
        if failures.note(tables::take(sandbox, link, route)).is_none() {
            return;
        }
    }
}

fn move_back(sandbox: &Namespace, link: &Link, main: &[Route], route: &Route) -> netlink::Result<()> {
    let back = Route { table: Some(uapi::RT_TABLE_MAIN), ..route.clone() };
    // The route with the preferred source.
    for hinted in main.iter().filter(|one| is_alike(one, &back) && one.source != back.source) {
        tables::take(sandbox, link, hinted)?;
    }
    tables::put_last(sandbox, &back)
}

fn is_added(route: &Route) -> bool {
    route.dst.prefix() == 0 && route.protocol == Some(ADDED)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn source(net: &str, table: u32) -> Source {
        Source { net: net.parse().unwrap(), gateway: None, table, has_rule: false }
    }

    fn route(dst: &str, gateway: &str, preferred: &str) -> Route {
        let (gateway, source) = (gateway.parse().ok(), preferred.parse().ok());
        Route { link: Some(7), gateway, source, ..Route::to(dst.parse().unwrap()) }
    }

    fn link() -> Link {
        Link { index: 7, ..Link::default() }
    }

    /// Routes moved to the table of the first address.
    fn moved(addresses: &[&str], main: &[Route]) -> Vec<String> {
        let all: Vec<Source> = addresses.iter().map(|net| source(net, 100)).collect();
        routes_for(&all[0], &all, &link(), main).iter().map(|route| route.dst.to_string()).collect()
    }

    #[test]
    fn a_route_is_moved_to_the_tables_of_the_addresses_that_can_use_it() {
        let main = [
            route("10.1.0.0/24", "", "10.1.0.2"),
            route("10.9.0.0/16", "10.1.0.1", ""),
            route("10.10.0.0/16", "10.2.0.1", ""),
            route("10.11.0.0/16", "", ""),
            route("10.12.0.0/16", "", "10.2.0.2"),
            route("fd00::/64", "", ""),
        ];
        assert_eq!(
            moved(&["10.1.0.2/24", "10.2.0.2/24"], &main),
            ["10.1.0.0/24", "10.9.0.0/16", "10.11.0.0/16"]
        );
        assert_eq!(
            moved(&["10.2.0.2/24", "10.1.0.2/24"], &main),
            ["10.10.0.0/16", "10.11.0.0/16", "10.12.0.0/16"]
        );
        assert_eq!(moved(&["fd00::2/64"], &main), ["fd00::/64"]);
    }

    #[test]
    fn a_second_address_of_a_subnet_has_the_subnets_route_too() {
        let main = [route("10.1.0.0/24", "", "10.1.0.2")];
        assert_eq!(moved(&["10.1.0.3/24", "10.1.0.2/24"], &main), ["10.1.0.0/24"]);
    }

    #[test]
    fn routes_that_belong_to_no_address_are_kept() {
        let main = [route("169.254.1.1/32", "", ""), route("0.0.0.0/0", "169.254.1.1", "")];
        assert_eq!(moved(&["10.1.0.2/32"], &main), ["169.254.1.1/32", "0.0.0.0/0"]);
    }

    #[test]
    fn a_configured_gateway_has_a_better_metric_than_the_interfaces_default_routes() {
        let near = Source { gateway: "fd00::5".parse().ok(), ..source("fd00::2/64", 100) };
        let of = |gateway| {
            let main = [Route { priority: Some(1024), ..route("::/0", gateway, "") }];
            let routes = routes_for(&near, &[near], &link(), &main);
            routes.iter().map(|route| (route.gateway, route.priority)).collect::<Vec<_>>()
        };
        assert_eq!(of("fd00::1"), [("fd00::1".parse().ok(), Some(1024)), (near.gateway, Some(1023))]);
        assert_eq!(of("fd00::5"), [(near.gateway, Some(1024))]);
    }

    #[test]
    fn routes_that_differ_only_in_their_metric_are_distinct() {
        let near = route("10.9.0.0/16", "10.1.0.1", "");
        let far = Route { priority: Some(100), ..near.clone() };
        assert!(is_alike(&far, &far) && !is_alike(&near, &far));
        assert!(is_alike(&far, &near), "the kernel may have chosen the metric");
    }

    #[test]
    fn only_link_local_destinations_are_link_local() {
        for (net, is) in [("fe80::/64", true), ("fe80::/10", true), ("::/0", false), ("fd00::/64", false)] {
            assert_eq!(is_link_local(net.parse().unwrap()), is, "{net}");
        }
    }
}
