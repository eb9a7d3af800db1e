//! All fuzz targets in one executable, because it takes minutes to link one for each. The environment variable
//! `FUZZ_TARGET` selects the target.
#![no_main]

use std::env;
use std::path::Path;
use std::sync::LazyLock;

use tempfile::TempDir;

/// The configuration of each plugin. A target has the name of the directory of its seeds in fuzz/corpus.
macro_rules! configurations {
    // It has no keys.
    (loopback::Loopback, $($plugin:ident::$name:ident,)*) => {
        &[$((stringify!($plugin), all_plugins::$plugin::fuzz::configuration),)*]
    };
}

const CONFIGURATIONS: &[(&str, fn(&[u8]))] = all_plugins::for_each_plugin!(configurations);

/// All other input.
const OTHERS: &[(&str, fn(&[u8]))] = &[
    ("arguments", cni::fuzz::arguments),
    ("backups", |input| all_plugins::tuning::fuzz::backups(scratch(), input)),
    ("bus", system::bus::fuzz::answers),
    ("cache", |input| runtime::fuzz::cache(scratch(), input)),
    ("call", cni::fuzz::call),
    ("conf_dir", |input| runtime::fuzz::directory(scratch(), input)),
    ("conflist", runtime::fuzz::configuration),
    ("dhcp6_client", dhcp_client::v6::fuzz::client),
    ("dhcp_client", dhcp_client::fuzz::client),
    ("dhcp_packet", dhcp_client::fuzz::packet),
    ("dhcp_wire", all_plugins::dhcp::fuzz::wire),
    ("leases", |input| all_plugins::host_local::fuzz::store(scratch(), input)),
    ("netlink_decode", netlink::fuzz::decode),
    ("results", cni::fuzz::results),
    ("rules", netfilter::fuzz::rules),
];

static SELECTED: LazyLock<fn(&[u8])> = LazyLock::new(|| {
    let name = env::var("FUZZ_TARGET").expect("FUZZ_TARGET is set");
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    for (target, _) in CONFIGURATIONS.iter().chain(OTHERS) {
        assert!(corpus.join(target).is_dir(), "{target} has no seeds in {}", corpus.display());
    }
    let target = CONFIGURATIONS.iter().chain(OTHERS).find(|(known, _)| *known == name);
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
