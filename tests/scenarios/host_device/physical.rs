//! host-device with real network cards, which outlive their namespace. `make test-vm` has two that are connected with
//! each other.

use std::sync::{Mutex, MutexGuard, PoisonError};

use lab::{Call, Container, Lab, Netns, beyond_reference, needs};
use serde_json::{Value, json};

use crate::common::container_interface;

/// A machine with one card, and another machine with the other one and the address 198.51.100.2.
struct Fixture {
    lab: Lab,
    pod: Container,
    _peer: Container,
    initial: Netns,
    mac: String,
    _alone: MutexGuard<'static, ()>,
}

impl Fixture {
    /// `name` is the name of the container.
    fn new(name: &str) -> Self {
        // All tests share one pair of cards. A failed test has returned its cards.
        static CARDS: Mutex<()> = Mutex::new(());
        let alone = CARDS.lock().unwrap_or_else(PoisonError::into_inner);
        let lab = Lab::new();
        let initial = lab.initial();
        let [pod, peer] = [name, "peer"].map(|id| lab.container(id));
        let macs = std::env::var("FERRULE_SPARE_NICS").unwrap();
        let [own, far] = macs.split(' ').collect::<Vec<_>>()[..] else { panic!("two cards: {macs}") };
        fetch(&initial, own, "host", "nic0");
        fetch(&initial, far, "peer", "nic0");
        lab.host().sh("ip link set nic0 up alias 'rack 7'");
        peer.sh("ip addr add 198.51.100.2/24 dev nic0; ip link set nic0 up");
        Self { mac: own.to_owned(), lab, pod, _peer: peer, initial, _alone: alone }
    }

    fn call(&self) -> Call {
        let range = json!({"subnet": "198.51.100.0/24", "rangeStart": "198.51.100.100"});
        let keys = json!({"device": "nic0", "ipam": {"type": "host-local", "ranges": [[range]]}});
        self.lab.plugin("host-device").version("1.1.0").config(keys).on(&self.pod)
    }

    /// Asserts that the card is in the host as before.
    fn assert_home(&self) {
        let link = self.lab.host().link("nic0").expect("the card is home");
        assert_eq!((&link["address"], &link["ifalias"]), (&json!(self.mac), &json!("rack 7")));
        assert!(link["flags"].as_array().unwrap().contains(&json!("UP")));
    }

    /// Deletes the container's namespace. The kernel moves the card to the host. Returns its name there.
    fn container_dies(&self) -> String {
        self.pod.vanish();
        let name = wait_for(&self.initial, &self.mac);
        self.initial.sh(&format!("ip link set {name} netns host"));
        name
    }
}

/// The name of the card with a MAC, as soon as the kernel has moved it.
fn wait_for(initial: &Netns, mac: &str) -> String {
    let find = || initial.ip("link show").into_iter().find(|link| link["address"] == mac);
    initial.wait_until("a card is there", |_| find().is_some());
    find().unwrap()["ifname"].as_str().unwrap().to_owned()
}

fn fetch(initial: &Netns, mac: &str, netns: &str, name: &str) {
    let found = wait_for(initial, mac);
    initial.sh(&format!("ip link set {found} down alias ''; ip link set {found} netns {netns} name {name}"));
}

#[test]
fn the_container_has_the_card_and_it_returns_to_the_host() {
    beyond_reference!("way-home");
    needs!(SpareNics);
    let at = Fixture::new("has-the-card");
    let result = at.call().add().ok_result();
    assert_eq!(container_interface(&result)["mac"], json!(at.mac));
    assert!(at.pod.reaches("198.51.100.2"));
    at.call().check(&result).ok();
    at.call().del().ok();
    at.assert_home();
}

#[test]
fn the_card_is_found_by_its_address_on_each_bus() {
    beyond_reference!("device-id");
    needs!(SpareNics);
    let at = Fixture::new("on-each-bus");
    let kernel = at.lab.host().sh("readlink -f /sys/class/net/nic0/device");
    let virtio = kernel.trim();
    let pci = virtio.rsplit('/').nth(1).unwrap();
    for (keys, expected) in [
        (json!({"pciBusID": pci}), json!(pci)),
        (json!({"runtimeConfig": {"deviceID": pci}}), json!(pci)),
        (json!({"kernelpath": virtio}), Value::Null),
        (json!({"kernelpath": virtio.rsplit_once('/').unwrap().0}), Value::Null),
        (json!({"hwaddr": at.mac}), Value::Null),
    ] {
        let call = at.call().config(json!({"device": null})).config(keys);
        let result = call.add().ok_result();
        assert_eq!(container_interface(&result)["pciID"], expected);
        assert!(at.pod.reaches("198.51.100.2"));
        call.del().ok();
        at.assert_home();
    }
}

#[test]
fn del_gc_and_the_next_add_restore_the_name_of_a_dead_containers_card() {
    beyond_reference!("way-home");
    needs!(SpareNics);
    for way in ["DEL", "GC", "ADD"] {
        let at = Fixture::new("lost-card");
        at.call().add().ok_result();
        at.container_dies();
        match way {
            "DEL" => at.call().without("CNI_NETNS").del().ok(),
            "GC" => at.call().gc(&[]).ok(),
            _ => {
                let next = at.lab.container("next");
                at.call().on(&next).add().ok_result();
                assert!(next.reaches("198.51.100.2"));
                at.call().on(&next).del().ok();
                assert!(at.lab.host().link("nic0").is_some());
                continue;
            }
        }
        at.assert_home();
    }
}

#[test]
fn del_restores_the_name_of_a_dead_containers_card_that_the_reference_has_moved() {
    beyond_reference!("way-home");
    needs!(SpareNics);
    let at = Fixture::new("without-record");
    at.call().version("1.0.0").by_the_reference().add().ok_result();
    at.container_dies();
    at.call().without("CNI_NETNS").del().ok();
    let card = at.lab.host().link("nic0").expect("the card is home");
    assert_eq!((&card["address"], &card["ifalias"]), (&json!(at.mac), &Value::Null));
}

#[test]
fn a_del_that_is_faster_than_the_kernel_leaves_the_rest_to_gc() {
    beyond_reference!("way-home");
    needs!(SpareNics);
    let at = Fixture::new("faster-than-gc");
    at.call().add().ok_result();
    at.pod.vanish();
    // The host does not have the card yet.
    at.call().without("CNI_NETNS").del().ok();
    let name = wait_for(&at.initial, &at.mac);
    at.initial.sh(&format!("ip link set {name} netns host"));
    at.call().gc(&[]).ok();
    at.assert_home();
}

#[test]
fn without_its_alias_the_card_is_found_by_its_address_on_the_bus() {
    beyond_reference!("way-home");
    needs!(SpareNics);
    let at = Fixture::new("without-alias");
    at.call().add().ok_result();
    at.pod.sh("ip link set eth0 down alias ''; ip link set eth0 name wan");
    at.call().del().ok();
    at.assert_home();
}
