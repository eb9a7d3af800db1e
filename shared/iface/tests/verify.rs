//! Differences that CHECK finds.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use cni::{AddResult, Check, Route, Version};
use common::{Lab, at, lab, layer_2, leased, sh};
use iface::InterfaceConf;
use iface::attach::InterfaceSetup;
use iface::verify::{self, Expected};
use netlink::LinkChange;

/// An attachment after ADD.
fn attached(lab: &Lab) -> Check<()> {
    let (net, attachment) = (layer_2("net"), at("c", "eth0"));
    let link = lab.veth(&net.name, &attachment).container;
    let leases = AddResult {
        ips: vec![leased("10.1.0.2/24", Some("10.1.0.1"))],
        routes: vec![Route::to("10.9.0.0/16".parse().unwrap())],
        ..AddResult::default()
    };
    let conf = InterfaceConf::default();
    InterfaceSetup { net: &net, conf: &conf, sandbox: &lab.sandbox, link: &link }.configure(&leases).unwrap();
    let mut prev_result = AddResult::default();
    prev_result.put_first(leases, &lab.sandbox.to_interface(&link));
    Check { attachment, netns: lab.path(), args: cni::CniArgs::default(), prev_result, net, conf: () }
}

#[test]
fn an_unchanged_attachment_passes() {
    lab(|lab| {
        let call = attached(lab);
        assert_eq!(verify::container(&lab.sandbox, &call, Expected::kind("veth")).unwrap().name, "eth0");
        assert!(
            verify::container(&lab.sandbox, &call, Expected::kind("macvlan"))
                .unwrap_err()
                .msg()
                .contains("kind")
        );
    });
}

#[test]
fn differences_are_named() {
    type Harm = fn(&Lab);
    let changes: [(&str, Harm); 5] = [
        ("state", |lab| change(lab, LinkChange { up: Some(false), ..LinkChange::default() })),
        ("MTU", |lab| change(lab, LinkChange { mtu: Some(1400), ..LinkChange::default() })),
        ("MAC", |lab| {
            change(
                lab,
                LinkChange { mac: Some("02:00:00:00:00:07".parse().unwrap()), ..LinkChange::default() },
            )
        }),
        ("address 10.1.0.2/24", |lab| {
            let link = lab.sandbox.link("eth0").unwrap();
            lab.sandbox.nl.delete_address(&link, "10.1.0.2/24".parse().unwrap()).unwrap();
        }),
        ("route to 10.9.0.0/16", |lab| {
            sh(&format!("nsenter --net={} ip route del 10.9.0.0/16", lab.path().display()));
        }),
    ];
    for (what, harm) in changes {
        lab(move |lab| {
            let call = attached(lab);
            harm(lab);
            let error =
                verify::container(&lab.sandbox, &call, Expected::kind("veth").mtu(Some(1500))).unwrap_err();
            assert!(error.msg().contains(what), "{what}: {error}");
        });
    }
}

#[test]
fn an_mtu_that_is_not_configured_or_not_in_the_result_may_change() {
    lab(|lab| {
        let mut call = attached(lab);
        change(lab, LinkChange { mtu: Some(1400), ..LinkChange::default() });
        verify::container(&lab.sandbox, &call, Expected::kind("veth")).unwrap();
        call.prev_result.interfaces[0].mtu = None;
        verify::container(&lab.sandbox, &call, Expected::kind("veth").mtu(Some(1500))).unwrap();
    });
}

#[test]
fn check_accepts_a_route_that_is_on_another_interface_of_the_container() {
    lab(|lab| {
        let mut call = attached(lab);
        let other = lab.veth(&call.net.name, &at("c", "eth1")).container;
        lab.sandbox.nl.set_up(&other).unwrap();
        let dst = "10.20.0.0/16".parse().unwrap();
        lab.sandbox
            .nl
            .add_route(&netlink::Route { link: Some(other.index), ..netlink::Route::to(dst) })
            .unwrap();
        call.prev_result.interfaces.push(lab.sandbox.to_interface(&other));
        call.prev_result.routes.push(Route::to(dst));
        verify::container(&lab.sandbox, &call, Expected::kind("veth")).unwrap();
        call.prev_result.interfaces.pop();
        assert!(verify::container(&lab.sandbox, &call, Expected::kind("veth")).is_err());
    });
}

/// The kernel lists IPv6 routes of one metric to one destination as one route.
#[test]
fn each_of_two_interfaces_has_its_default_route() {
    lab(|lab| {
        let attach = |number: u32| {
            let (net, attachment) = (layer_2("net"), at("c", &format!("eth{number}")));
            let link = lab.veth(&net.name, &attachment).container;
            let leases = AddResult {
                ips: vec![leased(&format!("fd00:{number}::2/64"), Some(&format!("fd00:{number}::1")))],
                routes: vec![Route::to("::/0".parse().unwrap())],
                ..AddResult::default()
            };
            let conf = InterfaceConf::default();
            let setup = InterfaceSetup { net: &net, conf: &conf, sandbox: &lab.sandbox, link: &link };
            setup.configure(&leases).unwrap();
            let mut prev_result = AddResult::default();
            prev_result.put_first(leases, &lab.sandbox.to_interface(&link));
            Check { attachment, netns: lab.path(), args: cni::CniArgs::default(), prev_result, net, conf: () }
        };
        let calls = [0, 1].map(attach);
        for call in &calls {
            verify::container(&lab.sandbox, call, Expected::kind("veth")).unwrap();
        }
        sh(&format!("nsenter --net={} ip -6 route del default via fd00:0::1", lab.path().display()));
        let lost = verify::container(&lab.sandbox, &calls[0], Expected::kind("veth")).unwrap_err();
        assert!(lost.msg().contains("route to ::/0"), "{lost}");
        verify::container(&lab.sandbox, &calls[1], Expected::kind("veth")).unwrap();
    });
}

/// sbr and vrf move routes.
#[test]
fn a_route_may_be_in_another_table_if_the_result_says_so_or_cannot_say_it() {
    lab(|lab| {
        let mut call = attached(lab);
        let nsenter = format!("nsenter --net={} ip route", lab.path().display());
        sh(&format!("{nsenter} del 10.9.0.0/16"));
        sh(&format!("{nsenter} add 10.9.0.0/16 via 10.1.0.1 table 100"));
        let verified =
            |call: &Check<()>| verify::container(&lab.sandbox, call, Expected::kind("veth")).map(drop);
        assert!(verified(&call).unwrap_err().msg().contains("route to 10.9.0.0/16"));
        call.prev_result.routes[0].table = Some(100);
        verified(&call).unwrap();
        call.prev_result.routes[0].table = Some(101);
        assert!(verified(&call).is_err());
        call.prev_result.routes[0].table = None;
        call.net.version = Version::V1_0_0;
        verified(&call).unwrap();
        sh(&format!("{nsenter} flush table 100"));
        assert!(verified(&call).is_err());
    });
}

fn change(lab: &Lab, change: LinkChange<'_>) {
    lab.sandbox.nl.change_link(&lab.sandbox.link("eth0").unwrap(), &change).unwrap();
}
