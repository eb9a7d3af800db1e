//! Attaching a link: addresses, routes and settings.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use cni::{AddResult, AsWritten, Route};
use common::{Lab, at, lab, layer_2, leased};
use iface::attach::InterfaceSetup;
use iface::{InterfaceConf, MacKeys};
use netlink::{Link, RouteFilter};

fn conf(json: &str) -> InterfaceConf {
    InterfaceConf::read(&AsWritten::from(cni::json::parse(json.as_bytes(), "it").unwrap()), MacKeys::All)
        .unwrap()
}

fn leases(ips: &[(&str, Option<&str>)], routes: &[&str]) -> AddResult {
    AddResult {
        ips: ips.iter().map(|(address, gateway)| leased(address, *gateway)).collect(),
        routes: routes.iter().map(|dst| Route::to(dst.parse().unwrap())).collect(),
        ..AddResult::default()
    }
}

/// Configures the container's end of a new pair.
fn configured(lab: &Lab, conf: &InterfaceConf, leases: &AddResult) -> Link {
    let net = layer_2("net");
    let link = lab.veth(&net.name, &at("c", "eth0")).container;
    InterfaceSetup { net: &net, conf, sandbox: &lab.sandbox, link: &link }.configure(leases).unwrap();
    lab.sandbox.link("eth0").unwrap()
}

/// The link's routes without the route of its own address, which the kernel adds a moment later.
fn routes(lab: &Lab, link: &Link) -> Vec<String> {
    let filter = RouteFilter { link: Some(link.index), table: Some(254) };
    let routes = lab.sandbox.nl.routes(filter).unwrap();
    let mut routes: Vec<_> = routes.iter().map(|route| route.dst.to_string()).collect();
    routes.retain(|route| route != "fe80::/64");
    routes.sort();
    routes
}

#[test]
fn a_link_without_leases_is_set_up_and_nothing_else() {
    lab(|lab| {
        let link = configured(lab, &InterfaceConf::default(), &AddResult::default());
        assert!(link.up);
        assert_eq!(lab.sandbox.sysctl("ipv4/conf/eth0/arp_notify").unwrap(), "0");
    });
}

#[test]
fn addresses_and_routes_exist_and_the_addresses_are_announced_and_permanent() {
    lab(|lab| {
        let leases = leases(
            &[("10.1.0.2/24", Some("10.1.0.1")), ("fd00::2/64", Some("fd00::1"))],
            &["0.0.0.0/0", "fd01::/64"],
        );
        let link = configured(lab, &InterfaceConf::default(), &leases);
        let addresses = lab.sandbox.nl.addresses(Some(&link)).unwrap();
        for expected in leases.addresses() {
            assert!(addresses.iter().any(|a| a.net == expected && !a.tentative), "{expected}");
        }
        assert_eq!(routes(lab, &link), ["0.0.0.0/0", "10.1.0.0/24", "fd00::/64", "fd01::/64"]);
        for key in
            ["ipv4/conf/eth0/arp_notify", "ipv6/conf/eth0/ndisc_notify", "ipv6/conf/eth0/keep_addr_on_down"]
        {
            assert_eq!(lab.sandbox.sysctl(key).unwrap(), "1", "{key}");
        }
        assert_eq!(lab.sandbox.sysctl("ipv6/conf/eth0/accept_dad").unwrap(), "0");
    });
}

#[test]
fn router_advertisements_are_refused_or_accepted_as_the_configuration_says() {
    for (json, expected) in
        [(r#"{"acceptRa": false}"#, Some("0")), (r#"{"acceptRa": true}"#, Some("1")), ("{}", None)]
    {
        lab(move |lab| {
            let default = ["accept_ra", "autoconf"]
                .map(|key| lab.sandbox.sysctl(&format!("ipv6/conf/default/{key}")).unwrap());
            configured(lab, &conf(json), &AddResult::default());
            for (key, default) in ["accept_ra", "autoconf"].into_iter().zip(default) {
                let is = lab.sandbox.sysctl(&format!("ipv6/conf/eth0/{key}")).unwrap();
                assert_eq!(is, expected.unwrap_or(&default), "{json}: {key}");
            }
        });
    }
}

#[test]
fn addresses_without_subnet_routes_add_none() {
    lab(|lab| {
        let net = layer_2("net");
        let link = lab.veth(&net.name, &at("c", "eth0")).container;
        let conf = InterfaceConf::default();
        let setup = InterfaceSetup { net: &net, conf: &conf, sandbox: &lab.sandbox, link: &link };
        setup.set_up(&leases(&[("10.1.0.2/24", None), ("fd00::2/64", None)], &[]), false).unwrap();
        assert_eq!(routes(lab, &link), [""; 0]);
    });
}

#[test]
fn a_container_without_ipv6_gets_it_for_an_ipv6_address() {
    lab(|lab| {
        lab.sandbox.set_sysctl("ipv6/conf/all/disable_ipv6", "1").unwrap();
        let link = configured(lab, &InterfaceConf::default(), &leases(&[("fd00::2/64", None)], &[]));
        assert!(
            lab.sandbox.nl.addresses(Some(&link)).unwrap().iter().any(|a| a.net.to_string() == "fd00::2/64")
        );
    });
}

#[test]
fn with_duplicate_detection_the_addresses_can_be_used_when_it_is_done() {
    lab(|lab| {
        let link = configured(lab, &conf(r#"{"enabledad": true}"#), &leases(&[("fd00::2/64", None)], &[]));
        let addresses = lab.sandbox.nl.addresses(Some(&link)).unwrap();
        assert!(addresses.iter().all(|a| !a.tentative), "{addresses:?}");
        assert_eq!(lab.sandbox.sysctl("ipv6/conf/eth0/accept_dad").unwrap(), "1");
    });
}
