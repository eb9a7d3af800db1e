//! Fuzzing: conditions that hold for any input.

#![allow(clippy::unwrap_used, reason = "a fuzz target ends with a panic")]

use std::net::IpAddr;

use cni::{AddResult, AsWritten, Version, json};

use crate::conf::{self, Conf};

/// The input is the configuration, with `prevResult` if it has one. The mark is one bit, the chain's name is one word,
/// and only the container's own addresses are allowed.
pub fn configuration(input: &[u8]) {
    let Ok(document) = json::parse(input, "it") else { return };
    let Ok(conf) = Conf::try_from(AsWritten::from(document.clone())) else { return };
    assert!(conf.opening.bit < 32);
    let admin = conf.opening.admin.as_ref().unwrap().as_str();
    assert!(!admin.is_empty() && admin.len() < 29 && !admin.starts_with('-'));
    assert!(admin.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'"'));
    let Some(prev) = json::member(&document, "prevResult") else { return };
    let Ok(result) = AddResult::from_json(prev, Version::LATEST) else { return };
    let addresses = conf::addresses(&result);
    for (n, ip) in addresses.iter().enumerate() {
        assert!(!ip.is_loopback() && !ip.is_unspecified() && !addresses[..n].contains(ip));
        assert!(!matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local()));
    }
}

#[test]
fn every_seed_passes() {
    seeds::replay("firewall", configuration);
}
