//! A namespace of its own for each test, and other eyes on its firewall.
#![allow(dead_code, clippy::expect_used, clippy::unwrap_used)]

use std::net::IpAddr;
use std::num::NonZeroU16;
use std::process::{Command, Output, Stdio};

use cni::{Attachment, ContainerId, IfName, NetworkName, Undo};
use firewall::{Conditions, Firewall, HostPort, HostPorts, Mark, Masquerade, Owner, Rules, SourceNat};
use nix::sched::{CloneFlags, unshare};

/// Puts the test's thread into a new network namespace.
pub fn lab() {
    unshare(CloneFlags::CLONE_NEWNET).expect("tests run as root");
    run("ip link set lo up");
}

/// Runs a command line, split at blanks.
pub fn output(line: &str) -> Output {
    let mut words = line.split(' ');
    let mut command = Command::new(words.next().unwrap());
    command.args(words).stdin(Stdio::null()).output().unwrap_or_else(|e| panic!("{line}: {e}"))
}

/// Runs a command line that must succeed, and gives what it prints.
pub fn run(line: &str) -> String {
    let output = output(line);
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The ruleset as nft lists it.
pub fn ruleset() -> String {
    run("nft list ruleset")
}

pub fn owner(network: &str, container: &str) -> Owner {
    let at = attachment(container);
    Owner::new(&NetworkName::parse(network).unwrap(), &at)
}

pub fn attachment(container: &str) -> Attachment {
    Attachment { container: ContainerId::parse(container).unwrap(), ifname: IfName::parse("eth0").unwrap() }
}

pub fn install(firewall: &Firewall, owner: &Owner, rules: &Rules) {
    let mut undo = Undo::new();
    firewall.install(owner, rules, &mut undo).unwrap();
    undo.commit();
}

pub fn masquerade(addresses: &[&str]) -> Rules {
    Rules::Masquerade(Masquerade { addresses: addresses.iter().map(|a| a.parse().unwrap()).collect() })
}

/// Mappings such as `tcp 8080 80` or `udp 192.0.2.1 53 53`.
pub fn host_ports(addresses: &[&str], mappings: &[&str]) -> HostPorts {
    HostPorts {
        addresses: addresses.iter().map(|a| a.parse().unwrap()).collect(),
        mappings: mappings.iter().map(|m| mapping(m)).collect(),
        source_nat: SourceNat::Hairpin,
        mark: Mark::default(),
        conditions: Conditions::default(),
    }
}

fn mapping(text: &str) -> HostPort {
    let words: Vec<&str> = text.split(' ').collect();
    let port = |text: &str| text.parse::<NonZeroU16>().unwrap();
    let host_ip = (words.len() == 4).then(|| words[1].parse::<IpAddr>().unwrap());
    HostPort {
        protocol: words[0].parse().unwrap(),
        host_ip,
        host_port: port(words[words.len() - 2]),
        container_port: port(words[words.len() - 1]),
    }
}
