//! Links, compared with `ip link`.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "tests")]

mod common;

use std::os::fd::AsFd;

use common::{Lab, bridge, lab, pair, sh};
use netlink::{LinkChange, LinkKind, Mac, MacvlanMode, NewLink, OperState, Target};

const MAC: Mac = Mac::local([1, 2, 3, 4, 5]);
const MACVLAN: LinkKind = LinkKind::Macvlan { tap: false, mode: MacvlanMode::Bridge, broadcast_queue: None };

#[test]
fn a_missing_link_is_none_and_deleting_it_is_fine() {
    lab(|lab| {
        let before = lab.host.links().unwrap();
        assert_eq!(lab.host.link("nothere").unwrap(), None);
        // The kernel does not accept this as a name; kernels before 5.5 accept no alternative name at all.
        assert_eq!(lab.host.link(&"x".repeat(200)).unwrap(), None);
        assert_eq!(lab.host.link_by_index(4242).unwrap(), None);
        let (veth, _) = pair(&lab.host, "a", "b");
        lab.host.delete_link(&veth).unwrap();
        lab.host.delete_link(&veth).unwrap();
        assert_eq!(lab.host.links().unwrap(), before);
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
fn a_kind_of_links_is_found_without_creating_one() {
    lab(|lab| {
        let before = lab.host.links().unwrap();
        let kinds = ["bridge", "veth", "macvlan", "no-such-kind"];
        let found = kinds.map(|kind| lab.host.has_link_kind(kind).unwrap());
        assert_eq!(found, [true, true, true, false]);
        // A link that existed for a moment has taken an index.
        let (veth, _) = pair(&lab.host, "a", "b");
        let highest = before.iter().map(|link| link.index).max().unwrap();
        assert!(veth.index <= highest + 2, "{veth:?}");
        lab.host.delete_link(&veth).unwrap();
        assert_eq!(lab.host.links().unwrap(), before);
    });
}

#[test]
fn each_change_affects_only_its_attribute() {
    lab(|lab| {
        let (_, peer) = pair(&lab.host, "a", "b");
        let change = LinkChange {
            mtu: Some(1400),
            mac: Some(MAC),
            promisc: Some(true),
            allmulti: Some(true),
            tx_queue_len: Some(7),
            alias: Some("who owns it"),
            ..LinkChange::default()
        };
        lab.host.change_link(&peer, &change).unwrap();
        let now = lab.host.link("b").unwrap().unwrap();
        assert_eq!((now.mtu, now.mac, now.tx_queue_len), (1400, Some(MAC), 7));
        assert_eq!((now.promisc, now.allmulti), (true, true));
        assert_eq!((now.alias.as_str(), now.up), ("who owns it", false));
        let shown = sh("ip -d link show b");
        for text in ["PROMISC", "ALLMULTI", "mtu 1400", "qlen 7", "alias who owns it", "02:01:02:03:04:05"] {
            assert!(shown.contains(text), "{text} in {shown}");
        }
        lab.host.change_link(&peer, &LinkChange { promisc: Some(false), ..LinkChange::default() }).unwrap();
        let now = lab.host.link("b").unwrap().unwrap();
        assert_eq!((now.promisc, now.allmulti, now.mtu), (false, true, 1400));
    });
}

#[test]
fn a_link_is_renamed() {
    lab(|lab| {
        let (_, peer) = pair(&lab.host, "a", "b");
        lab.host.change_link(&peer, &LinkChange { name: Some("c"), ..LinkChange::default() }).unwrap();
        assert_eq!(lab.host.link_by_index(peer.index).unwrap().unwrap().name, "c");
        let error = lab.host.change_link(&peer, &LinkChange { name: Some("a"), ..LinkChange::default() });
        assert!(error.unwrap_err().is_exists());
    });
}

#[test]
fn a_veth_reports_that_its_peer_is_down() {
    lab(|lab| {
        let (veth, peer) = pair(&lab.host, "a", "b");
        let timeout = std::time::Duration::from_secs(600);
        lab.host.set_up(&peer).unwrap();
        lab.host.wait_for_state(&veth, OperState::Up, timeout).unwrap();
        lab.host.change_link(&peer, &LinkChange { up: Some(false), ..LinkChange::default() }).unwrap();
        lab.host.wait_for_state(&veth, OperState::LowerLayerDown, timeout).unwrap();
    });
}

#[test]
fn the_peer_of_a_veth_is_read_with_its_namespace() {
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
        let (one, two) = (bridge(&lab.host, "br1", MAC), bridge(&lab.host, "br2", MAC));
        let (port, other) = pair(&lab.host, "a", "b");
        for (link, master) in [(&port, &one), (&other, &two)] {
            let join = LinkChange { master: Some(master.index), ..LinkChange::default() };
            lab.host.change_link(link, &join).unwrap();
        }
        let names =
            |bridge| lab.host.ports(bridge).unwrap().into_iter().map(|port| port.name).collect::<Vec<_>>();
        assert_eq!((names(one.index), names(two.index)), (vec!["a".into()], vec!["b".into()]));
        lab.host.change_link(&port, &LinkChange { master: Some(0), ..LinkChange::default() }).unwrap();
        assert_eq!(names(one.index), Vec::<String>::new());
        assert_eq!(lab.host.link("a").unwrap().unwrap().master, None);
    });
}

#[test]
fn two_hundred_links_are_all_listed() {
    lab(|lab| {
        let before = lab.host.links().unwrap().len();
        for number in 0..100 {
            pair(&lab.host, &format!("a{number}"), &format!("b{number}"));
        }
        assert_eq!(lab.host.links().unwrap().len(), before + 200);
    });
}

fn target(lab: &Lab) -> Target<'_> {
    Target { netns: lab.container.as_fd(), nl: &lab.inside }
}

#[test]
fn a_link_created_in_another_namespace_is_not_confused_with_a_local_one() {
    lab(|lab| {
        let (parent, _) = pair(&lab.host, "eth0", "peer");
        let new = |name| NewLink {
            parent: Some(parent.index),
            mac: Some(MAC),
            target: Some(target(lab)),
            ..NewLink::new(name, MACVLAN)
        };
        let child = lab.host.create_link(&new("child")).unwrap();
        assert_eq!((child.mac, child.up, lab.host.link("child").unwrap()), (Some(MAC), false, None));
        assert_eq!(lab.inside.link_by_index(child.index).unwrap(), Some(child));
        match lab.host.create_link(&new("eth0")) {
            // Before Linux 6.15.
            Err(e) if e.is_exists() => assert_eq!(lab.inside.link("eth0").unwrap(), None),
            made => assert_eq!(Some(made.unwrap()), lab.inside.link("eth0").unwrap()),
        }
        assert_eq!(lab.host.link("eth0").unwrap().unwrap().mac, parent.mac);
    });
}

#[test]
fn a_macvlan_has_the_mode_and_the_queue_that_it_was_made_with() {
    lab(|lab| {
        let (parent, _) = pair(&lab.host, "up", "peer");
        let modes = [MacvlanMode::Private, MacvlanMode::Vepa, MacvlanMode::Bridge, MacvlanMode::Passthru];
        for mode in modes {
            let kind = LinkKind::Macvlan { tap: false, mode, broadcast_queue: Some(2000) };
            let new = NewLink { parent: Some(parent.index), ..NewLink::new("child", kind.clone()) };
            let child = lab.host.create_link(&new).unwrap();
            assert_eq!((child.kind, child.peer), (Some(kind), Some(parent.index)));
            let shown = sh("ip -d link show child");
            assert!(shown.contains(&format!("macvlan mode {mode} bcqueuelen 2000")), "{shown}");
            sh("ip link del child");
        }
        sh("ip link add link up name child type macvlan mode source");
        let child = lab.host.link("child").unwrap().unwrap();
        let LinkKind::Macvlan { mode, .. } = child.kind.unwrap() else { panic!("no macvlan") };
        assert_eq!(mode, MacvlanMode::Source);
    });
}

#[test]
fn a_refused_link_names_its_kind_and_its_name() {
    lab(|lab| {
        let error = lab.host.create_link(&NewLink::new("x", LinkKind::Other("nosuch".into()))).unwrap_err();
        assert!(error.is_unsupported());
        assert!(error.to_string().starts_with("create nosuch x: Operation not supported"), "{error}");
        let error = lab.host.create_link(&NewLink { parent: Some(4242), ..NewLink::new("x", MACVLAN) });
        assert!(error.unwrap_err().is_missing());
    });
}
