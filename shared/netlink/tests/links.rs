//! Links, as `ip link` sees them.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "tests")]

mod common;

use common::{lab, pair, sh};
use netlink::{Bridge, LinkChange, Mac, OperState};

const MAC: Mac = Mac::local([1, 2, 3, 4, 5]);

#[test]
fn a_missing_link_is_none_and_deleting_it_is_fine() {
    lab(|lab| {
        assert_eq!(lab.host.link("nothere").unwrap(), None);
        // Which the kernel takes for no name at all, as those before 5.5 do with all alternative names.
        assert_eq!(lab.host.link(&"x".repeat(200)).unwrap(), None);
        assert_eq!(lab.host.link_by_index(4242).unwrap(), None);
        let (veth, _) = pair(&lab.host, "a", "b");
        lab.host.delete_link(&veth).unwrap();
        lab.host.delete_link(&veth).unwrap();
        assert_eq!(lab.host.links().unwrap().len(), 1);
    });
}

#[test]
fn a_link_is_found_by_its_alternative_name_too() {
    lab(|lab| {
        let (veth, _) = pair(&lab.host, "a", "b");
        sh("ip link property add dev a altname an-alternative-name-longer-than-15");
        let found = lab.host.link("an-alternative-name-longer-than-15").unwrap().unwrap();
        assert_eq!((found.index, found.name.as_str()), (veth.index, "a"));
    });
}

#[test]
fn every_change_takes_effect_and_the_rest_stays() {
    lab(|lab| {
        let (_, peer) = pair(&lab.host, "a", "b");
        let change = LinkChange {
            mtu: Some(1400),
            mac: Some(MAC),
            promisc: Some(true),
            allmulti: Some(true),
            tx_queue_len: Some(7),
            alias: Some("who owns it"),
            ..LinkChange::NONE
        };
        lab.host.change_link(&peer, &change).unwrap();
        let now = lab.host.link("b").unwrap().unwrap();
        assert_eq!((now.mtu, now.mac, now.tx_queue_len), (1400, Some(MAC), 7));
        assert_eq!((now.promisc, now.promiscuity, now.allmulti), (true, 1, true));
        assert_eq!((now.alias.as_str(), now.up), ("who owns it", false));
        let shown = sh("ip -d link show b");
        for text in ["PROMISC", "ALLMULTI", "mtu 1400", "qlen 7", "alias who owns it", "02:01:02:03:04:05"] {
            assert!(shown.contains(text), "{text} in {shown}");
        }
        lab.host.change_link(&peer, &LinkChange { promisc: Some(false), ..LinkChange::NONE }).unwrap();
        let now = lab.host.link("b").unwrap().unwrap();
        assert_eq!((now.promisc, now.promiscuity, now.allmulti, now.mtu), (false, 0, true, 1400));
    });
}

#[test]
fn a_link_takes_another_name() {
    lab(|lab| {
        let (_, peer) = pair(&lab.host, "a", "b");
        lab.host.change_link(&peer, &LinkChange { name: Some("c"), ..LinkChange::NONE }).unwrap();
        assert_eq!(lab.host.link_by_index(peer.index).unwrap().unwrap().name, "c");
        let error = lab.host.change_link(&peer, &LinkChange { name: Some("a"), ..LinkChange::NONE });
        assert!(error.unwrap_err().is_exists());
    });
}

#[test]
fn a_veth_whose_peer_goes_down_says_so() {
    lab(|lab| {
        let (veth, peer) = pair(&lab.host, "a", "b");
        let patience = std::time::Duration::from_secs(60);
        lab.host.set_up(&peer).unwrap();
        lab.host.wait_for_state(&veth, OperState::Up, patience).unwrap();
        lab.host.change_link(&peer, &LinkChange { up: Some(false), ..LinkChange::NONE }).unwrap();
        lab.host.wait_for_state(&veth, OperState::LowerLayerDown, patience).unwrap();
    });
}

#[test]
fn the_peer_of_a_veth_is_told_with_its_namespace() {
    lab(|lab| {
        let (veth, peer) = pair(&lab.host, "a", "b");
        assert_eq!((peer.peer, peer.peer_netns_id), (Some(veth.index), None));
        let inside = lab.hand_over("b");
        let outside = lab.host.link("a").unwrap().unwrap();
        assert_eq!(outside.peer, Some(inside.index));
        assert!(outside.peer_netns_id.is_some());
    });
}

#[test]
fn ports_are_those_of_one_bridge() {
    lab(|lab| {
        let bridge = |name| {
            lab.host.create_bridge(&Bridge { name, mac: MAC, mtu: None, vlan_filtering: false }).unwrap()
        };
        let (one, two) = (bridge("br1"), bridge("br2"));
        let (port, other) = pair(&lab.host, "a", "b");
        for (link, master) in [(&port, &one), (&other, &two)] {
            let join = LinkChange { master: Some(master.index), ..LinkChange::NONE };
            lab.host.change_link(link, &join).unwrap();
        }
        let names =
            |bridge| lab.host.ports(bridge).unwrap().into_iter().map(|port| port.name).collect::<Vec<_>>();
        assert_eq!((names(one.index), names(two.index)), (vec!["a".into()], vec!["b".into()]));
        lab.host.change_link(&port, &LinkChange { master: Some(0), ..LinkChange::NONE }).unwrap();
        assert_eq!(names(one.index), Vec::<String>::new());
        assert_eq!(lab.host.link("a").unwrap().unwrap().master, None);
    });
}

#[test]
fn two_hundred_links_are_all_listed() {
    lab(|lab| {
        for number in 0..100 {
            pair(&lab.host, &format!("a{number}"), &format!("b{number}"));
        }
        assert_eq!(lab.host.links().unwrap().len(), 201);
    });
}
