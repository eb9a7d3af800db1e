//! Addresses and neighbours, compared with `ip`.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "tests")]

mod common;

use std::net::IpAddr;
use std::time::Duration;

use common::{lab, pair, sh};
use netlink::Mac;

const TIMEOUT: Duration = Duration::from_secs(600);

#[test]
fn an_ipv4_address_comes_with_its_broadcast_address_unless_its_subnet_has_none() {
    lab(|lab| {
        let (veth, _) = pair(&lab.host, "a", "b");
        for net in ["10.0.0.2/24", "192.0.2.1/31", "198.51.100.1/32"] {
            lab.host.add_address(&veth, net.parse().unwrap(), false).unwrap();
        }
        let shown = sh("ip -o -4 address show dev a");
        let of = |net: &str| shown.lines().find(|line| line.contains(net)).unwrap();
        assert!(of("10.0.0.2/24").contains("10.0.0.2/24 brd 10.0.0.255 scope global a"), "{shown}");
        assert!(!of("192.0.2.1/31").contains("brd") && !of("198.51.100.1/32").contains("brd"), "{shown}");
    });
}

#[test]
fn addresses_are_listed_by_link_and_an_address_is_deleted_once() {
    lab(|lab| {
        let (a, b) = pair(&lab.host, "a", "b");
        let (first, second) = ("10.0.0.2/24".parse().unwrap(), "fd00::2/64".parse().unwrap());
        lab.host.add_address(&a, first, false).unwrap();
        lab.host.add_address(&b, second, false).unwrap();
        let nets = |link| {
            let listed = lab.host.addresses(Some(link)).unwrap();
            listed.into_iter().filter(|a| a.scope == 0).map(|a| a.net).collect::<Vec<_>>()
        };
        assert_eq!((nets(&a), nets(&b)), (vec![first], vec![second]));
        assert!(lab.host.addresses(None).unwrap().len() >= 2);
        assert!(lab.host.add_address(&a, first, false).unwrap_err().is_exists());
        lab.host.delete_address(&a, first).unwrap();
        lab.host.delete_address(&a, first).unwrap();
        assert_eq!(nets(&a), []);
    });
}

#[test]
fn an_address_with_a_peer_is_deleted_and_no_other_one_is() {
    lab(|lab| {
        let (a, b) = pair(&lab.host, "a", "b");
        for address in ["10.0.0.1 peer 10.0.0.9/32", "10.0.0.1/24", "10.0.0.1/16", "fd00::1 peer fd00::9/64"]
        {
            sh(&format!("ip address add {address} dev a"));
        }
        let left = || sh("ip -o address show dev a scope global").lines().count();
        lab.host.delete_address(&a, "10.0.0.1/32".parse().unwrap()).unwrap();
        assert!(!sh("ip address show dev a").contains("peer 10.0.0.9"));
        lab.host.delete_address(&a, "10.0.0.1/24".parse().unwrap()).unwrap();
        assert!(sh("ip address show dev a").contains("10.0.0.1/16"));
        assert_eq!(left(), 2);
        lab.host.delete_address(&a, "fd00::1/64".parse().unwrap()).unwrap();
        assert_eq!(left(), 1);
        lab.host.delete_link(&a).unwrap();
        lab.host.delete_address(&b, "10.0.0.1/32".parse().unwrap()).unwrap();
    });
}

#[test]
fn an_address_is_tested_for_duplicates_only_on_request() {
    lab(|lab| {
        let (a, b) = pair(&lab.host, "a", "b");
        let of = |net: &str| {
            let net = net.parse().unwrap();
            lab.host.addresses(Some(&a)).unwrap().into_iter().find(|a| a.net == net).unwrap()
        };
        // The kernel starts the test when the link is up. Until then, the address stays tentative.
        sh("ip link set dev a down");
        lab.host.add_address(&a, "fd00::1/64".parse().unwrap(), false).unwrap();
        assert!(!of("fd00::1/64").tentative);
        lab.host.add_address(&a, "fd00::2/64".parse().unwrap(), true).unwrap();
        assert!(of("fd00::2/64").tentative);
        lab.host.set_up(&a).unwrap();
        lab.host.set_up(&b).unwrap();
        lab.host.wait_for_addresses(&a, TIMEOUT).unwrap();
        assert!(!of("fd00::2/64").tentative);
    });
}

#[test]
fn an_address_that_a_neighbour_has_is_reported() {
    lab(|lab| {
        let (a, _) = pair(&lab.host, "a", "b");
        let b = lab.hand_over("b");
        lab.inside.add_address(&b, "fd00::1/64".parse().unwrap(), false).unwrap();
        lab.inside.set_up(&b).unwrap();
        lab.host.add_address(&a, "fd00::1/64".parse().unwrap(), true).unwrap();
        let error = lab.host.wait_for_addresses(&a, TIMEOUT).unwrap_err();
        assert!(error.to_string().contains("fd00::1 is in use by a neighbour"), "{error}");
        assert!(lab.host.addresses(Some(&a)).unwrap().iter().any(|address| address.duplicate));
    });
}

#[test]
fn a_learned_neighbour_entry_is_deleted_and_a_configured_one_is_kept() {
    lab(|lab| {
        let (a, b) = pair(&lab.host, "a", "b");
        lab.host.set_up(&b).unwrap();
        let mac = Mac::local([1, 2, 3, 4, 5]);
        for (ip, net) in [("10.0.0.1", "10.0.0.2/24"), ("fd00::1", "fd00::2/64")] {
            let ip: IpAddr = ip.parse().unwrap();
            lab.host.add_address(&a, net.parse().unwrap(), false).unwrap();
            // The kernel itself asks for the hardware address of a managed entry.
            let [known, managed] = [format!("{ip} lladdr {mac}"), format!("{ip} managed")];
            let is_known = || {
                let entries = sh("ip neigh show nud all dev a");
                entries.contains(&known) || entries.contains(&managed)
            };
            for (state, is_kept) in [
                ("nud stale", false),
                ("nud reachable", false),
                ("nud permanent", true),
                ("nud stale managed", true),
                ("nud noarp", true),
                ("nud reachable extern_learn", true),
            ] {
                sh(&format!("ip neigh replace {ip} lladdr {mac} dev a {state}"));
                assert!(is_known(), "{ip} {state}");
                lab.host.forget_neighbour(&a, ip).unwrap();
                assert_eq!(is_known(), is_kept, "{ip} {state}");
                if is_kept {
                    sh(&format!("ip neigh del {ip} dev a"));
                }
                lab.host.forget_neighbour(&a, ip).unwrap();
            }
        }
    });
}

/// Reads a container's addresses without a path of its namespace.
#[test]
fn addresses_in_a_peers_namespace_are_listed_and_a_missing_namespace_has_none() {
    lab(|lab| {
        let (near, _) = pair(&lab.host, "near", "far");
        let far = lab.hand_over("far");
        lab.inside.add_address(&far, "10.0.0.2/24".parse().unwrap(), false).unwrap();
        lab.inside.add_address(&far, "fd00::2/64".parse().unwrap(), false).unwrap();
        let id = lab.host.link_by_index(near.index).unwrap().unwrap().peer_netns_id.unwrap();
        let listed = lab.host.addresses_beyond(id).unwrap().unwrap();
        let nets: Vec<_> = listed.iter().map(|address| address.net.to_string()).collect();
        assert_eq!(nets, ["10.0.0.2/24", "fd00::2/64"]);
        assert_eq!(lab.host.addresses_beyond(id + 1000).unwrap(), None);
    });
}

#[test]
fn addresses_of_all_kinds_are_restored() {
    lab(|lab| {
        let (a, _) = pair(&lab.host, "a", "b");
        for address in [
            "10.0.0.2/24 brd +",
            "10.0.0.3/24 label a:x",
            "10.0.1.2 peer 10.0.1.9/32",
            "10.0.2.2/24 scope link metric 7 valid_lft 5000 preferred_lft 4000",
            "fd00::2/64 nodad noprefixroute",
            "fd00:1::2/64 nodad metric 9",
            "fd00:2::2/64 nodad valid_lft 5000 preferred_lft 0",
            "fd00:3::2 peer fd00:3::9/64 nodad",
        ] {
            sh(&format!("ip address add {address} dev a"));
        }
        // Only the existence of a lifetime is compared, because it decreases.
        let shown = || {
            let shown =
                sh("ip -o address show dev a scope global") + &sh("ip -o -4 address show dev a scope link");
            let coarse = |word: &str| match word.strip_suffix("sec").and_then(|seconds| seconds.parse().ok())
            {
                Some(1_u32..) => "seconds".to_owned(),
                _ => word.to_owned(),
            };
            let words = |line: &str| line.split_whitespace().map(coarse).collect::<Vec<_>>().join(" ");
            shown.lines().map(words).collect::<Vec<_>>().join("\n").replace("nodad ", "")
        };
        let before = shown();
        let all = lab.host.addresses(Some(&a)).unwrap();
        sh("ip address flush dev a scope global");
        sh("ip address flush dev a scope link");
        assert_eq!(shown(), "");
        // The kernel lists IPv4 addresses oldest first, and IPv6 addresses newest first.
        let (v4, v6): (Vec<_>, Vec<_>) = all.into_iter().partition(|address| address.net.is_ipv4());
        for address in v4.iter().chain(v6.iter().rev()) {
            match lab.host.restore_address(&a, address) {
                Err(e) if e.is_exists() => {}
                other => other.unwrap(),
            }
        }
        assert_eq!(shown(), before);
    });
}
