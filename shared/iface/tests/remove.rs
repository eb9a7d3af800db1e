//! What DEL and GC delete, and what they keep.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::os::fd::AsFd;
use std::path::PathBuf;

use cni::{AddResult, Del, IfName, Interface, Undo};
use common::{add, another_sandbox, at, lab, layer_2, network, sh};
use iface::{conf, host_end, remove, veth};
use netlink::{LinkKind, NewLink, Peer};

#[test]
fn a_veth_is_deleted_by_its_name_on_the_host_even_without_the_container() {
    lab(|lab| {
        let (net, at) = (network("net"), at("c", "eth0"));
        lab.veth(&net, &at);
        remove::veth(&lab.host, &del("net", None), |_| Ok(false)).unwrap();
        assert_eq!(lab.sandbox.nl.link("eth0").unwrap(), None);
        remove::veth(&lab.host, &del("net", None), |_| Ok(false)).unwrap();
    });
}

#[test]
fn a_veth_of_another_plugin_is_deleted_by_its_end_in_the_container() {
    lab(|lab| {
        let made = lab.veth(&network("net"), &at("c", "eth0"));
        // Like a pair of the reference.
        sh(&format!("ip link set {} alias mine", made.host.name));
        let call = del("other", Some(&lab.path()));
        remove::veth(&lab.host, &call, |_| Ok(false)).unwrap();
        assert!(lab.sandbox.nl.link("eth0").unwrap().is_some());
        remove::veth(&lab.host, &call, |end| Ok(end.name == made.host.name)).unwrap();
        assert_eq!(lab.sandbox.nl.link("eth0").unwrap(), None);
    });
}

#[test]
fn a_veth_of_another_plugin_is_deleted_if_the_result_lists_it() {
    lab(|lab| {
        let made = lab.veth(&network("net"), &at("c", "eth0"));
        sh(&format!("ip link set {} alias mine", made.host.name));
        let prev = AddResult { interfaces: vec![lab.host.to_interface(&made.host)], ..AddResult::default() };
        let call = Del { prev_result: Some(prev), ..del("other", Some(&lab.path())) };
        remove::veth(&lab.host, &call, |_| Ok(false)).unwrap();
        assert_eq!(lab.sandbox.nl.link("eth0").unwrap(), None);
    });
}

#[test]
fn a_veth_whose_other_end_is_in_a_third_namespace_is_deleted_only_if_the_result_lists_its_mac() {
    lab(|lab| {
        let third = another_sandbox();
        let peer = Some(Peer { name: "eth0", mac: None, netns: Some(lab.sandbox.as_fd()) });
        third.nl.create_link(&NewLink { peer, ..NewLink::new("far", LinkKind::Veth) }).unwrap();
        let own = lab.sandbox.to_interface(&lab.sandbox.link("eth0").unwrap());
        let other = Interface { mac: Some("02:00:00:00:00:01".into()), ..own.clone() };
        for (listed, deleted) in [(None, false), (Some(other), false), (Some(own), true)] {
            let prev = listed.map(|one| AddResult { interfaces: vec![one], ..AddResult::default() });
            let call = Del { prev_result: prev, ..del("net", Some(&lab.path())) };
            remove::veth(&lab.host, &call, |_| Ok(true)).unwrap();
            assert_eq!(lab.sandbox.nl.link("eth0").unwrap().is_none(), deleted, "{call:?}");
        }
    });
}

#[test]
fn a_veth_of_another_network_with_the_same_name_is_kept() {
    lab(|lab| {
        lab.veth(&network("first"), &at("c", "eth0"));
        remove::veth(&lab.host, &del("second", Some(&lab.path())), |_| Ok(false)).unwrap();
        assert!(lab.sandbox.nl.link("eth0").unwrap().is_some());
    });
}

#[test]
fn a_veth_that_was_renamed_is_deleted_by_its_end_in_the_container() {
    lab(|lab| {
        let made = lab.veth(&network("net"), &at("c", "eth0"));
        // Before Linux 6.2, one request cannot do both.
        sh(&format!("ip link set {} down", made.host.name));
        sh(&format!("ip link set {} name renamed", made.host.name));
        remove::veth(&lab.host, &del("net", Some(&lab.path())), |_| Ok(false)).unwrap();
        assert_eq!(lab.sandbox.nl.link("eth0").unwrap(), None);
    });
}

/// The configuration with this name of the host's end.
fn named(name: &str) -> cni::AsWritten {
    let document = format!(r#"{{"hostInterface": "web", "args": {{"cni": {{"hostInterface": "{name}"}}}}}}"#);
    cni::json::parse(document.as_bytes(), "it").unwrap().into()
}

#[test]
fn a_veth_with_a_requested_name_is_deleted_only_by_its_own_attachment() {
    lab(|lab| {
        let name = IfName::parse("web0").unwrap();
        assert_eq!(conf::host_interface(&named("web0")).unwrap().as_ref(), Some(&name));
        let spec = veth::Spec { host_interface: Some(&name), ..veth::Spec::default() };
        let mut undo = Undo::new();
        let (net, at) = (network("net"), at("c", "eth0"));
        let made = veth::create(&lab.host, &lab.sandbox, &net, &at, spec, &mut undo).unwrap();
        undo.commit();
        assert!(made.host.up && made.host.name == "web0");
        assert_eq!(lab.host.link("web0").unwrap().alias, "cni net c eth0");
        for (network, names, deleted) in
            [("other", "web0", false), ("net", "web1", false), ("net", "web0", true)]
        {
            remove::veth(&lab.host, &Del { conf: named(names), ..del(network, None) }, |_| Ok(false))
                .unwrap();
            assert_eq!(lab.host.nl.link("web0").unwrap().is_none(), deleted, "{network} {names}");
        }
    });
}

#[test]
fn a_requested_name_that_the_host_has_leaves_nothing() {
    lab(|lab| {
        let name = IfName::parse("web0").unwrap();
        sh("ip link add web0 type bridge");
        let spec = veth::Spec { host_interface: Some(&name), ..veth::Spec::default() };
        let mut undo = Undo::new();
        let made = veth::create(&lab.host, &lab.sandbox, &network("net"), &at("c", "eth0"), spec, &mut undo);
        let error = undo.unwind_after(made.unwrap_err());
        assert_eq!(error.code(), 7, "{error}");
        assert!(error.msg().contains("web0"), "{error}");
        assert_eq!(lab.host.nl.links().unwrap().iter().filter(|link| link.is("veth")).count(), 0);
        assert!(lab.host.link("web0").unwrap().is("bridge"));
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
        sh(&format!("ip link add {} type bridge", veth::host_name(&net, &at)));
        remove::veth(&lab.host, &del("net", Some(&lab.path())), |_| Ok(false)).unwrap();
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
