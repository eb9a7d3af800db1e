//! host-local's files of leases.
#![no_main]
#![allow(dead_code, reason = "the recipe, which is not here, uses the rest")]

use std::sync::LazyLock;

use tempfile::TempDir;

#[path = "../../ipam/host-local/src"]
mod plugin {
    pub mod allocator;
    pub mod conf;
    pub mod fuzz;
    pub mod range;
    pub mod resolv;
    pub mod store;
}
use plugin::*;

static SCRATCH: LazyLock<TempDir> = LazyLock::new(|| tempfile::tempdir().unwrap());

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz::store(SCRATCH.path(), input));
