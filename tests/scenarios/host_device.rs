//! host-device: moves a device of the host into a container and back, whatever happens in between.

mod at_the_same_time;
mod physical;

use std::fs;

use lab::{Call, Container, Lab, Netns, Release, beyond_reference, injecting, needs, under_test};
use serde_json::{Value, json};

use crate::common::{
    a_taken_name_is_refused, container_interface, host_local, ignores_routers_before_it_is_up, ips, is_up,
    leases,
};

/// A device of the host, up and with an administrator's alias, and its peer.
const CABLE: &str =
    "ip link add dev0 type veth peer name far0; ip link set far0 up; ip link set dev0 up alias storage";

/// Its record for the container `pod`.
const RECORD: &str = "/run/cni/host-device/pod~eth0.json";

/// Its record for a container.
fn record_of(id: &str) -> String {
    format!("/run/cni/host-device/{id}~eth0.json")
}

/// dev0 for a container.
pub fn of_cable(lab: &Lab, pod: &Container) -> Call {
    lab.host().sh(CABLE);
    let ipam = host_local(&[&["10.1.2.0/24"], &["fd00:1:2::/64"]]);
    lab.plugin("host-device").version("1.1.0").config(json!({"device": "dev0", "ipam": ipam})).on(pod)
}

/// The same without addresses.
fn bare(lab: &Lab, pod: &Container) -> Call {
    of_cable(lab, pod).config(json!({"ipam": null}))
}

fn alias(netns: &Netns, name: &str) -> Value {
    netns.link(name).unwrap_or_else(|| panic!("{:?} has no {name}", netns.link_names()))["ifalias"].clone()
}

/// Asserts that dev0 is on the host as before.
fn assert_home(lab: &Lab) {
    assert_eq!(alias(lab.host(), "dev0"), "storage");
    assert!(is_up(lab.host(), "dev0"));
}

/// Does what the kernel does when it destroys a container's namespace, which it does only with physical devices.
fn dies(pod: &Container, name: &str) {
    pod.sh(&format!("ip link set eth0 netns host name {name}"));
    pod.vanish();
}

#[test]
fn the_container_reaches_the_devices_peer() {
    let lab = Lab::new();
    lab.machine("server");
    let pod = lab.container("pod");
    let ipam = json!({"type": "host-local", "ranges": [
        [{"subnet": "198.51.100.0/24", "rangeStart": "198.51.100.100"}],
        [{"subnet": "2001:db8:51::/64", "rangeStart": "2001:db8:51::100"}],
    ]});
    let call = lab.plugin("host-device").config(json!({"device": "uplink", "ipam": ipam})).on(&pod);
    let mac = lab.host().link("uplink").unwrap()["address"].clone();
    let result = call.add().ok_result();
    assert_eq!(ips(&result), ["198.51.100.100/24", "2001:db8:51::100/64"]);
    assert!(pod.reaches("198.51.100.2") && pod.reaches("2001:db8:51::2"));
    let interface = container_interface(&result);
    assert_eq!((&interface["name"], &interface["mac"]), (&json!("eth0"), &mac));
    assert_eq!(alias(&pod, "eth0"), "uplink", "the reference finds its name there, too");
    assert!(!lab.host().link_names().contains(&"uplink".to_owned()));
    call.check(&result).ok();
    call.del().ok();
    assert!(lab.host().link("uplink").is_some() && pod.link_names().is_empty());
}

#[test]
fn the_device_returns_unchanged_and_a_second_del_succeeds() {
    beyond_reference!("way-home");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = of_cable(&lab, &pod);
    let other = lab.plugin("host-local").config(json!({"ipam": host_local(&[&["10.1.2.0/24"]])}));
    other.env("CNI_CONTAINERID", "other").env("CNI_NETNS", "/run/netns/other").add().ok_result();
    let before = lab.snapshot();
    call.add().ok_result();
    assert!(is_up(&pod, "eth0"));
    for _ in 0..2 {
        call.del().ok();
        lab.snapshot().assert_same(&before);
    }
}

#[test]
fn a_device_that_was_down_returns_down() {
    beyond_reference!("way-home");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = bare(&lab, &pod);
    lab.host().sh("ip link set dev0 down alias ''");
    let before = lab.snapshot();
    let result = call.add().ok_result();
    assert!(is_up(&pod, "eth0") && ips(&result).is_empty());
    call.del().ok();
    lab.snapshot().assert_same(&before);
}

#[test]
fn an_add_that_fails_leaves_the_device_as_it_was() {
    beyond_reference!("rollback");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let full = json!({"type": "host-local", "ranges": [[{"subnet": "10.1.2.0/30"}]]});
    let call = of_cable(&lab, &pod).config(json!({"ipam": full}));
    lab.host().sh("ip link add br0 type bridge; ip link set dev0 master br0");
    let mut other = lab.plugin("host-local").config(json!({"ipam": full}));
    other = other.env("CNI_CONTAINERID", "other").env("CNI_NETNS", "/run/netns/other");
    other.add().ok_result();
    let before = lab.snapshot();
    let failed = call.add();
    assert!(failed.stderr.contains("dev0 is a port of a bridge"), "{failed:?}");
    failed.refused(999, "no IP addresses available");
    lab.snapshot().assert_same(&before);
}

#[test]
fn a_device_returns_to_the_host_even_if_its_name_exists_there() {
    beyond_reference!("way-home");
    let lab = Lab::new();
    let pod = lab.container("pod");
    for is_renamed in [false, true] {
        let call = bare(&lab, &pod);
        lab.host().sh("ip link set dev0 address 02:00:00:00:00:07 mtu 1450");
        call.add().ok_result();
        pod.sh("ip link set eth0 address 02:00:00:00:00:99 mtu 1400");
        lab.host().sh("ip link add dev0 type bridge");
        let gone = call.del();
        gone.ok();
        assert!(gone.stderr.contains("already has an interface dev0"), "{gone:?}");
        let link = lab.host().link("dev1").unwrap();
        assert_eq!(
            (&link["ifalias"], &link["address"], &link["mtu"]),
            (&json!("dev0"), &json!("02:00:00:00:00:07"), &json!(1450))
        );
        lab.host().sh("ip link del dev0");
        if is_renamed {
            // The command of docs/host-device.md.
            lab.host().sh("ip link set dev dev1 name dev0");
        }
        call.gc(&[]).ok();
        // Its name is free now.
        assert_home(&lab);
        lab.host().sh("ip link del dev0");
    }
}

/// Asserts that DEL leaves a device with the MAC that its lower device has got meanwhile, as by a fail-over of a bond. `change` is the
/// container's.
fn assert_it_has_the_new_mac_of_its_lower_device(kind: &str, change: &str) {
    let lab = Lab::new();
    let pod = lab.container("pod");
    lab.host().sh(&format!(
        "ip link add cable address 02:00:00:00:00:07 type veth peer name far
         ip link set far up; ip link set cable up
         ip link add dev0 link cable type {kind}; ip link set dev0 up alias storage"
    ));
    let call = lab.plugin("host-device").version("1.1.0").config(json!({"device": "dev0"})).on(&pod);
    call.add().ok_result();
    lab.host().sh("ip link set cable address 02:00:00:00:00:08");
    pod.sh(change);
    call.del().ok();
    assert_home(&lab);
    for link in ["cable", "dev0"] {
        assert_eq!(lab.host().link(link).unwrap()["address"], "02:00:00:00:00:08", "{link} {change}");
    }
}

#[test]
fn a_macvlan_in_passthru_mode_does_not_set_an_old_mac_on_its_lower_device() {
    needs!(Macvlan);
    beyond_reference!("way-home");
    assert_it_has_the_new_mac_of_its_lower_device("macvlan mode passthru", "");
}

#[test]
fn a_vlan_has_the_new_mac_of_its_lower_device_after_del() {
    needs!(Vlan);
    beyond_reference!("way-home");
    for change in ["", "ip link set eth0 address 02:00:00:00:00:99"] {
        assert_it_has_the_new_mac_of_its_lower_device("vlan id 5", change);
    }
}

#[test]
fn a_failed_add_keeps_the_devices_record_until_its_name_is_restored() {
    beyond_reference!("rollback");
    let lab = Lab::new();
    let pod = lab.container("pod");
    lab.fake_plugin(
        "refuser",
        r#"ip link add dev0 type bridge; echo '{"cniVersion": "1.0.0", "code": 11, "msg": "later"}'; exit 1"#,
    );
    let call = bare(&lab, &pod);
    call.clone().config(json!({"ipam": {"type": "refuser"}})).add().refused(11, "later");
    assert_eq!(alias(lab.host(), "dev1"), "dev0");
    lab.host().sh("ip link del dev0");
    call.gc(&[]).ok();
    assert_home(&lab);
}

#[test]
fn its_addresses_and_routes_are_moved_with_it_and_return_with_it() {
    beyond_reference!("way-home");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = of_cable(&lab, &pod).config(json!({"useInterfaceNetwork": true}));
    // As in clouds: only the router is in the subnet, and everything else is behind it.
    lab.host().sh("ip addr add 192.0.2.7/32 dev dev0; ip -6 addr add 2001:db8::7/64 dev dev0 nodad
                   ip route add 192.0.2.1 dev dev0; ip route add 203.0.113.0/24 via 192.0.2.1 dev dev0 mtu 1400 metric 5
                   ip route add 198.18.0.0/15 via 192.0.2.1 dev dev0 table 100
                   ip -6 route add 2001:db8:9::/48 via 2001:db8::1 dev dev0");
    let other = lab.plugin("host-local").config(json!({"ipam": host_local(&[&["10.1.2.0/24"]])}));
    other.env("CNI_CONTAINERID", "other").env("CNI_NETNS", "/run/netns/other").add().ok_result();
    let before = lab.snapshot();
    let result = call.add().ok_result();
    assert_eq!(ips(&result), ["10.1.2.3/24", "fd00:1:2::2/64", "192.0.2.7/32", "2001:db8::7/64"]);
    let has = |command: &str, line: &str| {
        let routes = pod.sh(command);
        assert!(routes.contains(line), "{line} in\n{routes}");
    };
    has("ip route", "192.0.2.1 dev eth0 scope link");
    has("ip route", "203.0.113.0/24 via 192.0.2.1 dev eth0 metric 5 mtu 1400");
    has("ip route show table 100", "198.18.0.0/15 via 192.0.2.1 dev eth0");
    has("ip -6 route", "2001:db8:9::/48 via 2001:db8::1 dev eth0");
    call.check(&result).ok();
    pod.sh("ip route change 203.0.113.0/24 via 192.0.2.1 dev eth0 metric 5");
    call.check(&result).refused(999, "mtu of the route to 203.0.113.0/24 is none");
    pod.sh("ip route del 203.0.113.0/24 metric 5");
    call.check(&result).refused(999, "203.0.113.0/24");
    for _ in 0..2 {
        call.del().ok();
        lab.snapshot().assert_same(&before);
    }
}

/// NetworkManager adds the routes to subnets itself, with a metric for each device.
#[test]
fn addresses_without_the_kernels_route_return_with_the_route_of_the_network_manager() {
    beyond_reference!("way-home");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = bare(&lab, &pod).config(json!({"useInterfaceNetwork": true}));
    lab.host().sh("ip addr add 192.0.2.7/24 dev dev0 noprefixroute
                   ip route add 192.0.2.0/24 dev dev0 proto kernel scope link src 192.0.2.7 metric 101
                   ip route add default via 192.0.2.1 dev dev0 proto static metric 101
                   ip -6 addr add 2001:db8::7/64 dev dev0 nodad noprefixroute
                   ip -6 route add 2001:db8::/64 dev dev0 proto kernel metric 101
                   ip -6 route add default via 2001:db8::1 dev dev0 proto static metric 101");
    let before = lab.snapshot();
    let result = call.add().ok_result();
    let destinations: Vec<_> =
        result["routes"].as_array().unwrap().iter().map(|route| &route["dst"]).collect();
    assert_eq!(destinations, ["0.0.0.0/0", "::/0"]);
    assert!(pod.sh("ip route").contains("192.0.2.0/24 dev eth0 proto kernel"));
    call.check(&result).ok();
    call.del().ok();
    lab.snapshot().assert_same(&before);
}

#[test]
fn a_record_with_hundreds_of_routes_is_no_obstacle_to_its_own_device_and_to_others() {
    beyond_reference!("way-home");
    let lab = Lab::new();
    let [pod, b] = ["pod", "b"].map(|id| lab.container(id));
    let call = bare(&lab, &pod).config(json!({"useInterfaceNetwork": true}));
    let routes: String =
        (0..200).map(|n| format!("route add 10.77.{n}.0/24 via 192.0.2.254 dev dev0\n")).collect();
    fs::write("/run/lab/routes", routes).unwrap();
    lab.host().sh("ip addr add 192.0.2.7/24 dev dev0; ip -batch /run/lab/routes
                   ip link add dev1 type veth peer name far1; ip link set far1 up");
    let other = lab.plugin("host-device").version("1.1.0").config(json!({"device": "dev1"})).on(&b);
    let before = lab.snapshot();
    for is_of_earlier_version in [false, true] {
        let result = call.add().ok_result();
        assert_eq!(result["routes"].as_array().unwrap().len(), 200);
        if is_of_earlier_version {
            let record: Value = serde_json::from_slice(&fs::read(RECORD).unwrap()).unwrap();
            fs::write(RECORD, serde_json::to_string_pretty(&record).unwrap()).unwrap();
            assert!(fs::metadata(RECORD).unwrap().len() > 64 << 10);
        }
        other.add().ok_result();
        other.del().ok();
        call.del().ok();
        lab.snapshot().assert_same(&before);
    }
}

#[test]
fn expiring_addresses_from_a_router_are_not_moved() {
    beyond_reference!("way-home");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = bare(&lab, &pod).config(json!({"useInterfaceNetwork": true}));
    lab.host().sh("ip -6 addr add 2001:db8::7/64 dev dev0 nodad valid_lft 3600 preferred_lft 3600
                   ip addr add 192.0.2.7/24 dev dev0 valid_lft 3600 preferred_lft 3600
                   ip -6 route add default via fe80::1 dev dev0 proto ra");
    let result = call.add().ok_result();
    assert_eq!(ips(&result), ["192.0.2.7/24"]);
    assert!(pod.sh("ip -4 addr show dev eth0").contains("valid_lft forever"), "no program renews it there");
    assert_eq!((&result["routes"], pod.sh("ip -6 route show default").as_str()), (&Value::Null, ""));
    call.del().ok();
    let address = lab.host().sh("ip -4 addr show dev dev0");
    assert!(address.contains("192.0.2.7/24") && !address.contains("valid_lft forever"), "{address}");
    assert_eq!(lab.host().sh("ip -6 route show default"), "");
}

#[test]
fn of_a_multipath_route_the_container_gets_the_next_hop_through_the_device() {
    beyond_reference!("way-home");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = bare(&lab, &pod).config(json!({"useInterfaceNetwork": true}));
    lab.host().sh("ip link add dev1 type veth peer name far1; ip link set far1 up; ip link set dev1 up
                   ip addr add 192.0.2.7/24 dev dev0; ip addr add 198.18.0.7/24 dev dev1
                   ip route add 203.0.113.0/24 nexthop via 198.18.0.1 dev dev1 nexthop via 192.0.2.1 dev dev0");
    let result = call.add().ok_result();
    assert_eq!(result["routes"], json!([{"dst": "203.0.113.0/24", "gw": "192.0.2.1"}]));
    assert!(pod.routes().contains(&"203.0.113.0/24 via 192.0.2.1 dev eth0".to_owned()), "{:?}", pod.routes());
    call.check(&result).ok();
}

#[test]
fn a_device_that_was_down_returns_down_with_its_addresses() {
    beyond_reference!("way-home");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = bare(&lab, &pod).config(json!({"useInterfaceNetwork": true}));
    lab.host().sh("ip link set dev0 down; ip addr add 192.0.2.7/24 dev dev0; ip -6 addr add 2001:db8::7/64 dev dev0 nodad");
    let before = lab.snapshot();
    assert_eq!(ips(&call.add().ok_result()), ["192.0.2.7/24", "2001:db8::7/64"]);
    call.del().ok();
    lab.snapshot().assert_same(&before);
}

#[test]
fn a_port_of_a_bridge_is_its_port_again() {
    beyond_reference!("way-home");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = bare(&lab, &pod);
    lab.host().sh("ip link add br0 type bridge; ip link set dev0 master br0");
    let before = lab.snapshot();
    call.add().ok_result();
    // Otherwise the bridge, too, would have the smaller MTU.
    pod.sh("ip link set eth0 address 02:00:00:00:00:99 mtu 1300");
    call.del().ok();
    lab.snapshot().assert_same(&before);
    // The bridge may have been deleted.
    call.add().ok_result();
    lab.host().sh("ip link del br0");
    call.del().ok();
    assert_home(&lab);
}

#[test]
fn an_alternative_name_selects_the_device_also_without_its_record() {
    beyond_reference!("way-home");
    const LONG: &str = "enp101s0f0np0v12345";
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = bare(&lab, &pod).config(json!({"device": LONG}));
    lab.host().sh(&format!("ip link property add dev dev0 altname {LONG}"));
    let before = lab.snapshot();
    let result = call.add().ok_result();
    assert_eq!(alias(&pod, "eth0"), "dev0");
    call.check(&result).ok();
    call.del().ok();
    lab.snapshot().assert_same(&before);

    // An administrator's alias is no name to restore, although the kernel names a device that it moves back `devN` or as in the container.
    for state in ["up", "down"] {
        lab.host()
            .sh(&format!("ip link set dev0 down; ip link set dev0 name eth0; ip link set eth0 {state}"));
        call.add().ok_result();
        call.del().ok();
        assert_eq!(alias(lab.host(), "eth0"), "storage");
        lab.host().sh("ip link set eth0 down; ip link set eth0 name dev0");
    }

    // The reference writes no record. 1.1.1 does not find a device by this name.
    if Release::V1_9_1.is_here() {
        call.clone().by_release(Release::V1_9_1).add().ok_result();
        assert!(pod.link("eth0").is_some() && fs::metadata(RECORD).is_err());
        call.del().ok();
        assert!(lab.host().link("dev0").is_some() && pod.link_names().is_empty());
    }
}

#[test]
fn a_device_returns_even_if_its_alternative_name_exists_on_the_host() {
    beyond_reference!("way-home");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = bare(&lab, &pod);
    lab.host().sh("ip link property add dev dev0 altname disk0; ip link property add dev dev0 altname rack7");
    call.add().ok_result();
    lab.host().sh("ip link add disk0 type bridge");
    let gone = call.del();
    gone.ok();
    assert_home(&lab);
    // Before Linux 6.6, both have it.
    let names = lab.host().link("dev0").unwrap()["altnames"].clone();
    assert!(names.as_array().unwrap().contains(&json!("rack7")), "{names}");
}

#[test]
fn an_alternative_name_that_exists_in_the_container_is_reported() {
    beyond_reference!("way-home");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = bare(&lab, &pod);
    lab.host().sh("ip link property add dev dev0 altname disk0");
    pod.sh("ip link add disk0 type bridge");
    let before = lab.snapshot();
    let added = call.add();
    if added.exit != Some(0) {
        added.refused(999, "disk0");
    } else {
        // Before Linux 6.6, this is not an error.
        call.del().ok();
    }
    lab.snapshot().assert_same(&before);
}

#[test]
fn records_of_two_attachments_are_two_files() {
    beyond_reference!("way-home");
    let lab = Lab::new();
    let [a, b] = ["a_b", "a"].map(|id| lab.container(id));
    let call = bare(&lab, &a).ifname("c");
    lab.host().sh("ip link add dev1 type veth peer name far1; ip link set dev1 up alias backup");
    call.add().ok_result();
    let other = call.clone().on(&b).ifname("b_c").config(json!({"device": "dev1"}));
    other.add().ok_result();
    call.del().ok();
    assert_home(&lab);
    other.del().ok();
    assert_eq!(alias(lab.host(), "dev1"), "backup");
}

#[test]
fn a_device_that_cannot_be_set_up_returns_to_the_host_nevertheless() {
    beyond_reference!("way-home");
    let lab = Lab::new();
    let pod = lab.container("pod");
    lab.host().sh("ip link add cable type veth peer name far; ip link set cable up");
    let macvlan = |name: &str| {
        format!("ip link add {name} link cable address 02:00:00:00:00:07 type macvlan; ip link set {name} up")
    };
    lab.host().sh(&macvlan("dev0"));
    lab.host().sh("ip link set dev0 alias storage");
    let call = lab.plugin("host-device").version("1.1.0").config(json!({"device": "dev0"})).on(&pod);
    call.add().ok_result();
    pod.sh("ip link set eth0 down");
    // A second macvlan with its MAC: the kernel sets only one of them up.
    lab.host().sh(&macvlan("other"));
    let gone = call.del();
    gone.ok();
    assert!(gone.stderr.contains("dev0 is back in the host, but stays down"), "{gone:?}");
    assert_eq!(alias(lab.host(), "dev0"), "storage");
    call.del().ok();
}

#[test]
fn a_device_that_the_container_renamed_is_found() {
    beyond_reference!("way-home");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = bare(&lab, &pod);
    let changes = ["ip link set eth0 name wan", "ip link set eth0 name wan alias ''"];
    for changed in changes {
        call.add().ok_result();
        pod.sh("ip link set eth0 down");
        pod.sh(changed);
        pod.sh("ip link add eth0 type bridge");
        call.del().ok();
        assert_home(&lab);
        assert_eq!(pod.link_names(), ["eth0"], "the bridge is the container's own");
        pod.sh("ip link del eth0");
    }
}

/// With CAP_NET_ADMIN, a container creates interfaces, and changes MACs and aliases.
#[test]
fn an_interface_that_the_container_created_is_not_moved_to_the_host() {
    beyond_reference!("way-home");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = bare(&lab, &pod);
    lab.host().sh("ip link set dev0 address 02:00:00:00:00:07; ip link add br0 type bridge; ip link set dev0 master br0");
    let imitate =
        "ip link add f0 address 02:00:00:00:00:07 type veth peer name f1; ip link set f0 alias dev0";
    call.add().ok_result();
    pod.sh(&format!("ip link set eth0 down address 02:00:00:00:00:99 alias mine; {imitate}"));
    call.del().ok();
    assert_home(&lab);
    assert_eq!(lab.host().link("dev0").unwrap()["address"], "02:00:00:00:00:07");
    pod.sh("ip link del f0");

    call.add().ok_result();
    pod.sh(&format!("ip link del eth0; {imitate}"));
    call.del().ok();
    assert!(lab.host().link("dev0").is_none());
    assert_eq!(alias(&pod, "f0"), "dev0");
}

#[test]
fn a_veth_returns_although_its_other_end_has_left_the_host() {
    beyond_reference!("way-home");
    for is_attached in [false, true] {
        let lab = Lab::new();
        let [pod, router] = ["pod", "router"].map(|id| lab.container(id));
        let call = bare(&lab, &pod);
        call.add().ok_result();
        if is_attached {
            call.clone().on(&router).config(json!({"name": "cables", "device": "far0"})).add().ok_result();
        } else {
            lab.host().sh(&format!("ip link set far0 netns {}", router.path().display()));
        }
        pod.sh("ip link set eth0 down; ip link set eth0 name wan");
        call.del().ok();
        assert_home(&lab);
    }
}

/// Also if it has a second namespace, for the other end of the imitation.
#[test]
fn a_device_that_the_container_has_moved_on_is_not_replaced_by_an_imitation() {
    beyond_reference!("way-home");
    let lab = Lab::new();
    let [pod, second] = ["pod", "second"].map(|id| lab.container(id));
    let call = bare(&lab, &pod);
    lab.host().sh("ip link set dev0 address 02:00:00:00:00:07");
    call.add().ok_result();
    pod.sh(&format!(
        "ip link set eth0 netns {0}
         ip link add f0 address 02:00:00:00:00:07 type veth peer name f1 netns {0}; ip link set f0 alias dev0",
        second.path().display()
    ));
    call.del().ok();
    assert!(lab.host().link("dev0").is_none());
    assert_eq!(alias(&pod, "f0"), "dev0");
}

/// VLANs of one card have one MAC, and channels of a CAN card have none.
#[test]
fn a_del_that_names_another_containers_namespace_does_not_take_its_device_with_the_same_mac() {
    beyond_reference!("way-home");
    let lab = Lab::new();
    let [a, b] = ["a", "b"].map(|id| lab.container(id));
    for device in ["ifb5", "ifb6"] {
        lab.host().sh(&format!("ip link add {device} address 02:00:00:00:00:07 type ifb"));
    }
    let of = |device: &str, pod: &Container| {
        lab.plugin("host-device").version("1.1.0").config(json!({"device": device})).on(pod)
    };
    let (of_a, of_b) = (of("ifb5", &a), of("ifb6", &b));
    let start = lab.snapshot();
    of_a.add().ok_result();
    of_b.add().ok_result();
    let before = lab.snapshot();
    of_a.clone().env("CNI_NETNS", b.path().to_str().unwrap()).del().ok();
    lab.snapshot().assert_same(&before);
    of_a.del().ok();
    of_b.del().ok();
    lab.snapshot().assert_same(&start);
}

#[test]
fn a_repeated_del_leaves_an_interface_of_the_container_with_the_devices_mac_and_alias() {
    beyond_reference!("way-home");
    for selector in [json!({}), json!({"device": null, "hwaddr": "02:00:00:00:00:07"})] {
        let lab = Lab::new();
        let pod = lab.container("pod");
        let call = bare(&lab, &pod).config(selector);
        lab.host().sh("ip link set dev0 address 02:00:00:00:00:07");
        call.add().ok_result();
        call.del().ok();
        pod.sh(
            "ip link add eth0 address 02:00:00:00:00:07 type veth peer name f1; ip link set eth0 alias dev0",
        );
        let before = lab.snapshot();
        call.del().ok();
        lab.snapshot().assert_same(&before);
    }
}

/// With a MAC as the selector, any alias could be the device's name. The first DEL has deleted the record.
#[test]
fn a_repeated_del_leaves_an_interface_of_the_container_with_the_listed_mac_and_the_name_of_no_device() {
    beyond_reference!("way-home");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = bare(&lab, &pod);
    lab.host().sh("ip link set dev0 address 02:00:00:00:00:07");
    for mac in ["02:00:00:00:00:07", "02:00:00:00:00:08"] {
        let call = call.clone().config(json!({"prevResult": call.add().ok_result()}));
        call.del().ok();
        pod.sh(&format!(
            "ip link add eth0 address {mac} type veth peer name f1; ip link set eth0 alias cuckoo"
        ));
        let before = lab.snapshot();
        call.del().ok();
        lab.snapshot().assert_same(&before);
        pod.sh("ip link del eth0");
    }
}

/// The result for a device with a userspace driver has no MAC, and there is no record.
#[test]
fn del_of_a_device_without_interface_leaves_an_interface_that_the_container_has_created() {
    beyond_reference!("way-home");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let result = json!({
        "cniVersion": "1.1.0", "ips": [],
        "interfaces": [{"name": "eth0", "sandbox": pod.netns.path(), "pciID": "0000:3b:02.5"}],
    });
    let by_address = json!({"device": null, "pciBusID": "0000:3b:02.5", "prevResult": result});
    pod.sh("ip link add eth0 type veth peer name f1; ip link set eth0 alias cuckoo");
    let call = bare(&lab, &pod).config(by_address);
    let before = lab.snapshot();
    call.del().ok();
    lab.snapshot().assert_same(&before);
}

/// The kernel has deleted the virtual device with the namespace.
#[test]
fn del_and_gc_leave_an_administrators_interface_whose_alias_is_the_name_of_a_deleted_device() {
    beyond_reference!("way-home");
    for down in ["", "ip link set spare down"] {
        let lab = Lab::new();
        let pod = lab.container("dead-with-device");
        let call = bare(&lab, &pod);
        call.add().ok_result();
        pod.vanish();
        lab.host().wait_until("the device is deleted", |host| host.link("far0").is_none());
        lab.host().sh(&format!("ip link add spare type bridge; ip link set spare alias dev0 up; {down}"));
        let spare = || lab.host().sh("ip -o link show spare");
        let before = spare();
        if down.is_empty() {
            call.del().ok()
        } else {
            call.gc(&[]).ok()
        }
        assert_eq!(spare(), before);
    }
}

#[test]
fn two_devices_whose_aliases_the_container_has_swapped_return_with_their_own_names() {
    beyond_reference!("way-home");
    for kind in ["type veth peer name farN", "link cable type macvlan"] {
        let lab = Lab::new();
        lab.host().sh("ip link add cable type veth peer name far");
        let pod = lab.container("pod");
        let calls = ["1", "2"].map(|n| {
            let device = format!("dev{n}");
            let kind = kind.replace('N', n);
            lab.host().sh(&format!("ip link add {device} address 02:00:00:00:00:0{n} {kind}"));
            let keys = json!({"name": device, "device": device});
            lab.plugin("host-device").version("1.1.0").config(keys).on(&pod).ifname(&format!("net{n}"))
        });
        calls.iter().for_each(|call| drop(call.add().ok_result()));
        pod.sh("ip link set net1 alias dev2; ip link set net2 alias dev1");
        calls.iter().for_each(|call| call.del().ok());
        for n in ["1", "2"] {
            let device = lab.host().link(&format!("dev{n}")).expect("it is on the host");
            assert_eq!(device["address"], format!("02:00:00:00:00:0{n}"));
        }
    }
}

#[test]
fn a_device_returns_even_if_its_record_cannot_be_read() {
    beyond_reference!("way-home");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = bare(&lab, &pod);
    call.add().ok_result();
    lab.host().sh("mv /run/cni/host-device /run/cni/away; touch /run/cni/host-device");
    call.del().refused(5, "/run/cni/host-device");
    assert!(lab.host().link("dev0").is_some());
    lab.host().sh("rm /run/cni/host-device; mv /run/cni/away /run/cni/host-device");
    call.del().ok();
    assert_home(&lab);
}

#[test]
fn a_loopback_interface_is_refused_and_the_containers_own_stays_up() {
    beyond_reference!("rollback");
    let lab = Lab::new();
    let pod = lab.container("pod");
    pod.sh("ip link set lo up");
    let call = bare(&lab, &pod).config(json!({"device": "lo"}));
    let before = lab.snapshot();
    call.add().refused(7, "device lo: a loopback interface cannot be moved to another namespace");
    lab.snapshot().assert_same(&before);
    call.del().ok();
    lab.snapshot().assert_same(&before);
}

#[test]
fn del_removes_the_record_of_a_loopback_interface_that_an_earlier_version_could_not_move() {
    beyond_reference!("rollback");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = bare(&lab, &pod).config(json!({"device": "lo"}));
    let record = json!({"device": "lo", "up": true, "mac": "00:00:00:00:00:00", "network": "net", "netns": pod.path()});
    let without_record = call.clone().ifname("lo");
    for (del, has_record) in
        [(&call, true), (&call.clone().env("CNI_NETNS", ""), true), (&without_record, false)]
    {
        fs::create_dir_all("/run/cni/host-device").unwrap();
        if has_record {
            fs::write(RECORD, record.to_string()).unwrap();
        }
        pod.sh("ip link set lo down alias lo");
        del.del().ok();
        assert!(alias(&pod, "lo") == "lo" && !fs::exists(RECORD).unwrap(), "{del:?}");
    }
}

#[test]
fn a_device_that_the_kernel_does_not_move_is_not_looked_for_in_the_container() {
    beyond_reference!("rollback");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = bare(&lab, &pod).config(json!({"device": "br7"}));
    lab.host().sh("ip link add br7 type bridge");
    pod.sh("ip link add own type bridge; ip link set own up alias br7");
    let before = lab.snapshot();
    call.add().refused(7, "the kernel cannot move a bridge");
    lab.snapshot().assert_same(&before);
    call.del().ok();
    lab.snapshot().assert_same(&before);
}

#[test]
fn its_name_may_exist_in_the_container() {
    beyond_reference!("way-home");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = bare(&lab, &pod);
    pod.sh("ip link add dev0 type bridge");
    let before = lab.snapshot();
    call.add().ok_result();
    call.del().ok();
    lab.snapshot().assert_same(&before);
}

#[test]
fn after_the_namespaces_deletion_the_kernels_name_is_replaced_by_the_original_one() {
    beyond_reference!("way-home");
    for (name, selector) in [("eth0", json!({})), ("dev7", json!({})), ("eth0", json!({"device": null}))] {
        let lab = Lab::new();
        let pod = lab.container("loses-device");
        let call = bare(&lab, &pod);
        call.add().ok_result();
        dies(&pod, name);
        call.config(selector).without("CNI_NETNS").del().ok();
        assert_home(&lab);
    }
}

#[test]
fn gc_returns_devices_of_dead_containers_and_of_existing_ones() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let pod = lab.container("holds-device");
    let call = bare(&lab, &pod);
    call.add().ok_result();
    call.gc(&[("holds-device", "eth0")]).ok();
    assert!(pod.link("eth0").is_some(), "it is valid");
    call.clone().config(json!({"name": "another"})).gc(&[]).ok();
    assert!(pod.link("eth0").is_some(), "it is another network's");
    call.gc(&[]).ok();
    assert_home(&lab);
    call.add().ok_result();
    dies(&pod, "eth0");
    call.gc(&[]).ok();
    assert_home(&lab);
}

#[test]
fn the_next_container_gets_a_device_whose_container_died() {
    beyond_reference!("way-home");
    for selector in [json!({}), json!({"device": null, "hwaddr": "02:00:00:00:00:07"})] {
        let lab = Lab::new();
        let [a, b] = ["former-holder", "b"].map(|id| lab.container(id));
        let call = bare(&lab, &a);
        lab.host().sh("ip link set dev0 address 02:00:00:00:00:07");
        call.add().ok_result();
        dies(&a, "eth0");
        call.clone().on(&b).config(selector).add().ok_result();
        assert_eq!(alias(&b, "eth0"), "dev0");
        call.on(&b).del().ok();
        assert_home(&lab);
    }
}

#[test]
fn a_dead_container_that_has_changed_alias_and_mac_does_not_choose_the_name_of_the_device() {
    beyond_reference!("way-home");
    for change in ["alias ''", "alias docker9", "alias docker9 address 02:00:00:00:00:99"] {
        for command in ["DEL", "GC", "GC of another network", "ADD"] {
            let lab = Lab::new();
            let [a, b] = ["alias-changer", "b"].map(|id| lab.container(id));
            let of_a = bare(&lab, &a);
            of_a.add().ok_result();
            a.sh(&format!("ip link set eth0 down {change}"));
            dies(&a, "eth0");
            match command {
                "DEL" => of_a.without("CNI_NETNS").del().ok(),
                "GC" => of_a.gc(&[]).ok(),
                "GC of another network" => of_a.config(json!({"name": "another"})).gc(&[]).ok(),
                _ => {
                    let of_b = of_a.on(&b);
                    of_b.add().ok_result();
                    assert_eq!(alias(&b, "eth0"), "dev0");
                    of_b.del().ok();
                }
            }
            assert_home(&lab);
        }
    }
}

/// Also those that tuning has set: its DEL restores them only in the namespace.
#[test]
fn the_device_of_a_dead_container_has_its_mac_and_mtu_again() {
    beyond_reference!("way-home");
    for command in ["DEL", "GC"] {
        let lab = Lab::new();
        let pod = lab.container("mac-changer");
        let call = bare(&lab, &pod);
        lab.host().sh("ip link set dev0 address 02:00:00:00:00:07 mtu 1450");
        call.add().ok_result();
        pod.sh("ip link set eth0 address 02:00:00:00:00:99 mtu 1400");
        dies(&pod, "eth0");
        if command == "GC" {
            call.gc(&[]).ok()
        } else {
            call.without("CNI_NETNS").del().ok()
        }
        assert_home(&lab);
        let link = lab.host().link("dev0").unwrap();
        assert_eq!(
            (&link["address"], &link["mtu"]),
            (&json!("02:00:00:00:00:07"), &json!(1450)),
            "{command}"
        );
    }
}

#[test]
fn with_another_key_than_device_a_dead_container_does_not_choose_the_name_of_the_device_either() {
    beyond_reference!("way-home");
    for is_gc in [false, true] {
        let lab = Lab::new();
        let pod = lab.container("alias-changer-by-mac");
        let call = bare(&lab, &pod).config(json!({"device": null, "hwaddr": "02:00:00:00:00:07"}));
        lab.host().sh("ip link set dev0 address 02:00:00:00:00:07");
        call.add().ok_result();
        pod.sh("ip link set eth0 alias docker9");
        dies(&pod, "dev7");
        if is_gc {
            call.config(json!({"name": "another"})).gc(&[]).ok()
        } else {
            call.without("CNI_NETNS").del().ok()
        }
        assert_home(&lab);
    }
}

/// Its own DEL comes later.
#[test]
fn another_attachments_del_or_gc_returns_the_device_of_a_dead_container_as_its_record_says() {
    beyond_reference!("way-home");
    for is_gc in [false, true] {
        let lab = Lab::new();
        let [a, b] = ["before-its-del", "b"].map(|id| lab.container(id));
        let call = bare(&lab, &a);
        call.add().ok_result();
        dies(&a, "eth0");
        if is_gc {
            call.clone().config(json!({"name": "another"})).gc(&[]).ok()
        } else {
            call.clone().on(&b).del().ok()
        }
        assert_home(&lab);
        call.without("CNI_NETNS").del().ok();
        assert_home(&lab);
    }
}

#[test]
fn a_record_that_cannot_be_read_is_reported_and_the_device_keeps_its_alias() {
    beyond_reference!("way-home");
    let lab = Lab::new();
    let [a, b] = ["unreadable", "b"].map(|id| lab.container(id));
    let call = bare(&lab, &a);
    call.add().ok_result();
    dies(&a, "eth0");
    let record = record_of("unreadable");
    let unread = injecting(&["-P", &record, "-e", "inject=?open,openat:error=EMFILE"]);
    let other = call.clone().on(&b);
    other.clone().under(&unread).del().refused(5, &record);
    other.under(&unread).add().refused(5, &record);
    assert_eq!(alias(lab.host(), "eth0"), "dev0");
    call.without("CNI_NETNS").del().ok();
    assert_home(&lab);
}

#[test]
fn a_del_without_a_namespace_returns_the_device_from_an_existing_one() {
    beyond_reference!("way-home");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = bare(&lab, &pod);
    call.add().ok_result();
    call.without("CNI_NETNS").del().ok();
    assert_home(&lab);
}

#[test]
fn gc_keeps_the_record_of_a_card_that_the_kernel_is_still_moving() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let [pod, way] = ["card-on-its-way", "way"].map(|id| lab.container(id));
    let call = bare(&lab, &pod);
    let record = record_of(&pod.id);
    call.add().ok_result();
    // As for a card, which has no kind.
    lab.host().sh(&format!("sed -i 's/\"kind\":\"[^\"]*\"/\"kind\":null/' {record}"));
    pod.sh(&format!("ip link set eth0 netns {}", way.path().display()));
    pod.vanish();
    call.gc(&[]).ok();
    way.sh("ip link set eth0 netns host");
    call.gc(&[]).ok();
    assert_home(&lab);
    lab.host().sh(&format!("test ! -e {record}"));
}

#[test]
fn del_and_gc_keep_a_device_on_the_host_if_its_record_names_the_hosts_namespace() {
    beyond_reference!("gc");
    for is_gc in [false, true] {
        let lab = Lab::new();
        let pod = lab.container("pod");
        let call = bare(&lab, &pod);
        lab.host().sh("ip link set dev0 down");
        call.add().ok_result();
        lab.host().sh(&format!("sed -i 's#\"netns\":\"[^\"]*\"#\"netns\":\"/proc/self/ns/net\"#' {RECORD}"));
        pod.sh("ip link set eth0 netns host name dev0");
        lab.host().sh("ip link set dev0 up alias storage");
        if is_gc {
            call.gc(&[]).ok()
        } else {
            call.without("CNI_NETNS").del().ok()
        }
        assert_home(&lab);
        lab.host().sh(&format!("test ! -e {RECORD}"));
    }
}

#[test]
fn the_record_of_a_dead_container_does_not_remove_the_device_from_another_one() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let [a, b] = ["reused-path", "b"].map(|id| lab.container(id));
    let call = bare(&lab, &a);
    let first = call.clone().env("CNI_NETNS", "/run/again");
    lab.host().sh(&format!("ln -s {} /run/again", a.path().display()));
    first.add().ok_result();
    dies(&a, "eth0");
    call.on(&b).config(json!({"name": "second"})).add().ok_result();
    // Like a reused process id.
    lab.host().sh(&format!("ln -sfn {} /run/again", b.path().display()));
    first.gc(&[]).ok();
    first.without("CNI_NETNS").del().ok();
    assert!(b.link("eth0").is_some(), "{:?}", b.link_names());
}

#[test]
fn a_link_that_is_down_with_an_administrators_alias_is_not_renamed() {
    beyond_reference!("way-home");
    // The kernel gives a physical device one of the last two names, and deletes others with the namespace.
    for name in ["spare", "eth0", "dev7"] {
        let lab = Lab::new();
        let pod = lab.container("pod");
        let call = bare(&lab, &pod);
        lab.host()
            .sh(&format!("ip link del dev0; ip link add {name} type bridge; ip link set {name} alias dev0"));
        let before = lab.snapshot();
        call.del().ok();
        call.gc(&[]).ok();
        call.add().refused(7, "device dev0");
        lab.snapshot().assert_same(&before);
    }
}

#[test]
fn an_alias_of_peoples_own_does_not_make_a_device_ours() {
    beyond_reference!("way-home");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = bare(&lab, &pod).config(json!({"device": null, "hwaddr": "02:00:00:00:00:07"}));
    lab.host().sh("ip link set dev0 address 02:00:00:00:00:07");
    let before = lab.snapshot();
    call.del().ok();
    call.gc(&[]).ok();
    lab.snapshot().assert_same(&before);
}

/// The kernel gives the name CNI_IFNAME or `devN` to a device that it moves to the host.
#[test]
fn a_device_that_is_down_with_an_administrators_alias_keeps_its_name_and_alias() {
    beyond_reference!("way-home");
    for name in ["uplink", "dev7"] {
        let lab = Lab::new();
        let pod = lab.container("pod");
        let by_mac = json!({"device": null, "hwaddr": "02:00:00:00:00:07"});
        let call = bare(&lab, &pod).config(by_mac).ifname("uplink");
        lab.host()
            .sh(&format!("ip link set dev0 down; ip link set dev0 address 02:00:00:00:00:07 name {name}"));
        let before = lab.snapshot();
        call.gc(&[]).ok();
        call.del().ok();
        lab.snapshot().assert_same(&before);
        call.add().ok_result();
        assert_eq!(alias(&pod, "uplink"), name);
        for _ in 0..2 {
            call.del().ok();
            call.gc(&[]).ok();
            lab.snapshot().assert_same(&before);
        }
    }
}

#[test]
fn an_existing_name_is_refused_and_del_keeps_its_owner() {
    beyond_reference!("own-kind");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = bare(&lab, &pod);
    pod.sh("ip link add eth0 type veth peer name other");
    a_taken_name_is_refused(&lab, &call);
    // As if it were another network's device.
    pod.sh("ip link del eth0");
    call.add().ok_result();
    a_taken_name_is_refused(&lab, &call.config(json!({"name": "second"})));
}

#[test]
fn a_second_attachment_to_the_same_device_fails_and_the_first_keeps_it() {
    beyond_reference!("way-home");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = bare(&lab, &pod);
    call.add().ok_result();
    let before = lab.snapshot();
    let second = call.ifname("net1");
    second.add().refused(7, "device dev0");
    second.del().ok();
    lab.snapshot().assert_same(&before);
}

#[test]
fn a_second_add_of_an_attachment_in_another_namespace_keeps_the_first_ones_device_and_record() {
    beyond_reference!("way-home");
    let lab = Lab::new();
    let [pod, other] = ["pod", "other"].map(|id| lab.container(id));
    lab.host().sh("ip link add dev1 type veth peer name far1");
    let call = bare(&lab, &pod).config(json!({"useInterfaceNetwork": true}));
    lab.host().sh("ip addr add 10.1.3.1/24 dev dev0");
    let start = lab.snapshot();
    call.add().ok_result();
    let before = lab.snapshot();
    let second =
        call.clone().config(json!({"device": "dev1"})).env("CNI_NETNS", other.path().to_str().unwrap());
    for refused in [second.clone(), second.config(json!({"name": "second"}))] {
        refused.add().refused(4, "/run/netns/pod");
        refused.del().ok();
        lab.snapshot().assert_same(&before);
    }
    call.del().ok();
    lab.snapshot().assert_same(&start);
}

#[test]
fn check_reports_changes() {
    beyond_reference!("way-home");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = of_cable(&lab, &pod);
    let result = call.add().ok_result();
    call.check(&result).ok();
    pod.sh("ip addr del 10.1.2.2/24 dev eth0");
    call.check(&result).refused(999, "10.1.2.2/24");
    pod.sh("ip link set eth0 down");
    call.check(&result).refused(999, "down");
    pod.sh("ip link set eth0 up address 02:00:00:00:00:99");
    call.check(&result).refused(999, "02:00:00:00:00:99");
    call.del().ok();
    call.check(&result).refused(999, "eth0");
}

#[test]
fn the_lease_is_released_without_a_namespace() {
    beyond_reference!("way-home");
    let lab = Lab::new();
    let pod = lab.container("leaves-a-lease");
    let call = of_cable(&lab, &pod);
    call.add().ok_result();
    pod.vanish();
    call.without("CNI_NETNS").del().ok();
    assert!(leases().is_empty(), "{:?}", leases());
}

#[test]
fn second_in_a_chain_it_passes_on_the_first_plugins_result() {
    beyond_reference!("prev-result-kept");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = of_cable(&lab, &pod);
    let bridge = lab.plugin("bridge").config(json!({"ipam": host_local(&[&["10.2.0.0/24"]])})).on(&pod);
    let first = bridge.add().ok_result();
    let second = call.ifname("net1").config(json!({"prevResult": first}));
    let result = second.add().ok_result();
    assert_eq!(result["interfaces"].as_array().unwrap().len(), 4);
    assert_eq!(ips(&result), ["10.1.2.2/24", "fd00:1:2::2/64", "10.2.0.2/24"]);
    bridge.check(&result).ok();
    second.check(&result).ok();
    second.del().ok();
    assert_home(&lab);
    assert_eq!(pod.link_names(), ["eth0"]);
}

#[test]
fn accept_ra_is_off_before_the_device_is_up() {
    beyond_reference!("accept-ra");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = bare(&lab, &pod).config(json!({"acceptRa": false}));
    ignores_routers_before_it_is_up(&pod, &call);
    // dhcp needs the device up before it leases an address.
    lab.fake_plugin("dhcp", r#"echo '{"cniVersion": "1.0.0", "ips": [{"address": "10.1.2.2/24"}]}'"#);
    let path = format!("{}:{}", Lab::plugin_dir().display(), under_test().dir.display());
    ignores_routers_before_it_is_up(
        &pod,
        &call.env("CNI_PATH", &path).config(json!({"ipam": {"type": "dhcp"}})),
    );
}

/// A sysfs directory as on a host with such devices.
pub fn sysfs(lab: &Lab, devices: &str) {
    lab.host().sh("mount -t tmpfs none /sys/bus; mount -t tmpfs none /sys/devices");
    lab.host().sh("mkdir -p /sys/bus/pci/devices /sys/bus/pci/drivers /sys/bus/auxiliary/devices");
    lab.host().sh(devices);
}

/// A PCI device with a driver, and directories below it.
pub fn pci_device(address: &str, driver: &str, below: &str) -> String {
    format!(
        "mkdir -p /sys/bus/pci/drivers/{driver} /sys/bus/pci/devices/{address}/{below}
         ln -s ../../drivers/{driver} /sys/bus/pci/devices/{address}/driver\n"
    )
}

#[test]
fn the_device_is_found_by_every_selector() {
    beyond_reference!("device-id");
    let card = "0000:3b:02.5";
    let sysfs_of = |below| pci_device(card, "ice", below);
    let auxiliary = "mkdir -p /sys/bus/auxiliary/devices/mlx5_core.sf.4/net/dev0".to_owned();
    let kernel = "mkdir -p /sys/devices/pci0000:3a/0000:3b:02.5/net/dev0".to_owned();
    let by_id = |id: &str| json!({"device": "elsewhere", "runtimeConfig": {"deviceID": id}});
    // The first one by name, whatever the order in the directory.
    let two = |names: [&str; 2]| {
        names.map(|name| format!("mkdir -p /sys/bus/pci/devices/{card}/net/{name}\n")).concat()
    };
    for (devices, keys, pci) in [
        (String::new(), json!({"device": null, "hwaddr": "02:00:00:00:00:07"}), false),
        (String::new(), json!({"hwaddr": "02:00:00:00:00:08"}), false),
        (sysfs_of("") + &two(["dev0", "far0"]), json!({"device": null, "pciBusID": card}), true),
        (sysfs_of("") + &two(["far0", "dev0"]), json!({"device": null, "pciBusID": card}), true),
        (sysfs_of("net/dev0"), json!({"device": null, "pciBusID": card}), true),
        (sysfs_of("virtio3/net/dev0"), json!({"device": null, "pciBusID": card}), true),
        (sysfs_of("net/dev0"), by_id(card), true),
        (auxiliary, by_id("mlx5_core.sf.4"), false),
        (kernel, json!({"device": null, "kernelpath": "/sys/devices/pci0000:3a/0000:3b:02.5"}), false),
    ] {
        let lab = Lab::new();
        let pod = lab.container("pod");
        let call = bare(&lab, &pod).config(keys.clone());
        lab.host()
            .sh("ip link set dev0 address 02:00:00:00:00:07; ip link set far0 address 02:00:00:00:00:08");
        sysfs(&lab, &devices);
        let result = call.add().ok_result();
        assert_eq!(alias(&pod, "eth0"), "dev0", "{keys}");
        let said = container_interface(&result)["pciID"].clone();
        assert_eq!(said, if pci { json!(card) } else { Value::Null }, "{keys}");
        call.check(&result).ok();
        call.del().ok();
        assert_home(&lab);
    }
}

#[test]
fn a_device_that_a_program_uses_stays_in_its_namespace() {
    beyond_reference!("device-id");
    for driver in ["vfio-pci", "uio_pci_generic", "igb_uio"] {
        let lab = Lab::new();
        let pod = lab.container("pod");
        let call = of_cable(&lab, &pod).config(json!({"device": null, "pciBusID": "0000:3b:02.5"}));
        sysfs(&lab, &pci_device("0000:3b:02.5", driver, ""));
        let result = call.add().ok_result();
        assert_eq!(ips(&result), ["10.1.2.2/24", "fd00:1:2::2/64"]);
        let interface = container_interface(&result);
        assert_eq!((&interface["name"], &interface["pciID"]), (&json!("eth0"), &json!("0000:3b:02.5")));
        assert!(interface["mac"].is_null() && pod.link_names().is_empty());
        call.check(&result).ok();
        call.del().ok();
        assert!(leases().is_empty());
        call.config(json!({"useInterfaceNetwork": true})).add().refused(7, "useInterfaceNetwork");
    }
}

#[test]
fn a_device_that_cannot_be_found_or_moved_is_explained() {
    beyond_reference!("device-id");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = bare(&lab, &pod);
    lab.host().sh("ip link add br0 type bridge; ip link set dev0 address 02:00:00:00:00:07; ip link set far0 address 02:00:00:00:00:07");
    let without_driver = "mkdir -p /sys/bus/pci/devices/0000:3b:02.6\n".to_owned();
    sysfs(&lab, &(without_driver + &pci_device("0000:3b:02.7", "nvme", "")));
    let before = lab.snapshot();
    for (keys, word) in [
        (json!({"device": "gone"}), "device gone: no such interface"),
        (json!({"device": "br0"}), "bridge"),
        (json!({"device": null, "hwaddr": "02:00:00:00:00:07"}), "far0"),
        (json!({"device": null, "hwaddr": "02:00:00:00:00:08"}), "hwaddr 02:00:00:00:00:08"),
        (json!({"device": null, "pciBusID": "0000:3b:02.5"}), "no such PCI device"),
        (json!({"device": null, "pciBusID": "0000:3b:02.6"}), "has no driver"),
        (json!({"device": null, "pciBusID": "0000:3b:02.7"}), "pciBusID 0000:3b:02.7"),
        (json!({"device": null, "kernelpath": "/sys/devices/gone"}), "kernelpath /sys/devices/gone"),
        (json!({"runtimeConfig": {"deviceID": "gone"}}), "runtimeConfig.deviceID gone"),
        (json!({"device": null}), "pciBusID"),
    ] {
        call.clone().config(keys).add().refused(7, word);
        lab.snapshot().assert_same(&before);
    }
    call.config(json!({"device": null})).status().ok();
}
