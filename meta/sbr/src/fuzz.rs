//! Fuzz target of this plugin and its conditions.

#![allow(clippy::unwrap_used, reason = "a fuzz target ends with a panic")]

use cni::{AsWritten, json};

use crate::conf::{Conf, lenient_table};

/// An accepted configuration has a valid table and at most one gateway per family, and DEL reads the same table.
pub fn configuration(input: &[u8]) {
    let Ok(document) = json::parse(input, "it") else { return };
    let raw = AsWritten::from(document);
    let table = lenient_table(&raw);
    let Ok(conf) = Conf::try_from(raw) else { return };
    assert!(conf.table == table && table != Some(0));
    assert!(conf.gateways.iter().filter(|ip| ip.is_ipv4()).count() <= 1);
    assert!(conf.gateways.iter().filter(|ip| ip.is_ipv6()).count() <= 1);
}

#[test]
fn every_seed_passes() {
    seeds::replay("sbr", configuration);
}
