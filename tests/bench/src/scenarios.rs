//! The table's rows.

use lab::Feature;

use crate::blast::{blast, blast_among};
use crate::collection::{attachments, of_stale_mappings, of_valid_attachments};
use crate::dynamic::{idle_daemon, leased};
use crate::floor::{with_deletion, with_move};
use crate::many_ports::many_ports;
use crate::networks::{
    bridged, by_flannel, dual_stack, fixed, in_vrf, kubernetes, limited, loopback, named, nothing,
    of_host_device, on_dummy, on_ipvlan, on_macvlan, on_tap, on_vlan, passing, point_to_point, ports,
    source_routed, stocked, store, with_all_rules, with_flanneld, with_hundreds_of_mappings, with_kube_proxy,
    with_master, with_policy_drop,
};
use crate::repairs::repairs;
use crate::rounds::{chain, churn, crowd, crowd_in_unrest, version};
use crate::scenario::Scenario;
use crate::status::{status, status_of_dhcp};

const LOOPBACK: &[&str] = &["loopback"];
const STORE: &[&str] = &["host-local"];
const DHCP: &[&str] = &["dhcp"];
const SERVER: &str = "the server's own part of ADD";
const STATIC: &[&str] = &["static"];
const BRIDGE: &[&str] = &["bridge", "host-local"];
const FLANNEL: &[&str] = &["flannel", "bridge", "host-local"];
const PTP: &[&str] = &["ptp", "host-local"];
const MACVLAN: &[&str] = &["macvlan", "host-local"];
const IPVLAN: &[&str] = &["ipvlan", "host-local"];
const VLAN: &[&str] = &["vlan", "host-local"];
const DUMMY: &[&str] = &["dummy", "host-local"];
const TAP: &[&str] = &["tap", "host-local"];
const HOST_DEVICE: &[&str] = &["host-device", "host-local"];
const PORTMAP: &[&str] = &["bridge", "host-local", "portmap"];
const BANDWIDTH: &[&str] = &["bridge", "host-local", "bandwidth"];
const SBR: &[&str] = &["bridge", "host-local", "sbr"];
const DNSNAME: &[&str] = &["bridge", "host-local", "dnsname"];
const VRF: &[&str] = &["bridge", "host-local", "vrf"];
const FIREWALL: &[&str] = &["bridge", "host-local", "firewall"];
const WITH_DELETION: &[&str] = &["ADD", "DEL", "the kernel's part of DEL"];
const ALL_RULES: &[&str] = &["bridge", "host-local", "portmap", "firewall"];
const KUBERNETES: &[&str] = &["bridge", "host-local", "tuning", "portmap"];

/// All rows, in the table's order. The reference would need minutes to install 5 000 mappings, so it is not measured
/// with them.
pub fn all() -> Vec<Scenario> {
    [single(), interfaces(), storms(), host_ports(), collections(), statuses()]
        .into_iter()
        .flatten()
        .collect()
}

fn single() -> Vec<Scenario> {
    vec![
        Scenario::new("start of a plugin", BRIDGE, version("bridge")).of(&["VERSION"]).by_layouts(),
        Scenario::new("loopback", LOOPBACK, chain(loopback, nothing, None)),
        Scenario::new("bridge + host-local", BRIDGE, with_deletion(bridged, nothing))
            .of(WITH_DELETION)
            .by_layouts(),
        Scenario::new("host-local, empty store", STORE, chain(store, nothing, None)),
        Scenario::new("host-local, 10 leases", STORE, chain(store, stocked::<10>, None)),
        Scenario::new("host-local, 1 000 leases", STORE, chain(store, stocked::<1_000>, None)),
        Scenario::new("host-local, 10 000 leases", STORE, chain(store, stocked::<10_000>, None)),
        Scenario::new("host-local, 50 000 leases", STORE, chain(store, stocked::<50_000>, None)),
        Scenario::new("dhcp, by dnsmasq", DHCP, leased()).of(&["ADD", "DEL", SERVER]).untraced(),
        Scenario::new("dhcp's daemon with 1 000 leases", DHCP, idle_daemon())
            .of(&["start until it answers", "processor's time in 3 idle seconds"])
            .without_reference(),
        Scenario::new("static", STATIC, chain(fixed, nothing, None)),
        Scenario::new("bridge + host-local, 100 containers by 16 workers", BRIDGE, crowd(bridged, 100, 16))
            .of(&["all ADD", "all DEL"])
            .untraced(),
        Scenario::new("Kubernetes chain", KUBERNETES, chain(kubernetes, nothing, None)).by_backends(),
        Scenario::new("Kubernetes chain, dual stack", KUBERNETES, with_deletion(dual_stack, nothing))
            .of(WITH_DELETION)
            .by_backends(),
        Scenario::new(
            "Kubernetes chain, 100 containers by 16 workers",
            KUBERNETES,
            crowd(kubernetes, 100, 16),
        )
        .stormy(),
    ]
}

/// Many concurrent containers.
fn storms() -> Vec<Scenario> {
    vec![
        Scenario::new(
            "Kubernetes chain, 100 containers by 100 workers",
            KUBERNETES,
            crowd(kubernetes, 100, 100),
        )
        .stormy(),
        Scenario::new(
            "Kubernetes chain, dual stack, 100 containers by 100 workers",
            KUBERNETES,
            crowd(dual_stack, 100, 100),
        )
        .stormy(),
        Scenario::new(
            "Kubernetes chain, rolling: 100 containers by 16 workers",
            KUBERNETES,
            churn(kubernetes, 100, 16),
        )
        .rolling(),
        Scenario::new(
            "Kubernetes chain, dual stack, rolling: 100 containers by 100 workers",
            KUBERNETES,
            churn(dual_stack, 100, 100),
        )
        .rolling(),
        Scenario::new(
            "Kubernetes chain, dual stack, rolling: 300 containers by 16 workers",
            KUBERNETES,
            churn(dual_stack, 300, 16),
        )
        .rolling(),
        // The reference would need several minutes for each run.
        Scenario::new(
            "Kubernetes chain, dual stack, rolling: 1 000 containers by 100 workers",
            KUBERNETES,
            churn(dual_stack, 1_000, 100),
        )
        .of(&["ADD and DEL of all"])
        .without_reference()
        .untraced(),
        Scenario::new(
            "Kubernetes chain, dual stack, 100 containers by 100 workers, in unrest",
            KUBERNETES,
            crowd_in_unrest(dual_stack, 100, 100),
        )
        .stormy(),
    ]
}

/// The other interface plugins, each with host-local, and the plugins that move routes.
fn interfaces() -> Vec<Scenario> {
    vec![
        Scenario::new("ptp + host-local, ipMasq", PTP, chain(point_to_point, nothing, None)).by_backends(),
        Scenario::new("macvlan + host-local", MACVLAN, with_deletion(on_macvlan, with_master))
            .of(WITH_DELETION)
            .needs(&[Feature::Macvlan]),
        Scenario::new("ipvlan + host-local", IPVLAN, with_deletion(on_ipvlan, with_master))
            .of(WITH_DELETION)
            .needs(&[Feature::Ipvlan]),
        Scenario::new("vlan + host-local", VLAN, with_deletion(on_vlan, with_master))
            .of(WITH_DELETION)
            .needs(&[Feature::Vlan]),
        Scenario::new("host-device + host-local", HOST_DEVICE, with_move(of_host_device, with_master)).of(&[
            "ADD",
            "DEL",
            "the kernel's part of ADD",
        ]),
        Scenario::new("dummy + host-local", DUMMY, with_deletion(on_dummy, nothing))
            .of(WITH_DELETION)
            .needs(&[Feature::Dummy]),
        Scenario::new("flannel with bridge + host-local", FLANNEL, chain(by_flannel, with_flanneld, None)),
        Scenario::new("bandwidth", BANDWIDTH, chain(limited, nothing, Some("bandwidth")))
            .needs(&[Feature::TrafficControl]),
        Scenario::new("sbr", SBR, chain(source_routed, nothing, Some("sbr"))),
        Scenario::new("vrf", VRF, chain(in_vrf, nothing, Some("vrf"))).needs(&[Feature::Vrf]),
        Scenario::new("dnsname", DNSNAME, chain(named, nothing, Some("dnsname"))),
        // The tracer would wait for the server.
        Scenario::new(
            "bridge + host-local + dnsname, first and last container",
            DNSNAME,
            chain(named, nothing, None),
        )
        .untraced(),
        Scenario::new("tap + host-local", TAP, chain(on_tap, nothing, None)).needs(&[Feature::Tap]),
    ]
}

/// GC.
fn collections() -> Vec<Scenario> {
    let of = |name, plugins, prepare| {
        Scenario::new(name, plugins, prepare).of(&["GC"]).without_reference().untraced()
    };
    vec![
        of("portmap, 1 000 stale attachments", PORTMAP, of_stale_mappings(1_000)),
        of("bridge + host-local, ipMasq, 1 000 valid attachments", BRIDGE, of_valid_attachments(1_000)),
        of("bridge + host-local, ipMasq, 10 000 valid attachments", BRIDGE, of_valid_attachments(10_000)),
    ]
}

fn host_ports() -> Vec<Scenario> {
    vec![
        Scenario::new("firewall", FIREWALL, chain(passing, with_policy_drop, Some("firewall"))).by_backends(),
        Scenario::new(
            "firewall with 5 000 chains of kube-proxy",
            FIREWALL,
            chain(passing, with_kube_proxy, Some("firewall")),
        ),
        Scenario::new("portmap, two ports", PORTMAP, chain(ports, nothing, Some("portmap"))).by_backends(),
        Scenario::new(
            "portmap, two ports with 5 000 mappings",
            PORTMAP,
            chain(ports, with_hundreds_of_mappings::<50>, Some("portmap")),
        )
        .without_reference()
        .by_backends(),
        Scenario::new("cnitool repair, 1 000 attachments, dual stack", PORTMAP, repairs(1_000))
            .of(&["after a flush", "nothing is missing"])
            .without_reference()
            .by_backends()
            .untraced(),
        Scenario::new(
            "portmap, 1 000 UDP ports with 5 000 attachments, 200 changes a second by others",
            PORTMAP,
            many_ports(5_000),
        )
        .of(&["ADD", "ADD of the same ports", "DEL of the newer", "DEL of the older", "GC"])
        .without_reference()
        .untraced(),
        Scenario::new("a mapped port", PORTMAP, blast(ports, nothing)).throughput().by_backends(),
        Scenario::new(
            "a mapped port among 5 000 others of 50 containers",
            PORTMAP,
            blast(ports, with_hundreds_of_mappings::<50>),
        )
        .throughput()
        .without_reference()
        .by_backends(),
        // With iptables, 5 000 attachments would take many minutes.
        Scenario::new(
            "a mapped port among 5 000 attachments with ports, ipMasq and firewall",
            ALL_RULES,
            blast_among(with_all_rules, with_policy_drop, attachments),
        )
        .throughput()
        .without_reference(),
    ]
}

/// STATUS of each plugin, with one attachment on the host.
fn statuses() -> Vec<Scenario> {
    let of = |name, plugins, prepare| Scenario::new(name, plugins, prepare).of(&["STATUS"]);
    vec![
        of("loopback, STATUS", LOOPBACK, status("loopback", loopback, nothing)),
        of("bridge + host-local, STATUS", BRIDGE, status("bridge", bridged, nothing)),
        of("ptp + host-local, STATUS", PTP, status("ptp", point_to_point, nothing)),
        of("macvlan + host-local, STATUS", MACVLAN, status("macvlan", on_macvlan, with_master))
            .needs(&[Feature::Macvlan]),
        of("ipvlan + host-local, STATUS", IPVLAN, status("ipvlan", on_ipvlan, with_master))
            .needs(&[Feature::Ipvlan]),
        of("vlan + host-local, STATUS", VLAN, status("vlan", on_vlan, with_master)).needs(&[Feature::Vlan]),
        of(
            "host-device + host-local, STATUS",
            HOST_DEVICE,
            status("host-device", of_host_device, with_master),
        ),
        of("dummy + host-local, STATUS", DUMMY, status("dummy", on_dummy, nothing)).needs(&[Feature::Dummy]),
        of("tap + host-local, STATUS", TAP, status("tap", on_tap, nothing)).needs(&[Feature::Tap]),
        of("host-local, STATUS", STORE, status("host-local", store, nothing)),
        of("dhcp, STATUS", DHCP, status_of_dhcp()),
        of("static, STATUS", STATIC, status("static", fixed, nothing)),
        of("flannel with bridge + host-local, STATUS", FLANNEL, status("flannel", by_flannel, with_flanneld))
            .without_reference(),
        of("portmap, STATUS", PORTMAP, status("portmap", ports, nothing)),
        of("firewall, STATUS", FIREWALL, status("firewall", passing, with_policy_drop)),
        of("tuning, STATUS", KUBERNETES, status("tuning", kubernetes, nothing)),
        of("bandwidth, STATUS", BANDWIDTH, status("bandwidth", limited, nothing))
            .needs(&[Feature::TrafficControl]),
        of("sbr, STATUS", SBR, status("sbr", source_routed, nothing)),
        of("vrf, STATUS", VRF, status("vrf", in_vrf, nothing)).needs(&[Feature::Vrf]),
        of("dnsname, STATUS", DNSNAME, status("dnsname", named, nothing)),
    ]
}
