//! An interface on a master: the promises that macvlan, ipvlan and vlan share.
//!
//! Each promise is a function of a [`Kind`], and a test of each plugin: `on_master::vlan::gc_releases_the_leases_of_deleted_containers`.

use lab::{Call, Feature, Lab, beyond_reference, quirk, skip};
use serde_json::{Value, json};

use crate::common::{
    a_failed_ipam_plugin_leaves_nothing, a_taken_name_is_refused, cable, container_interface, data,
    gc_deletes_an_interface_in_the_hosts_namespace, host_local, ignores_routers_before_it_is_up, is_up,
    leases, udev_replaces_no_mac,
};

/// A plugin whose interfaces are on a master.
pub struct Kind {
    pub plugin: &'static str,
    feature: Feature,
    /// The kind of its links.
    pub kind: &'static str,
    /// The kernel's module.
    module: &'static str,
    /// Required keys, as JSON.
    pub keys: &'static str,
    /// Keys that a second interface on the same master needs, as JSON.
    second: &'static str,
    /// An attribute of the link, and its value for these keys.
    attribute: (&'static str, &'static str),
}

/// All of them.
pub const KINDS: [Kind; 4] = [MACVLAN, MACVTAP, IPVLAN, VLAN];

const MACVLAN: Kind = Kind {
    plugin: "macvlan",
    feature: Feature::Macvlan,
    kind: "macvlan",
    module: "macvlan",
    keys: "{}",
    second: "{}",
    attribute: ("mode", "\"bridge\""),
};

const MACVTAP: Kind = Kind {
    feature: Feature::Macvtap,
    kind: "macvtap",
    module: "macvtap",
    keys: r#"{"tap": true}"#,
    ..MACVLAN
};

const IPVLAN: Kind = Kind {
    plugin: "ipvlan",
    feature: Feature::Ipvlan,
    kind: "ipvlan",
    module: "ipvlan",
    keys: "{}",
    second: "{}",
    attribute: ("mode", "\"l2\""),
};

const VLAN: Kind = Kind {
    plugin: "vlan",
    feature: Feature::Vlan,
    kind: "vlan",
    module: "8021q",
    keys: r#"{"vlanId": 100}"#,
    second: r#"{"vlanId": 200}"#,
    attribute: ("id", "100"),
};

impl Kind {
    /// Whether the kernel and the plugin under test have it. If not, the test counts as skipped.
    pub fn is_available(&self) -> bool {
        if self.kind == "macvtap" && quirk("macvtap") {
            return false;
        }
        if !self.feature.is_there() {
            skip(&format!("this kernel has no {}", self.feature));
        }
        self.feature.is_there()
    }

    /// A call with addresses.
    fn on(&self, lab: &Lab, master: &str) -> Call {
        let ipam = json!({"type": "host-local", "ranges": [
            [{"subnet": "198.51.100.0/24", "rangeStart": "198.51.100.100"}],
            [{"subnet": "2001:db8:51::/64", "rangeStart": "2001:db8:51::100"}],
        ]});
        lab.plugin(self.plugin).config(parsed(self.keys)).config(json!({"master": master, "ipam": ipam}))
    }

    /// On the host's uplink.
    fn on_uplink(&self, lab: &Lab) -> Call {
        lab.machine("server");
        self.on(lab, "uplink")
    }

    /// On a link of the host, without addresses.
    fn on_cable(&self, lab: &Lab) -> Call {
        cable(lab);
        self.on(lab, "cable").version("1.1.0").config(json!({"ipam": null}))
    }

    /// The call for a second interface on the same master.
    fn second(&self, call: Call) -> Call {
        call.config(parsed(self.second))
    }
}

pub fn parsed(keys: &str) -> Value {
    serde_json::from_str(keys).unwrap()
}

/// Like [`lab::needs!`].
macro_rules! needs {
    ($kind:ident) => {
        if !$kind.is_available() {
            return;
        }
    };
}

/// Like [`beyond_reference!`], for the reference's plugins that differ, each with its own anchor.
macro_rules! beyond_reference_of {
    ($kind:ident, $($plugin:ident: $anchor:literal),+) => {
        $(if $kind.plugin == stringify!($plugin) {
            beyond_reference!($anchor);
        })+
    };
}

macro_rules! promises {
    ($promises:tt) => {
        promises!(macvlan MACVLAN $promises);
        promises!(macvtap MACVTAP $promises);
        promises!(ipvlan IPVLAN $promises);
        promises!(vlan VLAN $promises);
    };
    ($plugin:ident $kind:ident { $($promise:ident,)* }) => {
        mod $plugin {
            $(#[test]
            fn $promise() {
                super::$promise(&super::$kind);
            })*
        }
    };
}

promises!({
    the_result_is_the_containers_interface_as_the_kernel_has_it,
    udev_does_not_replace_its_mac,
    nothing_is_left_after_del_and_a_second_del_succeeds,
    del_releases_the_lease_even_if_the_master_or_the_container_was_deleted,
    a_link_of_the_host_may_have_the_name_of_the_containers_one,
    the_mtu_is_the_masters_or_a_smaller_one,
    a_masters_mtu_that_is_lowered_lowers_the_containers_and_check_expects_it,
    check_reports_another_master_and_a_missing_master,
    the_master_may_be_in_the_container,
    the_master_may_be_given_by_an_alternative_name,
    in_a_chain_the_master_is_an_earlier_plugins_interface_and_its_result_is_passed_on,
    an_existing_name_is_refused_and_del_keeps_its_owner,
    del_removes_the_link_of_an_add_that_was_killed_before_its_renaming,
    a_failed_ipam_plugin_leaves_no_interface,
    gc_releases_the_leases_of_deleted_containers,
    gc_deletes_the_interface_of_an_attachment_in_the_hosts_namespace,
    status_reports_a_missing_master,
    status_reports_an_mtu_that_the_master_does_not_allow,
    router_advertisements_of_the_masters_network_are_ignored_if_configured,
    without_the_kind_in_the_kernel_the_error_says_so_and_nothing_is_left,
});

fn the_result_is_the_containers_interface_as_the_kernel_has_it(kind: &Kind) {
    needs!(kind);
    let lab = Lab::new();
    let pod = lab.container("pod");
    let result = kind.on_uplink(&lab).on(&pod).add().ok_result();
    assert_eq!(result["interfaces"].as_array().unwrap().len(), 1);
    let interface = container_interface(&result);
    assert_eq!((&interface["name"], &interface["sandbox"]), (&json!("eth0"), &json!(pod.path())));
    assert_eq!(interface["mac"], pod.link("eth0").unwrap()["address"]);
    assert!(result["ips"].as_array().unwrap().iter().all(|ip| ip["interface"] == 0));
    assert_eq!(pod.addresses("eth0"), ["198.51.100.100/24", "2001:db8:51::100/64"]);
    assert_eq!(data(&pod, "eth0", kind.attribute.0), parsed(kind.attribute.1));
    assert!(is_up(&pod, "eth0"));
    assert_eq!(pod.link("eth0").unwrap()["linkinfo"]["info_kind"], kind.kind);
    assert!(!lab.host().sh("ip -d link").contains(&format!("{} ", kind.kind)), "nothing is in the host");
}

fn udev_does_not_replace_its_mac(kind: &Kind) {
    beyond_reference!("udev");
    needs!(kind);
    let lab = Lab::new();
    udev_replaces_no_mac(&lab, &kind.on_uplink(&lab), &lab.container("pod"));
}

fn nothing_is_left_after_del_and_a_second_del_succeeds(kind: &Kind) {
    needs!(kind);
    let lab = Lab::new();
    let [a, b] = ["a", "b"].map(|id| lab.container(id));
    let call = kind.on_uplink(&lab);
    kind.second(call.clone().on(&b)).add().ok_result();
    let before = lab.snapshot();
    call.clone().on(&a).add().ok_result();
    for _ in 0..2 {
        call.clone().on(&a).del().ok();
        lab.snapshot().assert_same(&before);
    }
}

fn del_releases_the_lease_even_if_the_master_or_the_container_was_deleted(kind: &Kind) {
    beyond_reference_of!(kind, ipvlan: "ipvlan-del", vlan: "vlan-del");
    needs!(kind);
    let lab = Lab::new();
    let [a, b] = ["a", "b"].map(|id| lab.container(id));
    let call = kind.on_uplink(&lab);
    call.clone().on(&a).add().ok_result();
    let second = kind.second(call.clone().on(&b));
    second.add().ok_result();
    second.env("CNI_NETNS", "/run/netns/gone").config(json!({"linkInContainer": true})).del().ok();
    lab.host().sh("ip link del uplink");
    call.on(&a).config(json!({"master": null})).del().ok();
    assert!(leases().is_empty(), "{:?}", leases());
}

fn a_link_of_the_host_may_have_the_name_of_the_containers_one(kind: &Kind) {
    beyond_reference_of!(kind, vlan: "vlan-taken");
    needs!(kind);
    let lab = Lab::new();
    let pod = lab.container("pod");
    cable(&lab);
    let call = kind.on(&lab, "cable").on(&pod);
    lab.host().sh("ip link add name eth0 address 02:00:00:00:00:01 type bridge");
    call.add().ok_result();
    assert_eq!(pod.link("eth0").unwrap()["linkinfo"]["info_kind"], kind.kind);
    assert_eq!(lab.host().link("eth0").unwrap()["linkinfo"]["info_kind"], "bridge");
    call.del().ok();
    // Since the first ADD, host-local has its directory.
    let before = lab.snapshot();
    call.add().ok_result();
    call.del().ok();
    lab.snapshot().assert_same(&before);
    assert!(lab.host().link("eth0").is_some() && pod.link("eth0").is_none());
}

fn the_mtu_is_the_masters_or_a_smaller_one(kind: &Kind) {
    beyond_reference_of!(kind, ipvlan: "ipvlan-check", vlan: "vlan-check");
    needs!(kind);
    let lab = Lab::new();
    let [a, b] = ["a", "b"].map(|id| lab.container(id));
    let call = kind.on_cable(&lab);
    lab.host().sh("ip link set cable mtu 1450");
    call.clone().on(&a).add().ok_result();
    kind.second(call.on(&b)).config(json!({"mtu": 1400})).add().ok_result();
    assert_eq!([&a, &b].map(|pod| pod.link("eth0").unwrap()["mtu"].clone()), [1450, 1400]);
}

fn a_masters_mtu_that_is_lowered_lowers_the_containers_and_check_expects_it(kind: &Kind) {
    beyond_reference_of!(kind, macvlan: "macvlan-check", ipvlan: "check-mtu", vlan: "vlan-check");
    needs!(kind);
    let lab = Lab::new();
    let [a, b] = ["a", "b"].map(|id| lab.container(id));
    let call = kind.on_cable(&lab);
    let a_call = call.clone().on(&a);
    let b_call = kind.second(call.on(&b)).config(json!({"mtu": 1400}));
    let [of_a, of_b] = [&a_call, &b_call].map(|call| call.add().ok_result());
    lab.host().sh("ip link set cable mtu 1300");
    assert_eq!([&a, &b].map(|pod| pod.link("eth0").unwrap()["mtu"].clone()), [1300, 1300]);
    a_call.check(&of_a).ok();
    b_call.check(&of_b).ok();
    b.sh("ip link set eth0 mtu 1280");
    b_call.check(&of_b).refused(999, "MTU is 1280");
    // A result before 1.1.0 has no MTU, and a later plugin of the chain may have set another one.
    let mut older = of_b;
    older["interfaces"][0].as_object_mut().unwrap().remove("mtu");
    b_call.version("1.0.0").check(&older).ok();
}

fn check_reports_another_master_and_a_missing_master(kind: &Kind) {
    beyond_reference_of!(kind, macvlan: "macvlan-check", ipvlan: "ipvlan-check", vlan: "vlan-check");
    needs!(kind);
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = kind.on_cable(&lab).on(&pod);
    let result = call.add().ok_result();
    call.check(&result).ok();
    call.clone().config(json!({"master": "far"})).check(&result).refused(999, "master is another link");
    pod.sh("ip link set eth0 down");
    call.check(&result).refused(999, "down");
    lab.host().sh("ip link del cable");
    let error = call.check(&result).error();
    assert!(error.details.contains("together with its master"), "{error:?}");
    call.del().ok();
}

fn the_master_may_be_in_the_container(kind: &Kind) {
    needs!(kind);
    let lab = Lab::new();
    let pod = lab.container("pod");
    pod.sh("ip link add net1 type veth peer name net2; ip link set net1 up; ip link set net2 up");
    let call = kind.on(&lab, "net1").on(&pod).config(json!({"linkInContainer": true}));
    let result = call.add().ok_result();
    assert_eq!(pod.link("eth0").unwrap()["link"], "net1");
    call.check(&result).ok();
    call.del().ok();
    assert!(leases().is_empty() && pod.link("eth0").is_none());
    // Since the first ADD, host-local has its directory.
    let before = lab.snapshot();
    call.add().ok_result();
    call.del().ok();
    lab.snapshot().assert_same(&before);
}

fn the_master_may_be_given_by_an_alternative_name(kind: &Kind) {
    const LONG: &str = "enp101s0f0np0v12345";
    needs!(kind);
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = kind.on_cable(&lab).config(json!({"master": LONG})).on(&pod);
    lab.host().sh(&format!("ip link property add dev cable altname {LONG}"));
    let result = call.add().ok_result();
    assert_eq!(pod.link("eth0").unwrap()["link_index"], lab.host().link("cable").unwrap()["ifindex"]);
    call.check(&result).ok();
    call.del().ok();
    assert!(pod.link("eth0").is_none());
}

fn in_a_chain_the_master_is_an_earlier_plugins_interface_and_its_result_is_passed_on(kind: &Kind) {
    beyond_reference_of!(kind, macvlan: "macvlan-chained", ipvlan: "prev-result-kept", vlan: "vlan-chained");
    needs!(kind);
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = kind.on_cable(&lab).on(&pod).config(json!({"master": null, "prevResult": {
        "cniVersion": "1.1.0", "interfaces": [{"name": "cable"}],
        "dns": {"nameservers": ["10.1.0.53"]},
    }}));
    let result = call.add().ok_result();
    let names: Vec<_> = result["interfaces"].as_array().unwrap().iter().map(|one| &one["name"]).collect();
    assert_eq!(names, ["cable", "eth0"]);
    assert_eq!(result["dns"]["nameservers"], json!(["10.1.0.53"]));
    call.check(&result).ok();
    call.del().ok();
    let two = json!([{"name": "cable"}, {"name": "far"}]);
    let ambiguous = call.config(json!({"prevResult": {"cniVersion": "1.1.0", "interfaces": two}}));
    ambiguous.add().refused(7, "cable, far");
}

fn an_existing_name_is_refused_and_del_keeps_its_owner(kind: &Kind) {
    beyond_reference!("own-kind");
    needs!(kind);
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = kind.on_cable(&lab).on(&pod);
    pod.sh("ip link add eth0 type veth peer name other");
    a_taken_name_is_refused(&lab, &call);
    pod.sh("ip link del eth0");
    call.add().ok_result();
    a_taken_name_is_refused(&lab, &kind.second(call).config(json!({"name": "second"})));
}

/// Before Linux 6.15, an ADD creates the link under a temporary name if the host has an interface `CNI_IFNAME`.
fn del_removes_the_link_of_an_add_that_was_killed_before_its_renaming(kind: &Kind) {
    beyond_reference!("own-kind");
    needs!(kind);
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = kind.on_cable(&lab).on(&pod);
    call.add().ok_result();
    // `iface::ownership` derives the name from the network net, the container pod, and eth0.
    let temporary = "tmp-f4c8c7fd095";
    pod.sh(&format!("ip link set eth0 down; ip link set eth0 name {temporary}"));
    call.del().ok();
    assert!(pod.link(temporary).is_none());
}

fn a_failed_ipam_plugin_leaves_no_interface(kind: &Kind) {
    beyond_reference!("nothing-left");
    needs!(kind);
    let lab = Lab::new();
    let pod = lab.container("pod");
    a_failed_ipam_plugin_leaves_nothing(&lab, &kind.on_cable(&lab).on(&pod));
}

fn gc_releases_the_leases_of_deleted_containers(kind: &Kind) {
    beyond_reference!("gc");
    needs!(kind);
    let lab = Lab::new();
    let [a, b] = ["a", "b"].map(|id| lab.container(id));
    let call = kind.on_uplink(&lab);
    call.clone().on(&a).add().ok_result();
    kind.second(call.clone().on(&b)).add().ok_result();
    call.gc(&[("b", "eth0")]).ok();
    assert_eq!(leases(), ["198.51.100.101", "2001:db8:51::101"]);
}

fn gc_deletes_the_interface_of_an_attachment_in_the_hosts_namespace(kind: &Kind) {
    beyond_reference!("gc");
    needs!(kind);
    let lab = Lab::new();
    let call = kind.on_cable(&lab).config(json!({"ipam": host_local(&[&["10.1.2.0/24"]])}));
    gc_deletes_an_interface_in_the_hosts_namespace(&lab, call.clone(), kind.second(call));
}

fn status_reports_a_missing_master(kind: &Kind) {
    beyond_reference!("status");
    needs!(kind);
    let lab = Lab::new();
    let call = kind.on_cable(&lab);
    call.status().ok();
    call.clone().config(json!({"master": "gone"})).status().refused(50, "gone");
    // An earlier plugin of the chain may create it.
    call.clone().config(json!({"master": null})).status().ok();
    call.config(json!({"master": "net1", "linkInContainer": true})).status().ok();
}

fn status_reports_an_mtu_that_the_master_does_not_allow(kind: &Kind) {
    beyond_reference!("status");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = kind.on_cable(&lab).config(json!({"mtu": 1501}));
    call.status().refused(50, "mtu 1501 is more than 1500");
    call.on(&pod).add().refused(7, "mtu 1501 is more than 1500");
}

fn router_advertisements_of_the_masters_network_are_ignored_if_configured(kind: &Kind) {
    beyond_reference!("accept-ra");
    needs!(kind);
    let lab = Lab::new();
    let pod = lab.container("pod");
    ignores_routers_before_it_is_up(&pod, &kind.on_cable(&lab).on(&pod).config(json!({"acceptRa": false})));
}

fn without_the_kind_in_the_kernel_the_error_says_so_and_nothing_is_left(kind: &Kind) {
    beyond_reference_of!(kind, macvlan: "macvlan-errors", ipvlan: "ipvlan-errors", vlan: "vlan-taken");
    if lab::skip_with(kind.feature) {
        return;
    }
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = kind.on_cable(&lab).on(&pod);
    let before = lab.snapshot();
    call.add().refused(999, &format!("modprobe {}", kind.module));
    call.status().refused(50, &format!("modprobe {}", kind.module));
    lab.snapshot().assert_same(&before);
}
