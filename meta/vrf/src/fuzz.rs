//! Fuzz target of this plugin and its conditions.

use cni::{AsWritten, json};

use crate::conf::{Conf, lenient_name};

/// An accepted configuration has a valid name and table, and DEL reads the same name.
pub fn configuration(input: &[u8]) {
    let Ok(document) = json::parse(input, "it") else { return };
    let raw = AsWritten::from(document);
    let name = lenient_name(&raw);
    let Ok(conf) = Conf::try_from(raw) else { return };
    assert!(name.is_some_and(|name| *name == *conf.name));
    assert!(conf.table != Some(0) && !conf.name.contains('/') && conf.name.len() < 16);
}

#[test]
fn every_seed_passes() {
    seeds::replay("vrf", configuration);
}
