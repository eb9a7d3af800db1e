//! The nftables backend against the kernel, seen through nft(8).

#![allow(clippy::unwrap_used)]

mod common;

use cni::NetworkName;
use common::*;
use firewall::{Backend, Firewall, Kind, Rules, Sweep};

fn nftables() -> Firewall {
    Firewall::open(Some(Backend::Nftables)).unwrap()
}

#[test]
fn masquerade_is_two_elements_and_a_record_for_an_address() {
    lab();
    install(&nftables(), &owner("cbr0", "c1"), &masquerade(&["10.1.0.5/24", "fd00::5/64"]));
    nftables().check(&owner("cbr0", "c1"), &masquerade(&["10.1.0.5/24", "fd00::5/64"])).unwrap();
    Sweep::start().remove(&owner("cbr0", "c1"), Kind::Masquerade).unwrap();
    assert_eq!(ruleset(), "");
}

#[test]
fn host_ports_are_elements_of_maps() {
    lab();
    let rules =
        Rules::HostPorts(host_ports(&["10.1.0.5/24", "fd00::5/64"], &["tcp 8080 80", "udp 192.0.2.1 53 53"]));
    install(&nftables(), &owner("cbr0", "c1"), &rules);
    nftables().check(&owner("cbr0", "c1"), &rules).unwrap();
    let network = NetworkName::parse("cbr0").unwrap();
    Sweep::start().retain(&network, Kind::HostPorts, &[attachment("c1")]).unwrap();
    nftables().check(&owner("cbr0", "c1"), &rules).unwrap();
    Sweep::start().retain(&network, Kind::HostPorts, &[]).unwrap();
    assert_eq!(ruleset(), "");
}
