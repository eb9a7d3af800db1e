//! Choosing the parent of a container's interface.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use cni::{AddResult, AsWritten, Interface};
use common::{Lab, add, at, lab, leased, sh};
use iface::parent::{Parent, ParentConf};
use netlink::LinkChange;

fn conf(text: &str) -> cni::Result<ParentConf> {
    ParentConf::read(&AsWritten::from(cni::json::parse(text.as_bytes(), "it").unwrap()))
}

fn find(lab: &Lab, text: &str, prev: Option<&AddResult>) -> cni::Result<Parent> {
    conf(text).unwrap().find(&lab.host, &lab.sandbox, prev.unwrap_or(&AddResult::default()))
}

fn found(lab: &Lab, text: &str, prev: Option<&AddResult>) -> (String, bool) {
    let parent = find(lab, text, prev).unwrap();
    (parent.link.name, parent.in_container)
}

/// Adds a default route through a link.
fn default_route(lab: &Lab, name: &str) {
    lab.master(name);
    sh(&format!("ip address add 10.0.0.2/24 dev {name}"));
    sh("ip route add default via 10.0.0.1");
}

fn interface(name: &str, sandbox: Option<&str>) -> Interface {
    Interface { name: name.into(), sandbox: sandbox.map(str::to_owned), ..Interface::default() }
}

#[test]
fn the_named_link_is_found_on_the_host_or_in_the_container() {
    lab(|lab| {
        lab.master("up");
        lab.veth(&common::network("net"), &at("c", "net1"));
        assert_eq!(found(lab, r#"{"master": "up"}"#, None), ("up".into(), false));
        let inside = r#"{"master": "net1", "linkInContainer": true}"#;
        assert_eq!(found(lab, inside, None), ("net1".into(), true));
        for (text, place) in [
            (r#"{"master": "net1"}"#, "the host's namespace"),
            (r#"{"master": "up", "linkInContainer": true}"#, "namespace /proc/"),
        ] {
            let error = find(lab, text, None).unwrap_err();
            assert_eq!(error.code(), 7);
            assert!(
                error.msg().contains("this link does not exist in ") && error.msg().contains(place),
                "{error}"
            );
        }
    });
}

#[test]
fn without_a_name_it_is_the_link_of_the_default_route() {
    lab(|lab| {
        let error = find(lab, "{}", None).unwrap_err();
        assert_eq!(error.code(), 7);
        assert!(error.msg().contains("has no default route"), "{error}");
        default_route(lab, "up");
        assert_eq!(found(lab, r#"{"master": ""}"#, None).0, "up");
        assert!(
            find(lab, r#"{"linkInContainer": true}"#, None).unwrap_err().msg().contains("namespace /proc/")
        );
    });
}

#[test]
fn the_default_route_does_not_name_the_link_of_a_plugin_that_wants_it_named() {
    lab(|lab| {
        default_route(lab, "up");
        let conf = ParentConf { or_default_route: false, ..conf("{}").unwrap() };
        let error = conf.find(&lab.host, &lab.sandbox, &AddResult::default()).unwrap_err();
        assert_eq!((error.code(), error.msg()), (7, "master is missing"));
        assert!(conf.find_on_host(&lab.host).unwrap().is_none(), "a chain may name it");
    });
}

#[test]
fn in_a_chain_it_is_the_interface_of_an_earlier_plugin() {
    lab(|lab| {
        default_route(lab, "up");
        sh("ip link add name made0 type veth peer name made1");
        let result = |interfaces: Vec<Interface>| AddResult { interfaces, ..AddResult::default() };
        let in_container = interface("eth0", Some("/run/netns/c"));
        let only = result(vec![interface("made0", None), in_container.clone()]);
        assert_eq!(found(lab, "{}", Some(&only)).0, "made0");
        assert_eq!(found(lab, r#"{"master": "up"}"#, Some(&only)).0, "up");
        assert_eq!(found(lab, "{}", Some(&result(vec![in_container]))).0, "up", "none is in the host");

        let mut several = result(vec![interface("made0", None), interface("made1", None)]);
        let error = find(lab, "{}", Some(&several)).unwrap_err();
        assert_eq!((error.code(), error.msg()), (7, "master is missing, and prevResult lists made0, made1"));
        assert_eq!(found(lab, r#"{"master": "up"}"#, Some(&several)).0, "up", "the name says which");
        let leases = AddResult { ips: vec![leased("10.1.0.2/24", None)], ..AddResult::default() };
        several.put_first(leases, &interface("made1", None));
        assert_eq!(found(lab, "{}", Some(&several)).0, "made1");
        let error = find(lab, "{}", Some(&result(vec![interface("gone", None)]))).unwrap_err();
        assert!(error.msg().starts_with("prevResult: interface gone: this link does not exist"), "{error}");
    });
}

#[test]
fn a_child_is_no_larger_than_its_parent() {
    lab(|lab| {
        lab.master("up");
        let parent = lab.parent("up");
        assert_eq!((parent.mtu(None).unwrap(), parent.mtu(Some(1500)).unwrap()), (None, Some(1500)));
        let error = parent.mtu(Some(1501)).unwrap_err();
        assert_eq!((error.code(), error.msg()), (7, "mtu 1501 is more than 1500, the MTU of its master up"));
    });
}

#[test]
fn status_looks_for_the_parent_only_where_it_can() {
    lab(|lab| {
        let look = |text: &str| conf(text).unwrap().find_on_host(&lab.host);
        assert!(look("{}").unwrap().is_none(), "an earlier plugin of the chain may make it");
        assert!(look(r#"{"master": "up"}"#).is_err());
        look(r#"{"master": "up", "linkInContainer": true}"#).unwrap();
        default_route(lab, "up");
        assert!(look("{}").unwrap().is_none(), "also with a default route");
        assert_eq!(look(r#"{"master": "up"}"#).unwrap().unwrap().link.name, "up");
    });
}

#[test]
fn check_reports_a_changed_or_deleted_parent() {
    lab(|lab| {
        lab.macvlan(&add("net", "eth0"));
        let verify = |text: &str| conf(text).unwrap().verify(&lab.host, &lab.sandbox, &at("c", "eth0"));
        assert_eq!(verify("{}").unwrap().name, "up");
        assert_eq!(verify(r#"{"master": "up"}"#).unwrap().name, "up");
        assert!(verify(r#"{"master": "far"}"#).unwrap_err().msg().contains("master is another link"));
        lab.host.nl.delete_link(&lab.host.link("up").unwrap()).unwrap();
        let error = verify(r#"{"master": "up"}"#).unwrap_err();
        assert!(error.details().contains("together with its master"), "{error}");
    });
}

#[test]
fn a_name_that_no_link_can_have_is_refused() {
    assert_eq!(conf(r#"{"master": "a/b"}"#).unwrap_err().code(), 7);
    assert_eq!(conf(r#"{"master": 5}"#).unwrap_err().code(), 6);
    assert_eq!(conf(r#"{"linkInContainer": "yes"}"#).unwrap_err().code(), 6);
}

#[test]
fn a_parent_that_is_down_is_a_parent() {
    lab(|lab| {
        let up = lab.master("up");
        lab.host.nl.change_link(&up, &LinkChange { up: Some(false), ..LinkChange::default() }).unwrap();
        assert!(!find(lab, r#"{"master": "up"}"#, None).unwrap().link.up);
    });
}
