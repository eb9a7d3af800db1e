//! Fuzz target of this plugin and its conditions.

#![allow(clippy::unwrap_used, reason = "a fuzz target ends with a panic")]

use cni::{AsWritten, CniArgs, json};
use netlink::MacvlanMode;

use crate::conf::Conf;

/// An accepted configuration is within the kernel's bounds.
pub fn configuration(input: &[u8]) {
    let Ok(document) = json::parse(input, "it") else { return };
    let Ok(conf) = Conf::try_from(AsWritten::from(document)) else { return };
    assert!(conf.stacked.mtu.is_none_or(|bytes| (68..=65535).contains(&bytes)));
    assert!(conf.mode != MacvlanMode::Source && conf.broadcast_queue != Some(0));
    assert!(conf.stacked.parent.name.is_none_or(|name| (1..=127).contains(&name.len())));
    let mac = conf.stacked.interface.mac(&CniArgs::default()).unwrap();
    assert!(mac.is_none_or(|mac| !mac.is_multicast() && !mac.is_zero()));
}

#[test]
fn every_seed_passes() {
    seeds::replay("macvlan", configuration);
}
