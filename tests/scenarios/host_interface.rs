//! `hostInterface` of bridge and ptp: the name of the veth's end on the host.

use lab::{Call, Lab, beyond_reference};
use serde_json::{Value, json};

use crate::common::host_local;

const PLUGINS: [&str; 2] = ["bridge", "ptp"];

/// A call whose interface on the host is `web0`.
fn named(lab: &Lab, plugin: &str) -> Call {
    let ipam = host_local(&[&["10.1.2.0/24"], &["fd00:1:2::/64"]]);
    let config = json!({"ipam": ipam, "isGateway": true, "hostInterface": "web0"});
    lab.plugin(plugin).version("1.1.0").config(config)
}

/// Another name for this container.
fn for_this_container(name: &str) -> Value {
    json!({"args": {"cni": {"hostInterface": name}}})
}

/// The interfaces on the host that a result lists, except the bridge.
fn host_ends(result: &Value) -> Vec<&str> {
    let interfaces = result["interfaces"].as_array().unwrap().iter();
    let outside = interfaces.filter(|one| one["sandbox"].as_str().is_none_or(str::is_empty));
    outside.map(|one| one["name"].as_str().unwrap()).filter(|name| *name != "cni0").collect()
}

#[test]
fn the_hosts_end_has_the_configured_name_and_del_deletes_it_without_namespace_and_result() {
    // https://github.com/containernetworking/plugins/issues/884
    beyond_reference!("host-interface");
    for plugin in PLUGINS {
        let lab = Lab::new();
        let [stays, pod] = ["stays", "pod"].map(|id| lab.container(id));
        named(&lab, plugin).config(for_this_container("web0-other")).on(&stays).add().ok_result();
        let before = lab.snapshot();
        let call = named(&lab, plugin).on(&pod);
        for with_namespace in [true, false] {
            let result = call.add().ok_result();
            assert_eq!(host_ends(&result), ["web0"], "{plugin}");
            assert_eq!(lab.host().link("web0").unwrap()["ifalias"], "cni net pod eth0", "{plugin}");
            // Until it has the alias, it is in the network's group.
            assert_eq!(lab.host().link("web0").unwrap()["group"], "default", "{plugin}");
            call.check(&result).ok();
            assert!(pod.reaches("10.1.2.1") && pod.reaches("fd00:1:2::1"), "{plugin}");
            if with_namespace {
                call.del().ok();
            } else {
                call.clone().without("CNI_NETNS").del().ok();
            }
            call.del().ok();
            lab.snapshot().assert_same(&before);
        }
    }
}

#[test]
fn a_name_that_another_container_has_is_refused_and_the_following_del_keeps_its_interface() {
    beyond_reference!("host-interface");
    for plugin in PLUGINS {
        let lab = Lab::new();
        let [first, second] = ["first", "second"].map(|id| lab.container(id));
        named(&lab, plugin).on(&first).add().ok_result();
        let before = lab.snapshot();
        let call = named(&lab, plugin).on(&second);
        let refused = call.add().refused(7, "hostInterface web0");
        assert!(refused.msg.contains("cni net first eth0"), "{refused:?}");
        call.del().ok();
        lab.snapshot().assert_same(&before);
    }
}

#[test]
fn a_name_that_the_host_has_is_refused_before_the_bridge_exists() {
    beyond_reference!("host-interface");
    for plugin in PLUGINS {
        let lab = Lab::new();
        let pod = lab.container("pod");
        lab.host().sh("ip link add web0 type veth peer name web1");
        let before = lab.snapshot();
        let call = named(&lab, plugin).on(&pod);
        call.add().refused(7, "hostInterface web0");
        call.del().ok();
        lab.snapshot().assert_same(&before);
    }
}

#[test]
fn gc_deletes_the_interface_of_a_deleted_container_and_keeps_the_others() {
    beyond_reference!("host-interface");
    for plugin in PLUGINS {
        let lab = Lab::new();
        let [stays, goes] = ["stays", "goes"].map(|id| lab.container(id));
        let call = named(&lab, plugin);
        call.clone().config(for_this_container("web0-other")).on(&stays).add().ok_result();
        let before = lab.snapshot();
        call.clone().on(&goes).add().ok_result();
        call.gc(&[("stays", "eth0")]).ok();
        lab.snapshot().assert_same(&before);
    }
}

#[test]
fn del_with_a_changed_configuration_deletes_the_interface_by_its_end_in_the_container() {
    beyond_reference!("host-interface");
    for plugin in PLUGINS {
        let lab = Lab::new();
        let pod = lab.container("pod");
        let call = named(&lab, plugin).on(&pod);
        call.add().ok_result();
        call.config(json!({"hostInterface": "web9"})).del().ok();
        assert!(lab.host().link("web0").is_none(), "{plugin}");
    }
}

/// A process keeps the namespace, so the pair still exists, but no path leads to the container's end.
#[test]
fn del_with_a_changed_configuration_finds_the_interface_in_the_result_of_add() {
    beyond_reference!("host-interface");
    for plugin in PLUGINS {
        let lab = Lab::new();
        let pod = lab.container("pod");
        let call = named(&lab, plugin).on(&pod);
        let result = call.add().ok_result();
        let changed = call.config(json!({"hostInterface": "web9", "prevResult": result}));
        changed.without("CNI_NETNS").del().ok();
        assert!(lab.host().link("web0").is_none(), "{plugin}");
    }
}

/// The name of another attachment's interface, if it has no `hostInterface`.
#[test]
fn del_keeps_the_interface_of_a_container_that_has_requested_this_containers_name() {
    beyond_reference!("host-interface");
    for plugin in PLUGINS {
        let lab = Lab::new();
        let [owner, taker] = ["owner", "taker"].map(|id| lab.container(id));
        let call = named(&lab, plugin).config(json!({"hostInterface": ""})).on(&owner);
        let result = call.add().ok_result();
        let name = host_ends(&result)[0].to_owned();
        call.del().ok();
        named(&lab, plugin).config(json!({"hostInterface": name})).on(&taker).add().ok_result();
        call.del().ok();
        assert!(taker.link("eth0").is_some(), "{plugin}");
    }
}

#[test]
fn check_fails_if_the_interface_was_renamed() {
    beyond_reference!("host-interface");
    for plugin in PLUGINS {
        let lab = Lab::new();
        let pod = lab.container("pod");
        let call = named(&lab, plugin).on(&pod);
        let result = call.add().ok_result();
        lab.host().sh("ip link set web0 down; ip link set web0 name other0; ip link set other0 up");
        call.check(&result).refused(999, "web0");
    }
}

#[test]
fn check_reports_a_missing_spoof_check_of_a_port_with_a_configured_name() {
    beyond_reference!("host-interface");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = named(&lab, "bridge").config(json!({"macspoofchk": true})).on(&pod);
    let result = call.add().ok_result();
    call.check(&result).ok();
    lab.host().sh("nft flush ruleset");
    call.check(&result).refused(999, "net/pod/eth0");
}
