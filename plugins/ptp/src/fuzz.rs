//! Fuzz target of this plugin and its conditions.

use cni::{AsWritten, CniArgs, json};
use iface::conf::{VethMtu, host_interface_as_written};

use crate::conf::Conf;

/// An accepted configuration is within the kernel's bounds, and DEL reads the same name as ADD.
pub fn configuration(input: &[u8]) {
    let Ok(document) = json::parse(input, "it") else { return };
    let raw = AsWritten::from(document);
    let host_interface = host_interface_as_written(&raw);
    let Ok(conf) = Conf::try_from(raw) else { return };
    assert_eq!(host_interface, conf.host_interface);
    assert!(!matches!(conf.mtu, VethMtu::Bytes(bytes) if !(68..=65535).contains(&bytes)));
    let args = CniArgs::from_iter([("MAC".to_owned(), "02:00:00:00:00:07".to_owned())]);
    assert!(conf.interface.mac(&args).is_ok_and(|mac| mac.is_some()));
    let mac = conf.interface.mac(&CniArgs::default());
    assert!(mac.is_ok_and(|mac| mac.is_none_or(|mac| !mac.is_multicast() && !mac.is_zero())));
}

#[test]
fn every_seed_passes() {
    seeds::replay("ptp", configuration);
}
