//! Captured messages of the kernel (Linux 6.18 unless stated otherwise), each with the command that caused it. They are also seeds of the
//! fuzz target.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "tests")]

use netlink::uapi::RTM_F_CLONED;
use netlink::wire::{Frames, MessageRef};
use netlink::{Address, BridgeVlan, Link, LinkKind, Mac, OperState, Route};
use nix::errno::Errno;

macro_rules! captured {
    ($name:literal) => {
        Frames::new(include_bytes!(concat!("../../../fuzz/corpus/netlink_decode/", $name))).next().unwrap()
    };
}

const MAC: Mac = Mac::local([1, 2, 3, 4, 5]);

fn explanation(frame: MessageRef<'_>) -> (Option<Errno>, Option<String>) {
    let error = frame.status().unwrap_err().during("list", "things");
    (error.errno(), error.kernel_text().map(str::to_owned))
}

#[test]
fn a_veth_that_is_a_port() {
    // ip link add name br0 address 02:01:02:03:04:05 type bridge
    // ip link add name veth0 type veth peer name eth0
    // ip link set dev veth0 master br0 up alias hello
    // bridge link set dev veth0 hairpin on isolated on
    // ip link set dev eth0 netns ...
    let link = Link::parse(captured!("link_veth_port").payload).unwrap();
    assert_eq!(
        (link.name.as_str(), link.alias.as_str(), link.kind),
        ("veth0", "hello", Some(LinkKind::Veth))
    );
    assert_eq!((link.up, link.mtu, link.tx_queue_len), (true, 1500, 1000));
    assert_eq!((link.hairpin, link.isolated), (Some(true), Some(true)));
    assert_eq!((link.master, link.peer_netns_id), (Some(2), Some(0)));
    assert!(link.peer.is_some() && link.mac.is_some());
}

#[test]
fn a_bridge_without_vlans() {
    // ip link add name br0 address 02:01:02:03:04:05 type bridge
    // in a kernel without CONFIG_BRIDGE_VLAN_FILTERING
    let link = Link::parse(captured!("link_bridge").payload).unwrap();
    assert_eq!((link.mac, link.up, link.state), (Some(MAC), false, OperState::Down));
    assert_eq!((link.kind, link.hairpin), (Some(LinkKind::Bridge { vlan_filtering: false }), None));
}

#[test]
fn a_bridge_with_vlans() {
    // As above in Linux 6.1, and: ip link set dev br0 up type bridge vlan_filtering 1
    let link = Link::parse(captured!("link_bridge_vlan_filtering").payload).unwrap();
    assert_eq!(link.kind, Some(LinkKind::Bridge { vlan_filtering: true }));
}

#[test]
fn the_vlans_of_a_port() {
    // In Linux 6.1:
    // bridge vlan add dev veth0 vid 200-299
    // bridge vlan add dev veth0 vid 100 pvid untagged
    let (_, vlans) = BridgeVlan::parse(captured!("bridge_vlans").payload).unwrap();
    let default = BridgeVlan { ids: 1..=1, pvid: false, untagged: true };
    assert_eq!(vlans[vlans.len() - 2..], [BridgeVlan::native(100), BridgeVlan::tagged(200..=299)]);
    assert!(vlans.len() == 2 || vlans[0] == default, "{vlans:?}");
}

#[test]
fn an_address_of_either_family() {
    // ip address add 10.1.2.3/24 brd + dev br0
    let v4 = Address::parse(captured!("address_v4").payload).unwrap();
    assert_eq!((v4.net, v4.scope, v4.tentative), ("10.1.2.3/24".parse().unwrap(), 0, false));
    // ip address add fd00::3/64 dev br0
    let v6 = Address::parse(captured!("address_v6_tentative").payload).unwrap();
    assert_eq!((v6.net, v6.tentative, v6.duplicate), ("fd00::3/64".parse().unwrap(), true, false));
    assert_eq!(v4.index, v6.index);
}

#[test]
fn a_route_with_everything() {
    // ip route add 192.0.2.0/24 via 10.1.2.1 src 10.1.2.3 metric 5 mtu 1300 advmss 1200 table 1000
    let route = Route::parse(captured!("route_v4").payload).unwrap();
    let expected = Route {
        gateway: Some("10.1.2.1".parse().unwrap()),
        link: Some(2),
        table: Some(1000),
        scope: Some(0),
        priority: Some(5),
        mtu: Some(1300),
        advmss: Some(1200),
        source: Some("10.1.2.3".parse().unwrap()),
        protocol: Some(3),
        ..Route::to("192.0.2.0/24".parse().unwrap())
    };
    assert_eq!(route, expected);
}

#[test]
fn routes_by_way_of_others() {
    // ip route add 2001:db8::/32 via fd00::1 dev br0
    let v6 = Route::parse(captured!("route_v6").payload).unwrap();
    assert_eq!((v6.gateway, v6.priority), (Some("fd00::1".parse().unwrap()), Some(1024)));
    // ip route add 203.0.113.0/24 via inet6 fd00::1 dev br0
    let mixed = Route::parse(captured!("route_via_inet6").payload).unwrap();
    assert_eq!((mixed.dst, mixed.gateway), ("203.0.113.0/24".parse().unwrap(), v6.gateway));
    // ip route add 198.51.100.0/24 nexthop via 10.1.2.1 dev br0 nexthop via 10.1.2.9 dev br0
    let several = Route::parse(captured!("route_multipath").payload).unwrap();
    assert_eq!((several.gateway, several.link), (Some("10.1.2.1".parse().unwrap()), v6.link));
    let gateways: Vec<_> = several.hops.iter().filter_map(|hop| hop.gateway).collect();
    assert_eq!(
        gateways,
        ["10.1.2.1", "10.1.2.9"].map(|gateway| gateway.parse::<std::net::IpAddr>().unwrap())
    );
}

/// Without strict checks, kernels list them among the routes.
#[test]
fn cached_path_information_is_not_a_route() {
    let mut payload = captured!("route_v6").payload.to_vec();
    payload[8..12].copy_from_slice(&RTM_F_CLONED.to_ne_bytes());
    assert_eq!(Route::parse(&payload), None);
}

#[test]
fn an_error_with_and_without_the_kernels_text() {
    // ip link add name a/b, without a type
    let (errno, text) = explanation(captured!("error_refused"));
    assert_eq!((errno, text.as_deref()), (Some(Errno::EOPNOTSUPP), Some("Unknown device type")));
    // RTM_GETADDR for a dump with a prefix length
    let (errno, text) = explanation(captured!("done_refused"));
    assert_eq!(errno, Some(Errno::EINVAL));
    assert_eq!(text.as_deref(), Some("ipv4: Invalid values in header for address dump request"));
    // ip route show dev ..., for a nonexistent link
    assert_eq!(explanation(captured!("done_no_such_link")), (Some(Errno::ENODEV), None));
}
