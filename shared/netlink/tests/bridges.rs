//! Bridges, ports and VLANs, compared with `bridge`.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "tests")]

mod common;

use std::slice;

use common::{Lab, lab, pair, sh, skip};
use netlink::{BridgeVlan, Link, LinkChange, LinkKind, Mac, NewLink, PortChange};

const MAC: Mac = Mac::local([1, 2, 3, 4, 5]);

fn bridge(lab: &Lab, vlan_filtering: bool) -> netlink::Result<Link> {
    let new = NewLink::new("br0", LinkKind::Bridge { vlan_filtering });
    lab.host.create_link(&NewLink { mac: Some(MAC), mtu: Some(1400), up: true, ..new })
}

fn port(lab: &Lab, bridge: &Link) -> Link {
    let (port, _) = pair(&lab.host, "port", "peer");
    let join = LinkChange { master: Some(bridge.index), ..LinkChange::default() };
    lab.host.change_link(&port, &join).unwrap();
    port
}

/// A bridge with VLAN filtering, and a port of it.
fn vlan_aware(lab: &Lab) -> Option<(Link, Link)> {
    match bridge(lab, true) {
        Ok(bridge) => Some((bridge.clone(), port(lab, &bridge))),
        Err(e) if e.is_unsupported() => {
            skip("the kernel has no VLAN filtering on bridges");
            None
        }
        Err(e) => panic!("{e}"),
    }
}

#[test]
fn a_bridge_keeps_the_address_that_it_was_made_with() {
    lab(|lab| {
        let made = bridge(lab, false).unwrap();
        assert_eq!((made.mac, made.mtu, made.up), (Some(MAC), 1400, true));
        let port = port(lab, &made);
        assert_eq!(lab.host.link("br0").unwrap().unwrap().mac, Some(MAC));
        lab.host.delete_link(&port).unwrap();
        assert_eq!(lab.host.link("br0").unwrap().unwrap().mac, Some(MAC));
        assert!(bridge(lab, false).unwrap_err().is_exists());
    });
}

#[test]
fn a_ports_settings_change_one_by_one() {
    lab(|lab| {
        let port = port(lab, &bridge(lab, false).unwrap());
        let settings = || {
            let now = lab.host.link("port").unwrap().unwrap();
            (now.hairpin, now.isolated)
        };
        assert_eq!(settings(), (Some(false), Some(false)));
        lab.host.change_port(&port, PortChange { hairpin: Some(true), isolated: None }).unwrap();
        assert_eq!(settings(), (Some(true), Some(false)));
        lab.host.change_port(&port, PortChange { hairpin: None, isolated: Some(true) }).unwrap();
        assert_eq!(settings(), (Some(true), Some(true)));
        let shown = sh("bridge -d link show dev port");
        assert!(shown.contains("hairpin on") && shown.contains("isolated on"), "{shown}");
    });
}

#[test]
fn a_link_that_is_not_a_port_has_no_port_settings() {
    lab(|lab| {
        let (veth, _) = pair(&lab.host, "a", "b");
        let change = PortChange { hairpin: Some(true), isolated: None };
        let error = lab.host.change_port(&veth, change).unwrap_err();
        assert!(error.to_string().starts_with("change bridge port a: "), "{error}");
    });
}

#[test]
fn a_port_is_added_to_and_removed_from_vlans() {
    lab(|lab| {
        let Some((_, port)) = vlan_aware(lab) else { return };
        let default = BridgeVlan::native(1);
        assert_eq!(lab.host.vlans_of(&port).unwrap(), slice::from_ref(&default));
        let expected =
            [BridgeVlan::native(100), BridgeVlan::tagged(200..=299), BridgeVlan::tagged(4094..=4094)];
        lab.host.delete_vlan(&port, &default).unwrap();
        lab.host.delete_vlan(&port, &default).unwrap();
        for vlan in &expected {
            lab.host.add_vlan(&port, vlan).unwrap();
        }
        assert_eq!(lab.host.vlans_of(&port).unwrap(), expected);
        let shown = sh("bridge -compressvlans vlan show dev port");
        assert!(shown.contains("100 PVID Egress Untagged") && shown.contains("200-299"), "{shown}");
        lab.host.delete_vlan(&port, &BridgeVlan::tagged(210..=299)).unwrap();
        assert_eq!(lab.host.vlans_of(&port).unwrap()[1], BridgeVlan::tagged(200..=209));
    });
}

#[test]
fn the_bridge_itself_enters_a_vlan_and_its_ports_do_not() {
    lab(|lab| {
        let Some((bridge, port)) = vlan_aware(lab) else { return };
        lab.host.add_vlan(&bridge, &BridgeVlan::tagged(100..=100)).unwrap();
        let is_in = |link| lab.host.vlans_of(link).unwrap().contains(&BridgeVlan::tagged(100..=100));
        assert!(is_in(&bridge) && !is_in(&port));
        lab.host.delete_vlan(&bridge, &BridgeVlan::tagged(100..=100)).unwrap();
        assert!(!is_in(&bridge));
    });
}

#[test]
fn vlan_filtering_of_an_older_bridge_is_turned_on() {
    lab(|lab| {
        let made = bridge(lab, false).unwrap();
        match lab.host.enable_vlan_filtering(&made) {
            Err(e) if e.is_unsupported() => skip("the kernel has no VLAN filtering on bridges"),
            other => {
                assert_eq!(made.kind, Some(LinkKind::Bridge { vlan_filtering: false }));
                other.unwrap();
                let now = lab.host.link("br0").unwrap().unwrap().kind;
                assert_eq!(now, Some(LinkKind::Bridge { vlan_filtering: true }));
            }
        }
    });
}

#[test]
fn a_vlan_out_of_range_is_refused() {
    lab(|lab| {
        let Some((_, port)) = vlan_aware(lab) else { return };
        for bad in [BridgeVlan::native(0), BridgeVlan::native(4095), BridgeVlan::tagged(4000..=4095)] {
            assert!(lab.host.add_vlan(&port, &bad).is_err(), "{bad:?}");
        }
    });
}
