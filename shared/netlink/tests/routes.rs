//! Routes, as `ip route` sees them.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "tests")]

mod common;

use common::{Lab, lab, pair, sh};
use netlink::{Link, Route, RouteFilter};

/// A link that is up, with an address of each family.
fn uplink(lab: &Lab) -> Link {
    let (veth, peer) = pair(&lab.host, "up", "peer");
    lab.host.set_up(&peer).unwrap();
    for net in ["10.0.0.2/24", "fd00::2/64"] {
        lab.host.add_address(&veth, net.parse().unwrap(), false).unwrap();
    }
    veth
}

fn of_table(table: u32) -> RouteFilter {
    RouteFilter { link: None, table: Some(table) }
}

fn only(mut routes: Vec<Route>) -> Route {
    assert_eq!(routes.len(), 1, "{routes:?}");
    routes.remove(0)
}

#[test]
fn a_route_has_all_that_was_asked_for() {
    lab(|lab| {
        let link = uplink(lab);
        let route = Route {
            gateway: Some("10.0.0.1".parse().unwrap()),
            link: Some(link.index),
            table: Some(1000),
            priority: Some(5),
            mtu: Some(1300),
            advmss: Some(1200),
            source: Some("10.0.0.2".parse().unwrap()),
            scope: Some(0),
            ..Route::to("192.0.2.0/24".parse().unwrap())
        };
        lab.host.add_route(&route).unwrap();
        assert_eq!(
            sh("ip route show table 1000").trim(),
            "192.0.2.0/24 via 10.0.0.1 dev up src 10.0.0.2 metric 5 mtu 1300 advmss 1200"
        );
        assert_eq!(only(lab.host.routes(of_table(1000)).unwrap()), route);
        assert!(lab.host.add_route(&route).unwrap_err().is_exists());
    });
}

#[test]
fn an_ipv6_route_has_all_that_was_asked_for() {
    lab(|lab| {
        let link = uplink(lab);
        let route = Route {
            gateway: Some("fd00::1".parse().unwrap()),
            link: Some(link.index),
            table: Some(1000),
            priority: Some(5),
            mtu: Some(1300),
            advmss: Some(1200),
            scope: Some(0),
            ..Route::to("2001:db8::/32".parse().unwrap())
        };
        lab.host.add_route(&route).unwrap();
        assert_eq!(
            sh("ip -6 route show table 1000").trim(),
            "2001:db8::/32 via fd00::1 dev up metric 5 mtu 1300 advmss 1200 pref medium"
        );
        assert_eq!(only(lab.host.routes(of_table(1000)).unwrap()), route);
    });
}

#[test]
fn an_ipv4_route_may_have_an_ipv6_next_hop() {
    lab(|lab| {
        let link = uplink(lab);
        let route = Route {
            gateway: Some("fd00::1".parse().unwrap()),
            link: Some(link.index),
            table: Some(1000),
            scope: Some(0),
            ..Route::to("192.0.2.0/24".parse().unwrap())
        };
        lab.host.add_route(&route).unwrap();
        assert_eq!(sh("ip route show table 1000").trim(), "192.0.2.0/24 via inet6 fd00::1 dev up");
        assert_eq!(only(lab.host.routes(of_table(1000)).unwrap()), route);
    });
}

#[test]
fn a_default_route_over_several_links_names_its_first() {
    lab(|lab| {
        let link = uplink(lab);
        sh("ip route add default nexthop via 10.0.0.1 weight 1 nexthop via 10.0.0.9 weight 1");
        let route = lab.host.default_route().unwrap().unwrap();
        assert_eq!((route.link, route.gateway), (Some(link.index), Some("10.0.0.1".parse().unwrap())));
    });
}

#[test]
fn the_default_route_is_the_one_of_the_lowest_metric() {
    lab(|lab| {
        uplink(lab);
        assert_eq!(lab.host.default_route().unwrap(), None);
        for (gateway, metric) in [("10.0.0.7", 20), ("10.0.0.8", 10), ("10.0.0.9", 30)] {
            sh(&format!("ip route add default via {gateway} metric {metric}"));
        }
        sh("ip route add default via 10.0.0.6 table 1000");
        sh("ip route add default via fd00::1 metric 1");
        let gateway = lab.host.default_route().unwrap().unwrap().gateway;
        assert_eq!(gateway, Some("10.0.0.8".parse().unwrap()));
    });
}

#[test]
fn a_listing_keeps_to_its_link_and_its_table() {
    lab(|lab| {
        let (link, (other, _)) = (uplink(lab), pair(&lab.host, "a", "b"));
        sh("ip route add 192.0.2.0/24 dev up table 1000");
        sh("ip route add 198.51.100.0/24 dev a table 1000");
        sh("ip route add 203.0.113.0/24 dev up table 1001");
        let both = RouteFilter { link: Some(link.index), table: Some(1000) };
        let found = only(lab.host.routes(both).unwrap());
        assert_eq!(found.dst, "192.0.2.0/24".parse().unwrap());
        let by_link = RouteFilter { link: Some(other.index), table: Some(1000) };
        assert_eq!(only(lab.host.routes(by_link).unwrap()).link, Some(other.index));
        assert_eq!(lab.host.routes(of_table(4242)).unwrap(), [], "a table that does not exist");
    });
}

#[test]
fn a_gateway_off_the_link_is_refused() {
    lab(|lab| {
        let link = uplink(lab);
        let route = Route {
            gateway: Some("172.16.0.1".parse().unwrap()),
            link: Some(link.index),
            ..Route::to("0.0.0.0/0".parse().unwrap())
        };
        let error = lab.host.add_route(&route).unwrap_err();
        assert_eq!(error.errno(), Some(nix::errno::Errno::ENETUNREACH));
        assert!(error.to_string().starts_with("add route 0.0.0.0/0 via 172.16.0.1: Network is unreachable"));
    });
}

#[test]
fn the_link_towards_an_address_is_the_one_that_its_route_leaves_by() {
    lab(|lab| {
        let link = uplink(lab);
        for near in ["10.0.0.9", "fd00::9"] {
            assert_eq!(lab.host.route_get(near.parse().unwrap()).unwrap().unwrap().name, link.name);
        }
        for far in ["192.0.2.1", "2001:db8::1"] {
            assert!(lab.host.route_get(far.parse().unwrap()).unwrap().is_none(), "{far}");
        }
    });
}

#[test]
fn what_is_for_this_host_is_taken_in_at_another_link_as_well() {
    lab(|lab| {
        let link = uplink(lab);
        for _ in 0..2 {
            lab.host.add_local_route(&link, "::1".parse().unwrap()).unwrap();
        }
        let shown = sh("ip -6 route show table local ::1");
        assert!(shown.contains("local ::1 dev up metric 4096"), "{shown}");
    });
}
