//! dummy with host-local: an interface that only holds addresses.

use lab::{Call, Container, Lab, beyond_reference, needs};
use serde_json::json;

use crate::common::{
    container_interface, gc_deletes_an_interface_in_the_hosts_namespace, host_local, ips, leases,
    udev_replaces_no_mac,
};

fn dummy(lab: &Lab, pod: &Container) -> Call {
    let ipam = host_local(&[&["10.1.2.0/24"], &["fd00:1:2::/64"]]);
    lab.plugin("dummy").version("1.1.0").config(json!({"ipam": ipam})).on(pod)
}

#[test]
fn the_container_reaches_its_own_addresses_and_the_result_is_its_interface() {
    beyond_reference!("dummy");
    needs!(Dummy);
    let lab = Lab::new();
    let pod = lab.container("pod");
    pod.sh("ip link set lo up");
    let result = dummy(&lab, &pod).add().ok_result();
    assert_eq!(ips(&result), ["10.1.2.2/24", "fd00:1:2::2/64"]);
    assert_eq!(pod.addresses("eth0"), ["10.1.2.2/24", "fd00:1:2::2/64"]);
    let link = pod.link("eth0").unwrap();
    let interface = container_interface(&result);
    assert_eq!((&interface["name"], &interface["mac"]), (&json!("eth0"), &link["address"]));
    assert_eq!(link["linkinfo"]["info_kind"], "dummy");
    assert!(pod.reaches("10.1.2.2") && pod.reaches("fd00:1:2::2"));
}

#[test]
fn udev_does_not_replace_its_mac() {
    beyond_reference!("dummy");
    needs!(Dummy);
    let lab = Lab::new();
    let pod = lab.container("pod");
    udev_replaces_no_mac(&lab, &dummy(&lab, &pod), &pod);
}

#[test]
fn nothing_is_left_after_del_and_a_second_del_succeeds() {
    beyond_reference!("dummy");
    needs!(Dummy);
    let lab = Lab::new();
    let [a, b] = ["a", "b"].map(|id| lab.container(id));
    dummy(&lab, &b).add().ok_result();
    let before = lab.snapshot();
    dummy(&lab, &a).add().ok_result();
    for _ in 0..2 {
        dummy(&lab, &a).del().ok();
        lab.snapshot().assert_same(&before);
    }
    dummy(&lab, &b).env("CNI_NETNS", "/run/netns/gone").del().ok();
    assert!(leases().is_empty());
}

#[test]
fn gc_deletes_the_dummy_of_an_attachment_in_the_hosts_namespace() {
    beyond_reference!("dummy");
    needs!(Dummy);
    let lab = Lab::new();
    let call = lab.plugin("dummy").config(json!({"ipam": host_local(&[&["10.1.2.0/24"]])}));
    gc_deletes_an_interface_in_the_hosts_namespace(&lab, call.clone(), call);
}

#[test]
fn mtu_and_mac_are_as_configured() {
    beyond_reference!("dummy");
    needs!(Dummy);
    let lab = Lab::new();
    let pod = lab.container("pod");
    let keys = json!({"mtu": 1400, "mac": "02:00:00:00:00:aa", "dns": {"nameservers": ["10.1.0.53"]}});
    let result = dummy(&lab, &pod).config(keys).add().ok_result();
    let link = pod.link("eth0").unwrap();
    assert_eq!((&link["mtu"], &link["address"]), (&json!(1400), &json!("02:00:00:00:00:aa")));
    assert_eq!(result["dns"]["nameservers"], json!(["10.1.0.53"]));
}

#[test]
fn check_reports_changes() {
    beyond_reference!("dummy");
    needs!(Dummy);
    let lab = Lab::new();
    let pod = lab.container("pod");
    let mut ipam = host_local(&[&["10.1.2.0/24"]]);
    ipam["routes"] = json!([{"dst": "10.9.0.0/16"}]);
    let call = dummy(&lab, &pod).config(json!({"ipam": ipam, "mtu": 1400}));
    let result = call.add().ok_result();
    call.check(&result).ok();
    pod.sh("ip link set eth0 mtu 1300");
    call.check(&result).refused(999, "MTU is 1300");
    pod.sh("ip link set eth0 mtu 1400");
    call.check(&result).ok();
    pod.sh("ip route del 10.9.0.0/16");
    call.check(&result).refused(999, "10.9.0.0/16");
    pod.sh("ip link set eth0 down");
    call.check(&result).refused(999, "down");
}

#[test]
fn an_existing_name_is_refused_and_del_keeps_its_owner() {
    beyond_reference!("dummy");
    let lab = Lab::new();
    let pod = lab.container("pod");
    pod.sh("ip link add eth0 type veth peer name other");
    let call = dummy(&lab, &pod).config(json!({"ipam": null}));
    let before = lab.snapshot();
    // A kernel without dummies refuses it first.
    if lab::Feature::Dummy.is_there() {
        call.add().refused(4, "CNI_IFNAME eth0");
    }
    call.del().ok();
    lab.snapshot().assert_same(&before);
}

#[test]
fn without_dummies_in_the_kernel_the_error_says_so_and_nothing_is_left() {
    beyond_reference!("dummy");
    if lab::skip_with(lab::Feature::Dummy) {
        return;
    }
    let lab = Lab::new();
    let pod = lab.container("pod");
    let before = lab.snapshot();
    dummy(&lab, &pod).add().refused(999, "modprobe dummy");
    dummy(&lab, &pod).status().refused(50, "modprobe dummy");
    lab.snapshot().assert_same(&before);
}

#[test]
fn without_ipam_it_is_up_and_empty() {
    beyond_reference!("dummy");
    needs!(Dummy);
    let lab = Lab::new();
    let pod = lab.container("pod");
    let result = dummy(&lab, &pod).config(json!({"ipam": null})).add().ok_result();
    assert!(ips(&result).is_empty());
    assert!(pod.link("eth0").unwrap()["flags"].as_array().unwrap().contains(&json!("UP")));
}
