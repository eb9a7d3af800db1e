//! Podman's network driver `cni`, called with the documents that Podman 5.4.2 and netavark 1.14.0 send. They were recorded by a script in the
//! driver's place, which copied its stdin, while these commands ran:
//!
//! ```text
//! podman network create --driver cni --opt type=bridge --subnet 10.1.0.0/24 --subnet fd00:1::/64 pods
//! podman run -d --name a --network pods:ip=10.1.0.9,ip6=fd00:1::9,mac=02:00:00:00:00:09,alias=db \
//!     -p 8080:80 -p 127.0.0.1:9000-9002:9000-9002/udp localhost/busybox:latest
//! podman network reload a
//! ```

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use lab::dhcp::{in_background, started_by};
use lab::{
    Container, Feature, Lab, Netns, output_with, skip, tcp_is_cut_off, tcp_is_refused, tcp_says, together,
    udp_says,
};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::common::is_ignored;
use crate::dnsname::Dig;

const ID: &str = "04736b3203017ea533244eec34015d268e07ddbb0ef99ba43ce4ba2a765ae1be";

fn recorded(name: &str) -> Value {
    let text = match name {
        "create" => include_str!("podman_driver/create.json"),
        "setup" => include_str!("podman_driver/setup.json"),
        "reload" => include_str!("podman_driver/reload.json"),
        _ => include_str!("podman_driver/teardown.json"),
    };
    let mut document: Value = serde_json::from_str(text).unwrap();
    // The lab's plugins are in a directory of their own.
    let network = if name == "create" { &mut document } else { &mut document["network"] };
    network["options"]["plugin-path"] = together().display().to_string().into();
    document
}

/// What the driver answers: whether it succeeded, its stdout and its stderr.
fn drive(lab: &Lab, arguments: &[&str], document: &Value) -> (bool, Value, String) {
    lab.host().run(|| {
        let mut command = Command::new(together().join("ferrule"));
        command
            .arg0("/usr/libexec/netavark/cni")
            .args(arguments)
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        let output = output_with(&document.to_string(), &mut command).unwrap();
        let answer = serde_json::from_slice(&output.stdout).unwrap_or_default();
        (output.status.success(), answer, String::from_utf8_lossy(&output.stderr).into_owned())
    })
}

#[track_caller]
fn does(lab: &Lab, arguments: &[&str], document: &Value) -> Value {
    let (done, answer, log) = drive(lab, arguments, document);
    assert!(done, "{arguments:?}: {answer} {log}");
    answer
}

#[track_caller]
fn fails(lab: &Lab, arguments: &[&str], document: &Value) -> String {
    let (done, answer, _) = drive(lab, arguments, document);
    assert!(!done, "{arguments:?}: {answer}");
    // Podman reads no other member.
    assert_eq!(answer.as_object().map(serde_json::Map::len), Some(1), "{answer}");
    answer["error"].as_str().unwrap().to_owned()
}

fn set_up(lab: &Lab, pod: &Container, document: &Value) -> Value {
    does(lab, &["setup", &pod.netns.path().display().to_string()], document)
}

fn tear_down(lab: &Lab, pod: &Container, document: &Value) {
    does(lab, &["teardown", &pod.netns.path().display().to_string()], document);
}

fn lacks(feature: Feature) -> bool {
    let lacks = !feature.is_there();
    if lacks {
        skip(&format!("this kernel has no {feature}"));
    }
    lacks
}

/// What belongs to the container, and nothing of the network's own.
fn traces(lab: &Lab) -> (Vec<String>, String, String) {
    let links = lab.host().link_names().into_iter().filter(|name| name.starts_with("veth")).collect();
    let files = lab.host().sh("find /var/lib/cni -type f | grep -v -e last_reserved_ip -e lock$ || true");
    (
        links,
        files,
        lab.host().sh(r"nft list ruleset | grep -e '10\.1\.0\.[0-9]*[^0-9./]' -e 'fd00:1::[0-9a-f]' || true"),
    )
}

#[test]
fn a_network_and_a_container_of_podmans_own_documents_are_set_up_and_torn_down_twice() {
    if lacks(Feature::NftNat) || lacks(Feature::Ipv6) {
        return;
    }
    let lab = Lab::new();
    let client = lab.machine("client");
    let pod = lab.container("twice-torn-down");
    let made = does(&lab, &["create"], &recorded("create"));
    assert_eq!(made["subnets"], json!([{"subnet": "10.1.0.0/24"}, {"subnet": "fd00:1::/64"}]));
    assert_eq!((&made["ipam_options"]["driver"], &made["dns_enabled"]), (&json!("none"), &json!(false)));
    assert_eq!(made["network_interface"], "cni-f6dbbe5e61");

    let status = set_up(&lab, &pod, &recorded("setup"));
    assert_eq!(
        status,
        json!({
            "dns_search_domains": [], "dns_server_ips": [],
            "interfaces": {"eth0": {"mac_address": "02:00:00:00:00:09", "subnets": [
                {"ipnet": "10.1.0.9/24", "gateway": "10.1.0.1"}, {"ipnet": "fd00:1::9/64", "gateway": "fd00:1::1"},
            ]}},
        })
    );
    let _web = pod.netns.serve_tcp("web", "[::]:80");
    let _udp = pod.netns.serve_udp("last", "[::]:9002");
    for address in ["198.51.100.1:8080", "[2001:db8:51::1]:8080"] {
        assert!(tcp_says(&client, address).is_some_and(|said| said.starts_with("web ")), "{address}");
    }
    assert!(udp_says(lab.host(), "127.0.0.1:9002").is_some_and(|said| said.starts_with("last ")));
    assert!(udp_says(&client, "198.51.100.1:9002").is_none(), "a port of loopback");

    tear_down(&lab, &pod, &recorded("teardown"));
    let nothing = (Vec::new(), String::new(), String::new());
    assert_eq!(traces(&lab), nothing);
    tear_down(&lab, &pod, &recorded("teardown"));

    // After a reload Podman sends each address twice.
    set_up(&lab, &pod, &recorded("reload"));
    assert_eq!(pod.netns.addresses("eth0")[0], "10.1.0.9/24");
    pod.netns.vanish();
    tear_down(&lab, &pod, &recorded("teardown"));
    assert_eq!(traces(&lab), nothing, "without the namespace");
}

#[test]
fn cnitool_knows_the_containers_and_its_gc_takes_those_whose_namespace_is_gone_only() {
    if lacks(Feature::NftNat) || lacks(Feature::Ipv6) {
        return;
    }
    let lab = Lab::new();
    let (pod, gone) = (lab.container("pod"), lab.container("gone-for-podman"));
    set_up(&lab, &pod, &recorded("setup"));
    let mut other = recorded("setup");
    other["container_id"] = "gone-for-podman".into();
    other["port_mappings"] = Value::Null;
    other["network_options"]["static_ips"] = Value::Null;
    other["network_options"]["static_mac"] = Value::Null;
    set_up(&lab, &gone, &other);
    let shown = lab.cnitool().json("show --all");
    assert_eq!(shown.as_array().map(Vec::len), Some(2), "{shown}");
    gone.netns.vanish();
    lab.cnitool().says("gc pods");
    let shown = lab.cnitool().json("show --all");
    assert_eq!(shown.as_array().map(Vec::len), Some(1), "{shown}");
    assert!(shown.to_string().contains(ID), "{shown}");
    assert_eq!(pod.netns.addresses("eth0")[0], "10.1.0.9/24");
    lab.host().sh("nft flush ruleset");
    lab.cnitool().says("repair pods");
    assert!(traces(&lab).2.contains("10.1.0.9"), "repair brings its rules back");
    tear_down(&lab, &pod, &recorded("teardown"));
}

/// A package installs the driver and its plugins in a directory of their own. Nothing is in /opt/cni/bin, or plugins of
/// another version that do not support the driver's networks.
#[test]
fn gc_del_and_repair_find_the_plugins_of_the_driver_and_of_its_option_plugin_path() {
    if lacks(Feature::NftNat) || lacks(Feature::Ipv6) {
        return;
    }
    for place in ["/usr/libexec/netavark", "/etc/containers"] {
        let lab = Lab::new();
        let (pod, gone) = (lab.container("pod"), lab.container("gone-without-path"));
        ["/opt/cni", "/usr/lib/cni", "/usr/libexec/netavark", "/etc/containers"]
            .iter()
            .for_each(|dir| lab.private_dir(dir));
        match place {
            "/usr/libexec/netavark" => {
                symlink(together().join("ferrule"), "/usr/libexec/netavark/cni").unwrap()
            }
            _ => {
                let network = json!({"name": "pods", "driver": "cni", "options": {"type": "bridge", "plugin-path": together()}});
                fs::create_dir("/etc/containers/networks").unwrap();
                fs::write("/etc/containers/networks/pods.json", network.to_string()).unwrap();
            }
        }
        set_up(&lab, &pod, &recorded("setup"));
        let mut other = recorded("setup");
        other["container_id"] = "gone-without-path".into();
        other["port_mappings"] = Value::Null;
        other["network_options"] = json!({"interface_name": "eth0"});
        set_up(&lab, &gone, &other);
        gone.netns.vanish();

        lab.host().sh("nft flush ruleset");
        let unset = lab.cnitool().env("CNI_PATH", "");
        unset.says("repair pods");
        assert!(traces(&lab).2.contains("10.1.0.9"), "{place}");

        lab.host().sh(
            "mkdir /opt/cni/bin; printf '#!/bin/sh\nexit 1\n' >/opt/cni/bin/bridge; chmod +x /opt/cni/bin/bridge",
        );
        let said = unset.says("gc pods");
        assert!(said.contains("1 stale attachment"), "{place}: {said}");
        unset.says(&format!("del pods {} --container-id {ID}", pod.netns.path().display()));
        let (links, _, rules) = traces(&lab);
        assert_eq!((links, rules), (Vec::new(), String::new()), "{place}");
        assert_eq!(lab.host().sh("find /var/lib/cni/networks -name '10.1.*'"), "", "{place}");
    }
}

#[test]
fn a_reload_attaches_the_container_with_another_address_if_its_own_one_is_lost() {
    if lacks(Feature::NftNat) || lacks(Feature::Ipv6) {
        return;
    }
    let lab = Lab::new();
    let (pod, other) = (lab.container("pod"), lab.container("other"));
    set_up(&lab, &pod, &recorded("setup"));
    tear_down(&lab, &pod, &recorded("teardown"));
    // Another container takes the address between the teardown and the setup of a reload.
    let mut taking = recorded("setup");
    taking["container_id"] = "other".into();
    taking["port_mappings"] = Value::Null;
    taking["network_options"]["static_mac"] = Value::Null;
    set_up(&lab, &other, &taking);
    let (done, status, log) =
        drive(&lab, &["setup", &pod.netns.path().display().to_string()], &recorded("reload"));
    assert!(done && log.contains("previous or requested addresses"), "{status} {log}");
    assert!(log.contains("10.1.0.9"), "{log}");
    let interface = &status["interfaces"]["eth0"];
    assert_eq!(interface["mac_address"], "02:00:00:00:00:09");
    assert_eq!(interface["subnets"][0]["ipnet"], pod.netns.addresses("eth0")[0]);
    assert_ne!(address_of(&status), "10.1.0.9");
    tear_down(&lab, &pod, &recorded("teardown"));

    // A start requires its addresses.
    let error = fails(&lab, &["setup", &pod.netns.path().display().to_string()], &recorded("setup"));
    assert!(error.contains("10.1.0.9"), "{error}");
    tear_down(&lab, &other, &taking);
    assert_eq!(traces(&lab), (Vec::new(), String::new(), String::new()));
}

/// A network of a file finds its plugins as the driver does: in its own `plugin-path`, and not in that of another network.
#[test]
fn gc_and_del_find_the_plugins_of_a_conflist_only_in_its_own_plugin_path() {
    if lacks(Feature::NftNat) {
        return;
    }
    let lab = Lab::new();
    let pod = lab.container("pod");
    ["/opt/cni", "/usr/lib/cni", "/usr/libexec/netavark", "/etc/containers"]
        .iter()
        .for_each(|dir| lab.private_dir(dir));
    lab.fake_plugin("bridge", "echo '{\"code\": 100, \"msg\": \"of another network\"}'; exit 1");
    let ipam = json!({"type": "host-local", "subnet": "10.1.0.0/24"});
    let plugins = json!([{"type": "bridge", "bridge": "br0", "ipam": ipam}]);
    lab.configure("own.conflist", &json!({"cniVersion": "1.0.0", "name": "own", "plugins": plugins}));
    let options = json!({"conflist": "/etc/cni/net.d/own.conflist", "plugin-path": together()});
    fs::create_dir("/etc/containers/networks").unwrap();
    for (name, options) in
        [("another", json!({"type": "bridge", "plugin-path": Lab::plugin_dir()})), ("pods", options.clone())]
    {
        let network = json!({"name": name, "driver": "cni", "options": options});
        fs::write(format!("/etc/containers/networks/{name}.json"), network.to_string()).unwrap();
    }
    let mut call = recorded("setup");
    call["network"]["options"] = options;
    call["port_mappings"] = Value::Null;
    call["network_options"] = json!({"interface_name": "eth0"});
    set_up(&lab, &pod, &call);
    let unset = lab.cnitool().env("CNI_PATH", "");
    unset.says("gc own");
    unset.says(&format!("del own {} --container-id {ID}", pod.netns.path().display()));
    assert_eq!((traces(&lab).0, pod.netns.link("eth0")), (Vec::new(), None));
}

/// A call may only look like a reload. Then the address is one that the user has requested.
#[test]
fn an_address_is_not_replaced_because_of_the_failure_of_a_chained_plugin() {
    let lab = Lab::new();
    let pod = lab.container("pod");
    lab.fake_plugin(
        "busy",
        r#"input=$(cat); [ $CNI_COMMAND = ADD ] || exit 0
        if [ -e /run/lab/free ]; then echo "$input" | jq .prevResult; exit; fi
        touch /run/lab/free; echo '{"code": 11, "msg": "host port 8080 is in use"}'; exit 1"#,
    );
    let ipam = json!({"type": "host-local", "subnet": "10.1.0.0/24"});
    let plugins = json!([{"type": "bridge", "bridge": "br0", "ipam": ipam}, {"type": "busy"}]);
    lab.configure("own.conflist", &json!({"cniVersion": "1.0.0", "name": "own", "plugins": plugins}));
    let mut call = recorded("reload");
    let path = format!("{}:{}", together().display(), Lab::plugin_dir().display());
    call["network"]["options"] = json!({"conflist": "/etc/cni/net.d/own.conflist", "plugin-path": path});
    call["port_mappings"] = Value::Null;
    call["network_options"]["static_ips"] = json!(["10.1.0.9", "10.1.0.9"]);
    call["network_options"]["static_mac"] = Value::Null;
    let (done, status, log) = drive(&lab, &["setup", &pod.netns.path().display().to_string()], &call);
    assert!(!done && status.to_string().contains("host port 8080 is in use"), "{status} {log}");
    assert!(!log.contains("addresses"), "{log}");
    set_up(&lab, &pod, &call);
    assert_eq!(pod.netns.addresses("eth0")[0], "10.1.0.9/24");
}

/// The bridge of the first network stays, and has the first route to the subnet.
#[test]
fn a_network_that_is_removed_and_created_again_works() {
    if lacks(Feature::NftNat) {
        return;
    }
    let lab = Lab::new();
    let pod = lab.container("pod");
    for id in ["0123456789abcdef", "fedcba9876543210"] {
        let mut network = recorded("create");
        network["id"] = id.repeat(4).into();
        network["subnets"] = json!([{"subnet": "10.1.0.0/24"}]);
        let call = call_for(&pod, &does(&lab, &["create"], &network));
        let address = address_of(&set_up(&lab, &pod, &call));
        let _web = pod.netns.serve_tcp("web", "0.0.0.0:80");
        let said = tcp_says(lab.host(), &format!("{address}:80"));
        assert!(said.is_some_and(|said| said.starts_with("web ")), "{id}");
        tear_down(&lab, &pod, &call);
    }
}

/// After a crash or a reboot the namespace is another one, and no teardown has come before.
#[test]
fn a_setup_removes_what_an_earlier_one_of_the_container_has_left() {
    if lacks(Feature::NftNat) || lacks(Feature::Ipv6) {
        return;
    }
    let lab = Lab::new();
    let (before, after) = (lab.container("before-setup"), lab.container("after"));
    set_up(&lab, &before, &recorded("setup"));
    before.netns.vanish();
    set_up(&lab, &after, &recorded("setup"));
    assert_eq!(after.netns.addresses("eth0")[0], "10.1.0.9/24");
    tear_down(&lab, &after, &recorded("teardown"));
    assert_eq!(traces(&lab), (Vec::new(), String::new(), String::new()));
}

/// As Podman 4.3.1 writes it for `podman network create`.
fn of_podman_4() -> Value {
    json!({"cniVersion": "0.4.0", "name": "old", "plugins": [
        {"type": "bridge", "bridge": "cni-podman1", "isGateway": true, "ipMasq": true, "hairpinMode": true,
         "ipam": {"type": "host-local", "routes": [{"dst": "0.0.0.0/0"}],
                  "ranges": [[{"subnet": "10.1.0.0/24", "gateway": "10.1.0.1"}], [{"subnet": "fd00:1::/64"}]]}},
        {"type": "portmap", "capabilities": {"portMappings": true}},
        {"type": "firewall", "backend": ""}, {"type": "tuning"},
    ]})
}

/// The document with a network that a file describes.
fn on_file(document: &Value, file: &str) -> Value {
    let mut document = document.clone();
    let path = format!("{}:{}", together().display(), Lab::plugin_dir().display());
    document["network"]["options"] = json!({"conflist": file, "plugin-path": path});
    document
}

#[test]
fn a_file_that_changes_between_create_and_setup_is_read_again_and_teardown_uses_that_of_setup() {
    if lacks(Feature::NftNat) || lacks(Feature::Ipv6) {
        return;
    }
    let lab = Lab::new();
    let pod = lab.container("pod");
    let netns = pod.netns.path().display().to_string();
    let file = "/etc/cni/net.d/old.conflist";
    lab.configure("old.conflist", &of_podman_4());
    let mut network = recorded("create");
    network.as_object_mut().unwrap().remove("subnets");
    network["options"] = json!({"conflist": file, "plugin-path": together()});
    let made = does(&lab, &["create"], &network);
    let mut call = recorded("setup");
    call["network"] = made;

    for broken in ["{", r#"{"cniVersion": "1.0.0", "name": "old", "plugins": [{"type": "../../bin/sh"}]}"#] {
        fs::write(file, broken).unwrap();
        let error = fails(&lab, &["setup", &netns], &call);
        assert!(error.contains(file), "{error}");
        assert_eq!(traces(&lab), (Vec::new(), String::new(), String::new()));
    }
    // Another subnet than the one that Podman knows.
    let mut changed = of_podman_4();
    changed["plugins"][0]["ipam"]["ranges"] = json!([[{"subnet": "10.1.7.0/24"}]]);
    lab.configure("old.conflist", &changed);
    call["network_options"]["static_ips"] = json!(["10.1.7.9"]);
    let status = set_up(&lab, &pod, &call);
    let shown = json!([{"ipnet": "10.1.7.9/24", "gateway": "10.1.7.1"}]);
    assert_eq!(status["interfaces"]["eth0"]["subnets"], shown);
    fs::write(file, "{").unwrap();
    tear_down(&lab, &pod, &call);
    assert_eq!(traces(&lab), (Vec::new(), String::new(), String::new()));
    assert_eq!(lab.host().sh("find /var/lib/cni/networks -name '10.1.*'"), "");
}

#[test]
fn a_network_of_podman_4_serves_containers_of_podman_5_also_when_its_file_is_removed_meanwhile() {
    if lacks(Feature::NftNat) || lacks(Feature::Ipv6) {
        return;
    }
    let lab = Lab::new();
    let pod = lab.container("pod");
    lab.configure("old.conflist", &of_podman_4());
    let file = "/etc/cni/net.d/old.conflist";
    let mut network = recorded("create");
    network.as_object_mut().unwrap().remove("subnets");
    network["options"] = json!({"conflist": file, "plugin-path": together()});
    let made = does(&lab, &["create"], &network);
    let subnets = json!([{"subnet": "10.1.0.0/24", "gateway": "10.1.0.1"}, {"subnet": "fd00:1::/64", "gateway": "fd00:1::1"}]);
    assert_eq!(made["subnets"], subnets);
    let mut call = recorded("setup");
    call["network"] = made;
    let status = set_up(&lab, &pod, &call);
    assert_eq!(status["interfaces"]["eth0"]["mac_address"], "02:00:00:00:00:09");
    assert_eq!(pod.netns.addresses("eth0")[..2], ["10.1.0.9/24", "fd00:1::9/64"]);
    let mut renamed = of_podman_4();
    renamed["name"] = "new".into();
    lab.configure("old.conflist", &renamed);
    tear_down(&lab, &pod, &call);
    assert_eq!(traces(&lab), (Vec::new(), String::new(), String::new()), "the network has another name");
    lab.configure("old.conflist", &of_podman_4());
    set_up(&lab, &pod, &call);
    fs::remove_file(file).unwrap();
    call["network"]["options"]["of-a-later-version"] = "x".into();
    tear_down(&lab, &pod, &call);
    assert_eq!(traces(&lab), (Vec::new(), String::new(), String::new()));
    tear_down(&lab, &pod, &call);
}

#[test]
fn whatever_is_wrong_is_told_in_one_text_with_its_place_and_a_remedy_and_leaves_nothing() {
    if lacks(Feature::NftNat) || lacks(Feature::Ipv6) {
        return;
    }
    let lab = Lab::new();
    let pod = lab.container("pod");
    let mut network = recorded("create");
    network["options"]["vlan"] = "many".into();
    let error = fails(&lab, &["create"], &network);
    assert_eq!(error, "option vlan: expected a number from 0 to 4094, found a string");
    lab.configure(
        "bad.conflist",
        &json!({"cniVersion": "1.0.0", "name": "bad", "plugins": [{"type": "brigde"}]}),
    );
    network.as_object_mut().unwrap().remove("subnets");
    network["options"] = json!({"conflist": "/etc/cni/net.d/bad.conflist", "plugin-path": together()});
    let error = fails(&lab, &["create"], &network);
    assert!(
        error.starts_with("/etc/cni/net.d/bad.conflist:") && error.contains("did you mean \"bridge\"?"),
        "{error}"
    );

    let netns = pod.netns.path().display().to_string();
    let mut call = recorded("setup");
    call["network_options"]["static_ips"] = json!(["10.77.0.9"]);
    let error = fails(&lab, &["setup", &netns], &call);
    assert!(error.starts_with("plugin bridge (ADD): ") && error.contains("10.77.0.9"), "{error}");
    assert_eq!(traces(&lab), (Vec::new(), String::new(), String::new()));
    for arguments in [&["setup"][..], &["destroy"], &["teardown"]] {
        assert!(fails(&lab, arguments, &call).contains("create, setup NETNS, teardown NETNS and info"));
    }
    assert!(fails(&lab, &["create"], &json!([])).contains("expected"));
}

#[test]
fn a_wish_that_the_network_does_not_fulfil_fails_the_setup_and_is_undone() {
    if lacks(Feature::NftNat) {
        return;
    }
    let lab = Lab::new();
    let pod = lab.container("pod");
    // Another maker's IPAM plugin, which gives the address that it wants.
    lab.fake_plugin("own-ipam", r#"cat >/dev/null; case $CNI_COMMAND in ADD) echo '{"cniVersion": "1.0.0", "ips": [{"address": "10.1.0.33/24"}]}';; esac"#);
    let list = json!({"cniVersion": "1.0.0", "name": "own", "plugins": [{"type": "bridge", "bridge": "br0", "ipam": {"type": "own-ipam"}}]});
    lab.configure("own.conflist", &list);
    let mut call = recorded("setup");
    let path = format!("{}:{}", together().display(), Lab::plugin_dir().display());
    call["network"]["options"] = json!({"conflist": "/etc/cni/net.d/own.conflist", "plugin-path": path});
    call["network_options"]["static_ips"] = json!(["10.1.0.9"]);
    call["network_options"]["static_mac"] = Value::Null;
    let error = fails(&lab, &["setup", &pod.netns.path().display().to_string()], &call);
    assert!(
        error.contains("did not give the container the address 10.1.0.9") && error.contains("--ip"),
        "{error}"
    );
    assert_eq!(traces(&lab), (Vec::new(), String::new(), String::new()));
    assert_eq!(pod.netns.link("eth0"), None);
    // A reload asks for what the container had: it stays connected with another address.
    call["network_options"]["static_ips"] = json!(["10.1.0.9", "10.1.0.9"]);
    set_up(&lab, &pod, &call);
    assert_eq!(pod.netns.addresses("eth0")[0], "10.1.0.33/24");
    tear_down(&lab, &pod, &call);

    // `podman run --ip 10.1.0.9 --mac-address 02:00:00:00:00:09` sends the same as a reload of a container without
    // these flags, but no process is in the namespace yet.
    call["network_options"]["static_ips"] = json!(["10.1.0.9"]);
    call["network_options"]["static_mac"] = "02:00:00:00:00:09".into();
    let error = fails(&lab, &["setup", &pod.netns.path().display().to_string()], &call);
    assert!(error.contains("did not give the container the address 10.1.0.9"), "{error}");
    assert_eq!((traces(&lab), pod.netns.link("eth0")), ((Vec::new(), String::new(), String::new()), None));
    let _process = in_background(&pod.netns, started_by("sleep", "600"), Path::new("/dev/null"));
    set_up(&lab, &pod, &call);
    assert_eq!(pod.netns.addresses("eth0")[0], "10.1.0.33/24");
}

/// A DHCP server chooses the addresses, so several requested ones are only reported.
#[test]
fn an_address_that_a_dhcp_server_does_not_give_is_a_warning() {
    let lab = Lab::new();
    let pod = lab.container("pod");
    lab.fake_plugin("dhcp", r#"cat >/dev/null; [ "$CNI_COMMAND" != ADD ] || echo '{"cniVersion": "1.0.0", "ips": [{"address": "10.1.0.33/24"}]}'"#);
    let bridge = json!({"type": "bridge", "bridge": "br0", "ipam": {"type": "dhcp"}});
    lab.configure("own.conflist", &json!({"cniVersion": "1.0.0", "name": "own", "plugins": [bridge]}));
    let mut call = on_file(&recorded("setup"), "/etc/cni/net.d/own.conflist");
    // Only the lab's plugin of this name is found first.
    let path = format!("{}:{}", Lab::plugin_dir().display(), together().display());
    call["network"]["options"]["plugin-path"] = path.into();
    call["network_options"]["static_mac"] = Value::Null;
    for addresses in [json!(["10.1.0.9"]), json!(["10.1.0.9", "fd00:1::9"])] {
        call["network_options"]["static_ips"] = addresses;
        let (done, answer, log) = drive(&lab, &["setup", &pod.netns.path().display().to_string()], &call);
        assert!(done && log.contains("the DHCP server chooses addresses"), "{answer} {log}");
        assert_eq!(pod.netns.addresses("eth0")[0], "10.1.0.33/24");
        tear_down(&lab, &pod, &call);
    }
}

#[test]
fn a_mac_address_that_the_network_does_not_set_fails_the_setup() {
    let lab = Lab::new();
    let pod = lab.container("pod");
    // Another maker's plugin, whose MAC nobody can choose.
    lab.fake_plugin(
        "own-mac",
        r#"cat >/dev/null; [ "$CNI_COMMAND" != ADD ] || echo '{"cniVersion": "1.0.0", "interfaces": [
            {"name": "eth0", "mac": "02:00:00:00:00:0a", "sandbox": "'$CNI_NETNS'"}],
            "ips": [{"address": "10.1.0.9/24", "interface": 0}]}'"#,
    );
    lab.configure(
        "own.conflist",
        &json!({"cniVersion": "1.0.0", "name": "own", "plugins": [{"type": "own-mac"}]}),
    );
    let mut call = on_file(&recorded("setup"), "/etc/cni/net.d/own.conflist");
    call["network_options"]["static_ips"] = json!(["10.1.0.9"]);
    let error = fails(&lab, &["setup", &pod.netns.path().display().to_string()], &call);
    assert!(
        error.contains("did not give the container the MAC address 02:00:00:00:00:09")
            && error.contains("--mac-address"),
        "{error}"
    );
    assert_eq!(traces(&lab), (Vec::new(), String::new(), String::new()));
    // A reload: a running container keeps its network.
    let _process = in_background(&pod.netns, started_by("sleep", "600"), Path::new("/dev/null"));
    let (done, answer, log) = drive(&lab, &["setup", &pod.netns.path().display().to_string()], &call);
    assert!(done && log.contains("the MAC address 02:00:00:00:00:09"), "{answer} {log}");
}

/// The network old with the plugin `noting` in its directory, which writes the commands that it gets into /run/lab/noted.
fn with_noting_in_its_directory(lab: &Lab) -> Value {
    lab.fake_plugin(
        "noting",
        r#"cat >/dev/null; echo $CNI_COMMAND >>/run/lab/noted
        [ "$CNI_COMMAND" != ADD ] || echo '{"cniVersion": "0.4.0", "interfaces": [
            {"name": "eth0", "mac": "02:00:00:00:00:09", "sandbox": "'$CNI_NETNS'"}], "ips": [
            {"version": "4", "address": "10.1.0.9/24", "interface": 0},
            {"version": "6", "address": "fd00:1::9/64", "interface": 0}]}'"#,
    );
    lab.configure("old.conflist", &of_podman_4());
    fs::create_dir("/etc/cni/net.d/old").unwrap();
    fs::write("/etc/cni/net.d/old/10-noting.conf", r#"{"type": "noting"}"#).unwrap();
    let mut call = on_file(&recorded("setup"), "/etc/cni/net.d/old.conflist");
    call["network_options"]["static_ips"] = json!(["10.1.0.9"]);
    call
}

/// The cache has no plugins of the directory next to the file, so DEL uses those of the network that is loaded from the file.
#[test]
fn a_setup_removes_the_earlier_attachment_also_from_plugins_in_the_networks_directory() {
    if lacks(Feature::NftNat) || lacks(Feature::Ipv6) {
        return;
    }
    let lab = Lab::new();
    let (before, after) = (lab.container("noted-once"), lab.container("noted-twice"));
    let call = with_noting_in_its_directory(&lab);
    set_up(&lab, &before, &call);
    before.netns.vanish();
    fs::remove_file("/run/lab/noted").unwrap();
    set_up(&lab, &after, &call);
    assert_eq!(fs::read_to_string("/run/lab/noted").unwrap(), "DEL\nADD\n");
    after.netns.vanish();
    // Another text than that in the cache.
    fs::write("/etc/cni/net.d/old.conflist", of_podman_4().to_string()).unwrap();
    fs::remove_file("/run/lab/noted").unwrap();
    let last = lab.container("last");
    set_up(&lab, &last, &call);
    assert_eq!(fs::read_to_string("/run/lab/noted").unwrap(), "DEL\nADD\n");
    tear_down(&lab, &last, &call);
    assert_eq!(fs::read_to_string("/run/lab/noted").unwrap(), "DEL\nADD\nDEL\n");
    assert_eq!(traces(&lab), (Vec::new(), String::new(), String::new()));
}

#[test]
fn a_teardown_without_the_file_calls_the_plugins_in_the_networks_directory_or_keeps_the_record() {
    if lacks(Feature::NftNat) || lacks(Feature::Ipv6) {
        return;
    }
    let lab = Lab::new();
    let pod = lab.container("noted-without-file");
    let call = with_noting_in_its_directory(&lab);
    let plugin = "/etc/cni/net.d/old/10-noting.conf";
    let attached = || !lab.host().sh("find /var/lib/cni/results -name 'old-*-eth0'").is_empty();
    for without_file in
        [|| fs::remove_file("/etc/cni/net.d/old.conflist"), || fs::write("/etc/cni/net.d/old.conflist", "{")]
    {
        set_up(&lab, &pod, &call);
        without_file().unwrap();
        fs::write(plugin, "{").unwrap();
        let error = fails(&lab, &["teardown", &pod.netns.path().display().to_string()], &call);
        assert!(
            error.contains("network old: ") && error.contains(plugin) && error.contains("cnitool gc old"),
            "{error}"
        );
        assert!(attached());
        fs::write(plugin, r#"{"type": "noting"}"#).unwrap();
        fs::remove_file("/run/lab/noted").unwrap();
        tear_down(&lab, &pod, &call);
        assert_eq!(fs::read_to_string("/run/lab/noted").unwrap(), "DEL\n");
        assert!(!attached());
        lab.configure("old.conflist", &of_podman_4());
    }
    assert_eq!(traces(&lab), (Vec::new(), String::new(), String::new()));
}

const RECORD: &str = "/var/lib/cni/netavark/pods.conflist";

/// A plugin in the place of `firewall` that kills the driver, which has called it, when it gets a command.
fn killed_in(lab: &Lab, command: &str, document: &Value) -> Value {
    with_firewall(
        lab,
        &format!(r#"cat >/dev/null; [ "$CNI_COMMAND" != {command} ] || kill -9 $PPID"#),
        document,
    )
}

/// A script in the place of `firewall`.
fn with_firewall(lab: &Lab, script: &str, document: &Value) -> Value {
    lab.fake_plugin("firewall", script);
    let mut document = document.clone();
    let path = format!("{}:{}", Lab::plugin_dir().display(), together().display());
    document["network"]["options"]["plugin-path"] = path.into();
    document
}

#[test]
fn the_chain_of_a_killed_setup_is_kept_in_a_file_for_gc_until_nothing_of_its_network_is_left() {
    if lacks(Feature::NftNat) || lacks(Feature::Ipv6) {
        return;
    }
    let lab = Lab::new();
    let (torn, other) = (lab.container("killed-setup"), lab.container("other"));
    does(&lab, &["create"], &recorded("create"));
    assert_eq!(lab.host().sh("find /var/lib/cni -type f"), "", "create keeps nothing");
    let call = killed_in(&lab, "ADD", &recorded("setup"));
    let (done, answer, _) = drive(&lab, &["setup", &torn.netns.path().display().to_string()], &call);
    assert!(!done && answer.is_null(), "{answer}");
    assert_eq!(lab.host().sh("ls /var/lib/cni/results || true"), "", "the kill came before the result");
    assert_eq!(lab.host().sh(&format!("stat -c '%a %U' {RECORD}")), "644 root\n");
    let written: Value = serde_json::from_str(&fs::read_to_string(RECORD).unwrap()).unwrap();
    assert_eq!(
        (&written["name"], &written["plugins"][0]["bridge"]),
        (&json!("pods"), &json!("cni-0a87a5e50d"))
    );
    lab.cnitool().says(&format!("validate {RECORD}"));

    // After the DEL of the last known container, GC still finds the stale resources of the other one.
    let mut second = recorded("setup");
    second["container_id"] = "other".into();
    second["port_mappings"] = Value::Null;
    second["network_options"]["static_ips"] = Value::Null;
    second["network_options"]["static_mac"] = Value::Null;
    set_up(&lab, &other, &second);
    tear_down(&lab, &other, &second);
    assert!(Path::new(RECORD).exists());

    torn.netns.vanish();
    // By its id, since containers of other tests are on the machine, and gc may not tell whether they have the lease.
    lab.cnitool().says(&format!("gc pods --force {ID}"));
    assert_eq!(lab.host().sh("find /var/lib/cni/networks -name '10.1.*'"), "", "gc finds the lease");
    set_up(&lab, &other, &second);
    tear_down(&lab, &other, &second);
    assert_eq!(
        traces(&lab),
        (Vec::new(), String::new(), String::new()),
        "the file goes with the last container"
    );
}

#[test]
fn a_setup_that_a_signal_interrupts_is_undone_and_answers_with_an_error() {
    if lacks(Feature::NftNat) || lacks(Feature::Ipv6) {
        return;
    }
    // If the suite's caller ignores a signal, as nohup does, the driver ignores it too.
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP].into_iter().filter(|it| !is_ignored(*it))
    {
        let lab = Lab::new();
        let pod = lab.container("pod");
        let number = signal as i32;
        let script = format!(
            r#"cat >/dev/null; [ "$CNI_COMMAND" != ADD ] || {{ kill -{number} $PPID; echo '{{}}'; }}"#
        );
        let call = with_firewall(&lab, &script, &recorded("setup"));
        let error = fails(&lab, &["setup", &pod.netns.path().display().to_string()], &call);
        assert!(error.contains("interrupted after plugin firewall"), "{error}");
        let (links, files, rules) = traces(&lab);
        // The driver cannot know whether the script has left anything for GC.
        assert_eq!((links, files.as_str(), rules.as_str()), (Vec::new(), &*format!("{RECORD}\n"), ""));
        assert!(pod.link("eth0").is_none());
    }
}

/// Without the driver, the plugin would run on without the lock, and could delete what the next setup creates.
#[test]
fn a_signal_does_not_interrupt_the_plugins_of_a_teardown() {
    if lacks(Feature::NftNat) || lacks(Feature::Ipv6) {
        return;
    }
    for signal in [Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM, Signal::SIGHUP] {
        let lab = Lab::new();
        let pod = lab.container("pod");
        set_up(&lab, &pod, &recorded("setup"));
        let (number, firewall) = (signal as i32, together().join("firewall"));
        let script =
            format!("[ $CNI_COMMAND != DEL ] || kill -{number} $PPID; exec '{}'", firewall.display());
        tear_down(&lab, &pod, &with_firewall(&lab, &script, &recorded("teardown")));
        // The driver cannot know whether the script has left anything for GC.
        assert_eq!(traces(&lab), (Vec::new(), format!("{RECORD}\n"), String::new()));
    }
}

#[test]
fn a_failed_setup_leaves_no_chain_behind() {
    if lacks(Feature::NftNat) || lacks(Feature::Ipv6) {
        return;
    }
    let lab = Lab::new();
    let pod = lab.container("pod");
    let mut call = recorded("setup");
    call["network_options"]["static_ips"] = json!(["10.1.0.9", "fd00:1::9", "10.1.0.9"]);
    call["network_options"]["static_mac"] = "not a MAC".into();
    fails(&lab, &["setup", &pod.netns.path().display().to_string()], &call);
    assert_eq!(traces(&lab), (Vec::new(), String::new(), String::new()));
}

#[test]
fn a_teardown_after_a_killed_one_removes_everything() {
    if lacks(Feature::NftNat) || lacks(Feature::Ipv6) {
        return;
    }
    let lab = Lab::new();
    let pod = lab.container("pod");
    set_up(&lab, &pod, &recorded("setup"));
    let call = killed_in(&lab, "DEL", &recorded("teardown"));
    let (done, _, _) = drive(&lab, &["teardown", &pod.netns.path().display().to_string()], &call);
    assert!(!done);
    tear_down(&lab, &pod, &recorded("teardown"));
    assert_eq!(traces(&lab), (Vec::new(), String::new(), String::new()));
}

/// Its own process was killed after the plugins, before the result was written, or while it was written.
#[test]
fn a_setup_after_a_killed_one_succeeds() {
    if lacks(Feature::NftNat) || lacks(Feature::Ipv6) {
        return;
    }
    for result in [None, Some("{\"kind\": \"cniCa")] {
        let lab = Lab::new();
        let (before, after) = (lab.container("before-kill"), lab.container("after"));
        set_up(&lab, &before, &recorded("setup"));
        let file = lab.host().sh("ls -d /var/lib/cni/results/*");
        match result {
            None => fs::remove_file(file.trim()).unwrap(),
            Some(torn) => fs::write(file.trim(), torn).unwrap(),
        }
        before.netns.vanish();
        set_up(&lab, &after, &recorded("setup"));
        assert_eq!(after.netns.addresses("eth0")[0], "10.1.0.9/24");
        tear_down(&lab, &after, &recorded("teardown"));
        assert_eq!(traces(&lab), (Vec::new(), String::new(), String::new()), "{result:?}");
    }
}

/// Places in the document of setup, and what they get.
fn hostile_values() -> Vec<(&'static str, Value)> {
    let long = "x".repeat(300);
    vec![
        ("/container_id", json!("../../../etc/x")),
        ("/container_id", json!("")),
        ("/container_id", json!(long)),
        ("/network_options/interface_name", json!("../eth0")),
        ("/network_options/interface_name", json!("")),
        ("/network_options/interface_name", json!("a-name-of-16-byt")),
        ("/network_options/static_mac", json!("02:00:00:00:00:09; reboot")),
        ("/network_options/static_ips", json!(["10.1.0.9/24\n"])),
        ("/network_options/options", json!({"host_interface_name": "veth0"})),
        ("/network/name", json!("../../etc/x")),
        ("/network/name", json!("a/b")),
        ("/network/name", json!(long)),
        ("/network/options", json!({"conflist": "/dev/zero"})),
        ("/network/options", json!({"conflist": "/run/lab/fifo"})),
        ("/network/options", json!({"conflist": "/run/lab/directory"})),
        ("/network/options", json!({"conflist": "/etc/../no/such/file"})),
        ("/network/options", json!({"type": "../../bin/sh"})),
        ("/network/options", json!({"type": "portmap"})),
        ("/network/options/bridge", json!("../br")),
        ("/network/options/master", json!("eth0")),
        ("/network/options/tuning.sysctl.kernel.domainname", json!("conquered")),
        ("/network/options/tuning.sysctl.net.ipv4....kernel.domainname", json!("conquered")),
        ("/network/options/firewall.ingressPolicy", json!("open; drop")),
        ("/port_mappings/0/protocol", json!("tcp; drop")),
        ("/port_mappings/0/host_ip", json!("127.0.0.1 } drop")),
        ("/port_mappings/0/range", json!(65535)),
        ("/port_mappings/0/host_port", json!(65536)),
    ]
}

#[test]
fn hostile_documents_are_refused_in_one_text_and_change_nothing() {
    if lacks(Feature::NftNat) || lacks(Feature::Ipv6) {
        return;
    }
    let lab = Lab::new();
    let pod = lab.container("pod");
    let netns = pod.netns.path().display().to_string();
    lab.host().sh("mkfifo /run/lab/fifo; mkdir /run/lab/directory");
    // The bridge and the base chains come with the first container.
    set_up(&lab, &pod, &recorded("setup"));
    tear_down(&lab, &pod, &recorded("teardown"));
    let before = lab.snapshot().without("disk");
    for (path, value) in hostile_values() {
        let mut call = recorded("setup");
        let (above, key) = path.rsplit_once('/').unwrap();
        let place = call.pointer_mut(above).unwrap();
        place[key] = value.clone();
        if key == "options" && value.is_object() && above == "/network" {
            call["network"]["options"]["plugin-path"] = together().display().to_string().into();
        }
        let error = fails(&lab, &["setup", &netns], &call);
        assert!(!error.contains("panicked"), "{path}: {error}");
        lab.snapshot().without("disk").assert_same(&before);
        assert_eq!(
            lab.host().sh("find /var/lib/cni -type f ! -name '*lock' ! -name '.index*' ! -name 'last_*'"),
            "",
            "{path} {value}"
        );
    }
    for wrong in ["/etc/passwd", "/proc/self/ns/mnt", "netns", ""] {
        fails(&lab, &["setup", wrong], &recorded("setup"));
        lab.snapshot().without("disk").assert_same(&before);
    }
    let mut call = recorded("teardown");
    call["container_id"] = "../x".into();
    fails(&lab, &["teardown", &netns], &call);
}

#[test]
fn an_ipv6_only_network_supports_several_addresses_and_port_ranges_on_host_addresses() {
    if lacks(Feature::NftNat) || lacks(Feature::Ipv6) {
        return;
    }
    let lab = Lab::new();
    let client = lab.machine("client");
    let pod = lab.container("pod");
    let mut network = recorded("create");
    network["subnets"] = json!([{"subnet": "fd00:1::/64", "gateway": "fd00:1::1"}]);
    network["options"]["ipam"] = "static".into();
    let mut call = recorded("setup");
    call["network"] = does(&lab, &["create"], &network);
    call["network_options"]["static_ips"] = json!(["fd00:1::9", "fd00:1::a", "fd00:1::b"]);
    call["port_mappings"] = json!([
        {"container_port": 7001, "host_ip": "2001:db8:51::1", "host_port": 8001, "protocol": "tcp,udp", "range": 3},
        {"container_port": 7001, "host_ip": "::1", "host_port": 9001, "protocol": "tcp", "range": 1},
    ]);
    let status = set_up(&lab, &pod, &call);
    let shown: Vec<_> = ["9", "a", "b"]
        .map(|last| json!({"ipnet": format!("fd00:1::{last}/64"), "gateway": "fd00:1::1"}))
        .into();
    assert_eq!(status["interfaces"]["eth0"]["subnets"], Value::Array(shown));
    let _servers = [pod.netns.serve_tcp("first", "[::]:7001"), pod.netns.serve_tcp("last", "[::]:7003")];
    // A server on all addresses would answer from another one than the request came to.
    let _udp = pod.netns.serve_udp("udp", "[fd00:1::9]:7002");
    for (port, name) in [(8001, "first"), (8003, "last")] {
        let said = tcp_says(&client, &format!("[2001:db8:51::1]:{port}"));
        assert!(said.is_some_and(|said| said.starts_with(name)), "{port}");
    }
    assert!(udp_says(&client, "[2001:db8:51::1]:8002").is_some_and(|said| said.starts_with("udp")));
    assert!(tcp_is_refused(&client, "198.51.100.1:8001"), "the port is of one address");
    assert!(tcp_is_refused(&client, "[2001:db8:51::1]:9001"), "a port of loopback");
    tear_down(&lab, &pod, &call);
    assert_eq!(traces(&lab), (Vec::new(), String::new(), String::new()));
}

/// A container on the network that the host's uplink leads to, by options and with a static address.
fn is_a_host_of_the_masters_network(options: &Value, subnet: &str, address: &str, server: &Netns, lab: &Lab) {
    let pod = lab.container("pod");
    let mut network = recorded("create");
    network["subnets"] = json!([{"subnet": subnet}]);
    network["options"] = options.clone();
    network["options"]["plugin-path"] = together().display().to_string().into();
    network["ipv6_enabled"] = false.into();
    let mut call = recorded("setup");
    call["network"] = does(lab, &["create"], &network);
    assert_eq!(call["network"]["network_interface"], "uplink");
    call["port_mappings"] = Value::Null;
    call["network_options"]["static_ips"] = json!([address]);
    call["network_options"]["static_mac"] = Value::Null;
    let before = lab.host().link_names();
    let status = set_up(lab, &pod, &call);
    let interface = &status["interfaces"]["eth0"];
    assert_eq!(interface["subnets"][0]["ipnet"], format!("{address}/24"));
    let link = pod.netns.exec(&["ip", "-o", "link", "show", "dev", "eth0"]);
    assert!(link.contains(interface["mac_address"].as_str().unwrap()), "{link} {status}");
    let _web = pod.netns.serve_tcp("web", "0.0.0.0:80");
    let said = tcp_says(server, &format!("{address}:80"));
    assert!(said.is_some_and(|said| said.starts_with("web ")), "{status}");
    tear_down(lab, &pod, &call);
    assert_eq!(pod.netns.link("eth0"), None);
    tear_down(lab, &pod, &call);
    assert_eq!(lab.host().link_names(), before);
    assert_eq!(traces(lab), (Vec::new(), String::new(), String::new()));
}

#[test]
fn a_container_on_an_ipvlan_network_is_a_host_of_its_masters_network() {
    if lacks(Feature::Ipvlan) {
        return;
    }
    let lab = Lab::new();
    let server = lab.machine("server");
    let options = json!({"type": "ipvlan", "master": "uplink", "ipam": "host-local"});
    is_a_host_of_the_masters_network(&options, "198.51.100.0/24", "198.51.100.50", &server, &lab);
}

#[test]
fn a_container_on_a_macvlan_network_is_a_host_of_its_masters_network() {
    if lacks(Feature::Macvlan) {
        return;
    }
    let lab = Lab::new();
    let server = lab.machine("server");
    let options = json!({"type": "macvlan", "master": "uplink", "ipam": "static"});
    is_a_host_of_the_masters_network(&options, "198.51.100.0/24", "198.51.100.50", &server, &lab);
}

#[test]
fn a_container_on_a_vlan_network_is_a_host_of_the_vlan() {
    if lacks(Feature::Vlan) {
        return;
    }
    let lab = Lab::new();
    let server = lab.machine("server");
    server.sh(
        "ip link add link eth0 name tagged type vlan id 7; ip addr add 203.0.113.2/24 dev tagged; ip link set tagged up",
    );
    let options = json!({"type": "vlan", "master": "uplink", "vlanId": "7", "ipam": "host-local"});
    is_a_host_of_the_masters_network(&options, "203.0.113.0/24", "203.0.113.50", &server, &lab);
}

/// A network of the driver, as Podman stores it.
fn made(lab: &Lab, name: &str, subnet: &str, options: &Value) -> Value {
    let mut network = recorded("create");
    network["name"] = name.into();
    network["id"] = name.repeat(10).into();
    network["subnets"] = json!([{"subnet": subnet}]);
    network["options"] = options.clone();
    network["options"]["plugin-path"] = together().display().to_string().into();
    does(lab, &["create"], &network)
}

/// The call for a container without requests of its own.
fn call_for(pod: &Container, network: &Value) -> Value {
    let mut call = recorded("setup");
    call["container_id"] = pod.id.clone().into();
    call["container_name"] = pod.id.clone().into();
    call["network"] = network.clone();
    call["port_mappings"] = Value::Null;
    call["network_options"] = json!({"interface_name": "eth0"});
    call
}

/// A network of a file, as Podman stores it.
fn made_from_file(lab: &Lab, name: &str, subnet: &str) -> Value {
    let mut list = of_podman_4();
    list["name"] = name.into();
    list["plugins"][0]["bridge"] = format!("cni-{name}").into();
    list["plugins"][0]["ipam"]["ranges"] = json!([[{"subnet": subnet}]]);
    let file = format!("{name}.conflist");
    lab.configure(&file, &list);
    let mut network = recorded("create");
    network.as_object_mut().unwrap().remove("subnets");
    network["options"] = json!({"conflist": format!("/etc/cni/net.d/{file}"), "plugin-path": together()});
    does(lab, &["create"], &network)
}

#[test]
fn neither_a_teardown_nor_a_setup_detaches_the_interface_from_another_network() {
    if lacks(Feature::NftNat) {
        return;
    }
    let by_options =
        |lab: &Lab, name: &str, subnet: &str| made(lab, name, subnet, &json!({"type": "bridge"}));
    for (kind, make) in
        [("options", &by_options as &dyn Fn(&Lab, &str, &str) -> Value), ("file", &made_from_file)]
    {
        let lab = Lab::new();
        let (pod, rebooted) = (lab.container("driver-before-reboot"), lab.container("driver-moved"));
        let [one, two] =
            [("one", "10.1.1.0/24"), ("two", "10.1.2.0/24")].map(|(name, subnet)| make(&lab, name, subnet));
        let [first, mut second] = [one, two].map(|network| call_for(&pod, &network));
        second["port_mappings"] =
            json!([{"container_port": 80, "host_port": 8080, "protocol": "tcp", "range": 1}]);
        let state = || {
            let files = lab
                .host()
                .sh("cd /var/lib/cni && find results networks -type f | grep -v -e last_ -e lock$ | sort");
            (files, lab.host().sh("nft list ruleset"), pod.netns.addresses("eth0"))
        };
        set_up(&lab, &pod, &first);
        tear_down(&lab, &pod, &first);
        set_up(&lab, &pod, &second);
        let attached = state();
        tear_down(&lab, &pod, &first);
        assert_eq!(state(), attached, "{kind}");
        let error = fails(&lab, &["setup", &pod.netns.path().display().to_string()], &first);
        assert!(
            error.contains("is attached to network two") && error.contains("cnitool del two "),
            "{error}"
        );
        assert_eq!(state(), attached, "{kind}");

        // After a reboot, the attachment to the other network no longer exists.
        pod.netns.vanish();
        set_up(&lab, &rebooted, &first);
        assert!(!lab.host().sh("find /var/lib/cni/results /var/lib/cni/networks").contains("two-"), "{kind}");
        assert!(!lab.host().sh("find /var/lib/cni/networks").contains("10.1.2."), "{kind}");
        tear_down(&lab, &rebooted, &first);
        assert!(traces(&lab).0.is_empty() && traces(&lab).1.is_empty(), "{kind}: {:?}", traces(&lab));
    }
}

#[test]
fn a_requested_address_may_be_outside_the_ip_range_which_limits_all_other_addresses() {
    if lacks(Feature::NftNat) {
        return;
    }
    for (first, last, requested) in
        [("10.1.0.128", "10.1.0.254", "10.1.0.9"), ("10.1.0.2", "10.1.0.100", "10.1.0.200")]
    {
        let lab = Lab::new();
        let (requesting, other) = (lab.container("requesting"), lab.container("other"));
        let mut network = recorded("create");
        let range = json!({"start_ip": first, "end_ip": last});
        network["subnets"] = json!([{"subnet": "10.1.0.0/24", "lease_range": range}]);
        let network = does(&lab, &["create"], &network);
        let mut call = call_for(&requesting, &network);
        call["network_options"]["static_ips"] = json!([requested]);
        assert_eq!(address_of(&set_up(&lab, &requesting, &call)), requested);
        assert!(fs::read_to_string(RECORD).unwrap().contains(last), "the network keeps its range");
        assert_eq!(address_of(&set_up(&lab, &other, &call_for(&other, &network))), first);
        tear_down(&lab, &requesting, &call);
        tear_down(&lab, &other, &call_for(&other, &network));
        assert_eq!(traces(&lab), (Vec::new(), String::new(), String::new()), "{requested}");
    }
}

/// The container's first address, without its prefix length.
fn address_of(status: &Value) -> String {
    let net =
        status["interfaces"]["eth0"]["subnets"][0]["ipnet"].as_str().unwrap_or_else(|| panic!("{status}"));
    net.split('/').next().unwrap().to_owned()
}

#[test]
fn containers_on_an_internal_network_find_each_other_by_name_and_have_no_way_out() {
    let Some(dig) = Dig::here() else { return };
    if lacks(Feature::NftNat) {
        return;
    }
    let lab = Lab::new();
    let (web, db) = (lab.container("web"), lab.container("db"));
    let mut network = recorded("create");
    network["internal"] = true.into();
    network["subnets"] = json!([{"subnet": "10.1.0.0/24"}]);
    network["options"]["dnsname.domainName"] = "dns.podman".into();
    let network = does(&lab, &["create"], &network);
    let [of_web, of_db] = [&web, &db].map(|pod| call_for(pod, &network));
    let address = address_of(&set_up(&lab, &web, &of_web));
    let status = set_up(&lab, &db, &of_db);
    assert_eq!(status["dns_server_ips"], json!(["10.1.0.1"]));
    assert_eq!(status["dns_search_domains"], json!(["dns.podman"]));
    assert_eq!(dig.ask(&db.netns, "10.1.0.1", "web.dns.podman A"), [address]);
    assert_eq!(db.netns.sh("ip route show default"), "");
    assert!(!lab.host().sh("nft list ruleset").contains("masquerade"));
    tear_down(&lab, &web, &of_web);
    tear_down(&lab, &db, &of_db);
    assert_eq!(traces(&lab), (Vec::new(), String::new(), String::new()));
}

#[test]
fn dummy_and_tap_networks_give_a_container_an_interface_with_an_address() {
    for (kind, feature) in [("dummy", Feature::Dummy), ("tap", Feature::Tap)] {
        if lacks(feature) {
            continue;
        }
        let lab = Lab::new();
        let pod = lab.container("pod");
        let network =
            made(&lab, kind, "10.1.0.0/24", &json!({"type": kind, "ipam": "host-local", "mtu": "1400"}));
        let call = call_for(&pod, &network);
        let status = set_up(&lab, &pod, &call);
        let link = pod.netns.link("eth0").unwrap();
        assert_eq!(status["interfaces"]["eth0"]["mac_address"], link["address"]);
        assert_eq!(link["mtu"], 1400, "{link}");
        let kind_of_link = if kind == "tap" { "tun" } else { kind };
        assert_eq!(link["linkinfo"]["info_kind"], kind_of_link);
        assert_eq!(pod.netns.addresses("eth0")[0], format!("{}/24", address_of(&status)));
        for _ in 0..2 {
            tear_down(&lab, &pod, &call);
            assert_eq!(pod.netns.link("eth0"), None);
            assert_eq!(traces(&lab), (Vec::new(), String::new(), String::new()), "{kind}");
        }
    }
}

#[test]
fn a_device_of_the_host_moves_into_the_container_and_returns() {
    let lab = Lab::new();
    let server = lab.machine("server");
    let pod = lab.container("with-uplink");
    let options = json!({"type": "host-device", "device": "uplink", "ipam": "host-local"});
    let network = made(&lab, "device", "198.51.100.0/24", &options);
    assert_eq!(network["network_interface"], "uplink");
    let mut call = call_for(&pod, &network);
    call["network_options"]["static_ips"] = json!(["198.51.100.50"]);
    let status = set_up(&lab, &pod, &call);
    assert_eq!(address_of(&status), "198.51.100.50");
    assert_eq!(lab.host().link("uplink"), None);
    let web = pod.netns.serve_tcp("web", "0.0.0.0:80");
    let said = tcp_says(&server, "198.51.100.50:80");
    assert!(said.is_some_and(|said| said.starts_with("web ")), "{status}");
    drop(web);
    tear_down(&lab, &pod, &call);
    assert!(lab.host().link("uplink").is_some() && pod.netns.link("eth0").is_none());
    pod.netns.vanish();
    tear_down(&lab, &pod, &call);
    assert!(lab.host().link("uplink").is_some());
    assert_eq!(traces(&lab), (Vec::new(), String::new(), String::new()));
}

#[test]
fn bandwidth_limits_by_options_are_on_the_hosts_side_of_the_container() {
    if lacks(Feature::NftNat) || lacks(Feature::TrafficControl) {
        return;
    }
    let lab = Lab::new();
    let pod = lab.container("pod");
    let mut options = json!({"type": "bridge"});
    for (key, value) in [
        ("ingressRate", "8000000"),
        ("ingressBurst", "800000"),
        ("egressRate", "4000000"),
        ("egressBurst", "400000"),
    ] {
        options[format!("bandwidth.{key}")] = value.into();
    }
    let network = made(&lab, "slow", "10.1.0.0/24", &options);
    let call = call_for(&pod, &network);
    let before = lab.host().link_names();
    set_up(&lab, &pod, &call);
    let rates = lab.host().sh("tc qdisc show");
    assert!(rates.contains("rate 8Mbit") && rates.contains("rate 4Mbit"), "{rates}");
    for _ in 0..2 {
        tear_down(&lab, &pod, &call);
        let rates = lab.host().sh("tc qdisc show");
        assert!(!rates.contains("tbf"), "{rates}");
    }
    let bridge = network["network_interface"].as_str().unwrap();
    let after: Vec<_> = lab.host().link_names().into_iter().filter(|name| name != bridge).collect();
    assert_eq!(after, before);
}

#[test]
fn networks_with_an_ingress_policy_by_options_are_cut_off_from_each_other() {
    if lacks(Feature::NftNat) {
        return;
    }
    let lab = Lab::new();
    let policy = json!({"type": "bridge", "firewall.ingressPolicy": "same-bridge"});
    let closed = made(&lab, "closed", "10.1.0.0/24", &policy);
    let other = made(&lab, "other", "10.2.0.0/24", &policy);
    let open = made(&lab, "open", "10.3.0.0/24", &json!({"type": "bridge"}));
    let [web, friend, stranger, guest] = ["web", "friend", "stranger", "guest"].map(|id| lab.container(id));
    let calls = [(&web, &closed), (&friend, &closed), (&stranger, &other), (&guest, &open)]
        .map(|(pod, network)| (pod, call_for(pod, network)));
    let addresses = calls.each_ref().map(|(pod, call)| address_of(&set_up(&lab, pod, call)));
    let server = format!("{}:80", addresses[0]);
    let _web = web.netns.serve_tcp("web", "0.0.0.0:80");
    for pod in [&friend, &guest] {
        assert!(tcp_says(&pod.netns, &server).is_some_and(|said| said.starts_with("web ")), "{}", pod.id);
    }
    assert!(tcp_is_cut_off(&stranger.netns, &server));
    calls.iter().for_each(|(pod, call)| tear_down(&lab, pod, call));
    let rules = lab.host().sh("nft list ruleset");
    assert!(addresses.iter().all(|address| !rules.contains(address.as_str())), "{rules}");
}

#[test]
fn names_on_a_network_whose_containers_do_not_reach_their_host_are_refused_by_create() {
    let lab = Lab::new();
    let _server = lab.machine("server");
    let mut network = recorded("create");
    network["subnets"] = json!([{"subnet": "198.51.100.0/24"}]);
    for (kind, key) in
        [("macvlan", "master"), ("ipvlan", "master"), ("vlan", "master"), ("host-device", "device")]
    {
        network["options"] =
            json!({"type": kind, "ipam": "host-local", "dnsname": "true", "plugin-path": together()});
        network["options"][key] = "uplink".into();
        if kind == "vlan" {
            network["options"]["vlanId"] = "7".into();
        }
        let error = fails(&lab, &["create"], &network);
        let expected = format!("option dnsname: containers of {kind} reach no address of their host");
        assert!(error.starts_with(&expected) && error.contains("remove dnsname"), "{error}");
    }
}

#[test]
fn without_root_podman_is_told_what_to_do() {
    let lab = Lab::new();
    let said = lab.host().run(|| {
        let mut command = Command::new(together().join("ferrule"));
        command.arg0("cni").arg("create").env("_CONTAINERS_USERNS_CONFIGURED", "done");
        command.stdin(fs::File::open(create_document()).unwrap());
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    });
    assert!(said.contains("needs Podman to run as root") && said.contains("--driver bridge"), "{said}");
}

fn create_document() -> std::path::PathBuf {
    lab::repository().join("tests/scenarios/podman_driver/create.json")
}

#[test]
fn its_info_has_the_version_of_the_protocol() {
    let lab = Lab::new();
    let info = does(&lab, &["info"], &Value::Null);
    assert_eq!(info, json!({"version": env!("CARGO_PKG_VERSION"), "api_version": "1.0.0"}));
}
