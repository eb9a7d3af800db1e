//! Routes, compared with `ip route`.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "tests")]

mod common;

use common::{Lab, lab, pair, sh};
use netlink::{Link, Route, RouteFilter, in_order_of_restoring};

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
fn a_route_has_all_requested_attributes() {
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
            protocol: Some(3),
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
fn an_ipv6_route_has_all_requested_attributes() {
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
            protocol: Some(3),
            preference: Some(0),
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
            protocol: Some(3),
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
fn the_link_towards_an_address_is_that_of_its_route() {
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
fn packets_for_a_host_address_are_accepted_on_another_link() {
    lab(|lab| {
        let link = uplink(lab);
        for _ in 0..2 {
            lab.host.add_local_route(&link, "::1".parse().unwrap()).unwrap();
        }
        let shown = sh("ip -6 route show table local ::1");
        assert!(shown.contains("local ::1 dev up metric 4096"), "{shown}");
    });
}

/// `ip`'s output for the main table, without the kernel's own routes.
fn shown(family: &str) -> String {
    sh(&format!("ip -{family} -d route show table main"))
}

fn put_back_exactly(lab: &Lab, family: &str, routes: &[&str]) {
    for route in routes {
        sh(&format!("ip -{family} route append {route}"));
    }
    let before = shown(family);
    let all = lab.host.all_routes(of_table(254)).unwrap();
    let mut those: Vec<_> = all.into_iter().filter(|route| route.dst.is_ipv4() == (family == "4")).collect();
    for route in &those {
        lab.host.delete_route(route).unwrap();
    }
    assert_eq!(shown(family), "");
    in_order_of_restoring(&mut those);
    for route in &those {
        lab.host.add_route(&Route::parse(&route.payload()).unwrap()).unwrap();
    }
    assert_eq!(shown(family), before);
}

#[test]
fn ipv4_routes_of_all_kinds_are_restored() {
    lab(|lab| {
        uplink(lab);
        pair(&lab.host, "other", "another");
        put_back_exactly(
            lab,
            "4",
            &[
                "default via 10.0.0.1 dev up proto static",
                "default via 10.0.0.9 dev up metric 7 initcwnd 20 rto_min 100ms quickack 1",
                "192.0.2.0/24 nexthop via 10.0.0.1 dev up weight 3 nexthop dev other weight 1",
                "198.51.100.0/24 via 172.16.0.1 dev up onlink src 10.0.0.2 mtu lock 1300",
                "198.51.100.0/24 via 10.0.0.3 dev up tos 0x10",
                "203.0.113.1 dev up scope host",
                "203.0.113.0/25 via inet6 fe80::1 dev up realm 5",
                "unreachable 203.0.113.128/25 metric 4278198272",
                "blackhole 100.64.0.0/10 proto bird",
            ],
        );
    });
}

#[test]
fn ipv6_routes_of_all_kinds_are_restored() {
    lab(|lab| {
        uplink(lab);
        put_back_exactly(
            lab,
            "6",
            &[
                "default via fd00::1 dev up proto ra pref high",
                "default via fe80::1 dev up metric 7 mtu 1300",
                "2001:db8:1::/48 nexthop via fd00::1 dev up weight 3 nexthop via fd00::9 dev up weight 1",
                "2001:db8:2::/48 via fd00::1 dev up src fd00::2 advmss 1200",
                "2001:db8:3::/48 via 2001:db8::77 dev up onlink",
                "prohibit 2001:db8:4::/48 metric 4278198272",
            ],
        );
    });
}

#[test]
fn an_expiring_route_still_expires_after_it_was_restored() {
    lab(|lab| {
        uplink(lab);
        sh("ip -6 route add 2001:db8::/32 via fd00::1 dev up expires 3000");
        let found = lab.host.routes(of_table(254)).unwrap();
        let route = found.into_iter().find(|route| route.dst.prefix() == 32).unwrap();
        assert!(route.expires.is_some_and(|seconds| (2900..=3000).contains(&seconds)), "{route:?}");
        lab.host.delete_route(&route).unwrap();
        lab.host.add_route(&route).unwrap();
        assert!(
            shown("6")
                .contains("2001:db8::/32 via fd00::1 dev up proto boot scope global metric 1024 expires")
        );
    });
}

#[test]
fn next_hops_of_a_multipath_route_are_split_by_link() {
    lab(|lab| {
        let (link, (other, peer)) = (uplink(lab), pair(&lab.host, "other", "another"));
        lab.host.set_up(&peer).unwrap();
        lab.host.add_address(&other, "fd01::2/64".parse().unwrap(), false).unwrap();
        lab.host.add_address(&other, "10.1.0.2/24".parse().unwrap(), false).unwrap();
        sh("ip -6 route add default nexthop via fd00::1 dev up nexthop via fd01::1 dev other");
        sh("ip route add default nexthop via 10.0.0.1 dev up weight 2 nexthop via 10.1.0.1 dev other");
        for (ours, theirs, hops) in [("10.0.0.1", "10.1.0.1", "4"), ("fd00::1", "fd01::1", "6")] {
            let v4 = hops == "4";
            let filter = RouteFilter { link: Some(other.index), table: Some(254) };
            let found = lab.host.routes(filter).unwrap();
            let route = found.into_iter().find(|r| r.dst.prefix() == 0 && r.dst.is_ipv4() == v4).unwrap();
            assert!(route.uses(link.index) && route.uses(other.index));
            let by = |route: Option<Route>| route.map(|route| (route.link.unwrap(), route.gateway.unwrap()));
            assert_eq!(by(route.only_by(link.index)), Some((link.index, ours.parse().unwrap())));
            assert_eq!(by(route.without(link.index)), Some((other.index, theirs.parse().unwrap())));
            assert_eq!(route.only_by(4242), None);
            let alone = route.only_by(link.index).unwrap();
            assert_eq!((alone.without(link.index), alone.only_by(link.index)), (None, Some(alone)));
        }
        // A single next hop of an IPv6 route can be deleted.
        let found = lab.host.routes(RouteFilter { link: Some(other.index), table: Some(254) }).unwrap();
        let route = found.into_iter().find(|route| route.dst.prefix() == 0 && route.dst.is_ipv6()).unwrap();
        lab.host.delete_route(&route.only_by(link.index).unwrap()).unwrap();
        assert!(sh("ip -6 route show default").starts_with("default via fd01::1 dev other"));
    });
}
