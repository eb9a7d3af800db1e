//! tuning: changes of an interface and its namespace, and their restoration.

use std::fs;
use std::path::Path;

use lab::{Call, Container, Lab, Netns, beyond_1_1_1, beyond_reference, injecting, needs};
use serde_json::{Value, json};

use crate::common::dual_stack;

/// The file with the values of eth0 before ADD.
pub const BACKUP: &str = "/run/cni/tuning/pod_eth0.json";
const ALLOWLIST: &str = "/etc/cni/tuning/allowlist.conf";

/// A container with an interface, as another plugin would create it.
pub fn wired(lab: &Lab, ifname: &str) -> Container {
    wired_as(lab, "pod", ifname)
}

/// Like [`wired`], for a container of this name.
pub fn wired_as(lab: &Lab, name: &str, ifname: &str) -> Container {
    let pod = lab.container(name);
    lab.host().sh(&format!(
        "ip link add {ifname} netns {name} address 02:00:00:00:00:01 type veth peer name cable
         ip link set cable up; ip -n {name} link set {ifname} up"
    ));
    pod
}

pub fn tuning(lab: &Lab, pod: &Container, config: Value) -> Call {
    tuning_of(lab, pod, "eth0", config)
}

fn tuning_of(lab: &Lab, pod: &Container, ifname: &str, config: Value) -> Call {
    let inside = json!({"name": ifname, "mac": "02:00:00:00:00:01", "sandbox": pod.path()});
    let prev = json!({"cniVersion": "1.0.0", "interfaces": [{"name": "cable"}, inside]});
    lab.plugin("tuning").on(pod).ifname(ifname).config(json!({"prevResult": prev})).config(config)
}

fn eth0(pod: &Netns, key: &str) -> Value {
    pod.link("eth0").unwrap()[key].clone()
}

fn flag(pod: &Netns, name: &str) -> bool {
    eth0(pod, "flags").as_array().unwrap().contains(&json!(name))
}

/// An attribute: the configuration's value, and a check of the kernel's.
type Attribute = (Value, fn(&Netns) -> bool);

const fn attributes() -> [fn() -> Attribute; 4] {
    [
        || (json!({"mac": "02:00:00:00:00:aa"}), |pod| eth0(pod, "address") == "02:00:00:00:00:aa"),
        || (json!({"mtu": 1400}), |pod| eth0(pod, "mtu") == 1400),
        || (json!({"promisc": true}), |pod| flag(pod, "PROMISC")),
        || (json!({"allmulti": true}), |pod| flag(pod, "ALLMULTI")),
    ]
}

#[test]
fn each_attribute_is_set_and_restored() {
    // As the reference, tuning accepts a relative path.
    let there = ["sh", "-c", "cd /run/lab && exec \"$0\""].map(str::to_owned);
    for (attribute, data_dir) in attributes().into_iter().zip([None, Some("saved"), None, None]) {
        let (config, is_set) = attribute();
        let lab = Lab::new();
        let pod = wired(&lab, "eth0");
        let before = lab.snapshot();
        let call = tuning(&lab, &pod, config.clone()).under(&there).config(json!({"dataDir": data_dir}));
        let result = call.add().ok_result();
        assert!(is_set(&pod), "{config}");
        call.check(&result).ok();
        call.del().ok();
        lab.snapshot().assert_same(&before);
    }
}

#[test]
fn the_queue_length_is_set_and_restored() {
    beyond_1_1_1!("tuning-after-1.1.1");
    let lab = Lab::new();
    let pod = wired(&lab, "eth0");
    let before = lab.snapshot();
    let call = tuning(&lab, &pod, json!({"txQLen": 77}));
    let result = call.add().ok_result();
    assert_eq!(eth0(&pod, "txqlen"), 77);
    call.check(&result).ok();
    call.del().ok();
    lab.snapshot().assert_same(&before);
}

#[test]
fn attributes_are_turned_off_and_restored_too() {
    let lab = Lab::new();
    let pod = wired(&lab, "eth0");
    pod.sh("ip link set eth0 allmulticast on");
    let call = tuning(&lab, &pod, json!({"allmulti": false}));
    call.add().ok_result();
    assert!(!flag(&pod, "ALLMULTI"));
    call.del().ok();
    assert!(flag(&pod, "ALLMULTI"));
}

#[test]
fn all_attributes_are_set_and_restored_together() {
    beyond_1_1_1!("tuning-after-1.1.1");
    let lab = Lab::new();
    let pod = wired(&lab, "eth0");
    let before = lab.snapshot();
    let config =
        json!({"mac": "02:00:00:00:00:aa", "mtu": 1400, "promisc": true, "allmulti": true, "txQLen": 77});
    let call = tuning(&lab, &pod, config);
    let result = call.add().ok_result();
    call.check(&result).ok();
    call.del().ok();
    lab.snapshot().assert_same(&before);
    call.del().ok();
}

/// The features of both ends of the cable, as ethtool lists them.
fn features(lab: &Lab, pod: &Netns) -> String {
    pod.sh("ethtool -k eth0") + &lab.host().sh("ethtool -k cable")
}

/// A container whose interface has the features of the next tests on. Their defaults differ from kernel to kernel.
fn with_features(lab: &Lab) -> Container {
    let pod = wired(lab, "eth0");
    pod.sh("ethtool -K eth0 rx-gro on tx-checksum-ip-generic on tx-tcp-segmentation on");
    pod
}

fn is_on(pod: &Netns, names: [&str; 3]) -> [bool; 3] {
    let text = pod.sh("ethtool -k eth0");
    names.map(|name| {
        let line = text.lines().find(|line| line.trim().starts_with(&format!("{name}: ")));
        line.unwrap_or_else(|| panic!("{name} is not in {text}")).contains(": on")
    })
}

#[test]
fn features_are_turned_off_and_restored() {
    beyond_reference!("tuning-features");
    let lab = Lab::new();
    let pod = with_features(&lab);
    let (before, all) = (lab.snapshot(), features(&lab, &pod));
    let call = tuning(&lab, &pod, json!({"features": {"rx-gro": false, "tx-checksum-ip-generic": false}}));
    let result = call.add().ok_result();
    let names = ["generic-receive-offload", "tx-checksum-ip-generic", "tx-tcp-segmentation"];
    assert_eq!(is_on(&pod, names), [false; 3], "segmentation depends on the checksum");
    call.check(&result).ok();
    call.del().ok();
    assert_eq!(features(&lab, &pod), all);
    lab.snapshot().assert_same(&before);
}

#[test]
fn features_are_turned_on_and_restored() {
    beyond_reference!("tuning-features");
    let lab = Lab::new();
    let pod = with_features(&lab);
    pod.sh("ethtool -K eth0 rx-gro off tx-checksum-ip-generic off");
    let all = features(&lab, &pod);
    let network = json!({"rx-gro": false, "tx-tcp-segmentation": true, "rx-lro": false});
    let ofcall = json!({"rx-gro": true, "tx-checksum-ip-generic": true});
    let call = tuning(&lab, &pod, json!({"features": network, "args": {"cni": {"features": ofcall}}}));
    let result = call.add().ok_result();
    let names = ["generic-receive-offload", "tx-checksum-ip-generic", "tx-tcp-segmentation"];
    assert_eq!(is_on(&pod, names), [true; 3]);
    call.check(&result).ok();
    call.del().ok();
    assert_eq!(features(&lab, &pod), all);
    pod.sh("ethtool -K eth0 tx-checksum-ip-generic on");
    assert!(is_on(&pod, names)[2], "DEL keeps the request for segmentation");
}

#[test]
fn a_feature_that_cannot_be_set_fails_add_and_restores_the_others() {
    beyond_reference!("tuning-features");
    let lab = Lab::new();
    let pod = with_features(&lab);
    let (before, all) = (lab.snapshot(), features(&lab, &pod));
    let set = |features: Value| tuning(&lab, &pod, json!({"mtu": 1400, "features": features})).add();
    let error = set(json!({"tx-checksum-ip-generic": false, "tx-tcp-segmentation": true}))
        .refused(7, "cannot turn on \"tx-tcp-segmentation\" of eth0: the kernel keeps it off");
    assert!(error.details.contains("it depends on other features"), "{error:?}");
    for (name, reason) in
        [("rx-grow", "the kernel has no feature of this name"), ("rx-lro", "the interface cannot change it")]
    {
        let reason = format!("cannot turn on \"{name}\" of eth0: {reason}");
        let error = set(json!({"rx-gro": false, name: true})).refused(7, &reason);
        assert!(error.details.contains("rx-gro, "), "it lists what can be changed: {error:?}");
    }
    assert_eq!(features(&lab, &pod), all);
    lab.snapshot().assert_same(&before);
}

#[test]
fn two_tunings_of_a_chain_restore_the_features_before_both() {
    beyond_reference!("tuning-features");
    let lab = Lab::new();
    let pod = with_features(&lab);
    let all = features(&lab, &pod);
    let [first, second] =
        [json!({"rx-gro": false}), json!({"rx-gro": true, "tx-checksum-ip-generic": false})]
            .map(|features| tuning(&lab, &pod, json!({"features": features})));
    first.add().ok_result();
    second.add().ok_result();
    second.del().ok();
    first.del().ok();
    assert_eq!(features(&lab, &pod), all);
}

/// The reference ignores the features in the file, and restores the rest.
#[test]
fn the_reference_restores_the_attributes_of_a_file_with_features() {
    beyond_reference!("tuning-features");
    let lab = Lab::new();
    let pod = with_features(&lab);
    let call = tuning(&lab, &pod, json!({"mtu": 1400, "features": {"rx-gro": false}}));
    call.add().ok_result();
    call.by_the_reference().del().ok();
    assert_eq!(eth0(&pod, "mtu"), 1500);
    assert!(!Path::new(BACKUP).exists());
}

#[test]
fn check_finds_a_changed_feature() {
    beyond_reference!("tuning-features");
    let lab = Lab::new();
    let pod = with_features(&lab);
    let call = tuning(&lab, &pod, json!({"features": {"rx-gro": false}}));
    let result = call.add().ok_result();
    call.check(&result).ok();
    pod.sh("ethtool -K eth0 rx-gro on");
    call.check(&result).refused(999, "link eth0: rx-gro is on, but was off after ADD");
}

#[test]
fn only_changed_values_are_restored() {
    let lab = Lab::new();
    let pod = wired(&lab, "eth0");
    let call = tuning(&lab, &pod, json!({"mtu": 1400}));
    call.add().ok_result();
    pod.sh("ip link set eth0 address 02:00:00:00:00:bb");
    call.del().ok();
    assert_eq!((eth0(&pod, "mtu"), eth0(&pod, "address")), (json!(1500), json!("02:00:00:00:00:bb")));
}

#[test]
fn the_result_passes_through_with_the_new_mac() {
    let lab = Lab::new();
    let pod = wired(&lab, "eth0");
    let config = json!({"mac": "02:00:00:00:00:AA", "sysctl": {"net.core.somaxconn": "100"}});
    let result = tuning(&lab, &pod, config).add().ok_result();
    assert_eq!(result["interfaces"][0]["name"], "cable");
    let inside = &result["interfaces"][1];
    assert_eq!((&inside["name"], &inside["sandbox"]), (&json!("eth0"), &json!(pod.path())));
    assert!(inside["mac"].as_str().unwrap().eq_ignore_ascii_case("02:00:00:00:00:aa"), "{inside}");
}

#[test]
fn the_result_contains_the_new_mtu() {
    beyond_reference!("result-mtu");
    let lab = Lab::new();
    let pod = wired(&lab, "eth0");
    let call = tuning(&lab, &pod, json!({"mtu": 1400})).version("1.1.0");
    assert_eq!(call.add().ok_result()["interfaces"][1]["mtu"], 1400);
}

#[test]
fn a_result_of_a_version_without_interfaces_passes_through() {
    let lab = Lab::new();
    let pod = wired(&lab, "eth0");
    let prev = json!({"cniVersion": "0.2.0", "ip4": {"ip": "10.1.2.3/24"}});
    let config = json!({"cniVersion": "0.2.0", "mtu": 1400, "prevResult": prev});
    let result = tuning(&lab, &pod, config).add().ok_result();
    assert_eq!(result["ip4"]["ip"], "10.1.2.3/24");
    assert_eq!(eth0(&pod, "mtu"), 1400);
}

#[test]
fn sysctls_are_set_in_the_container_whichever_separator_they_are_written_with() {
    let lab = Lab::new();
    let pod = wired(&lab, "eth0");
    let sysctl = json!({
        "net.core.somaxconn": "100",
        "net/ipv4/conf/all/log_martians": "1",
        "net.ipv4.conf.IFNAME.arp_filter": "1",
        "net/ipv4/neigh/IFNAME/ucast_solicit": "7",
        "net.ipv4.ip_local_port_range": "2000 3000",
    });
    let call = tuning(&lab, &pod, json!({"sysctl": sysctl}));
    let elsewhere = lab.host().sysctl("core/somaxconn");
    call.add().ok_result();
    assert_eq!(pod.sysctl("core/somaxconn"), "100");
    assert_eq!(pod.sysctl("ipv4/conf/all/log_martians"), "1");
    assert_eq!(pod.sysctl("ipv4/conf/eth0/arp_filter"), "1");
    assert_eq!(pod.sysctl("ipv4/neigh/eth0/ucast_solicit"), "7");
    assert_eq!(pod.sysctl("ipv4/ip_local_port_range"), "2000\t3000");
    assert_eq!(lab.host().sysctl("core/somaxconn"), elsewhere);
    assert!(!Path::new(BACKUP).exists(), "sysctls go with the namespace");
    call.del().ok();
}

#[test]
fn ifname_is_replaced_by_an_interface_name_with_a_dot() {
    beyond_1_1_1!("tuning-after-1.1.1");
    let lab = Lab::new();
    let pod = wired(&lab, "eth0.5");
    let sysctl = json!({"net.ipv4.conf.IFNAME.arp_filter": "1", "net/ipv4/conf/IFNAME/arp_ignore": "2"});
    tuning_of(&lab, &pod, "eth0.5", json!({"sysctl": sysctl})).add().ok_result();
    assert_eq!(pod.sysctl("ipv4/conf/eth0.5/arp_filter"), "1");
    assert_eq!(pod.sysctl("ipv4/conf/eth0.5/arp_ignore"), "2");
}

#[test]
fn an_interface_with_a_dot_in_its_name_can_be_named_in_a_key() {
    beyond_reference!("tuning-dots");
    let lab = Lab::new();
    let pod = wired(&lab, "eth0.5");
    let sysctl = json!({
        "net/ipv4/conf/eth0.5/arp_filter": "1",
        "net.ipv4.conf.eth0.5.arp_ignore": "2",
        "net.ipv4.conf.eth0/5.arp_announce": "2",
    });
    tuning_of(&lab, &pod, "eth0.5", json!({"sysctl": sysctl})).add().ok_result();
    assert_eq!(pod.sysctl("ipv4/conf/eth0.5/arp_filter"), "1");
    assert_eq!(pod.sysctl("ipv4/conf/eth0.5/arp_ignore"), "2");
    assert_eq!(pod.sysctl("ipv4/conf/eth0.5/arp_announce"), "2");
}

#[test]
fn sysctls_for_all_interfaces_are_set_before_those_for_one() {
    beyond_reference!("tuning-order");
    let lab = Lab::new();
    let pod = wired(&lab, "eth0");
    let sysctl = json!({
        "net.ipv4.ip_forward": "1",
        "net.ipv4.conf.IFNAME.forwarding": "0",
        "net.ipv6.conf.all.disable_ipv6": "1",
        "net.ipv6.conf.IFNAME.disable_ipv6": "0",
    });
    let call = tuning(&lab, &pod, json!({"sysctl": sysctl}));
    let result = call.add().ok_result();
    call.check(&result).ok();
}

#[test]
fn an_empty_value_empties_a_list() {
    beyond_reference!("tuning-values");
    let lab = Lab::new();
    let pod = wired(&lab, "eth0");
    pod.sh("echo 80,443 >/proc/sys/net/ipv4/ip_local_reserved_ports");
    let call = tuning(&lab, &pod, json!({"sysctl": {"net.ipv4.ip_local_reserved_ports": ""}}));
    let result = call.add().ok_result();
    assert_eq!(pod.sysctl("ipv4/ip_local_reserved_ports"), "");
    call.check(&result).ok();
}

#[test]
fn arguments_of_the_call_replace_those_of_the_network() {
    let lab = Lab::new();
    let pod = wired(&lab, "eth0");
    let config = json!({
        "mtu": 1400, "promisc": true, "allmulti": false,
        "sysctl": {"net.core.somaxconn": "100", "net.ipv4.tcp_retries1": "5"},
        "args": {"cni": {
            "mac": "02:00:00:00:00:aa", "mtu": 1300, "promisc": false, "allmulti": true,
            "sysctl": {"net.core.somaxconn": "200", "net.ipv4.tcp_retries2": "9"},
        }},
    });
    tuning(&lab, &pod, config).add().ok_result();
    assert_eq!((eth0(&pod, "address"), eth0(&pod, "mtu")), (json!("02:00:00:00:00:aa"), json!(1300)));
    assert!(!flag(&pod, "PROMISC") && flag(&pod, "ALLMULTI"));
    let values = ["core/somaxconn", "ipv4/tcp_retries1", "ipv4/tcp_retries2"].map(|key| pod.sysctl(key));
    assert_eq!(values, ["200", "5", "9"]);
}

#[test]
fn sysctls_may_be_only_in_the_runtimes_request() {
    beyond_reference!("tuning-args-sysctl");
    let lab = Lab::new();
    let pod = wired(&lab, "eth0");
    let config = json!({"args": {"cni": {"sysctl": {"net.core.somaxconn": "200"}, "txQLen": 5}}});
    tuning(&lab, &pod, config).add().ok_result();
    assert_eq!(pod.sysctl("core/somaxconn"), "200");
    assert_eq!(eth0(&pod, "txqlen"), 5);
}

#[test]
fn a_mac_can_be_requested_in_four_ways() {
    let ways: [fn(Call) -> Call; 4] = [
        |call| call.config(json!({"mac": "02:00:00:00:00:aa"})),
        |call| call.args("IgnoreUnknown=1;K8S_POD_NAME=web;MAC=02:00:00:00:00:aa"),
        |call| call.config(json!({"args": {"cni": {"mac": "02:00:00:00:00:aa"}}})),
        |call| call.config(json!({"runtimeConfig": {"mac": "02:00:00:00:00:aa"}})),
    ];
    for way in ways {
        let lab = Lab::new();
        let pod = wired(&lab, "eth0");
        way(tuning(&lab, &pod, json!({}))).add().ok_result();
        assert_eq!(eth0(&pod, "address"), "02:00:00:00:00:aa");
    }
}

#[test]
fn the_runtimes_mac_wins_over_all_others() {
    beyond_reference!("tuning-mac-precedence");
    let lab = Lab::new();
    let pod = wired(&lab, "eth0");
    let config = json!({
        "mac": "02:00:00:00:00:0a",
        "args": {"cni": {"mac": "02:00:00:00:00:0c"}},
        "runtimeConfig": {"mac": "02:00:00:00:00:0d"},
    });
    let call = tuning(&lab, &pod, config).args("MAC=02:00:00:00:00:0b");
    call.add().ok_result();
    assert_eq!(eth0(&pod, "address"), "02:00:00:00:00:0d");
    call.config(json!({"runtimeConfig": null})).add().ok_result();
    assert_eq!(eth0(&pod, "address"), "02:00:00:00:00:0c");
}

#[test]
fn the_hosts_list_decides_which_sysctls_may_be_set() {
    beyond_1_1_1!("tuning-after-1.1.1");
    let lab = Lab::new();
    let pod = wired(&lab, "eth0");
    fs::create_dir_all("/etc/cni/tuning").unwrap();
    fs::write(ALLOWLIST, "^net\\.core\\.somaxconn$\n\n  ^net\\.ipv4\\.conf\\.IFNAME\\.[a-z_]*$ \n").unwrap();
    let sysctl = |sysctl: Value| tuning(&lab, &pod, json!({"sysctl": sysctl}));
    sysctl(json!({"net.core.somaxconn": "100", "net.ipv4.conf.IFNAME.arp_filter": "1"})).add().ok_result();
    let before = lab.snapshot();
    sysctl(json!({"net.core.somaxconn": "200", "net.ipv4.ip_forward": "1"}))
        .add()
        .refused(7, "net.ipv4.ip_forward");
    sysctl(json!({"net.core.somaxconn.": "200"})).add().refused(7, "net.core.somaxconn.");
    sysctl(json!({"net.ipv4.conf.eth0.arp_filter": "0"})).add().refused(7, "net.ipv4.conf.eth0.arp_filter");
    assert_eq!(pod.sysctl("core/somaxconn"), "100");
    lab.snapshot().assert_same(&before);
}

#[test]
fn status_reports_a_missing_permission_for_add() {
    beyond_reference!("status");
    let lab = Lab::new();
    let call = lab.plugin("tuning").config(json!({"sysctl": {"net.ipv4.ip_forward": "1"}, "mtu": 1400}));
    call.status().ok();
    fs::create_dir_all("/etc/cni/tuning").unwrap();
    fs::write(ALLOWLIST, "somaxconn\n").unwrap();
    call.status().refused(50, "net.ipv4.ip_forward");
}

#[test]
fn a_failed_add_undoes_all_of_its_changes() {
    beyond_reference!("rollback");
    let lab = Lab::new();
    let pod = wired(&lab, "eth0");
    let reserved = "/proc/sys/net/ipv4/ip_local_reserved_ports";
    let before = lab.snapshot();
    let config = json!({
        "sysctl": {"net.ipv4.conf.IFNAME.arp_notify": "1", "net.ipv4.ip_local_reserved_ports": "80"},
        "mac": "02:00:00:00:00:aa", "promisc": true,
    });
    let call = tuning(&lab, &pod, config);
    // The kernel refuses this sysctl after it has accepted all other changes.
    let last = json!({"sysctl": {"net.ipv6.neigh.IFNAME.base_reachable_time_ms": "x"}});
    for (keys, culprit) in
        [(json!({"mtu": 70000}), "mtu 70000"), (json!({"args": {"cni": last}}), "base_reachable_time_ms")]
    {
        call.clone().config(keys).add().refused(7, culprit);
        lab.snapshot().assert_same(&before);
        assert_eq!(pod.run(|| fs::read_to_string(reserved).unwrap()), "\n");
        assert!(!Path::new(BACKUP).exists());
    }
}

/// A rollback cannot restore the IPv6 addresses that the kernel deletes with `disable_ipv6`.
#[test]
fn a_refused_add_does_not_touch_the_addresses_of_other_interfaces() {
    beyond_reference!("rollback");
    let lab = Lab::new();
    let pod = wired(&lab, "eth0");
    pod.sh("ip link add other type veth peer name end; ip link set other up; ip addr add fd00::1/64 dev other nodad");
    let before = lab.snapshot();
    let off = json!({"net.ipv6.conf.all.disable_ipv6": "1"});
    for (keys, culprit) in [
        (json!({"sysctl": {"net.ipv6.conf.IFNAME.no_such": "1"}}), "net.ipv6.conf.IFNAME.no_such"),
        (json!({"features": {"no-such": true}}), "no-such"),
        (json!({"mtu": 70000}), "mtu 70000"),
    ] {
        let sysctl = json!({"args": {"cni": {"sysctl": off}}});
        let error = tuning(&lab, &pod, keys).config(sysctl).add().error();
        assert!(error.msg.contains(culprit), "{error:?}");
        lab.snapshot().assert_same(&before);
    }
}

/// The kernel changes the sysctls of all interfaces along with these.
#[test]
fn a_failed_add_restores_the_sysctls_that_the_kernel_changed_too() {
    beyond_reference!("rollback");
    let lab = Lab::new();
    let pod = wired(&lab, "eth0");
    for (key, dependent) in [
        ("net.ipv4.ip_forward", "ipv4/conf/eth0/forwarding"),
        ("net.ipv4.conf.all.forwarding", "ipv4/conf/all/accept_redirects"),
        ("net.ipv6.conf.all.forwarding", "ipv6/conf/eth0/forwarding"),
        ("net.ipv6.conf.all.disable_ipv6", "ipv6/conf/eth0/disable_ipv6"),
    ] {
        let (general, now) = (key.replace("net.", "").replace('.', "/"), !dependent.ends_with("redirects"));
        pod.sh(&format!(
            "echo 0 >/proc/sys/net/{general}; echo {} >/proc/sys/net/{dependent}",
            u8::from(now)
        ));
        let before = lab.snapshot();
        // The kernel refuses the second value.
        let sysctl = json!({"sysctl": {(key): "1", "net.ipv6.neigh.IFNAME.base_reachable_time_ms": "x"}});
        tuning(&lab, &pod, sysctl).add().refused(7, "base_reachable_time_ms");
        assert_eq!(
            [pod.sysctl(&general), pod.sysctl(dependent)],
            ["0".to_owned(), u8::from(now).to_string()],
            "{key}"
        );
        lab.snapshot().assert_same(&before);
    }
}

/// With such an MTU, the kernel deletes the interface's IPv6 sysctls.
#[test]
fn an_mtu_too_small_for_ipv6_does_not_fail_add() {
    let lab = Lab::new();
    let pod = wired(&lab, "eth0");
    let keys = json!({"mtu": 1000, "sysctl": {"net.ipv6.conf.IFNAME.disable_ipv6": "1"}});
    tuning(&lab, &pod, keys).add().ok_result();
    assert_eq!(eth0(&pod, "mtu"), 1000);
}

#[test]
fn an_mtu_too_small_for_ipv6_is_refused_if_the_interface_has_ipv6_addresses() {
    beyond_reference!("tuning-ipv6");
    let lab = Lab::new();
    let pod = wired(&lab, "eth0");
    pod.sh("ip addr add fd00::2/64 dev eth0 nodad; ip -6 route add 2001:db8::/32 via fd00::1");
    let before = lab.snapshot();
    let call = tuning(&lab, &pod, json!({"mtu": 1279, "sysctl": {"net.ipv4.conf.IFNAME.arp_notify": "1"}}));
    let error = call.add().refused(7, "mtu 1279");
    assert!(error.msg.contains("fd00::2"), "{error:?}");
    lab.snapshot().assert_same(&before);
    call.clone().config(json!({"mtu": 1280})).add().ok_result();
    // As one of a router, which is not the network's.
    pod.sh("ip addr flush dev eth0 scope global; ip addr add 2001:db8::9/64 dev eth0 nodad valid_lft 3600 preferred_lft 1800");
    call.clone().add().ok_result();
    // The dhcp daemon gives the address of the result a lifetime.
    pod.sh("ip link set eth0 mtu 1500; ip addr add 2001:db8::9/64 dev eth0 nodad valid_lft 3600 preferred_lft 1800");
    let inside = json!({"name": "eth0", "mac": "02:00:00:00:00:01", "sandbox": pod.path()});
    let ips = json!([{"address": "2001:db8::9/64", "interface": 0}]);
    let prev = json!({"cniVersion": "1.0.0", "interfaces": [inside], "ips": ips});
    call.config(json!({"prevResult": prev}))
        .add()
        .refused(7, "mtu 1279: eth0 has the address 2001:db8::9/64");
}

#[test]
fn the_backup_is_deleted_with_a_container_whose_namespace_was_deleted() {
    beyond_reference!("tuning-backup");
    let lab = Lab::new();
    let backup = Path::new("/run/cni/tuning/with-a-backup_eth0.json");
    let pod = wired_as(&lab, "with-a-backup", "eth0");
    let call = tuning(&lab, &pod, json!({"mtu": 1400}));
    for gone in [|call: Call| call.without("CNI_NETNS"), |call: Call| call] {
        call.add().ok_result();
        assert!(backup.exists());
        gone(call.clone()).del().ok();
        assert!(!backup.exists());
    }
    call.add().ok_result();
    pod.vanish();
    call.del().ok();
    assert!(!backup.exists());
}

#[test]
fn the_backup_is_deleted_if_the_interface_is_missing_or_the_file_is_truncated() {
    beyond_reference!("tuning-backup");
    let lab = Lab::new();
    let pod = wired(&lab, "eth0");
    let call = tuning(&lab, &pod, json!({"mtu": 1400}));
    call.add().ok_result();
    fs::write(BACKUP, "").unwrap();
    call.del().ok();
    assert!(!Path::new(BACKUP).exists());
    call.add().ok_result();
    pod.sh("ip link del eth0");
    call.del().ok();
    assert!(!Path::new(BACKUP).exists());
}

#[test]
fn another_directory_may_keep_the_backups() {
    let lab = Lab::new();
    let pod = wired(&lab, "eth0");
    let call = tuning(&lab, &pod, json!({"mtu": 1400, "dataDir": "/run/lab/backups"}));
    call.add().ok_result();
    assert!(Path::new("/run/lab/backups/pod_eth0.json").exists());
    call.del().ok();
    assert_eq!(eth0(&pod, "mtu"), 1500);
    assert!(!Path::new("/run/lab/backups/pod_eth0.json").exists());
}

#[test]
fn gc_removes_stale_backups_from_another_directory_too() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let pod = wired(&lab, "eth0");
    let call = tuning(&lab, &pod, json!({"mtu": 1400, "dataDir": "/run/lab/backups"}));
    call.add().ok_result();
    call.clone().env("CNI_CONTAINERID", "abandoned").add().ok_result();
    let backups = || lab.host().sh("ls /run/lab/backups");
    assert_eq!(backups(), "abandoned_eth0.json\npod_eth0.json\n");
    call.gc(&[("pod", "eth0")]).ok();
    assert_eq!(backups(), "pod_eth0.json\n");
}

#[test]
fn del_succeeds_with_a_configuration_that_add_refuses() {
    beyond_reference!("lenient-del");
    let lab = Lab::new();
    let pod = wired(&lab, "eth0");
    let before = lab.snapshot();
    let call = tuning(&lab, &pod, json!({"mtu": 1400}));
    call.add().ok_result();
    let broken =
        json!({"mtu": "large", "mac": "none", "sysctl": {"kernel.hostname": "x"}, "prevResult": null});
    call.config(broken).args("nonsense").del().ok();
    lab.snapshot().assert_same(&before);
}

#[test]
fn two_tunings_of_a_chain_restore_the_values_before_both() {
    beyond_reference!("tuning-chain");
    let lab = Lab::new();
    let pod = wired(&lab, "eth0");
    let before = lab.snapshot();
    let [first, second] = [json!({"mtu": 1400}), json!({"mtu": 1300, "promisc": true})]
        .map(|config| tuning(&lab, &pod, config));
    first.add().ok_result();
    second.add().ok_result();
    second.del().ok();
    first.del().ok();
    lab.snapshot().assert_same(&before);
}

#[test]
fn check_accepts_two_tunings_of_a_chain_that_set_the_same_keys() {
    beyond_reference!("tuning-chain");
    let lab = Lab::new();
    let pod = wired(&lab, "eth0");
    let first = tuning(&lab, &pod, json!({"cniVersion": "1.1.0", "mtu": 1400, "mac": "02:00:00:00:00:aa"}));
    let result = first.add().ok_result();
    let keys = json!({"cniVersion": "1.1.0", "mtu": 1300, "mac": "02:00:00:00:00:bb", "prevResult": result});
    let second = tuning(&lab, &pod, keys);
    let result = second.add().ok_result();
    first.check(&result).ok();
    second.check(&result).ok();
    pod.sh("ip link set eth0 mtu 1400");
    second.check(&result).refused(999, "mtu is 1400");
}

#[test]
fn two_attachments_whose_names_are_alike_keep_their_own_values() {
    beyond_reference!("tuning-backup");
    let lab = Lab::new();
    let pod = wired(&lab, "b_c");
    let other = lab.container("other");
    other.sh("ip link add c type veth peer name end");
    let before = lab.snapshot();
    let of = |pod: &Container, id: &str, ifname: &str, keys: Value| {
        tuning_of(&lab, pod, ifname, keys).env("CNI_CONTAINERID", id)
    };
    let one = of(&pod, "a", "b_c", json!({"mtu": 1400}));
    let two = of(&other, "a_b", "c", json!({"mtu": 1300, "allmulti": true}));
    one.add().ok_result();
    two.add().ok_result();
    one.gc(&[("a", "b_c"), ("a_b", "c")]).ok();
    for call in [&two, &two, &one] {
        call.del().ok();
    }
    lab.snapshot().assert_same(&before);
    one.add().ok_result();
    two.gc(&[("a_b", "c")]).ok();
    assert!(!Path::new("/run/cni/tuning/a~b_c.json").exists());
}

#[test]
fn a_mac_that_the_master_has_is_explained() {
    beyond_reference!("errors");
    needs!(Macvlan);
    let lab = Lab::new();
    let pod = lab.container("pod");
    lab.host().sh("ip link add cable address 02:00:00:00:00:07 type veth peer name far
        ip link set cable up; ip link add link cable name eth0 netns pod type macvlan; ip -n pod link set eth0 up");
    let call = tuning(&lab, &pod, json!({"mac": "02:00:00:00:00:07"}));
    call.add().refused(7, "its master has the MAC 02:00:00:00:00:07");
}

#[test]
fn a_refused_old_value_fails_one_del_and_not_the_next() {
    beyond_reference!("tuning-backup");
    needs!(Macvlan);
    let lab = Lab::new();
    let [pod, _other] = ["pod", "other"].map(|id| lab.container(id));
    lab.host().sh("ip link add cable type veth peer name far; ip link set cable up
        ip link add link cable name eth0 netns pod address 02:00:00:00:00:07 type macvlan; ip -n pod link set eth0 up");
    let call = tuning(&lab, &pod, json!({"mac": "02:00:00:00:00:08"}));
    call.add().ok_result();
    lab.host().sh("ip link add link cable name eth0 netns other address 02:00:00:00:00:07 type macvlan; ip -n other link set eth0 up");
    let deleted = call.del();
    assert!(!deleted.succeeded() && deleted.stdout.contains("restore"), "{deleted:#?}");
    assert!(!Path::new(BACKUP).exists());
    call.del().ok();
}

#[test]
fn gc_removes_the_stale_backups_of_its_network_only() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let pod = wired(&lab, "eth0");
    let call = tuning(&lab, &pod, json!({"mtu": 1400}));
    call.add().ok_result();
    call.clone().env("CNI_CONTAINERID", "stale").add().ok_result();
    call.clone().env("CNI_CONTAINERID", "other").config(json!({"name": "other"})).add().ok_result();
    call.clone().env("CNI_CONTAINERID", "theirs").by_the_reference().add().ok_result();
    let left = || {
        let entries = fs::read_dir("/run/cni/tuning").unwrap().flatten();
        let mut names: Vec<_> = entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };

    call.gc(&[("pod", "eth0")]).ok();
    assert_eq!(left(), ["other_eth0.json", "pod_eth0.json", "theirs_eth0.json"]);
    call.gc(&[("pod", "eth1")]).ok();
    assert_eq!(left(), ["other_eth0.json", "theirs_eth0.json"]);
    call.env("CNI_CONTAINERID", "theirs").del().ok();
    assert_eq!(left(), ["other_eth0.json"]);
}

#[test]
fn check_finds_changes() {
    let lab = Lab::new();
    let pod = wired(&lab, "eth0");
    let config = json!({
        "mac": "02:00:00:00:00:aa", "mtu": 1400, "promisc": true, "allmulti": true,
        "sysctl": {"net.ipv4.conf.eth0.arp_filter": "1"},
    });
    let call = tuning(&lab, &pod, config);
    let result = call.add().ok_result();
    for (change, back, culprit) in [
        ("ip link set eth0 address 02:00:00:00:00:bb", "ip link set eth0 address 02:00:00:00:00:aa", "mac"),
        ("ip link set eth0 mtu 1399", "ip link set eth0 mtu 1400", "1399"),
        ("ip link set eth0 promisc off", "ip link set eth0 promisc on", "promisc"),
        ("ip link set eth0 allmulticast off", "ip link set eth0 allmulticast on", "allmulti"),
        (
            "echo 0 >/proc/sys/net/ipv4/conf/eth0/arp_filter",
            "echo 1 >/proc/sys/net/ipv4/conf/eth0/arp_filter",
            "net.ipv4.conf.eth0.arp_filter",
        ),
    ] {
        call.check(&result).ok();
        pod.sh(change);
        call.check(&result).refused(999, culprit);
        pod.sh(back);
    }
    pod.sh("ip link del eth0");
    call.check(&result).refused(999, "eth0");
}

#[test]
fn check_ignores_case_and_spaces() {
    beyond_reference!("tuning-check");
    let lab = Lab::new();
    let pod = wired(&lab, "eth0");
    let sysctl = json!({"net.ipv4.tcp_rmem": "4096  131072 6291456", "net.core.somaxconn": " 100 "});
    let call = tuning(&lab, &pod, json!({"mac": "02-00-00-00-00-AA", "sysctl": sysctl}));
    let result = call.add().ok_result();
    call.check(&result).ok();
}

#[test]
fn check_accepts_a_value_as_the_kernel_stores_it_and_no_other() {
    beyond_reference!("tuning-check");
    let lab = Lab::new();
    let pod = wired(&lab, "eth0");
    for (key, written, stored) in [
        ("net.ipv4.ip_local_reserved_ports", "8080,8081,8082", "8080-8082"),
        ("net.ipv6.conf.IFNAME.stable_secret", "fd00::1", "fd00:0000:0000:0000:0000:0000:0000:0001"),
        ("net.ipv4.tcp_keepalive_time", "0x10", "16"),
        ("net.ipv4.conf.all.rp_filter", "01", "1"),
    ] {
        let of = |value: &str| tuning(&lab, &pod, json!({"sysctl": {(key): value}}));
        let result = of(written).add().ok_result();
        let path = key.replace("net.", "").replace("IFNAME", "eth0").replace('.', "/");
        assert_eq!(pod.sysctl(&path), stored);
        of(written).check(&result).ok();
        // A value that was not written is still another value.
        of("2").check(&result).refused(999, stored);
        of(written).del().ok();
        assert!(!Path::new(BACKUP).exists());
    }
}

/// The reference ignores the sysctls in the file.
#[test]
fn the_reference_deletes_a_file_with_sysctls() {
    beyond_reference!("tuning-check");
    let lab = Lab::new();
    let pod = wired(&lab, "eth0");
    let call = tuning(&lab, &pod, json!({"sysctl": {"net.ipv4.tcp_keepalive_time": "0x10"}}));
    call.add().ok_result();
    assert!(Path::new(BACKUP).exists());
    call.by_the_reference().del().ok();
    assert!(!Path::new(BACKUP).exists());
}

/// The kernel returns such a list only to the first read(2).
#[test]
fn a_long_list_is_compared_and_restored_as_a_whole() {
    beyond_reference!("rollback");
    let lab = Lab::new();
    let pod = wired(&lab, "eth0");
    let ports = "6443,8080,9100,10250,10255,30000-32767";
    let call = tuning(&lab, &pod, json!({"sysctl": {"net.ipv4.ip_local_reserved_ports": ports}}));
    let result = call.add().ok_result();
    assert!(!Path::new(BACKUP).exists(), "the kernel stores the list as it was written");
    call.check(&result).ok();
    // The kernel refuses the second value.
    let sysctl = json!({
        "net.ipv4.ip_local_reserved_ports": "1234", "net.ipv6.neigh.IFNAME.base_reachable_time_ms": "x",
    });
    tuning(&lab, &pod, json!({"sysctl": sysctl})).add().refused(7, "base_reachable_time_ms");
    assert_eq!(pod.sh("cat /proc/sys/net/ipv4/ip_local_reserved_ports").trim(), ports);
}

/// A rollback needs the old value, and CHECK must not pass a value that it has not read.
#[test]
fn a_sysctl_that_cannot_be_read_is_neither_set_nor_accepted_by_check() {
    beyond_reference!("rollback");
    let lab = Lab::new();
    let pod = wired(&lab, "eth0");
    let before = lab.snapshot();
    let call = tuning(&lab, &pod, json!({"sysctl": {"net.core.somaxconn": "100"}}));
    let path = "/proc/sys/net/core/somaxconn";
    let unread = injecting(&["-P", path, "-e", "inject=read:error=EIO"]);
    call.clone().under(&unread).add().refused(5, path);
    lab.snapshot().assert_same(&before);
    assert_ne!(pod.sysctl("core/somaxconn"), "100");
    let result = call.add().ok_result();
    call.under(&unread).check(&result).refused(5, path);
}

/// ADD fails at its last step, and the kernel refuses a request of the rollback: each one in turn.
#[test]
fn del_restores_what_a_failed_rollback_could_not() {
    beyond_reference!("rollback");
    let lab = Lab::new();
    let pod = with_features(&lab);
    let keys = json!({"promisc": true, "allmulti": true, "features": {"tx-checksum-ip-generic": false}});
    let call = tuning(&lab, &pod, keys);
    call.add().ok_result();
    call.del().ok();
    let (before, all) = (lab.snapshot(), features(&lab, &pod));
    let mut failures = String::new();
    // ADD fails at its 7th ioctl. The 8th restores the features. There is no 99th request.
    for (ioctls, request) in (1..=15).map(|nth| ("7", nth)).chain([("7..8", 99)]) {
        let ioctls = format!("inject=ioctl:error=EPERM:when={ioctls}");
        let request = format!("inject=sendto:error=EPERM:when={request}");
        let error = call.clone().under(&injecting(&["-e", &ioctls, "-e", &request])).add().error();
        failures.push_str(&error.details);
        call.del().ok();
        assert_eq!(features(&lab, &pod), all, "{error:?}");
        lab.snapshot().assert_same(&before);
    }
    for step in ["promisc", "allmulti", "features"] {
        assert!(failures.contains(&format!("the rollback failed too: restore {step}")), "{failures}");
    }
}

/// The kernel returns EIO for an unset secret (stable_secret in Documentation/networking/ip-sysctl.rst).
#[test]
fn a_secret_that_is_not_set_yet_can_be_set() {
    let lab = Lab::new();
    let pod = wired(&lab, "eth0");
    let secret = "2001:0db8:0000:0000:0000:0000:0000:0001";
    let sysctl = json!({"net.ipv6.conf.IFNAME.stable_secret": secret});
    let call = tuning(&lab, &pod, json!({"sysctl": sysctl}));
    let result = call.add().ok_result();
    assert_eq!(pod.sysctl("ipv6/conf/eth0/stable_secret"), secret);
    call.check(&result).ok();
}

#[test]
fn a_sysctl_that_can_only_be_written_is_an_order() {
    beyond_reference!("tuning-check");
    let lab = Lab::new();
    let pod = wired(&lab, "eth0");
    let call = tuning(&lab, &pod, json!({"sysctl": {"net.ipv4.route.flush": "1"}}));
    let trace = "/run/lab/written";
    let strace = ["strace", "-qq", "-y", "-o", trace, "-e", "trace=write"].map(str::to_owned);
    let result = call.clone().under(&strace).add().ok_result();
    let written = fs::read_to_string(trace).unwrap();
    assert!(written.contains("/proc/sys/net/ipv4/route/flush>, \"1"), "{written}");
    call.check(&result).ok();
}

#[test]
fn check_ignores_programs_that_listen_on_the_interface() {
    // https://github.com/containernetworking/plugins/pull/885
    beyond_reference!("tuning-check");
    let lab = Lab::new();
    let pod = wired(&lab, "eth0");
    let call = tuning(&lab, &pod, json!({"mtu": 1400}));
    let result = call.add().ok_result();
    pod.sh("ip link set eth0 promisc on");
    call.check(&result).ok();
}

#[test]
fn after_bridge_the_container_is_reachable_by_its_new_mac() {
    let lab = Lab::new();
    let [pod, other] = ["pod", "other"].map(|id| lab.container(id));
    let mut bridge = dual_stack();
    bridge["type"] = json!("bridge");
    let tuning = json!({
        "type": "tuning", "mac": "02:00:00:00:00:aa", "sysctl": {"net.ipv4.conf.eth0.arp_filter": "1"},
    });
    let with = lab.chain(json!({"cniVersion": "1.0.0", "name": "net", "plugins": [bridge, tuning]}));
    lab.plugin("bridge").config(dual_stack()).on(&other).add().ok_result();
    let before = lab.snapshot();
    let result = with.add(&pod, "eth0").ok_result();
    for netns in [lab.host(), &*other] {
        assert!(netns.reaches("10.1.2.3") && netns.reaches("fd00:1:2::3"));
    }
    assert_eq!(eth0(&pod, "address"), "02:00:00:00:00:aa");
    with.check(&pod, "eth0", &result).iter().for_each(lab::Outcome::ok);
    with.del(&pod, "eth0", &result).iter().for_each(lab::Outcome::ok);
    lab.snapshot().assert_same(&before);
}
