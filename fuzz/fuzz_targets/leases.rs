//! host-local's files of leases.
#![no_main]

use std::sync::LazyLock;

use tempfile::TempDir;

static SCRATCH: LazyLock<TempDir> = LazyLock::new(|| tempfile::tempdir().unwrap());

libfuzzer_sys::fuzz_target!(|input: &[u8]| host_local::fuzz::store(SCRATCH.path(), input));
