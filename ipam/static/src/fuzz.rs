//! Fuzzing: conditions that hold for any input.

#![allow(clippy::unwrap_used, reason = "a fuzz target ends with a panic")]

use std::collections::HashSet;

use cni::{AsWritten, CniArgs, json};

use crate::addresses;
use crate::conf::Conf;

/// The input is the configuration, a line `--`, and `CNI_ARGS`. No address is listed twice with one prefix length, each gateway is of its
/// address's family, and the addresses that the runtime requests are in the result.
pub fn configuration(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let (document, args) = text.split_once("\n--\n").unwrap_or((&text, ""));
    let Ok(document) = json::parse(document.as_bytes(), "it") else { return };
    let (Ok(conf), Ok(args)) = (Conf::try_from(AsWritten::from(document)), CniArgs::parse(args.trim_end()))
    else {
        return;
    };
    let Ok(ips) = addresses::of_attachment(&conf, &args) else { return };
    let distinct: HashSet<_> = ips.iter().map(|ip| ip.address).collect();
    assert!(!ips.is_empty() && distinct.len() == ips.len());
    assert!(ips.iter().all(|ip| ip.gateway.is_none_or(|gateway| gateway.is_ipv4() == ip.address.is_ipv4())));
    if !conf.runtime_ips.is_empty() {
        assert!(
            ips.iter().map(|ip| ip.address.ip()).eq(conf.runtime_ips.iter().map(|requested| requested.ip))
        );
    }
}

#[test]
fn every_seed_passes() {
    seeds::replay("static_ipam", configuration);
}
