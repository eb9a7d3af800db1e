//! Fuzz target of this plugin and its conditions.

use cni::{AsWritten, json};

use crate::conf::Conf;

/// An accepted configuration is within the kernel's bounds.
pub fn configuration(input: &[u8]) {
    let Ok(document) = json::parse(input, "it") else { return };
    let Ok(conf) = Conf::try_from(AsWritten::from(document)) else { return };
    assert!(conf.stacked.mtu.is_none_or(|bytes| (68..=65535).contains(&bytes)));
    assert!(conf.stacked.parent.name.is_none_or(|name| (1..=127).contains(&name.len())));
}

#[test]
fn every_seed_passes() {
    seeds::replay("ipvlan", configuration);
}
