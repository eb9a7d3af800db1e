//! A container's interface that is one link on its parent.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use cni::{Add, Undo};
use common::{Lab, MACVLAN, add, lab, sh};
use iface::child::{self, Spec};
use netlink::{Link, LinkKind, Mac, MacvlanMode};

const MAC: Mac = Mac::local([1, 2, 3, 4, 5]);

fn create(lab: &Lab, call: &Add<()>, kind: LinkKind, undo: &mut Undo) -> cni::Result<Link> {
    let parent = lab.parent("up");
    let spec = Spec { kind, parent: Some(&parent), mac: Some(MAC), mtu: Some(1400) };
    child::create(&lab.sandbox, call, &spec, undo)
}

fn passthru() -> LinkKind {
    LinkKind::Macvlan { tap: false, mode: MacvlanMode::Passthru, broadcast_queue: None }
}

#[test]
fn a_child_is_created_in_the_container_with_all_attributes() {
    lab(|lab| {
        let up = lab.master("up");
        let mut undo = Undo::new();
        let made = create(lab, &add("net", "eth0"), MACVLAN, &mut undo).unwrap();
        let found = lab.sandbox.link("eth0").unwrap();
        assert_eq!(made, found);
        assert_eq!((found.mac, found.mtu, found.up, found.peer), (Some(MAC), 1400, false, Some(up.index)));
        assert_eq!(found.alias, "cni net c eth0");
        assert!(undo.unwind().is_empty());
        assert_eq!(lab.sandbox.nl.link("eth0").unwrap(), None);
    });
}

/// Before Linux 6.15, the kernel also looks for the name on the host.
#[test]
fn a_host_link_of_the_same_name_is_no_obstacle() {
    lab(|lab| {
        lab.master("up");
        sh("ip link add name eth0 type bridge");
        let before = lab.host.link("eth0").unwrap();
        let inside = lab.sandbox.nl.links().unwrap();
        let mut undo = Undo::new();
        let made = create(lab, &add("net", "eth0"), MACVLAN, &mut undo).unwrap();
        assert_eq!(lab.sandbox.link("eth0").unwrap(), made);
        assert_eq!(lab.host.link("eth0").unwrap(), before);
        assert!(undo.unwind().is_empty());
        assert_eq!(lab.sandbox.nl.links().unwrap(), inside);
    });
}

#[test]
fn an_existing_name_is_code_4_and_its_link_is_kept() {
    lab(|lab| {
        lab.master("up");
        lab.sandbox.nl.create_link(&netlink::NewLink::new("eth0", LinkKind::Veth)).unwrap();
        let before = lab.sandbox.link("eth0").unwrap();
        let error = create(lab, &add("net", "eth0"), MACVLAN, &mut Undo::new()).unwrap_err();
        assert_eq!(error.code(), 4, "{error}");
        assert!(error.msg().starts_with("CNI_IFNAME eth0 is taken"), "{error}");
        assert_eq!(lab.sandbox.link("eth0").unwrap(), before);
    });
}

#[test]
fn a_parent_of_an_unsuitable_kind_is_explained() {
    lab(|lab| {
        let up = lab.master("up");
        sh("ip link add name br0 type bridge");
        let join = netlink::LinkChange {
            master: Some(lab.host.link("br0").unwrap().index),
            ..netlink::LinkChange::default()
        };
        lab.host.nl.change_link(&up, &join).unwrap();
        let error = create(lab, &add("net", "eth0"), MACVLAN, &mut Undo::new()).unwrap_err();
        assert_eq!(error.code(), 7);
        assert!(error.details().contains("up is a port of a bridge or a bond"), "{error}");
        lab.host.nl.change_link(&up, &netlink::LinkChange { master: Some(0), ..join }).unwrap();

        let mut undo = Undo::new();
        create(lab, &add("net", "eth0"), passthru(), &mut undo).unwrap();
        let error = create(lab, &add("net", "eth1"), MACVLAN, &mut Undo::new()).unwrap_err();
        assert_eq!(error.code(), 7);
        assert!(error.details().contains("passthru"), "{error}");
    });
}

#[test]
fn a_kind_that_the_kernel_does_not_have_is_named() {
    lab(|lab| {
        lab.master("up");
        let kind = LinkKind::Other("nosuch".to_owned());
        let error = create(lab, &add("net", "eth0"), kind, &mut Undo::new()).unwrap_err();
        assert!(error.details().contains("modprobe nosuch"), "{error}");
    });
}
