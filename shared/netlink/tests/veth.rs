//! A veth pair between two namespaces, from its creation to its deletion.
#![expect(clippy::expect_used, clippy::unwrap_used, reason = "tests")]

use std::os::fd::AsFd;
use std::process::Command;
use std::thread;
use std::time::Duration;

use netlink::{
    BridgeVlan, LinkChange, LinkKind, Mac, Netlink, NewLink, OperState, Peer, PortChange, Route, RouteFilter,
};
use netns::NetNs;
use nix::sched::{CloneFlags, unshare};

const BRIDGE: LinkKind = LinkKind::Bridge { vlan_filtering: false };

/// Runs a test in two namespaces: the thread's, and another one.
fn in_two_namespaces(test: impl FnOnce(Netlink, NetNs, Netlink) + Send + 'static) {
    let thread = thread::spawn(|| {
        unshare(CloneFlags::CLONE_NEWNET).expect("the tests need root");
        let path = format!("/proc/{}/task/{}/ns/net", std::process::id(), nix::unistd::gettid());
        let container = NetNs::open(path.as_ref()).unwrap();
        let inside = Netlink::open().unwrap();
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        test(Netlink::open().unwrap(), container, inside);
    });
    thread.join().unwrap();
}

#[test]
fn a_veth_is_created_with_its_peer_in_the_other_namespace_as_a_bridge_port() {
    in_two_namespaces(|host, container, inside| {
        let mac = Mac::local([1, 2, 3, 4, 5]);
        let bridge =
            host.create_link(&NewLink { mac: Some(mac), up: true, ..NewLink::new("br0", BRIDGE) }).unwrap();
        assert_eq!((bridge.mac, bridge.is("bridge"), bridge.up), (Some(mac), true, true));
        let peer = Peer { name: "eth0", mac: Some(Mac::local([9; 5])), netns: Some(container.as_fd()) };
        let veth = host
            .create_link(&NewLink {
                mtu: Some(1400),
                master: Some(bridge.index),
                up: true,
                peer: Some(peer),
                ..NewLink::new("veth0", LinkKind::Veth)
            })
            .unwrap();
        assert_eq!((veth.master, veth.mtu, veth.up), (Some(bridge.index), 1400, true));
        let shown = Command::new("ip").args(["-d", "link", "show", "veth0"]).output().unwrap().stdout;
        let shown = String::from_utf8(shown).unwrap();
        assert!(
            shown.contains("numtxqueues 1 numrxqueues 1 "),
            "one queue, whatever the number of CPUs: {shown}"
        );
        let eth0 = inside.link("eth0").unwrap().unwrap();
        assert_eq!((eth0.mac, eth0.mtu, eth0.up), (Some(Mac::local([9; 5])), 1400, false));

        host.change_port(&veth, PortChange { hairpin: Some(true), isolated: Some(true) }).unwrap();
        let port = host.link("veth0").unwrap().unwrap();
        assert_eq!((port.hairpin, port.isolated), (Some(true), Some(true)));
        assert_eq!(host.ports(bridge.index).unwrap(), [port]);

        let address = "10.0.0.2/24".parse().unwrap();
        inside.add_address(&eth0, address, false).unwrap();
        inside.add_address(&eth0, "fd00::2/64".parse().unwrap(), false).unwrap();
        assert!(inside.add_address(&eth0, address, false).unwrap_err().is_exists());
        inside.set_up(&eth0).unwrap();
        host.wait_for_state(&veth, OperState::Up, Duration::from_secs(600)).unwrap();
        inside.wait_for_addresses(&eth0, Duration::from_secs(600)).unwrap();

        let route = Route {
            gateway: Some("10.0.0.1".parse().unwrap()),
            link: Some(eth0.index),
            mtu: Some(1300),
            advmss: Some(1200),
            priority: Some(7),
            ..Route::to("0.0.0.0/0".parse().unwrap())
        };
        inside.add_route(&route).unwrap();
        let found = inside.default_route().unwrap().unwrap();
        assert_eq!(
            (found.gateway, found.mtu, found.advmss, found.priority),
            (route.gateway, Some(1300), Some(1200), Some(7))
        );
        assert!(!inside.routes(RouteFilter { link: Some(eth0.index), table: None }).unwrap().is_empty());

        host.delete_link(&veth).unwrap();
        host.delete_link(&veth).unwrap();
        assert!(inside.link("eth0").unwrap().is_none());
    });
}

#[test]
fn a_refusal_names_the_operation_the_object_and_the_kernels_reason() {
    in_two_namespaces(|host, _, _| {
        let peer = Peer { name: "p", mac: None, netns: None };
        let veth = NewLink { peer: Some(peer), ..NewLink::new("a", LinkKind::Veth) };
        host.create_link(&veth).unwrap();
        let error = host.create_link(&veth).unwrap_err();
        assert!(error.is_exists());
        assert_eq!(error.to_string(), "create veth a with peer p: File exists");
        let lo = host.link("lo").unwrap().unwrap();
        let change = LinkChange { mac: Some(Mac::new([1, 0, 0, 0, 0, 0])), ..LinkChange::default() };
        let error = host.change_link(&host.link("a").unwrap().unwrap(), &change).unwrap_err();
        assert!(error.to_string().starts_with("change link a: Cannot assign requested address"), "{error}");
        let error = host
            .add_address(&lo, "0.0.0.0/8".parse().unwrap(), false)
            .map(|()| host.add_vlan(&lo, &BridgeVlan::native(7)));
        assert!(error.unwrap().is_err());
    });
}
