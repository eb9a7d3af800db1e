//! host-local, called like a delegate.

mod lock;
mod stale_leases;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use lab::{Call, Lab, Outcome, beyond_reference, injecting, under_test};
use serde_json::{Value, json};

use crate::common::{STORE, host_local, ips, leases};

/// A call for a container. host-local never looks at the namespace.
fn ipam(lab: &Lab, id: &str, ipam: &Value) -> Call {
    let call = lab.plugin("host-local").config(json!({"type": "bridge", "ipam": ipam}));
    call.env("CNI_CONTAINERID", id).env("CNI_NETNS", "/run/netns/of-nobody")
}

/// The addresses of some containers, attached in sequence.
fn addresses(lab: &Lab, ids: &[&str], conf: &Value) -> Vec<String> {
    let added = ids.iter().map(|id| ipam(lab, id, conf).add().ok_result());
    added.map(|result| ips(&result).join(" ")).collect()
}

fn lease(address: &str) -> PathBuf {
    Path::new(STORE).join(address)
}

#[test]
fn addresses_are_allocated_round_robin_and_a_released_one_is_not_allocated_again_immediately() {
    let lab = Lab::new();
    let conf = host_local(&[&["10.0.0.0/24"]]);
    assert_eq!(addresses(&lab, &["a", "b"], &conf), ["10.0.0.2/24", "10.0.0.3/24"]);
    ipam(&lab, "a", &conf).del().ok();
    assert_eq!(addresses(&lab, &["c"], &conf), ["10.0.0.4/24"]);
}

#[test]
fn at_the_end_of_a_range_the_search_wraps_around() {
    let lab = Lab::new();
    let conf = host_local(&[&["10.0.0.0/29"]]);
    addresses(&lab, &["a", "b", "c", "d"], &conf);
    ipam(&lab, "b", &conf).del().ok();
    assert_eq!(addresses(&lab, &["e", "f"], &conf), ["10.0.0.6/29", "10.0.0.3/29"]);
}

#[test]
fn network_broadcast_and_gateway_addresses_are_not_allocated() {
    let lab = Lab::new();
    let conf = json!({"type": "host-local", "ranges": [[{"subnet": "10.0.0.0/29", "gateway": "10.0.0.4"}]]});
    let given = addresses(&lab, &["a", "b", "c", "d", "e"], &conf);
    assert_eq!(given, ["10.0.0.1/29", "10.0.0.2/29", "10.0.0.3/29", "10.0.0.5/29", "10.0.0.6/29"]);
    let before = lab.snapshot();
    ipam(&lab, "f", &conf).add().refused(999, "10.0.0.1-10.0.0.6");
    lab.snapshot().assert_same(&before);
}

#[test]
fn a_range_may_start_and_end_anywhere_in_its_subnet() {
    let lab = Lab::new();
    let range = json!({"subnet": "10.0.0.0/24", "rangeStart": "10.0.0.50", "rangeEnd": "10.0.0.51"});
    let conf = json!({"type": "host-local", "ranges": [[range]]});
    assert_eq!(addresses(&lab, &["a", "b"], &conf), ["10.0.0.50/24", "10.0.0.51/24"]);
    ipam(&lab, "c", &conf).add().refused(999, "10.0.0.50");
}

#[test]
fn network_and_broadcast_addresses_are_allocated_if_they_are_the_ends_of_a_range() {
    let lab = Lab::new();
    let range = json!({"subnet": "10.0.0.0/30", "rangeStart": "10.0.0.0", "rangeEnd": "10.0.0.3"});
    let conf = json!({"type": "host-local", "ranges": [[range]]});
    assert_eq!(addresses(&lab, &["a", "b", "c"], &conf), ["10.0.0.0/30", "10.0.0.2/30", "10.0.0.3/30"]);
    ipam(&lab, "d", &conf).add().refused(999, "10.0.0.0-10.0.0.3");
}

#[test]
fn the_next_range_of_a_set_is_used_if_one_is_full() {
    let lab = Lab::new();
    let conf = host_local(&[&["10.0.0.0/30", "10.0.1.0/30"]]);
    assert_eq!(addresses(&lab, &["a", "b"], &conf), ["10.0.0.2/30", "10.0.1.2/30"]);
}

#[test]
fn each_range_set_allocates_one_address_with_its_gateway() {
    let lab = Lab::new();
    let conf = host_local(&[&["10.0.0.0/24"], &["fd00::/64"]]);
    let result = ipam(&lab, "a", &conf).add().ok_result();
    assert_eq!(ips(&result), ["10.0.0.2/24", "fd00::2/64"]);
    assert_eq!(result["ips"][0]["gateway"], "10.0.0.1");
    assert_eq!(result["ips"][1]["gateway"], "fd00::1");
}

#[test]
fn an_allocation_over_several_range_sets_is_all_or_nothing() {
    let lab = Lab::new();
    let conf = host_local(&[&["10.0.0.0/24"], &["fd00::/126"]]);
    addresses(&lab, &["a", "b"], &conf);
    let before = lab.snapshot();
    ipam(&lab, "c", &conf).add().refused(999, "fd00::1-fd00::3");
    lab.snapshot().assert_same(&before);
}

#[test]
fn the_old_form_of_a_single_subnet_is_understood() {
    let lab = Lab::new();
    let conf = json!({"type": "host-local", "subnet": "10.0.0.0/24", "rangeStart": "10.0.0.9", "gateway": "10.0.0.254"});
    let result = ipam(&lab, "a", &conf).add().ok_result();
    assert_eq!(ips(&result), ["10.0.0.9/24"]);
    assert_eq!(result["ips"][0]["gateway"], "10.0.0.254");
}

#[test]
fn an_unreachable_gateway_is_a_warning_unless_a_route_needs_it() {
    let lab = Lab::new();
    let mut conf =
        json!({"type": "host-local", "ranges": [[{"subnet": "10.0.0.0/24", "gateway": "10.9.0.1"}]]});
    let added = ipam(&lab, "a", &conf).add();
    assert_eq!(added.ok_result()["ips"][0], json!({"address": "10.0.0.1/24", "gateway": "10.9.0.1"}));
    conf["routes"] = json!([{"dst": "10.8.0.0/16", "gw": "10.0.0.9"}]);
    ipam(&lab, "b", &conf).add().ok_result();
    beyond_reference!("gateway-outside");
    let words =
        "host-local: warning: gateway 10.9.0.1 is not in subnet 10.0.0.0/24, so containers cannot reach it\n";
    assert_eq!(added.stderr, words);
    conf["routes"] = json!([{"dst": "10.8.0.0/16"}]);
    ipam(&lab, "c", &conf).add().refused(7, "10.9.0.1");
    // A route without gw needs only the gateway of the first address of its family.
    let unreachable = &conf["ranges"][0];
    for (id, sets, route) in [
        ("d", json!([[{"subnet": "10.5.0.0/24"}], unreachable]), json!({"dst": "0.0.0.0/0"})),
        ("e", json!([unreachable, [{"subnet": "fd00::/64"}]]), json!({"dst": "::/0"})),
    ] {
        let added = ipam(&lab, id, &json!({"type": "host-local", "ranges": sets, "routes": [route]})).add();
        added.ok_result();
        assert_eq!(added.stderr, words);
    }
}

#[test]
fn a_gateway_outside_of_its_subnet_is_accepted_if_the_container_reaches_it_otherwise() {
    let lab = Lab::new();
    let default = json!({"dst": "0.0.0.0/0"});
    let of_another_set = json!({
        "ranges": [[{"subnet": "10.6.0.0/24"}], [{"subnet": "10.7.0.0/24", "gateway": "10.6.0.1"}]],
        "routes": [default],
    });
    let by_a_route = json!({
        "ranges": [[{"subnet": "10.8.0.0/24", "gateway": "10.9.0.1"}]],
        "routes": [{"dst": "10.9.0.1/32", "gw": "0.0.0.0"}, default],
    });
    for (id, mut ipam, gateway) in [("a", of_another_set, "10.6.0.1"), ("b", by_a_route, "10.9.0.1")] {
        let container = lab.container(id);
        ipam["type"] = json!("host-local");
        let bridge = json!({"bridge": format!("br-{id}"), "ipam": ipam});
        let call = lab.plugin("bridge").config(bridge).on(&container);
        let added = call.add();
        added.ok_result();
        assert_eq!(added.stderr, "");
        let routes = container.sh("ip route show default");
        assert!(routes.contains(&format!("via {gateway} dev eth0")), "{routes}");
    }
    // A container has an address of only one of a set's ranges.
    let of_its_own_set = json!({
        "type": "host-local",
        "ranges": [[{"subnet": "10.6.0.0/24"}, {"subnet": "10.7.0.0/24", "gateway": "10.6.0.1"}]],
        "routes": [default],
    });
    beyond_reference!("gateway-outside");
    ipam(&lab, "c", &of_its_own_set).add().refused(7, "10.6.0.1");
}

/// For example, the disk of the log is full.
#[test]
fn a_warning_that_cannot_be_written_does_not_stop_a_command() {
    beyond_reference!("gateway-outside");
    let lab = Lab::new();
    let mut conf =
        json!({"type": "host-local", "ranges": [[{"subnet": "10.0.0.0/24", "gateway": "10.9.0.1"}]]});
    let call = |conf: &Value| {
        ipam(&lab, "a", conf).under(&["sh", "-c", r#"exec "$0" 2>/dev/full"#].map(str::to_owned))
    };
    call(&conf).add().ok_result();
    assert_eq!(leases(), ["10.0.0.1"]);
    conf["dataDir"] = json!(5);
    call(&conf).del().ok();
    assert!(leases().is_empty());
}

#[test]
fn routes_are_passed_on() {
    let lab = Lab::new();
    let mut conf = host_local(&[&["10.0.0.0/24"]]);
    conf["routes"] = json!([{"dst": "0.0.0.0/0"}, {"dst": "192.168.0.0/16", "gw": "10.0.0.9"}]);
    let result = ipam(&lab, "a", &conf).add().ok_result();
    assert_eq!(result["routes"], conf["routes"]);
}

#[test]
fn the_resolver_of_the_container_comes_from_resolv_conf() {
    let lab = Lab::new();
    let file = lab.dir().join("resolv.conf");
    fs::write(&file, "# ours\nnameserver 192.0.2.53\nnameserver 2001:db8::53\nsearch one.test two.test\ndomain one.test\noptions ndots:2 timeout:1\n").unwrap();
    let mut conf = host_local(&[&["10.0.0.0/24"]]);
    conf["resolvConf"] = json!(file);
    let dns = &ipam(&lab, "a", &conf).add().ok_result()["dns"];
    assert_eq!(dns["nameservers"], json!(["192.0.2.53", "2001:db8::53"]));
    assert_eq!(dns["search"], json!(["one.test", "two.test"]));
    assert_eq!(dns["domain"], "one.test");
    assert_eq!(dns["options"], json!(["ndots:2", "timeout:1"]));
}

#[test]
fn leases_are_in_data_dir() {
    let lab = Lab::new();
    let mut conf = host_local(&[&["10.0.0.0/24"]]);
    conf["dataDir"] = json!(lab.dir().join("leases"));
    ipam(&lab, "a", &conf).add().ok_result();
    let file = lab.dir().join("leases/net/10.0.0.2");
    assert!(file.exists());
    ipam(&lab, "a", &conf).del().ok();
    assert!(!file.exists());
}

#[test]
fn a_missing_resolv_conf_is_named_by_add_and_by_status() {
    let lab = Lab::new();
    let mut conf = host_local(&[&["10.0.0.0/24"]]);
    conf["resolvConf"] = json!(lab.dir().join("resolv.conf"));
    let call = ipam(&lab, "a", &conf);
    let before = lab.snapshot();
    call.add().refused(5, "/run/lab/resolv.conf");
    lab.snapshot().assert_same(&before);
    beyond_reference!("status");
    call.status().refused(50, "/run/lab/resolv.conf");
    fs::write(lab.dir().join("resolv.conf"), "nameserver 192.0.2.53\n").unwrap();
    call.status().ok();
}

#[test]
fn relative_paths_work_with_a_warning_below_the_working_directory() {
    let lab = Lab::new();
    lab.host().sh("mkdir /run/lab/one; echo nameserver 192.0.2.53 >/run/lab/one/r.conf");
    let mut conf = host_local(&[&["10.0.0.0/24"]]);
    conf["dataDir"] = json!("leases");
    conf["resolvConf"] = json!("r.conf");
    let there = ["sh", "-c", "cd /run/lab/one && exec \"$0\""].map(str::to_owned);
    let call = ipam(&lab, "a", &conf).under(&there);
    let lease = Path::new("/run/lab/one/leases/net/10.0.0.2");
    let warns = |outcome: &Outcome| {
        let has = |key: &str| outcome.stderr.contains(&format!("{key} is relative to"));
        let all = has("ipam.dataDir \"leases\"") && has("ipam.resolvConf \"r.conf\"");
        assert!(under_test().reference || all && outcome.stderr.contains("/run/lab/one"), "{outcome:#?}");
    };
    let added = call.add();
    let result = added.ok_result();
    assert!(lease.exists() && result["dns"]["nameservers"] == json!(["192.0.2.53"]), "{result}");
    warns(&added);
    let checked = call.check(&result);
    checked.ok();
    warns(&checked);
    call.del().ok();
    assert!(!lease.exists());
}

#[test]
fn a_lease_is_a_file_named_by_the_address_with_its_owner() {
    let lab = Lab::new();
    addresses(&lab, &["a"], &host_local(&[&["10.0.0.0/24"], &["fd00::/64"]]));
    assert_eq!(leases(), ["10.0.0.2", "fd00::2"]);
    for address in leases() {
        assert_eq!(fs::read_to_string(lease(&address)).unwrap(), "a\r\neth0");
    }
    assert_eq!(fs::read_to_string(lease("last_reserved_ip.1")).unwrap(), "fd00::2");
}

#[test]
fn the_search_starts_after_the_last_allocated_address_in_ours_or_the_references_hint() {
    let lab = Lab::new();
    fs::create_dir_all(STORE).unwrap();
    fs::write(lease("last_reserved_ip.0"), "10.0.0.77").unwrap();
    assert_eq!(addresses(&lab, &["a"], &host_local(&[&["10.0.0.0/24"]])), ["10.0.0.78/24"]);
}

#[test]
fn ranges_may_be_in_the_runtimes_request() {
    let lab = Lab::new();
    let ranges = json!({"ipRanges": [[{"subnet": "10.7.0.0/24"}], [{"subnet": "fd07::/64"}]]});
    let call = ipam(&lab, "a", &json!({"type": "host-local"})).config(json!({"runtimeConfig": ranges}));
    assert_eq!(ips(&call.add().ok_result()), ["10.7.0.2/24", "fd07::2/64"]);
}

#[test]
fn an_address_may_be_requested_in_three_ways() {
    let lab = Lab::new();
    let conf = host_local(&[&["10.0.0.0/24"], &["fd00::/64"]]);
    let by_args = ipam(&lab, "a", &conf).args("IgnoreUnknown=1;K8S_POD_NAME=web;IP=10.0.0.11");
    assert_eq!(ips(&by_args.add().ok_result()), ["10.0.0.11/24", "fd00::2/64"]);
    let by_cni = ipam(&lab, "b", &conf).config(json!({"args": {"cni": {"ips": ["10.0.0.12", "fd00::12"]}}}));
    assert_eq!(ips(&by_cni.add().ok_result()), ["10.0.0.12/24", "fd00::12/64"]);
    let by_runtime =
        ipam(&lab, "c", &conf).config(json!({"runtimeConfig": {"ips": ["10.0.0.13/24", "fd00::13"]}}));
    assert_eq!(ips(&by_runtime.add().ok_result()), ["10.0.0.13/24", "fd00::13/64"]);
}

#[test]
fn the_last_of_several_requests_for_an_address_wins() {
    beyond_reference!("address-precedence");
    let lab = Lab::new();
    let call = ipam(&lab, "a", &host_local(&[&["10.0.0.0/24"]])).args("IP=10.0.0.11");
    let call = call.config(json!({"args": {"cni": {"ips": ["10.0.0.12"]}}}));
    assert_eq!(ips(&call.add().ok_result()), ["10.0.0.12/24"]);
    call.del().ok();
    let call = call.config(json!({"runtimeConfig": {"ips": ["10.0.0.13"]}}));
    assert_eq!(ips(&call.add().ok_result()), ["10.0.0.13/24"]);
}

#[test]
fn an_excluded_address_is_never_allocated() {
    beyond_reference!("exclude");
    let lab = Lab::new();
    let mut conf = host_local(&[&["10.0.0.0/28"]]);
    conf["exclude"] = json!(["10.0.0.3", "10.0.0.4/30"]);
    assert_eq!(addresses(&lab, &["a", "b"], &conf), ["10.0.0.2/28", "10.0.0.8/28"]);
}

#[test]
fn a_second_add_of_the_same_interface_is_refused_and_its_lease_named() {
    // https://github.com/containernetworking/plugins/issues/328
    let lab = Lab::new();
    let conf = host_local(&[&["10.0.0.0/24"]]);
    addresses(&lab, &["a"], &conf);
    let before = lab.snapshot();
    ipam(&lab, "a", &conf).add().refused(7, "10.0.0.2");
    lab.snapshot().assert_same(&before);
    let second = ipam(&lab, "a", &conf).ifname("eth1").add().ok_result();
    assert_eq!(ips(&second), ["10.0.0.3/24"], "another interface of the container is another attachment");
}

#[test]
fn del_releases_only_the_leases_of_its_interface_and_can_be_repeated() {
    let lab = Lab::new();
    let conf = host_local(&[&["10.0.0.0/24"]]);
    addresses(&lab, &["a", "b"], &conf);
    ipam(&lab, "a", &conf).ifname("eth1").add().ok_result();
    for _ in 0..2 {
        ipam(&lab, "a", &conf).del().ok();
        assert_eq!(leases(), ["10.0.0.3", "10.0.0.4"]);
    }
}

#[test]
fn del_needs_the_network_s_name_only() {
    // https://github.com/k8snetworkplumbingwg/multus-cni/issues/1449
    beyond_reference!("del-by-name");
    let lab = Lab::new();
    addresses(&lab, &["a"], &host_local(&[&["10.0.0.0/24"]]));
    ipam(&lab, "a", &json!({"type": "host-local"})).without("CNI_NETNS").del().ok();
    assert!(leases().is_empty());
}

#[test]
fn check_notices_a_missing_lease() {
    let lab = Lab::new();
    let conf = host_local(&[&["10.0.0.0/24"]]);
    let call = ipam(&lab, "a", &conf);
    let result = call.add().ok_result();
    call.check(&result).ok();
    fs::remove_file(lease("10.0.0.2")).unwrap();
    call.check(&result).refused(999, "10.0.0.2");
}

#[test]
fn check_notices_a_lease_that_the_result_does_not_have_and_a_result_without_addresses() {
    beyond_reference!("check-address");
    let lab = Lab::new();
    let call = ipam(&lab, "a", &host_local(&[&["10.0.0.0/24"], &["fd00::/64"]]));
    let mut result = call.add().ok_result();
    result["ips"].as_array_mut().unwrap().retain(|ip| ip["address"] == "10.0.0.2/24");
    call.check(&result).refused(
        999,
        "address fd00::2 is leased to container a, interface eth0, but prevResult does not have it",
    );
    result["ips"] = json!([]);
    for address in ["10.0.0.2", "fd00::2"] {
        fs::remove_file(lease(address)).unwrap();
    }
    call.check(&result).refused(999, "container a, interface eth0 has no lease");
}

/// Administrators exclude addresses so that they can assign them otherwise, for example by a second plugin of the chain.
#[test]
fn check_accepts_addresses_of_other_plugins_that_are_excluded_or_the_gateway() {
    beyond_reference!("check-address");
    let lab = Lab::new();
    let range = json!({"subnet": "10.0.0.0/24", "exclude": ["10.0.0.200/29"]});
    let call = ipam(&lab, "a", &json!({"type": "host-local", "ranges": [[range]]}));
    let result = call.add().ok_result();
    let check_with = |address: &str| {
        let mut result = result.clone();
        result["ips"].as_array_mut().unwrap().push(json!({"address": address}));
        call.check(&result)
    };
    check_with("10.0.0.201/32").ok();
    check_with("10.0.0.1/32").ok();
    check_with("10.0.0.9/32").refused(999, "10.0.0.9/32");
}

#[test]
fn gc_releases_unlisted_leases() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let conf = host_local(&[&["10.0.0.0/24"], &["fd00::/64"]]);
    addresses(&lab, &["a", "b"], &conf);
    let gc = ipam(&lab, "ignored", &conf);
    gc.gc(&[("a", "eth0"), ("b", "eth1")]).ok();
    assert_eq!(leases(), ["10.0.0.2", "fd00::2"]);
}

/// docs/host-local.md: "To reserve an address, write a file with its name and any text in one line".
#[test]
fn gc_keeps_addresses_that_an_administrator_has_reserved_and_add_never_allocates_them() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let range = json!({"subnet": "10.0.0.0/24", "rangeStart": "10.0.0.49", "rangeEnd": "10.0.0.52"});
    let conf = json!({"type": "host-local", "ranges": [[range]]});
    fs::create_dir_all(STORE).unwrap();
    for (address, text) in [("10.0.0.50", "printer"), ("10.0.0.51", "used by the printer, do not touch")] {
        fs::write(lease(address), text).unwrap();
    }
    assert_eq!(addresses(&lab, &["a"], &conf), ["10.0.0.49/24"]);
    ipam(&lab, "ignored", &conf).gc(&[]).ok();
    assert_eq!(leases(), ["10.0.0.50", "10.0.0.51"]);
    assert_eq!(addresses(&lab, &["b", "c"], &conf), ["10.0.0.52/24", "10.0.0.49/24"]);
    ipam(&lab, "d", &conf).add().refused(999, "no IP addresses available");
}

#[test]
fn gc_with_an_empty_list_releases_all_and_without_one_nothing() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let conf = host_local(&[&["10.0.0.0/24"]]);
    addresses(&lab, &["a", "b"], &conf);
    let gc = ipam(&lab, "ignored", &conf).version("1.1.0");
    gc.run("GC").ok();
    assert_eq!(leases().len(), 2, "absent is not empty");
    gc.gc(&[]).ok();
    assert!(leases().is_empty());
}

#[test]
fn a_full_range_set_is_a_warning_of_status_and_not_a_failure() {
    beyond_reference!("status");
    let lab = Lab::new();
    let conf = host_local(&[&["10.0.0.0/24"], &["fd00::/124"]]);
    let status = ipam(&lab, "ignored", &conf).version("1.1.0");
    let said = || {
        let outcome = status.status();
        outcome.ok();
        outcome.stderr
    };
    let ids: Vec<String> = (0..14).map(|n| format!("c{n}")).collect();
    addresses(&lab, &ids.iter().map(String::as_str).take(11).collect::<Vec<_>>(), &conf);
    assert_eq!(said(), "", "a runtime asks every few seconds");
    addresses(&lab, &ids.iter().map(String::as_str).skip(11).collect::<Vec<_>>(), &conf);
    assert_eq!(
        said(),
        "host-local: warning: 14 of the 14 addresses of range set fd00::1-fd00::f are leased\n"
    );
    ipam(&lab, "late", &conf).add().refused(999, "no IP addresses available in range set: fd00::1-fd00::f");
    ipam(&lab, "c0", &conf).del().ok();
    assert!(said().contains("13 of the 14 addresses"));
}

#[test]
fn status_fails_for_a_full_range_set_if_configured() {
    beyond_reference!("status");
    let lab = Lab::new();
    let mut conf = host_local(&[&["10.0.0.0/24"], &["fd00::/126"]]);
    conf["statusFailsWhenFull"] = json!(true);
    let status = ipam(&lab, "ignored", &conf);
    addresses(&lab, &["a"], &conf);
    status.status().ok();
    addresses(&lab, &["b"], &conf);
    status.status().refused(50, "no IP addresses available in range set: fd00::1-fd00::3");
}

#[test]
fn status_accepts_a_file_system_without_a_limit() {
    beyond_reference!("status");
    for no_limit in ["size=0", "nr_inodes=0"] {
        let lab = Lab::new();
        let (_, conf) = mounted(&lab, no_limit);
        let call = ipam(&lab, "a", &conf);
        call.add().ok_result();
        call.status().ok();
    }
}

/// The runtime passes them only to ADD, CHECK and DEL.
#[test]
fn status_does_not_require_the_ranges_that_the_runtime_passes() {
    beyond_reference!("status");
    let lab = Lab::new();
    let call = ipam(&lab, "a", &json!({"type": "host-local"}));
    call.status().refused(7, "ipam.ranges is missing or empty");
    let call = call.config(json!({"capabilities": {"ipRanges": true}}));
    for plugin in ["host-local", "bridge"] {
        call.clone().called(plugin).status().ok();
    }
    call.add().refused(7, "ipam.ranges is missing or empty");
    let ranges = json!({"ipRanges": [[{"subnet": "10.0.0.0/24"}]]});
    assert_eq!(ips(&call.config(json!({"runtimeConfig": ranges})).add().ok_result()), ["10.0.0.2/24"]);
}

#[test]
fn status_does_not_warn_of_a_small_range_set_without_leases() {
    beyond_reference!("status");
    let lab = Lab::new();
    let conf = host_local(&[&["10.0.0.0/30"]]);
    let said = || {
        let status = ipam(&lab, "ignored", &conf).status();
        status.ok();
        status.stderr
    };
    assert_eq!(said(), "");
    addresses(&lab, &["a"], &conf);
    assert!(said().contains("1 of the 1 addresses"));
    ipam(&lab, "a", &conf).del().ok();
    assert_eq!(said(), "");
}

#[test]
fn an_empty_lease_file_does_not_block_its_address() {
    // https://github.com/containernetworking/plugins/issues/498
    beyond_reference!("torn-lease");
    let lab = Lab::new();
    let conf = host_local(&[&["10.0.0.0/24"]]);
    fs::create_dir_all(STORE).unwrap();
    fs::write(lease("10.0.0.2"), "").unwrap();
    // Other addresses are free, so the file is reclaimed as torn, not as a stale lease.
    assert_eq!(addresses(&lab, &["a"], &conf), ["10.0.0.2/24"]);

    // A crash may empty a file whose lease is in the index. Nothing in the directory has changed then.
    fs::write(lease("10.0.0.2"), "").unwrap();
    let asks = ipam(&lab, "b", &conf).config(json!({"runtimeConfig": {"ips": ["10.0.0.2"]}}));
    assert_eq!(ips(&asks.add().ok_result()), ["10.0.0.2/24"]);
    assert_eq!(fs::read_to_string(lease("10.0.0.2")).unwrap(), "b\r\neth0");

    // The address need not be requested again: any DEL that reads the leases removes the file.
    fs::write(lease("10.0.0.9"), "").unwrap();
    ipam(&lab, "of-nobody", &conf).del().ok();
    assert_eq!(leases(), ["10.0.0.2"]);
}

/// A plugin that is killed while it writes leaves only complete files.
#[test]
fn a_kill_at_any_write_leaves_no_empty_lease_file() {
    beyond_reference!("torn-lease");
    let lab = Lab::new();
    let conf = host_local(&[&["10.0.0.0/24"]]);
    let mut killed = 0;
    for nth in 1.. {
        let strace =
            format!("strace -qq -o /run/lab/trace -e trace=write -e inject=write:signal=SIGKILL:when={nth}");
        let call = ipam(&lab, &format!("c{nth}"), &conf);
        let added = call.under(&strace.split(' ').map(str::to_owned).collect::<Vec<_>>()).add();
        for address in leases() {
            let content = fs::read_to_string(lease(&address)).unwrap();
            assert!(content.ends_with("\r\neth0"), "{address} after a kill at write {nth}: {content:?}");
        }
        if added.succeeded() {
            break;
        }
        killed += 1;
    }
    assert!(killed > 2, "a lease, the index and the answer are written");
}

#[test]
fn a_lease_without_an_interface_is_released() {
    let lab = Lab::new();
    let conf = host_local(&[&["10.0.0.0/24"]]);
    fs::create_dir_all(STORE).unwrap();
    fs::write(lease("10.0.0.2"), "a").unwrap();
    assert_eq!(addresses(&lab, &["b"], &conf), ["10.0.0.3/24"]);
    ipam(&lab, "a", &conf).del().ok();
    assert_eq!(leases(), ["10.0.0.3"]);
}

#[test]
fn leases_added_and_removed_manually_count_immediately() {
    let lab = Lab::new();
    let conf = host_local(&[&["10.0.0.0/24"]]);
    addresses(&lab, &["a"], &conf);
    fs::write(lease("10.0.0.3"), "by hand\r\neth0").unwrap();
    assert_eq!(addresses(&lab, &["b"], &conf), ["10.0.0.4/24"]);
    fs::remove_dir_all(STORE).unwrap();
    assert_eq!(addresses(&lab, &["a"], &conf), ["10.0.0.2/24"]);
}

#[test]
fn a_hundred_concurrent_containers_get_a_hundred_addresses() {
    let lab = Lab::new();
    let conf = host_local(&[&["10.0.0.0/24"]]);
    let calls: Vec<_> = (0..100).map(|i| ipam(&lab, &format!("c{i}"), &conf)).collect();
    let given: BTreeSet<_> = thread::scope(|scope| {
        let runs: Vec<_> = calls.iter().map(|call| scope.spawn(|| call.add().ok_result())).collect();
        runs.into_iter().map(|run| ips(&run.join().unwrap()).join(" ")).collect()
    });
    assert_eq!(given.len(), 100);
    assert_eq!(leases().len(), 100);
    thread::scope(|scope| calls.iter().for_each(|call| drop(scope.spawn(|| call.del().ok()))));
    assert!(leases().is_empty());
}

#[test]
fn ours_and_the_reference_respect_each_others_leases() {
    let lab = Lab::new();
    let conf = host_local(&[&["10.0.0.0/24"], &["fd00::/64"]]);
    let given = |call: &Call| ips(&call.add().ok_result()).join(" ");
    let [a, b, c, d] = ["a", "b", "c", "d"].map(|id| ipam(&lab, id, &conf));
    assert_eq!(given(&a), "10.0.0.2/24 fd00::2/64");
    assert_eq!(given(&b.clone().by_the_reference()), "10.0.0.3/24 fd00::3/64");
    assert_eq!(given(&c), "10.0.0.4/24 fd00::4/64");

    b.add().refused(7, "10.0.0.3");
    assert_eq!(a.clone().by_the_reference().add().exit, Some(1));
    a.by_the_reference().del().ok();
    b.del().ok();
    assert_eq!(leases(), ["10.0.0.4", "fd00::4"]);
    assert_eq!(given(&d), "10.0.0.5/24 fd00::5/64");
    [c, d].iter().for_each(|call| call.del().ok());
    assert!(leases().is_empty());
}

#[test]
fn the_error_for_a_leased_requested_address_names_its_container() {
    let lab = Lab::new();
    let conf = host_local(&[&["10.0.0.0/24"]]);
    addresses(&lab, &["a"], &conf);
    let before = lab.snapshot();
    let error = ipam(&lab, "b", &conf).args("IP=10.0.0.2").add().refused(999, "10.0.0.2");
    beyond_reference!("errors");
    assert!(error.details.contains("container a, interface eth0"), "{error:?}");
    lab.snapshot().assert_same(&before);
}

#[test]
fn check_notices_a_missing_lease_even_if_another_container_has_the_address() {
    beyond_reference!("check-address");
    let lab = Lab::new();
    let conf = host_local(&[&["10.0.0.0/24"], &["fd00::/64"]]);
    let call = ipam(&lab, "a", &conf);
    let result = call.add().ok_result();
    fs::remove_file(lease("fd00::2")).unwrap();
    fs::write(lease("fd00::2"), "b\r\neth0").unwrap();
    call.check(&result).refused(999, "fd00::2");
}

#[test]
fn with_reset_on_reboot_the_first_add_after_a_reboot_drops_older_leases() {
    // https://github.com/containernetworking/plugins/issues/252
    beyond_reference!("reset-on-reboot");
    let lab = Lab::new();
    let mut conf = host_local(&[&["10.0.0.0/24"]]);
    conf["resetOnReboot"] = json!(true);
    addresses(&lab, &["a"], &conf);
    assert_eq!(addresses(&lab, &["b"], &conf), ["10.0.0.3/24"]);
    fs::write(lease(".boot_id"), "11111111-2222-3333-4444-555555555555").unwrap();
    assert_eq!(addresses(&lab, &["c"], &conf), ["10.0.0.4/24"]);
    assert_eq!(leases(), ["10.0.0.4"]);
}

#[test]
fn leases_from_before_a_reboot_stay_if_reset_on_reboot_was_off_meanwhile() {
    beyond_reference!("reset-on-reboot");
    let lab = Lab::new();
    let [mut with, without] = [(); 2].map(|()| host_local(&[&["10.0.0.0/24"]]));
    with["resetOnReboot"] = json!(true);
    addresses(&lab, &["a"], &with);
    fs::write(lease(".boot_id"), "11111111-2222-3333-4444-555555555555").unwrap();
    assert_eq!(addresses(&lab, &["b"], &without), ["10.0.0.3/24"]);
    assert_eq!(addresses(&lab, &["c"], &with), ["10.0.0.4/24"]);
    assert_eq!(leases(), ["10.0.0.2", "10.0.0.3", "10.0.0.4"], "b's container may still run");
}

/// As an error, such a file would fail every ADD until somebody removes it.
#[test]
fn with_reset_on_reboot_a_file_that_cannot_be_removed_keeps_its_address_and_the_others_are_free() {
    beyond_reference!("reset-on-reboot");
    let lab = Lab::new();
    let mut conf = host_local(&[&["10.0.0.0/24"]]);
    conf["resetOnReboot"] = json!(true);
    addresses(&lab, &["stays", "cannot-be-read", "goes"], &conf);
    fs::create_dir(lease("10.0.0.9")).unwrap();
    // A mount point cannot be removed. Reading the first byte of a process's memory fails with EIO.
    for (source, address) in [(lease("10.0.0.2"), "10.0.0.2"), ("/proc/self/mem".into(), "10.0.0.3")] {
        let (source, target) = (source.to_str().unwrap(), lease(address));
        lab.host().exec(&["mount", "--bind", source, target.to_str().unwrap()]);
    }
    fs::write(lease(".boot_id"), "11111111-2222-3333-4444-555555555555").unwrap();

    let added = ipam(&lab, "a", &conf).add();
    assert_eq!(ips(&added.ok_result()), ["10.0.0.5/24"]);
    for address in ["10.0.0.2", "10.0.0.3", "10.0.0.9"] {
        assert!(added.stderr.contains(address), "{added:#?}");
    }
    assert_eq!(leases(), ["10.0.0.2", "10.0.0.3", "10.0.0.5", "10.0.0.9"]);

    let added = ipam(&lab, "b", &conf).add();
    assert_eq!((ips(&added.ok_result()), added.stderr.as_str()), (vec!["10.0.0.6/24"], ""));
    for address in ["10.0.0.2", "10.0.0.9"] {
        ipam(&lab, "c", &conf).args(&format!("IP={address}")).add().refused(999, address);
    }
}

/// A bad sector, for example.
#[test]
fn a_lease_file_that_cannot_be_read_fails_only_a_del_that_finds_no_lease() {
    beyond_reference!("lenient-del");
    let lab = Lab::new();
    let conf = host_local(&[&["10.0.0.0/24"]]);
    addresses(&lab, &["bad", "a", "b", "c"], &conf);
    let bad = lease("10.0.0.2");
    // Reading the first byte of a process's memory fails with EIO.
    lab.host().exec(&["mount", "--bind", "/proc/self/mem", bad.to_str().unwrap()]);
    let del = |id: &str| ipam(&lab, id, &conf).del();
    // The mount has not changed the directory, so this makes the index incomplete.
    fs::remove_file(lease(".index")).unwrap();
    let deleted = del("a");
    deleted.ok();
    assert!(deleted.stderr.contains("read lease") && deleted.stderr.contains("10.0.0.2"), "{deleted:#?}");
    let deleted = del("b");
    deleted.ok();
    assert_eq!(deleted.stderr, "", "the index has the lease");
    del("unknown").refused(5, "10.0.0.2");
    assert_eq!(leases(), ["10.0.0.2", "10.0.0.5"]);
    lab.host().exec(&["umount", bad.to_str().unwrap()]);
    ["bad", "c"].iter().for_each(|id| del(id).ok());
    assert!(leases().is_empty());
}

/// ZFS before 2.2, for example. The other program ignores the lock.
#[test]
fn a_lease_that_another_program_writes_at_the_same_moment_is_kept_on_a_file_system_without_exclusive_renames()
{
    beyond_reference!("torn-lease");
    let lab = Lab::new();
    let conf = host_local(&[&["10.0.0.0/24"]]);
    let refuses = ["-e", "trace=renameat2", "-e", "inject=renameat2:error=EINVAL:delay_enter=2000000"];
    let [a, b] = ["a", "b"].map(|id| ipam(&lab, id, &conf).under(&injecting(&refuses)));
    let added = thread::scope(|scope| {
        let running = scope.spawn(|| a.add());
        let is_written = || {
            let names = fs::read_dir(STORE).into_iter().flatten().flatten();
            names.into_iter().any(|file| file.file_name().to_string_lossy().starts_with(".new."))
        };
        while !is_written() {
            thread::sleep(Duration::from_millis(10));
        }
        fs::write(lease("10.0.0.2"), "other\r\neth0").unwrap();
        running.join().unwrap()
    });
    added.refused(11, "10.0.0.2");
    assert_eq!(fs::read_to_string(lease("10.0.0.2")).unwrap(), "other\r\neth0");
    assert_eq!(ips(&b.add().ok_result()), ["10.0.0.3/24"]);
    let left = fs::read_dir(STORE).unwrap().flatten();
    assert!(!left.into_iter().any(|file| file.file_name().to_string_lossy().starts_with(".new.")));
}

/// Immediately after an upgrade from the reference, `.lock` does not exist yet.
#[test]
fn leases_of_the_reference_can_be_checked_and_released_without_space_for_another_file() {
    beyond_reference!("torn-lease");
    let lab = Lab::new();
    let (dir, conf) = mounted(&lab, "nr_inodes=9");
    let [a, b] = ["a", "b"].map(|id| ipam(&lab, id, &conf));
    let result = a.clone().by_the_reference().add().ok_result();
    (0..).take_while(|n| fs::write(dir.join(format!("ballast-{n}")), "").is_ok()).count();
    a.check(&result).ok();
    b.del().ok();
    a.del().ok();
    let names = fs::read_dir(dir.join("net")).unwrap().flatten().map(|entry| entry.file_name());
    assert!(!names.into_iter().any(|name| name == "10.0.0.2" || name == "fd00::2"));
}

/// A separate dataDir with these mount options.
fn mounted(lab: &Lab, options: &str) -> (PathBuf, Value) {
    let dir = lab.dir().join("leases");
    fs::create_dir_all(&dir).unwrap();
    lab.host().exec(&["mount", "-t", "tmpfs", "-o", options, "tmpfs", dir.to_str().unwrap()]);
    let mut conf = host_local(&[&["10.0.0.0/24"], &["fd00::/64"]]);
    conf["dataDir"] = json!(dir);
    (dir, conf)
}

#[test]
fn a_read_only_data_dir_is_named_by_add_and_by_status() {
    let lab = Lab::new();
    let (dir, conf) = mounted(&lab, "ro");
    let dir = dir.to_str().unwrap();
    ipam(&lab, "a", &conf).add().refused(5, dir);
    beyond_reference!("status");
    ipam(&lab, "a", &conf).del().ok();
    ipam(&lab, "a", &conf).status().refused(50, dir);
}

#[test]
fn a_disk_that_fills_up_leaves_no_half_allocation_and_can_be_emptied() {
    beyond_reference!("torn-lease");
    let lab = Lab::new();
    // Room for the directory, two locks, a lease, the hint, and one more file, but not for a second lease.
    let (dir, conf) = mounted(&lab, "nr_inodes=7");
    let call = ipam(&lab, "a", &conf);
    call.add().refused(5, "fd00::2");
    let left = || fs::read_dir(dir.join("net")).unwrap().flatten().map(|entry| entry.file_name());
    assert!(left().all(|name| name.to_str().unwrap().parse::<std::net::IpAddr>().is_err()), "{:?}", left());
    lab.host().exec(&["mount", "-o", "remount,nr_inodes=100", dir.to_str().unwrap()]);
    call.add().ok_result();
    (0..).take_while(|n| fs::write(dir.join(format!("ballast-{n}")), "").is_ok()).count();
    let is_full = format!("the file system for leases is full: {}", dir.display());
    call.status().refused(50, &is_full);
    call.del().ok();
    assert!(!dir.join("net/10.0.0.2").exists() && !dir.join("net/fd00::2").exists());
    // A file system with free inodes, but without a free block.
    mounted(&lab, "size=64k");
    call.status().ok();
    fs::write(dir.join("ballast"), "x".repeat(128 << 10)).unwrap_err();
    call.status().refused(50, &is_full);
}
