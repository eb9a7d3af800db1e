//! What DEL and GC delete, and what they keep.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::os::fd::AsFd;
use std::path::PathBuf;

use cni::Del;
use common::{add, another_sandbox, at, lab, layer_2, network, sh};
use iface::{host_end, remove};
use netlink::{LinkKind, NewLink, Peer};

#[test]
fn a_veth_is_deleted_by_its_name_on_the_host_even_without_the_container() {
    lab(|lab| {
        let (net, at) = (network("net"), at("c", "eth0"));
        lab.veth(&net, &at);
        remove::veth(&lab.host, &net, &at, None).unwrap();
        assert_eq!(lab.sandbox.nl.link("eth0").unwrap(), None);
        remove::veth(&lab.host, &net, &at, None).unwrap();
    });
}

#[test]
fn a_veth_of_another_plugin_is_deleted_by_its_end_in_the_container() {
    lab(|lab| {
        let made = lab.veth(&network("net"), &at("c", "eth0"));
        // Like a pair of the reference.
        sh(&format!("ip link set {} alias mine", made.host.name));
        remove::veth(&lab.host, &network("other"), &at("c", "eth0"), Some(&lab.path())).unwrap();
        assert_eq!(lab.sandbox.nl.link("eth0").unwrap(), None);
    });
}

#[test]
fn a_veth_of_another_network_with_the_same_name_is_kept() {
    lab(|lab| {
        lab.veth(&network("first"), &at("c", "eth0"));
        remove::veth(&lab.host, &network("second"), &at("c", "eth0"), Some(&lab.path())).unwrap();
        assert!(lab.sandbox.nl.link("eth0").unwrap().is_some());
    });
}

/// The DEL of `eth0`.
fn del(network: &str, netns: Option<&PathBuf>) -> Del {
    Del {
        attachment: at("c", "eth0"),
        netns: netns.cloned(),
        prev_result: None,
        net: layer_2(network),
        conf: cni::AsWritten::default(),
    }
}

#[test]
fn only_a_link_of_the_plugins_own_kind_is_deleted() {
    lab(|lab| {
        lab.veth(&network("net"), &at("c", "eth0"));
        let path = lab.path();
        remove::child(&del("net", Some(&path)), "macvlan").unwrap();
        assert!(lab.sandbox.nl.link("eth0").unwrap().is_some());
        remove::child(&del("net", Some(&path)), "veth").unwrap();
        assert_eq!(lab.sandbox.nl.link("eth0").unwrap(), None);
        for netns in [Some(path), None, Some("/run/netns/gone".into())] {
            remove::child(&del("net", netns.as_ref()), "veth").unwrap();
        }
    });
}

#[test]
fn a_link_of_another_network_with_the_same_name_is_kept() {
    lab(|lab| {
        lab.macvlan(&add("first", "eth0"));
        remove::child(&del("second", Some(&lab.path())), "macvlan").unwrap();
        assert!(lab.sandbox.nl.link("eth0").unwrap().is_some());
        remove::child(&del("first", Some(&lab.path())), "macvlan").unwrap();
        assert_eq!(lab.sandbox.nl.link("eth0").unwrap(), None);
    });
}

#[test]
fn a_bridge_named_like_a_veth_is_kept() {
    lab(|lab| {
        let (net, at) = (network("net"), at("c", "eth0"));
        sh(&format!("ip link add {} type bridge", iface::veth::host_name(&net, &at)));
        remove::veth(&lab.host, &net, &at, Some(&lab.path())).unwrap();
        assert_eq!(lab.host.nl.links().unwrap().iter().filter(|link| link.is("bridge")).count(), 1);
    });
}

#[test]
fn gc_deletes_the_pairs_of_its_network_without_an_attachment() {
    lab(|lab| {
        let (net, other) = (layer_2("net"), network("other"));
        let (kept, gone) = (at("c", "eth0"), at("c", "eth1"));
        lab.veth(&net.name, &kept);
        lab.veth(&net.name, &gone);
        lab.veth(&other, &at("c", "eth2"));
        let call = cni::Gc {
            scope: cni::Scope::all_but([kept].into_iter().collect()),
            net,
            conf: cni::AsWritten::default(),
        };
        remove::stale_veths(&lab.host, &call).unwrap();
        let left = ["eth0", "eth1", "eth2"].map(|name| lab.sandbox.nl.link(name).unwrap().is_some());
        assert_eq!(left, [true, false, true]);
    });
}

#[test]
fn the_hosts_end_of_a_veth_is_found_among_links_with_the_same_index() {
    lab(|lab| {
        let one = lab.veth(&network("net"), &at("one", "eth0"));
        let third = another_sandbox();
        let second = common::Lab { host: lab.host.clone(), sandbox: third };
        let two = second.veth(&network("net"), &at("two", "eth0"));
        // Each namespace has its own indexes.
        assert_eq!(one.container.index, two.container.index);
        for (sandbox, made) in [(&lab.sandbox, &one), (&second.sandbox, &two)] {
            let container = sandbox.link("eth0").unwrap();
            let found = host_end::find(&lab.host, sandbox, &container).unwrap();
            assert_eq!(found.map(|link| link.name).as_deref(), Some(made.host.name.as_str()));
        }
        let between = NewLink {
            peer: Some(Peer { name: "eth9", mac: None, netns: Some(lab.sandbox.as_fd()) }),
            ..NewLink::new("inner", LinkKind::Veth)
        };
        second.sandbox.nl.create_link(&between).unwrap();
        let elsewhere = lab.sandbox.link("eth9").unwrap();
        assert_eq!(host_end::find(&lab.host, &lab.sandbox, &elsewhere).unwrap(), None);
        let lo = lab.sandbox.link("lo").unwrap();
        assert_eq!(host_end::find(&lab.host, &lab.sandbox, &lo).unwrap(), None);
    });
}
