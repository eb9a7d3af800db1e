//! An IPAM plugin of type `dhcp` sends packets through the container's interface. The interface exists and is up from
//! before the plugin's ADD until after its DEL.

mod daemon;
mod go;
mod isc;
mod lifecycle;
mod one_address;
mod servers;
mod v6;

use std::fs;
use std::path::Path;

use lab::{Call, Container, Feature, Lab, beyond_reference, skip_part};
use serde_json::json;

/// An IPAM plugin that records the state of the interface, and has a lease. It fails if /run/lab/fail contains the
/// command.
const CLIENT: &str = r#"
case $(ip -n pod link show dev eth0 2>/dev/null) in *,UP,LOWER_UP*) link=up;; ?*) link=down;; *) link=gone;; esac
echo "$CNI_COMMAND $link" >>/run/lab/calls
if grep -qsx $CNI_COMMAND /run/lab/fail; then echo '{"code": 111, "msg": "no answer from the server"}'; exit 1; fi
case $CNI_COMMAND in
    ADD) echo >/run/lab/lease; cat /run/lab/answer;;
    DEL) rm -f /run/lab/lease;;
esac"#;

/// Runs a scenario with each plugin whose interface carries packets.
fn with_each(ipam: &str, scenario: impl Fn(&Lab, &Container, &Call)) {
    let plugins = [
        ("bridge", json!({"bridge": "br0"}), None),
        ("ptp", json!({}), None),
        ("macvlan", json!({"master": "cable"}), Some(Feature::Macvlan)),
        ("ipvlan", json!({"master": "cable"}), Some(Feature::Ipvlan)),
        ("vlan", json!({"master": "cable", "vlanId": 100}), Some(Feature::Vlan)),
    ];
    for (plugin, keys, needs) in plugins {
        if needs.is_some_and(|feature| skip_part(plugin, feature)) {
            continue;
        }
        let lab = Lab::new();
        let pod = lab.container("pod");
        lab.fake_plugin(ipam, CLIENT);
        answer("10.1.2.9/24");
        lab.host().sh("ip link add cable up type veth peer name far; ip link set far up");
        let call = lab.plugin(plugin).config(keys).config(json!({"ipam": {"type": ipam}})).on(&pod);
        // Only the lab's plugin of this name is found.
        scenario(&lab, &pod, &call.env("CNI_PATH", Lab::plugin_dir().to_str().unwrap()));
    }
}

fn answer(address: &str) {
    let result = json!({"cniVersion": "1.0.0", "ips": [{"address": address, "gateway": "10.1.2.1"}]});
    fs::write("/run/lab/answer", result.to_string()).unwrap();
}

fn calls() -> Vec<String> {
    fs::read_to_string("/run/lab/calls").unwrap().lines().map(str::to_owned).collect()
}

fn is_leased() -> bool {
    Path::new("/run/lab/lease").exists()
}

#[test]
fn the_interface_is_up_before_its_address_is_requested_and_exists_until_the_release() {
    beyond_reference!("ipam-order");
    with_each("dhcp", |_, pod, call| {
        call.add().ok_result();
        assert!(is_leased());
        assert_eq!(pod.addresses("eth0"), ["10.1.2.9/24"]);
        call.del().ok();
        assert_eq!(calls(), ["ADD up", "DEL up"], "{}", call.plugin());
        assert!(!is_leased() && pod.link("eth0").is_none(), "{}", call.plugin());
    });
}

#[test]
fn an_address_is_released_even_if_the_interface_or_the_container_was_deleted() {
    with_each("dhcp", |lab, _, call| {
        let pod = lab.container("had-an-address");
        let call = call.clone().on(&pod);
        call.add().ok_result();
        pod.sh("ip link del eth0");
        call.del().ok();
        assert!(!is_leased(), "{}", call.plugin());
        call.add().ok_result();
        pod.vanish();
        call.clone().without("CNI_NETNS").del().ok();
        assert!(!is_leased(), "{}", call.plugin());
        let dels: Vec<_> = calls().into_iter().filter(|call| call.starts_with("DEL")).collect();
        assert_eq!(dels, ["DEL gone", "DEL gone"], "{}", call.plugin());
    });
}

#[test]
fn a_failed_add_releases_its_address_through_the_interface() {
    beyond_reference!("ipam-order");
    with_each("dhcp", |_, pod, call| {
        // The kernel refuses it.
        answer("ff02::1/64");
        call.add().error();
        assert_eq!(calls(), ["ADD up", "DEL up"], "{}", call.plugin());
        assert!(!is_leased() && pod.link("eth0").is_none(), "{}", call.plugin());
    });
}

#[test]
fn a_failed_release_of_an_address_does_not_keep_the_interface() {
    beyond_reference!("ipam-order");
    with_each("dhcp", |_, pod, call| {
        call.add().ok_result();
        fs::write("/run/lab/fail", "DEL").unwrap();
        call.del().refused(111, "no answer from the server");
        assert!(pod.link("eth0").is_none(), "{}", call.plugin());
        fs::remove_file("/run/lab/fail").unwrap();
        call.del().ok();
        assert_eq!(calls(), ["ADD up", "DEL up", "DEL gone"], "{}", call.plugin());
        assert!(!is_leased(), "{}", call.plugin());
    });
}

#[test]
fn check_and_status_ask_the_ipam_plugin() {
    beyond_reference!("status");
    with_each("other", |_, _, call| {
        let result = call.add().ok_result();
        for (command, asked) in [("CHECK", call.clone()), ("STATUS", call.clone().version("1.1.0"))] {
            fs::write("/run/lab/fail", command).unwrap();
            asked
                .config(json!({"prevResult": result}))
                .run(command)
                .refused(111, "no answer from the server");
        }
        fs::remove_file("/run/lab/fail").unwrap();
        call.check(&result).ok();
    });
}

#[test]
fn an_address_of_another_ipam_plugin_is_released_after_its_interface_was_deleted() {
    beyond_reference!("ipam-order");
    with_each("other", |_, _, call| {
        call.add().ok_result();
        call.del().ok();
        assert_eq!(calls().last().unwrap(), "DEL gone", "{}", call.plugin());
    });
}
