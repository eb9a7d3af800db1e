//! All fuzz targets in one executable, because it takes minutes to link one for each. The environment variable
//! `FUZZ_TARGET` selects the target.
#![no_main]

use std::env;
use std::path::Path;
use std::sync::LazyLock;

use tempfile::TempDir;

/// The targets. A target has the name of the directory of its seeds in fuzz/corpus.
const TARGETS: &[(&str, fn(&[u8]))] = &[
    ("arguments", cni::fuzz::arguments),
    ("backups", |input| tuning::fuzz::backups(scratch(), input)),
    ("bandwidth", bandwidth::fuzz::configuration),
    ("bridge", bridge::fuzz::configuration),
    ("bus", system::bus::fuzz::answers),
    ("cache", |input| runtime::fuzz::cache(scratch(), input)),
    ("call", cni::fuzz::call),
    ("conf_dir", |input| runtime::fuzz::directory(scratch(), input)),
    ("conflist", runtime::fuzz::configuration),
    ("dhcp", dhcp::fuzz::configuration),
    ("dhcp6_client", dhcp_client::v6::fuzz::client),
    ("dhcp_client", dhcp_client::fuzz::client),
    ("dhcp_packet", dhcp_client::fuzz::packet),
    ("dhcp_wire", dhcp::fuzz::wire),
    ("dnsname", dnsname::fuzz::configuration),
    ("dummy", dummy::fuzz::configuration),
    ("firewall", firewall::fuzz::configuration),
    ("flannel", flannel::fuzz::configuration),
    ("host_device", host_device::fuzz::configuration),
    ("host_local", host_local::fuzz::configuration),
    ("ipvlan", ipvlan::fuzz::configuration),
    ("leases", |input| host_local::fuzz::store(scratch(), input)),
    ("macvlan", macvlan::fuzz::configuration),
    ("netlink_decode", netlink::fuzz::decode),
    ("portmap", portmap::fuzz::configuration),
    ("ptp", ptp::fuzz::configuration),
    ("results", cni::fuzz::results),
    ("rules", netfilter::fuzz::rules),
    ("sbr", sbr::fuzz::configuration),
    ("static_ipam", static_ipam::fuzz::configuration),
    ("tap", tap::fuzz::configuration),
    ("tuning", tuning::fuzz::configuration),
    ("vlan", vlan::fuzz::configuration),
    ("vrf", vrf::fuzz::configuration),
];

static SELECTED: LazyLock<fn(&[u8])> = LazyLock::new(|| {
    let name = env::var("FUZZ_TARGET").expect("FUZZ_TARGET is set");
    let target = TARGETS.iter().find(|(known, _)| *known == name);
    target
        .unwrap_or_else(|| {
            panic!("FUZZ_TARGET is {name}, which is no target of fuzz/fuzz_targets/targets.rs")
        })
        .1
});

/// For targets that read files.
fn scratch() -> &'static Path {
    static SCRATCH: LazyLock<TempDir> = LazyLock::new(|| tempfile::tempdir().expect("create a directory"));
    SCRATCH.path()
}

libfuzzer_sys::fuzz_target!(|input: &[u8]| SELECTED(input));
