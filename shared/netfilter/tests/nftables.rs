//! The nftables backend with the kernel, checked by nft(8).

#![allow(clippy::unwrap_used)]

mod common;

use std::process::Command;
use std::time::Instant;

use cni::{Attachment, ContainerId, IfName, NetworkName, Scope};
use common::*;
use netfilter::{
    Backend, ChainName, Conditions, Firewall, Forward, HostPorts, Isolation, Kind, Mark, Masquerade, Opening,
    Owner, Removal, Rules, RulesetMonitor, SourceNat, SpoofCheck,
};
use netlink::wire::{Attributes, Message, read_be32};
use netlink::{Protocol, Socket};
use netns::NetNs;
use nix::sys::socket::{setsockopt, sockopt};

fn nftables() -> Firewall {
    Firewall::open(Some(Backend::Nftables)).unwrap()
}

#[test]
fn masquerade_is_two_elements_and_a_record_for_an_address() {
    lab();
    install(&nftables(), &owner("cbr0", "c1"), &masquerade(&["10.1.0.5/24", "fd00::5/64"]));
    golden("nft-masquerade", &in_order(&ruleset()));
    nftables().check(&owner("cbr0", "c1"), &masquerade(&["10.1.0.5/24", "fd00::5/64"])).unwrap();
    Removal::start().remove(&owner("cbr0", "c1"), &[Masquerade::KIND]).unwrap();
    assert_eq!(ruleset(), "");
}

/// Changes the ruleset by nft(8), whose arguments may contain spaces.
fn nft(change: &str) {
    assert!(Command::new("nft").arg(change).status().unwrap().success(), "{change}");
}

#[test]
fn an_attachments_rules_are_described_in_lines() {
    lab();
    let ports = host_ports(&["10.1.0.5/24"], &["tcp 8080 80"]);
    install(&nftables(), &owner("cbr0", "c1"), &masquerade(&["10.1.0.5/24"]));
    install(&nftables(), &owner("cbr0", "c1"), &ports);
    let lines = nftables().describe(&owner("cbr0", "c1")).unwrap();
    assert_eq!(lines[..2], ["masquerade 10.1.0.5/24", "map tcp 8080 to 10.1.0.5:80"]);
    assert!(nftables().describe(&owner("cbr0", "c2")).unwrap().is_empty());
}

#[test]
fn host_ports_are_elements_of_maps() {
    lab();
    let rules = host_ports(&["10.1.0.5/24", "fd00::5/64"], &["tcp 8080 80", "udp 192.0.2.1 53 53"]);
    install(&nftables(), &owner("cbr0", "c1"), &rules);
    golden("nft-hostports", &in_order(&ruleset()));
    nftables().check(&owner("cbr0", "c1"), &rules).unwrap();
    let network = NetworkName::parse("cbr0").unwrap();
    Removal::start()
        .collect(&network, &[HostPorts::KIND], &Scope::all_but([attachment("c1")].into_iter().collect()))
        .unwrap();
    nftables().check(&owner("cbr0", "c1"), &rules).unwrap();
    Removal::start().collect(&network, &[HostPorts::KIND], &Scope::default()).unwrap();
    assert_eq!(ruleset(), "");
}

/// The rules of a chain as nft lists them, each with its handle.
fn rules_of(chain: &str) -> Vec<(String, String)> {
    let listed = run(&format!("nft -a list chain {chain}"));
    let rule = |line: &str| {
        let (rule, handle) = line.trim().split_once(" # handle ")?;
        rule.contains(" comment ").then(|| (rule.to_owned(), handle.to_owned()))
    };
    listed.lines().filter_map(rule).collect()
}

/// If two rules were swapped, connections to host ports would be dropped, would lose their mark, or would reach a container whose
/// conditions they do not meet.
#[test]
fn a_shared_rule_that_was_deleted_or_moved_returns_to_its_place_in_the_chain() {
    lab();
    let [bridge, interface] = ["cni0"; 2].map(|name| IfName::parse(name).unwrap());
    let ports = host_ports(&["10.1.0.5/24", "fd00::5/64"], &["tcp 8080 80", "udp 192.0.2.1 53 53"]);
    let isolation =
        Isolation { bridge, interface, isolates_containers: true, bit: 12, may_be_of_reference: false };
    // Its rule is before the shared ones.
    let conditions = Conditions::parse(&["ip saddr 192.0.2.7".to_owned()], &[]).unwrap();
    let conditional = HostPorts { conditions, ..host_ports(&["10.1.0.6/24"], &["tcp 8080 80"]) };
    install(&nftables(), &owner("cbr0", "conditional"), &conditional);
    let cases: [(_, &dyn Rules); 2] = [("hostports", &ports), ("isolation", &isolation)];
    for (chain, rules) in cases.map(|(chain, rules)| (format!("inet ferrule {chain}"), rules)) {
        let owner = owner("cbr0", "c1");
        install(&nftables(), &owner, rules);
        let order = || rules_of(&chain).into_iter().map(|(rule, _)| rule).collect::<Vec<_>>();
        let expected = order();
        let is_shared = |rule: &&String| !rule.contains("cbr0/");
        assert!(expected.iter().filter(is_shared).count() > 2, "{expected:?}");
        for rule in expected.iter().filter(is_shared) {
            for moved in [None, Some("add"), Some("insert")] {
                let (_, handle) = rules_of(&chain).into_iter().find(|(found, _)| found == rule).unwrap();
                run(&format!("nft delete rule {chain} handle {handle}"));
                if let Some(to) = moved {
                    nft(&format!("{to} rule {chain} {rule}"));
                }
                if order().iter().filter(is_shared).ne(expected.iter().filter(is_shared)) {
                    let refused = nftables().check(&owner, rules).unwrap_err().to_string();
                    let comment = rule.rsplit(" comment ").next().unwrap();
                    let words = match moved {
                        None => format!("the rule {comment} of chain"),
                        Some(_) => "follows a rule that it must precede".to_owned(),
                    };
                    assert!(refused.contains(&words), "{refused}");
                    install(&nftables(), &owner, rules);
                    assert_eq!(order(), expected, "{rule}, moved: {moved:?}");
                }
                nftables().check(&owner, rules).unwrap();
                // The shared rules are in order, but they are before this one.
                if order() != expected {
                    nftables().check(&self::owner("cbr0", "conditional"), &conditional).unwrap_err();
                    install(&nftables(), &self::owner("cbr0", "conditional"), &conditional);
                    assert_eq!(order(), expected, "{rule}, moved: {moved:?}");
                }
            }
        }
        nftables().check(&self::owner("cbr0", "conditional"), &conditional).unwrap();
    }
}

/// The order of these rules is not significant.
#[test]
fn an_add_moves_no_shared_rule_that_another_attachment_has_elsewhere() {
    lab();
    let attachments = [
        ("v6", &["fd00::5/64"][..]),
        ("wide", &["10.88.0.5/16"]),
        ("dual", &["10.1.0.5/24", "fd00::6/64"]),
        ("v4", &["10.2.0.5/24"]),
    ];
    for (container, addresses) in attachments {
        install(&nftables(), &owner("cbr0", container), &host_ports(addresses, &["tcp 8080 80"]));
        install(&nftables(), &owner("cbr0", container), &masquerade(addresses));
    }
    for (container, addresses) in attachments {
        nftables().check(&owner("cbr0", container), &host_ports(addresses, &["tcp 8080 80"])).unwrap();
        nftables().check(&owner("cbr0", container), &masquerade(addresses)).unwrap();
    }
}

/// Their elements are shared with attachments that no longer have records.
#[test]
fn after_another_program_has_deleted_the_records_no_rule_is_lost_and_repair_completes_them() {
    lab();
    let [bridge, interface] = ["cni0"; 2].map(|name| IfName::parse(name).unwrap());
    let isolation =
        Isolation { bridge, interface, isolates_containers: true, bit: 12, may_be_of_reference: false };
    let [first, second] = ["10.1.0.5/24", "10.2.0.6/16"].map(|address| masquerade(&[address]));
    let of_first: [&dyn Rules; 2] = [&first, &isolation];
    let (c1, c2) = (owner("cbr0", "c1"), owner("cbr0", "c2"));
    of_first.iter().for_each(|rules| install(&nftables(), &c1, *rules));
    run("nft delete set inet ferrule attachments");
    // The second one needs another set, too.
    for rules in [&second as &dyn Rules, &isolation] {
        install(&nftables(), &c2, rules);
    }
    of_first.iter().for_each(|rules| drop(nftables().check(&c1, *rules).unwrap_err()));
    let kinds = [Masquerade::KIND, Isolation::KIND];
    Removal::start().remove(&c2, &kinds).unwrap();
    let kept = in_order(&ruleset());
    assert!(kept.contains("10.1.0.5") && !kept.contains("10.2.0.6"), "{kept}");
    assert!(run("nft list set inet ferrule apart").contains("\"cni0\" . \"cni0\""), "{kept}");

    of_first.iter().for_each(|rules| install(&nftables(), &c1, *rules));
    of_first.iter().for_each(|rules| nftables().check(&c1, *rules).unwrap());
    Removal::start().remove(&c1, &kinds).unwrap();
    assert!(!ruleset().contains("10.1.0.5"), "{}", ruleset());
}

/// It accepts packets that the others would change.
#[test]
fn a_rule_that_must_be_first_returns_to_the_start_of_the_chain() {
    lab();
    let (owner, rules) = (owner("cbr0", "c1"), masquerade(&["10.1.0.5/24", "fd00::5/64"]));
    install(&nftables(), &owner, &rules);
    let chain = "inet ferrule masquerading";
    let within = |rule: &str| rule.contains("within the subnet");
    let (rule, handle) = rules_of(chain).into_iter().find(|(rule, _)| within(rule)).unwrap();
    run(&format!("nft delete rule {chain} handle {handle}"));
    nft(&format!("add rule {chain} {rule}"));
    let refused = nftables().check(&owner, &rules).unwrap_err().to_string();
    assert!(refused.contains("follows a rule that it must precede"), "{refused}");
    install(&nftables(), &owner, &rules);
    let listed = rules_of(chain);
    assert!(listed.iter().map(|(rule, _)| within(rule)).is_sorted_by(|a, b| a >= b), "{listed:?}");
    nftables().check(&owner, &rules).unwrap();
}

/// It jumped to the chain, so that the kernel did not allow its deletion before.
#[test]
fn a_chain_that_was_deleted_after_the_jump_to_it_was_changed_is_created_again() {
    lab();
    let ports = |container: &str| {
        let ports = host_ports(&["10.1.0.5/24"], &["tcp 8080 80"]);
        (owner("cbr0", container), HostPorts { source_nat: SourceNat::None, ..ports })
    };
    let ((c1, of_c1), (c2, of_c2)) = (ports("c1"), ports("c2"));
    install(&nftables(), &c1, &of_c1);
    let (_, handle) = rules_of("inet ferrule postrouting").remove(0);
    nft(&format!("replace rule inet ferrule postrouting handle {handle} counter comment \"host ports\""));
    run("nft delete chain inet ferrule hairpin");
    install(&Firewall::open(None).unwrap(), &c2, &of_c2);
    nftables().check(&c2, &of_c2).unwrap();
}

#[test]
fn many_concurrent_adds_on_an_empty_firewall_succeed() {
    lab();
    let namespace = NetNs::current().unwrap();
    std::thread::scope(|scope| {
        for i in 0..32 {
            let namespace = &namespace;
            scope.spawn(move || {
                namespace.enter(|| {
                    let (container, address) = (format!("c{i}"), format!("10.1.0.{}/24", i + 2));
                    let owner = owner("cbr0", &container);
                    for _ in 0..3 {
                        let ports = host_ports(&[&address], &[&format!("tcp {} 80", 8000 + i)]);
                        install(&nftables(), &owner, &masquerade(&[&address]));
                        install(&nftables(), &owner, &ports);
                        let removal = Removal::start();
                        removal.remove(&owner, &[Masquerade::KIND]).unwrap();
                        removal.remove(&owner, &[HostPorts::KIND]).unwrap();
                    }
                })
            });
        }
    });
    assert_eq!(ruleset(), "");
}

fn port_8080(address: &str) -> HostPorts {
    host_ports(&[address], &["tcp 8080 80"])
}

/// The destination of port 8080, with its comment.
fn holder() -> String {
    let map = output("nft list map inet ferrule hostport4").stdout;
    let map = String::from_utf8(map).unwrap();
    let Some((_, rest)) = map.split_once("tcp . 8080 comment \"cbr0/") else { return String::new() };
    rest.split(" }").next().unwrap().replace("/eth0\"", "")
}

#[test]
fn a_newer_mapping_gets_the_port_and_keeps_it_after_the_older_ones_removal() {
    lab();
    install(&nftables(), &owner("cbr0", "old"), &port_8080("10.1.0.5/24"));
    install(&nftables(), &owner("cbr0", "new"), &port_8080("10.1.0.6/24"));
    nftables().check(&owner("cbr0", "old"), &port_8080("10.1.0.5/24")).unwrap();
    assert_eq!(holder(), "new : 10.1.0.6 . 80");
    Removal::start().remove(&owner("cbr0", "old"), &[HostPorts::KIND]).unwrap();
    nftables().check(&owner("cbr0", "new"), &port_8080("10.1.0.6/24")).unwrap();
    Removal::start().remove(&owner("cbr0", "new"), &[HostPorts::KIND]).unwrap();
    assert_eq!(ruleset(), "");
}

#[test]
fn a_port_returns_to_the_newest_attachment_that_still_requests_it() {
    lab();
    let names = ["first", "second", "third", "fourth"];
    let ports = |n: usize| port_8080(&format!("10.1.0.{}/24", n + 5));
    for (n, name) in names.iter().enumerate() {
        install(&nftables(), &owner("cbr0", name), &ports(n));
    }
    for (goes, then) in [
        ("third", "fourth : 10.1.0.8 . 80"),
        ("fourth", "second : 10.1.0.6 . 80"),
        ("second", "first : 10.1.0.5 . 80"),
    ] {
        Removal::start().remove(&owner("cbr0", goes), &[HostPorts::KIND]).unwrap();
        assert_eq!(holder(), then, "without {goes}");
    }
    nftables().check(&owner("cbr0", "first"), &ports(0)).unwrap();
    assert!(!ruleset().contains("waiting"), "{}", ruleset());
    Removal::start().remove(&owner("cbr0", "first"), &[HostPorts::KIND]).unwrap();
    assert_eq!(ruleset(), "");
}

/// nft(8) does not read comments of more than 127 bytes.
#[test]
fn a_port_returns_to_attachments_with_the_longest_names_too() {
    lab();
    let named = |id: char| {
        let container = ContainerId::parse(&id.to_string().repeat(72)).unwrap();
        let attachment = Attachment { container, ifname: IfName::parse("fifteen-letters").unwrap() };
        Owner::new(&NetworkName::parse("a-network-of-27-characters-").unwrap(), &attachment)
    };
    let (older, newer) = (named('a'), named('b'));
    install(&nftables(), &older, &port_8080("10.1.0.5/24"));
    install(&nftables(), &newer, &port_8080("10.1.0.6/24"));
    nftables().check(&older, &port_8080("10.1.0.5/24")).unwrap();
    assert!(ruleset().contains("comment \"waiting "), "{}", ruleset());
    Removal::start().remove(&newer, &[HostPorts::KIND]).unwrap();
    nftables().check(&older, &port_8080("10.1.0.5/24")).unwrap();
    assert!(ruleset().contains(&format!("{}\" : 10.1.0.5 . 80", older.label())), "{}", ruleset());
    Removal::start().remove(&older, &[HostPorts::KIND]).unwrap();
    assert_eq!(ruleset(), "");
}

#[test]
fn a_repeated_add_of_a_waiting_attachment_gets_the_port_and_releases_ports_that_it_no_longer_requests() {
    lab();
    install(&nftables(), &owner("cbr0", "one"), &port_8080("10.1.0.5/24"));
    install(&nftables(), &owner("cbr0", "two"), &port_8080("10.1.0.6/24"));
    install(&nftables(), &owner("cbr0", "one"), &port_8080("10.1.0.5/24"));
    assert_eq!(holder(), "one : 10.1.0.5 . 80");
    let other = host_ports(&["10.1.0.5/24"], &["tcp 9090 80"]);
    install(&nftables(), &owner("cbr0", "one"), &other);
    assert_eq!(holder(), "two : 10.1.0.6 . 80");
    Removal::start().remove(&owner("cbr0", "two"), &[HostPorts::KIND]).unwrap();
    Removal::start().remove(&owner("cbr0", "one"), &[HostPorts::KIND]).unwrap();
    assert_eq!(ruleset(), "");
}

#[test]
fn gc_returns_ports_only_to_valid_attachments() {
    let network = NetworkName::parse("cbr0").unwrap();
    for (valid, then) in
        [("first", "first : 10.1.0.5 . 80"), ("third", "third : 10.1.0.7 . 80"), ("none", "")]
    {
        lab();
        for (n, name) in ["first", "second", "third"].iter().enumerate() {
            install(&nftables(), &owner("cbr0", name), &port_8080(&format!("10.1.0.{}/24", n + 5)));
        }
        Removal::start()
            .collect(&network, &[HostPorts::KIND], &Scope::all_but([attachment(valid)].into_iter().collect()))
            .unwrap();
        assert_eq!(holder(), then);
        Removal::start().remove(&owner("cbr0", valid), &[HostPorts::KIND]).unwrap();
        assert_eq!(ruleset(), "");
    }
}

/// Versions without claims did not record waiting attachments.
#[test]
fn rules_without_claims_are_removed_as_they_are() {
    lab();
    install(&nftables(), &owner("cbr0", "old"), &port_8080("10.1.0.5/24"));
    install(&nftables(), &owner("cbr0", "new"), &port_8080("10.1.0.6/24"));
    let ruleset_before = ruleset();
    let claim = ruleset_before.lines().find(|line| line.contains("waiting cbr0/old/eth0")).unwrap();
    let key = claim.trim().trim_start_matches("elements = {").split(" comment").next().unwrap();
    nft(&format!("delete element inet ferrule attachments {{ {key} }}"));
    assert!(nftables().check(&owner("cbr0", "old"), &port_8080("10.1.0.5/24")).is_err());
    Removal::start().remove(&owner("cbr0", "new"), &[HostPorts::KIND]).unwrap();
    assert_eq!(holder(), "");
    Removal::start().remove(&owner("cbr0", "old"), &[HostPorts::KIND]).unwrap();
    assert_eq!(ruleset(), "");
}

#[test]
fn an_address_used_again_belongs_to_the_newer_container() {
    lab();
    let ports = || host_ports(&["10.1.0.5/24"], &["tcp 8080 80"]);
    install(&nftables(), &owner("cbr0", "old"), &ports());
    install(&nftables(), &owner("cbr0", "new"), &ports());
    Removal::start().remove(&owner("cbr0", "old"), &[HostPorts::KIND]).unwrap();
    nftables().check(&owner("cbr0", "new"), &ports()).unwrap();
}

#[test]
fn a_running_container_keeps_its_rules_when_another_one_with_its_address_is_deleted() {
    lab();
    let rules: [Box<dyn Rules>; 2] =
        [Box::new(masquerade(&["10.1.0.5/24"])), Box::new(host_ports(&["10.1.0.5/24"], &["tcp 8080 80"]))];
    let mistaken: [Box<dyn Rules>; 2] =
        [Box::new(masquerade(&["10.1.0.5/24"])), Box::new(host_ports(&["10.1.0.5/24"], &["tcp 9090 80"]))];
    rules.iter().for_each(|rules| install(&nftables(), &owner("cbr0", "running"), &**rules));
    let before = ruleset();
    mistaken.iter().for_each(|rules| install(&nftables(), &owner("cbr0", "mistaken"), &**rules));
    rules.iter().for_each(|rules| nftables().check(&owner("cbr0", "running"), &**rules).unwrap());
    let kinds = [Masquerade::KIND, HostPorts::KIND];
    Removal::start().remove(&owner("cbr0", "mistaken"), &kinds).unwrap();
    rules.iter().for_each(|rules| nftables().check(&owner("cbr0", "running"), &**rules).unwrap());
    assert_eq!(in_order(&ruleset()), in_order(&before));
    Removal::start().remove(&owner("cbr0", "running"), &kinds).unwrap();
    assert_eq!(ruleset(), "");
}

#[test]
fn check_notices_that_the_rules_that_clear_the_mark_are_missing_and_the_next_add_adds_them() {
    lab();
    let opening = Opening::of_forward(Opening::DEFAULT_BIT, ChainName::parse("CNI-ADMIN").unwrap());
    let rules = ["10.1.0.5", "10.1.0.6"].map(|address| Forward {
        addresses: vec![address.parse().unwrap()],
        opening: opening.clone(),
        may_be_of_reference: false,
    });
    install(&nftables(), &owner("cbr0", "c1"), &rules[0]);
    let complete = run("nft list chain inet ferrule forwarded");
    assert_eq!(complete.matches("meta mark set").count(), 2, "{complete}");
    run("nft flush chain inet ferrule forwarded");
    run("nft delete chain inet ferrule forwarded");
    let error = nftables().check(&owner("cbr0", "c1"), &rules[0]).unwrap_err();
    assert!(error.msg().contains("of chain forwarded is missing"), "{error}");
    install(&nftables(), &owner("cbr0", "c2"), &rules[1]);
    assert_eq!(run("nft list chain inet ferrule forwarded"), complete);
    nftables().check(&owner("cbr0", "c1"), &rules[0]).unwrap();
    for container in ["c1", "c2"] {
        Removal::start().remove(&owner("cbr0", container), &[Forward::KIND]).unwrap();
    }
    assert_eq!(ruleset(), "");
}

#[test]
fn an_add_repeated_without_a_del_replaces_the_earlier_rules() {
    lab();
    let owner = owner("cbr0", "c1");
    install(&nftables(), &owner, &host_ports(&["10.1.0.5/24"], &["tcp 1 80", "tcp 2 80"]));
    let newer = host_ports(&["10.1.0.9/16"], &["tcp 2 80"]);
    install(&nftables(), &owner, &newer);
    nftables().check(&owner, &newer).unwrap();
    assert!(!ruleset().contains("10.1.0.5"), "{}", ruleset());
    Removal::start().remove(&owner, &[HostPorts::KIND]).unwrap();
    assert_eq!(ruleset(), "");
}

#[test]
fn a_flushed_table_is_repaired_by_the_next_add() {
    lab();
    for flush in ["flush ruleset", "flush table inet ferrule", "flush chain inet ferrule hairpin"] {
        install(&nftables(), &owner("cbr0", "c1"), &host_ports(&["10.1.0.5/24"], &["tcp 1 80"]));
        let whole =
            run("nft -s list chain inet ferrule hairpin") + &run("nft -s list chain inet ferrule hostports");
        run(&format!("nft {flush}"));
        install(&nftables(), &owner("cbr0", "c2"), &host_ports(&["10.1.0.6/24"], &["tcp 2 80"]));
        let repaired =
            run("nft -s list chain inet ferrule hairpin") + &run("nft -s list chain inet ferrule hostports");
        assert_eq!(repaired, whole, "{flush}");
        run("nft flush ruleset");
    }
}

#[test]
fn conditions_and_other_marks_are_separate_rules() {
    lab();
    let mut rules = host_ports(&["10.1.0.5/24", "fd00::5/64"], &["tcp 8080 80", "sctp 192.0.2.1 53 53"]);
    let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    rules.conditions = Conditions::parse(
        &words(
            "ip saddr != {192.0.2.0/24,198.51.100.7} tcp sport {1,1024-65535} iifname eth* meta mark 0x10",
        ),
        &words("ip6 daddr fd00:2::1-fd00:2::9 iifname \"up0\""),
    )
    .unwrap();
    rules.mark = Mark::bit(20).unwrap();
    install(&nftables(), &owner("cbr0", "c1"), &rules);
    nftables().check(&owner("cbr0", "c1"), &rules).unwrap();
    golden("nft-conditions", &run("nft list chain inet ferrule hostports"));
    Removal::start().remove(&owner("cbr0", "c1"), &[HostPorts::KIND]).unwrap();
    assert_eq!(ruleset(), "");
}

#[test]
fn frames_with_a_foreign_source_are_dropped_at_the_port() {
    lab();
    let rules =
        SpoofCheck { port: IfName::parse("veth0123").unwrap(), mac: "0a:58:0a:01:00:05".parse().unwrap() };
    install(&nftables(), &owner("cbr0", "c1"), &rules);
    nftables().check(&owner("cbr0", "c1"), &rules).unwrap();
    golden("nft-spoofcheck", &in_order(&ruleset()));
    Removal::start().remove(&owner("cbr0", "c1"), &[SpoofCheck::KIND]).unwrap();
    assert_eq!(ruleset(), "");
}

#[test]
fn a_port_mapped_twice_leads_to_the_first_one_and_is_removed_once() {
    lab();
    let rules = host_ports(&["10.1.0.5/24"], &["tcp 8080 80", "tcp 8080 81"]);
    install(&nftables(), &owner("cbr0", "c1"), &rules);
    assert!(ruleset().contains("10.1.0.5 . 80") && !ruleset().contains("10.1.0.5 . 81"));
    install(&nftables(), &owner("cbr0", "c2"), &masquerade(&["10.1.0.6/24"]));
    Removal::start().remove(&owner("cbr0", "c1"), &[HostPorts::KIND]).unwrap();
    assert!(!ruleset().contains("10.1.0.5"));
}

#[test]
fn thousands_of_ports_of_one_container_are_one_transaction() {
    lab();
    let mappings: Vec<String> = (1..=5000).map(|port| format!("tcp {port} {port}")).collect();
    let mappings: Vec<&str> = mappings.iter().map(String::as_str).collect();
    let rules = host_ports(&["10.1.0.5/24", "fd00::5/64"], &mappings);
    install(&nftables(), &owner("cbr0", "c1"), &rules);
    nftables().check(&owner("cbr0", "c1"), &rules).unwrap();
    install(&nftables(), &owner("cbr0", "c2"), &masquerade(&["10.1.0.6/24"]));
    Removal::start().remove(&owner("cbr0", "c1"), &[HostPorts::KIND]).unwrap();
    assert!(!ruleset().contains("10.1.0.5"));
}

#[test]
fn rules_of_the_references_nftables_backends_are_removed() {
    lab();
    run(&format!("nft -f {}", recorded("nft")));
    let of_c2 = || {
        let lines = ruleset();
        let lines =
            lines.lines().filter(|line| ["c2", "10.1.0.6", "fd00::6"].iter().any(|part| line.contains(part)));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let before = of_c2();
    for kind in Kind::ALL {
        Removal::start().remove(&owner("cbr0", "c1"), &[kind]).unwrap();
    }
    let left = ruleset();
    assert!(!["c1", "10.1.0.5", "fd00::5", "veth1"].iter().any(|part| left.contains(part)), "{left}");
    assert_eq!(of_c2(), before);
    let network = NetworkName::parse("cbr0").unwrap();
    Removal::start()
        .collect(&network, &[Masquerade::KIND], &Scope::all_but([attachment("c3")].into_iter().collect()))
        .unwrap();
    assert!(!ruleset().contains("net: cbr0"), "{}", ruleset());
}

#[test]
fn hundreds_of_stale_attachments_are_removed_in_one_transaction() {
    lab();
    let ports = |n: u32| {
        let address = format!("10.1.{}.{}/16", n / 200, n % 200 + 2);
        host_ports(&[&address], &[&format!("tcp {} 80", 1000 + n)])
    };
    for n in 0..300 {
        install(&nftables(), &owner("cbr0", &format!("c{n}")), &ports(n));
    }
    let before = generation();
    let network = NetworkName::parse("cbr0").unwrap();
    Removal::start()
        .collect(&network, &[HostPorts::KIND], &Scope::all_but([attachment("c7")].into_iter().collect()))
        .unwrap();
    assert_eq!(generation(), before + 1);
    nftables().check(&owner("cbr0", "c7"), &ports(7)).unwrap();
    Removal::start().collect(&network, &[HostPorts::KIND], &Scope::default()).unwrap();
    assert_eq!(ruleset(), "");
}

/// The number of transactions so far (NFT_MSG_GETGEN, whose answer has it in NFTA_GEN_ID).
fn generation() -> u32 {
    let mut generation = None;
    Socket::open(Protocol::Netfilter)
        .unwrap()
        .request(Message::new(10 << 8 | 16, 0, &[0; 4]), |_, payload| {
            generation = Attributes::after(4, payload).get(1).and_then(read_be32);
        })
        .unwrap();
    generation.unwrap()
}

#[test]
#[ignore = "prints times"]
fn the_cost_of_a_change_does_not_grow() {
    lab();
    let firewall = nftables();
    let ports = |i: u32| {
        let address = format!("10.1.{}.{}/16", i / 200, i % 200 + 2);
        host_ports(&[&address], &[&format!("tcp {} 80", 1000 + i)])
    };
    let once = |i: u32| {
        let start = Instant::now();
        install(&firewall, &owner("cbr0", &format!("c{i}")), &ports(i));
        let added = start.elapsed();
        let start = Instant::now();
        let removal = Removal::start();
        removal.remove(&owner("cbr0", &format!("c{i}")), &[HostPorts::KIND]).unwrap();
        let removed = start.elapsed();
        drop(removal);
        (added, removed, start.elapsed())
    };
    let median = |mut all: Vec<_>| {
        all.sort();
        all[all.len() / 2]
    };
    println!("alone {:?}", median((0..51).map(|_| once(0)).collect()));
    for i in 0..5000 {
        install(&firewall, &owner("cbr0", &format!("c{i}")), &ports(i));
        if [1, 10, 100, 1000, 5000].contains(&(i + 1)) {
            println!("{} {:?}", i + 1, median((0..51).map(|_| once(9000)).collect()));
        }
    }
}

#[test]
fn status_tests_all_required_parts_of_the_kernel_and_leaves_nothing() {
    lab();
    for kind in Kind::ALL {
        for choice in [None, Some(Backend::Nftables)] {
            Firewall::check_available(choice, kind).unwrap();
        }
    }
    assert_eq!(ruleset(), "");
}

#[test]
fn conditions_are_in_the_ruleset_as_nft_reads_them() {
    lab();
    let condition = "ct state new,related ct mark 0x20 iifname != eth1 ip saddr 192.0.2.0/24 tcp sport 1024-65535 \
        comment \"in the office\" meta l4proto tcp";
    let mut rules = host_ports(&["10.1.0.5/24"], &["tcp 8080 80"]);
    rules.conditions = Conditions::parse(&[condition.to_owned()], &[]).unwrap();
    let owner = owner("cbr0", "c1");
    install(&nftables(), &owner, &rules);
    let shown = run("nft list chain inet ferrule hostports");
    let rule = shown.lines().find(|line| line.contains("cbr0/c1/eth0")).unwrap();
    for text in [
        "ct state related,new ct mark 0x00000020 iifname != \"eth1\" ip saddr 192.0.2.0/24 tcp sport 1024-65535",
        "tcp dport 8080 ct mark set",
    ] {
        assert!(rule.contains(text), "{rule}");
    }
    nftables().check(&owner, &rules).unwrap();
    Removal::start().remove(&owner, &[HostPorts::KIND]).unwrap();
    assert_eq!(ruleset(), "");
}

#[test]
fn operators_protocols_and_networks_of_conditions_are_in_the_ruleset() {
    lab();
    for (v4, v6, shown) in [
        ("ip saddr == 192.0.2.7", "", "ip saddr 192.0.2.7"),
        ("ip saddr != 192.0.2.7", "", "ip saddr != 192.0.2.7"),
        ("meta l4proto != udp", "", "meta l4proto != udp"),
        ("ip protocol tcp", "", "meta l4proto tcp"),
        ("", "ip6 saddr 2001:db8:7::/64", "ip6 saddr 2001:db8:7::/64"),
    ] {
        let mut rules = host_ports(&["10.1.0.5/24", "fd00::5/64"], &["tcp 8080 80"]);
        let words = |text: &str| vec![text.to_owned()];
        rules.conditions = Conditions::parse(&words(v4), &words(v6)).unwrap();
        let owner = owner("cbr0", "c1");
        install(&nftables(), &owner, &rules);
        let chain = run("nft list chain inet ferrule hostports");
        let own: Vec<&str> = chain.lines().filter(|line| line.contains("cbr0/c1/eth0")).collect();
        assert!(own.iter().any(|rule| rule.contains(&format!("{shown} "))), "{shown}: {own:#?}");
        Removal::start().remove(&owner, &[HostPorts::KIND]).unwrap();
    }
}

/// Reading all of an attachment's records for each of its ports would be millions of reads.
#[test]
fn thousands_of_ports_that_two_attachments_claim_change_hands_and_return() {
    lab();
    let mappings: Vec<String> = (1..=2000).map(|port| format!("tcp {port} {port}")).collect();
    let mappings: Vec<&str> = mappings.iter().map(String::as_str).collect();
    let rules = |address: &str| host_ports(&[address], &mappings);
    install(&nftables(), &owner("cbr0", "one"), &rules("10.1.0.5/24"));
    install(&nftables(), &owner("cbr0", "two"), &rules("10.1.0.6/24"));
    let lead_to = |address: &str| ruleset().matches(&format!(" : {address} . ")).count();
    assert_eq!((lead_to("10.1.0.5"), lead_to("10.1.0.6")), (0, 2000));
    Removal::start().remove(&owner("cbr0", "two"), &[HostPorts::KIND]).unwrap();
    assert_eq!((lead_to("10.1.0.5"), lead_to("10.1.0.6")), (2000, 0));
    nftables().check(&owner("cbr0", "one"), &rules("10.1.0.5/24")).unwrap();
    Removal::start().remove(&owner("cbr0", "one"), &[HostPorts::KIND]).unwrap();
    assert_eq!(ruleset(), "");
}

#[test]
fn more_than_the_maximum_number_of_records_are_refused() {
    lab();
    let mappings: Vec<String> = (1..=65533_u32).map(|port| format!("tcp {port} {port}")).collect();
    let mappings: Vec<&str> = mappings.iter().map(String::as_str).collect();
    // Two more records are for source NAT.
    let rules = host_ports(&["10.1.0.5/24"], &mappings);
    let error = nftables().install(&owner("cbr0", "c1"), &rules, &mut cni::Undo::new()).unwrap_err();
    assert_eq!(error.code(), 7);
    assert!(error.msg().contains("65535 records of one attachment are too many"), "{error}");
    assert_eq!(ruleset(), "");
}

/// One of the dropped events may be the removal of Ferrule's rules.
#[test]
fn events_that_the_kernel_drops_count_as_a_loss() {
    lab();
    let monitor = RulesetMonitor::subscribe().unwrap().unwrap();
    let rules = "; add rule ip foreign one counter".repeat(40);
    let change = format!("add table ip foreign; add chain ip foreign one{rules}");
    nft(&change);
    assert!(!monitor.read_losses().unwrap(), "another program has added rules");
    // The kernel chooses its minimum, which has no room for the events of the same change.
    setsockopt(&monitor, sockopt::RcvBuf, &0).unwrap();
    nft(&change);
    assert!(monitor.read_losses().unwrap());
    assert!(!monitor.read_losses().unwrap(), "the overflow was reported before");
}
