//! IP forwarding on the host.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use common::lab;
use iface::forwarding;

#[test]
fn the_host_forwards_the_families_of_the_addresses_and_no_other() {
    for (address, v4, v6) in [("10.0.0.1/24", "1", "0"), ("fd00::1/64", "0", "1")] {
        lab(move |lab| {
            for (key, off) in [("ipv4/ip_forward", "0"), ("ipv6/conf/all/forwarding", "0")] {
                lab.host.set_sysctl(key, off).unwrap();
            }
            let addresses = [address.parse().unwrap()];
            forwarding::enable(&lab.host, &addresses, None).unwrap();
            forwarding::enable(&lab.host, &addresses, None).unwrap();
            assert_eq!(lab.host.sysctl("ipv4/ip_forward").unwrap(), v4, "{address}");
            assert_eq!(lab.host.sysctl("ipv6/conf/all/forwarding").unwrap(), v6, "{address}");
        });
    }
}

#[test]
fn a_new_link_forwards_ipv4_if_addresses_need_it() {
    for (address, forwards) in [("10.0.0.1/24", Some(1)), ("fd00::1/64", Some(0))] {
        lab(move |lab| {
            lab.host.set_sysctl("ipv4/ip_forward", "1").unwrap();
            lab.host.set_sysctl("ipv4/conf/default/forwarding", "0").unwrap();
            let link = lab.master("new");
            assert_eq!(link.forwarding, Some(0));
            forwarding::enable(&lab.host, &[address.parse().unwrap()], Some(&link)).unwrap();
            assert_eq!(lab.host.link("new").unwrap().forwarding, forwards, "{address}");
        });
    }
}
