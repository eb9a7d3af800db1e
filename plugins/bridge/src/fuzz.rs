//! Fuzz target of this plugin and its conditions.

#![allow(clippy::unwrap_used, reason = "a fuzz target ends with a panic")]

use cni::{AsWritten, CniArgs, json};
use iface::conf::{VethMtu, host_interface_as_written};

use crate::conf::{self, Conf};

/// An accepted configuration is within the kernel's bounds, and DEL reads the same names and VLAN as ADD.
pub fn configuration(input: &[u8]) {
    let Ok(document) = json::parse(input, "it") else { return };
    let raw = AsWritten::from(document);
    let (bridge, vlan) = (conf::bridge(&raw), conf::vlan(&raw));
    let host_interface = host_interface_as_written(&raw);
    let Ok(conf) = Conf::try_from(raw) else { return };
    assert_eq!(bridge.as_ref(), Some(&conf.bridge));
    assert_eq!(host_interface, conf.host_interface);
    assert!(!matches!(conf.mtu, VethMtu::Bytes(bytes) if !(68..=65535).contains(&bytes)));
    assert!(conf.is_gateway || !conf.is_default_gateway);
    if let Some(vlans) = &conf.vlans {
        let ids = vlans.tagged.iter().flat_map(|ids| [*ids.start(), *ids.end()]).chain([vlans.native]);
        assert!(ids.into_iter().all(|id| (1..4095).contains(&id)));
        assert!(vlans.tagged.iter().all(|ids| !ids.is_empty()));
        assert!(!vlans.access || vlan == Some(vlans.native));
    }
    let args = CniArgs::from_iter([("MAC".to_owned(), "02:00:00:00:00:07".to_owned())]);
    for args in [args, CniArgs::default()] {
        let mac = conf.interface.mac(&args).unwrap();
        assert!(mac.is_none_or(|mac| !mac.is_multicast() && !mac.is_zero()));
    }
}

#[test]
fn every_seed_passes() {
    seeds::replay("bridge", configuration);
}
