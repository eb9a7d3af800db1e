//! The iptables backend with the real tools, in both variants.

#![allow(clippy::unwrap_used)]

mod common;

use std::process::Command;

use cni::{NetworkName, Scope};
use common::*;
use netfilter::{Backend, Conditions, Firewall, Forward, HostPorts, Mark, Masquerade, Removal, SourceNat};
use netns::NetNs;

fn iptables() -> Firewall {
    Firewall::open(Some(Backend::Iptables)).unwrap()
}

/// The rules of both families, without counters, dates and empty tables.
fn saved() -> String {
    let tables = ["iptables-save -t mangle", "iptables-save -t nat", "ip6tables-save -t nat"];
    let saved = tables.map(run).concat();
    let is_rule = |line: &&str| line.starts_with("-A") || line.starts_with(':') && line.contains(" - ");
    saved.lines().filter(is_rule).map(|line| format!("{line}\n")).collect()
}

const ADDRESSES: &[&str] = &["10.1.0.5/24", "fd00::5/64"];

#[test]
fn masquerade_is_a_chain_for_an_attachment() {
    lab();
    let (owner, rules) = (owner("cbr0", "c1"), masquerade(ADDRESSES));
    install(&iptables(), &owner, &rules);
    golden("iptables-masquerade", &saved());
    iptables().check(&owner, &rules).unwrap();
    Removal::start().remove(&owner, &[Masquerade::KIND]).unwrap();
    assert_eq!(saved(), "");
}

#[test]
fn an_address_in_two_subnets_is_masqueraded_outside_of_both() {
    lab();
    let (owner, rules) = (owner("cbr0", "c1"), masquerade(&["10.1.0.5/24", "10.1.0.5/16"]));
    install(&iptables(), &owner, &rules);
    let saved = saved();
    let ends: Vec<&str> =
        saved.lines().filter_map(|line| line.split_once("10.1.0.5/32 ")).map(|(_, end)| end).collect();
    let near = |subnet: &str| format!("-d {subnet} -m comment --comment \"10.1.0.5\" -j ACCEPT");
    assert!(ends.len() == 4 && ends[0].contains("-j FERRULE-MQ-"), "{saved}");
    assert_eq!(ends[1..], [&near("10.1.0.0/24"), &near("10.1.0.0/16"), "! -d 224.0.0.0/4 -j MASQUERADE"]);
    iptables().check(&owner, &rules).unwrap();
}

#[test]
fn host_ports_are_a_chain_for_an_attachment() {
    lab();
    let mappings = &["tcp 8080 80", "udp 192.0.2.1 53 53", "sctp 7 7"];
    let (owner, rules) = (owner("cbr0", "c1"), host_ports(ADDRESSES, mappings));
    install(&iptables(), &owner, &rules);
    golden("iptables-hostports", &saved());
    iptables().check(&owner, &rules).unwrap();
    Removal::start().remove(&owner, &[HostPorts::KIND]).unwrap();
    assert_eq!(saved(), "");
}

#[test]
fn a_foreign_mark_chain_conditions_and_masquerade_for_all() {
    lab();
    run("iptables -t nat -N KUBE-MARK-MASQ");
    let mut rules = host_ports(&["10.1.0.5/24"], &["tcp 8080 80"]);
    let words: Vec<String> = "! -s 192.0.2.0/24 -i eth+".split(' ').map(str::to_owned).collect();
    rules.conditions = Conditions::parse(&words, &[]).unwrap();
    rules.mark = Mark::Chain(netfilter::ChainName::parse("KUBE-MARK-MASQ").unwrap());
    rules.source_nat = SourceNat::All;
    let owner = owner("cbr0", "c1");
    install(&iptables(), &owner, &rules);
    golden("iptables-special", &saved());
    iptables().check(&owner, &rules).unwrap();
    Removal::start().remove(&owner, &[HostPorts::KIND]).unwrap();
    assert_eq!(saved(), ":KUBE-MARK-MASQ - [0:0]\n");
}

#[test]
fn flushed_rules_are_repaired_and_existing_ones_are_not_duplicated() {
    lab();
    let rules = |address: &str| host_ports(&[address], &["tcp 8080 80"]);
    install(&iptables(), &owner("cbr0", "c1"), &rules("10.1.0.5/24"));
    let once = saved();
    install(&iptables(), &owner("cbr0", "c1"), &rules("10.1.0.5/24"));
    assert_eq!(saved(), once, "a repeated ADD");
    run("iptables -t nat -F PREROUTING");
    assert!(iptables().check(&owner("cbr0", "c1"), &rules("10.1.0.5/24")).is_err());
    install(&iptables(), &owner("cbr0", "c1"), &rules("10.1.0.5/24"));
    assert_eq!(saved(), once, "a flushed chain");
}

#[test]
fn host_ports_follow_the_rules_of_other_programs_and_precede_those_of_the_reference() {
    let changed = "-A PREROUTING -m comment --comment \"ferrule: to this host\" -j FERRULE-HOSTPORTS\n";
    let earlier = changed.replace("-m comment", "-m addrtype --dst-type LOCAL -m comment");
    let [theirs, ours, reference, later] = ["THEIRS", "FERRULE-HOSTPORTS", "CNI-HOSTPORT-DNAT", "LATER"];
    let rules = host_ports(&["10.1.0.5/24"], &["tcp 8080 80"]);
    for (existing, expected) in [
        ("", [theirs, ours, reference, later]),
        (changed, [theirs, ours, reference, later]),
        // A rule with the right content stays where it is.
        (&earlier, [ours, theirs, reference, later]),
    ] {
        lab();
        let chains = [theirs, ours, reference, later].map(|chain| format!(":{chain} -\n")).concat();
        let jumps = [theirs, reference, later].map(|chain| format!("-A PREROUTING -j {chain}\n")).concat();
        restore(&format!("*nat\n{chains}{existing}{jumps}-A OUTPUT -j {theirs}\nCOMMIT\n"));
        install(&iptables(), &owner("cbr0", "c1"), &rules);
        let targets = |chain: &str| {
            let rules = run(&format!("iptables -t nat -S {chain}"));
            let jumps = rules.lines().filter_map(|rule| Some(rule.split_once(" -j ")?.1.to_owned()));
            jumps.collect::<Vec<_>>()
        };
        assert_eq!(targets("PREROUTING"), expected, "{existing}");
        assert_eq!(targets("OUTPUT"), [theirs, ours], "{existing}");
        iptables().check(&owner("cbr0", "c1"), &rules).unwrap();
    }
}

#[test]
fn a_port_returns_to_the_newest_attachment_that_still_requests_it() {
    lab();
    let ports = |n: usize| host_ports(&[&format!("10.1.0.{}/24", n + 5)], &["tcp 8080 80"]);
    for (n, name) in ["first", "second", "third"].iter().enumerate() {
        install(&iptables(), &owner("cbr0", name), &ports(n));
    }
    for (n, name) in ["first", "second", "third"].iter().enumerate() {
        iptables().check(&owner("cbr0", name), &ports(n)).unwrap();
    }
    for (goes, then) in [("second", "third"), ("third", "first")] {
        Removal::start().remove(&owner("cbr0", goes), &[HostPorts::KIND]).unwrap();
        let first =
            saved().lines().find(|line| line.starts_with("-A FERRULE-HOSTPORTS ")).unwrap().to_owned();
        assert!(first.contains(&format!("\"cbr0/{then}/eth0\"")), "without {goes}: {first}");
    }
}

/// A DEL or GC was killed after it had removed the jump to a chain, before it removed the chain.
#[test]
fn a_chain_without_jumps_to_it_is_removed_by_del_and_by_gc() {
    let network = NetworkName::parse("cbr0").unwrap();
    let ports = |last: u8| host_ports(&[&format!("10.1.0.{last}/24")], &["udp 53 53"]);
    for by_gc in [true, false] {
        lab();
        install(&iptables(), &owner("cbr0", "goes"), &ports(5));
        run("iptables -t nat -F FERRULE-HOSTPORTS");
        if by_gc {
            Removal::start().collect(&network, &[HostPorts::KIND], &Scope::default()).unwrap();
        } else {
            Removal::start().remove(&owner("cbr0", "goes"), &[HostPorts::KIND]).unwrap();
        }
        assert_eq!(saved(), "", "by gc: {by_gc}");
    }
}

#[test]
fn gc_removes_invalid_attachments_of_its_network_only() {
    lab();
    let rules = |last: u8| host_ports(&[&format!("10.1.0.{last}/24")], &["tcp 8080 80"]);
    for (network, container, last) in [("cbr0", "c1", 5), ("cbr0", "c2", 6), ("other", "c3", 7)] {
        install(&iptables(), &owner(network, container), &rules(last));
        install(&iptables(), &owner(network, container), &masquerade(&[&format!("10.1.0.{last}/24")]));
    }
    let network = NetworkName::parse("cbr0").unwrap();
    for kind in [HostPorts::KIND, Masquerade::KIND] {
        let scope = Scope::all_but([attachment("c1")].into_iter().collect());
        Removal::start().collect(&network, &[kind], &scope).unwrap();
    }
    for (network, container, last) in [("cbr0", "c1", 5), ("other", "c3", 7)] {
        let masquerade = masquerade(&[&format!("10.1.0.{last}/24")]);
        iptables().check(&owner(network, container), &rules(last)).unwrap();
        iptables().check(&owner(network, container), &masquerade).unwrap();
    }
    assert!(!saved().contains("10.1.0.6") && !saved().contains("cbr0/c2/"), "{}", saved());
}

#[test]
fn many_concurrent_adds_on_an_empty_firewall_succeed() {
    lab();
    let namespace = NetNs::current().unwrap();
    std::thread::scope(|scope| {
        for i in 0..20 {
            let namespace = &namespace;
            scope.spawn(move || {
                let add = || {
                    let address = format!("10.1.0.{}/24", i + 2);
                    let ports = host_ports(&[&address], &[&format!("tcp {} 80", 8000 + i)]);
                    let owner = owner("cbr0", &format!("c{i}"));
                    install(&iptables(), &owner, &ports);
                    install(&iptables(), &owner, &masquerade(&[&address]));
                };
                namespace.enter(add).unwrap();
            });
        }
    });
    assert_eq!(saved().matches("ferrule: to this host").count(), 2, "{}", saved());
    let network = NetworkName::parse("cbr0").unwrap();
    for kind in [HostPorts::KIND, Masquerade::KIND] {
        Removal::start().collect(&network, &[kind], &Scope::default()).unwrap();
    }
    assert_eq!(saved(), "");
}

/// In the names of the reference's chains of c1.
const HASH: &str = "68f1f1eeb62cad3d0bdd5";

#[test]
fn rules_of_the_reference_are_removed_by_del_and_by_gc() {
    for by_gc in [false, true] {
        lab();
        for tool in ["iptables", "ip6tables"] {
            run(&format!("{tool}-restore {}", recorded(tool)));
        }
        let of_others: String =
            saved().lines().filter(|line| !line.contains(HASH)).map(|line| format!("{line}\n")).collect();
        assert!(saved().contains("10.1.0.5/32") && !of_others.contains("10.1.0.5/32"));
        for kind in [Masquerade::KIND, HostPorts::KIND] {
            if by_gc {
                let network = NetworkName::parse("cbr0").unwrap();
                Removal::start()
                    .collect(&network, &[kind], &Scope::all_but([attachment("c2")].into_iter().collect()))
                    .unwrap();
            } else {
                Removal::start().remove(&owner("cbr0", "c1"), &[kind]).unwrap();
            }
        }
        assert_eq!(saved(), of_others, "by gc: {by_gc}");
    }
}

#[test]
fn gc_keeps_rules_of_others_whose_comments_look_like_a_label() {
    lab();
    let of_others = [
        "-N VPN",
        "-A POSTROUTING -m comment --comment net/vpn -j VPN",
        "-A POSTROUTING -d 10.8.0.0/16 -m comment --comment net/vpn -j SNAT --to-source 10.8.0.1",
        "-A VPN -d 10.9.0.0/16 -j ACCEPT",
    ];
    of_others.iter().for_each(|rule| drop(run(&format!("iptables -t nat {rule}"))));
    let before = run("iptables -t nat -S");
    install(&iptables(), &owner("net", "c1"), &masquerade(&["10.1.0.5/24"]));
    let (network, scope) =
        (NetworkName::parse("net").unwrap(), Scope::all_but([attachment("c2")].into_iter().collect()));
    Removal::start().collect(&network, &[Masquerade::KIND], &scope).unwrap();
    assert_eq!(run("iptables -t nat -S"), before);
}

#[test]
fn del_keeps_accept_rules_of_others_with_the_containers_address() {
    lab();
    let hooks = [("iptables", "10.1.0.5/32"), ("ip6tables", "fd00::5/128")];
    for (tool, ip) in hooks {
        run(&format!("{tool} -N CNI-FORWARD"));
        for rule in [
            format!("-d {ip} -j ACCEPT"),
            format!("-d {ip} -m conntrack --ctstate INVALID -j ACCEPT"),
            format!("-d {ip} -m conntrack ! --ctstate RELATED,ESTABLISHED -j ACCEPT"),
            format!("-d {ip} -m conntrack --ctstate RELATED,ESTABLISHED --ctstatus ASSURED -j ACCEPT"),
            format!("-s {ip} -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT"),
            format!("-s {ip} -m comment --comment mine -j ACCEPT"),
        ] {
            run(&format!("{tool} -A CNI-FORWARD {rule}"));
        }
    }
    let rules = || hooks.map(|(tool, _)| run(&format!("{tool} -S CNI-FORWARD")));
    let before = rules();
    for (tool, ip) in hooks {
        // As the reference adds them.
        run(&format!("{tool} -I CNI-FORWARD -d {ip} -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT"));
        run(&format!("{tool} -I CNI-FORWARD -s {ip} -j ACCEPT"));
    }
    let addresses = ["10.1.0.5", "fd00::5"].map(|ip| ip.parse().unwrap());
    Removal::start().with_addresses(addresses).remove(&owner("net", "c1"), &[Forward::KIND]).unwrap();
    assert_eq!(rules(), before);
}

fn restore(script: &str) {
    use std::io::Write;
    let mut tool = Command::new("iptables-restore").stdin(std::process::Stdio::piped()).spawn().unwrap();
    tool.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    assert!(tool.wait().unwrap().success());
}

#[test]
fn the_tools_error_is_reported_and_nothing_is_changed() {
    lab();
    let mut rules = host_ports(&["10.1.0.5/24"], &["tcp 8080 80"]);
    let words: Vec<String> = "-m addrtype --src-type NOSUCH".split(' ').map(str::to_owned).collect();
    rules.conditions = Conditions::parse(&words, &[]).unwrap();
    let mut undo = cni::Undo::new();
    let error = iptables().install(&owner("cbr0", "c1"), &rules, &mut undo).unwrap_err();
    assert!(error.msg().contains("iptables rules of cbr0/c1/eth0"), "{error}");
    assert!(error.details().contains("NOSUCH"), "{error}");
    undo.unwind();
    assert_eq!(saved(), "");
}

#[test]
fn the_legacy_variant_does_the_same() {
    let tools = tempfile::tempdir().unwrap();
    for family in ["iptables", "ip6tables"] {
        for verb in ["", "-save", "-restore"] {
            let target = format!("/usr/sbin/{family}-legacy{verb}");
            std::os::unix::fs::symlink(target, tools.path().join(format!("{family}{verb}"))).unwrap();
        }
    }
    let path = format!("{}:{}", tools.path().display(), std::env::var("PATH").unwrap());
    let this = std::env::current_exe().unwrap();
    let outcome = Command::new(this)
        .args(["--skip", "the_legacy_variant_does_the_same", "--test-threads", "2"])
        .env("PATH", path)
        .output()
        .unwrap();
    assert!(outcome.status.success(), "{}", String::from_utf8_lossy(&outcome.stdout));
}
