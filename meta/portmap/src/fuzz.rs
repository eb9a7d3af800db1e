//! Fuzzing: conditions that hold for any input.

#![allow(clippy::unwrap_used, reason = "a fuzz target ends with a panic")]

use cni::{AddResult, AsWritten, IfName, Version, json};
use netfilter::{Mark, Rules};

use crate::conf::{self, Conf};

/// A result of both families.
const RESULT: &[u8] =
    br#"{"interfaces": [{"name": "eth0", "sandbox": "/n"}, {"name": "lo", "sandbox": "/n"}],
    "ips": [{"address": "127.0.0.1/8", "interface": 1}, {"address": "10.1.0.5/24", "interface": 0},
            {"address": "fd00::5/64", "interface": 0}]}"#;

/// The input is the configuration, with `prevResult` if it has one. Host ports are forwarded to the container's own
/// addresses, and the backend supports the configuration.
pub fn configuration(input: &[u8]) {
    let Ok(document) = json::parse(input, "it") else { return };
    let (ifname, usual) = (IfName::parse("eth0").unwrap(), json::parse(RESULT, "it").unwrap());
    let raw = AsWritten::from(document.clone());
    let Ok(conf) = Conf::try_from(raw) else { return };
    for result in [json::member(&document, "prevResult").unwrap_or(&usual), &usual] {
        let Ok(result) = AddResult::from_json(result, Version::LATEST) else { continue };
        let Ok(Some(ports)) = conf.host_ports(&result, &ifname) else { continue };
        assert_eq!(ports.addresses, conf::addresses(&result, &ifname));
        assert!(!ports.addresses.is_empty() && !ports.mappings.is_empty());
        assert!(ports.addresses.iter().all(|address| !address.ip().is_loopback()));
        assert!(ports.mappings.iter().all(|port| port.host_ip.is_none_or(|ip| !ip.is_multicast())));
        assert!(
            matches!(&ports.mark, Mark::Bit(0..=31))
                || matches!(&ports.mark, Mark::Chain(name) if is_word(name.as_str()))
        );
        let needed = ports.backend();
        assert!(needed.is_none_or(|needed| conf.backend == Some(needed)));
    }
}

/// A text that cannot end a line of iptables-restore or be misinterpreted there.
fn is_word(text: &str) -> bool {
    !text.is_empty()
        && text.len() < 29
        && !text.starts_with('-')
        && text.bytes().all(|b| b.is_ascii_graphic() && b != b'"')
}

#[test]
fn every_seed_passes() {
    seeds::replay("portmap", configuration);
}
