//! Shared rules that other programs have changed.

#![allow(clippy::unwrap_used)]

mod common;

use std::process::Command;

use common::*;
use netfilter::{Backend, Firewall, HostPorts, Removal};

fn nftables() -> Firewall {
    Firewall::open(Some(Backend::Nftables)).unwrap()
}

/// Changes the ruleset by nft(8), whose arguments may contain spaces.
fn nft(change: &str) {
    assert!(Command::new("nft").arg(change).status().unwrap().success(), "{change}");
}

/// The rules with their handles.
fn rules() -> Vec<String> {
    let listed = run("nft -a list ruleset");
    listed
        .lines()
        .filter(|line| line.contains("comment") && line.contains("handle"))
        .map(str::to_owned)
        .collect()
}

fn handle(rule: &str) -> String {
    let line = rules().into_iter().find(|line| line.contains(rule)).unwrap();
    line.rsplit_once(' ').unwrap().1.to_owned()
}

#[test]
fn the_next_add_does_not_replace_unchanged_rules() {
    lab();
    let ports = |port: &str| host_ports(&["10.1.0.5/24", "fd00::5/64"], &[port]);
    let mut earlier = Vec::new();
    for (id, port) in [("c1", "tcp 8080 80"), ("c2", "tcp 8081 80")] {
        install(&nftables(), &owner("cbr0", id), &masquerade(&["10.1.0.5/24", "fd00::5/64"]));
        install(&nftables(), &owner("cbr0", id), &ports(port));
        assert!(rules().len() > 10 && (earlier.is_empty() || earlier == rules()));
        earlier = rules();
    }
}

#[test]
fn a_guard_with_another_verdict_is_noticed_by_check_and_status_and_replaced_by_the_next_add() {
    lab();
    let ports = host_ports(&["10.1.0.5/24"], &["tcp 8080 80"]);
    install(&nftables(), &owner("cbr0", "c1"), &ports);
    let before = ruleset();
    for changed in ["ip saddr 127.0.0.0/8 iif != lo accept", "ip saddr 127.0.0.0/9 iif != lo drop", "counter"]
    {
        let handle = handle("martians from");
        nft(&format!(
            "replace rule inet ferrule guard handle {handle} {changed} comment \"martians from loopback\""
        ));
        let error = nftables().check(&owner("cbr0", "c1"), &ports).unwrap_err();
        assert!(error.msg().contains("\"martians from loopback\" of chain guard was changed"), "{error}");
        let error = Firewall::check_available(Some(Backend::Nftables), HostPorts::KIND).unwrap_err();
        assert_eq!(error.code(), 50, "{error}");
        install(&nftables(), &owner("cbr0", "c2"), &host_ports(&["10.1.0.6/24"], &["tcp 8081 80"]));
        nftables().check(&owner("cbr0", "c1"), &ports).unwrap();
        Firewall::check_available(Some(Backend::Nftables), HostPorts::KIND).unwrap();
        Removal::start().remove(&owner("cbr0", "c2"), &[HostPorts::KIND]).unwrap();
        assert_eq!(ruleset(), before);
    }
}
