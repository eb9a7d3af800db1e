//! tuning's files of what is to be restored.
#![no_main]
#![allow(dead_code, reason = "the recipe, which is not here, uses the rest")]

use std::sync::LazyLock;

use tempfile::TempDir;

#[path = "../../meta/tuning/src"]
mod plugin {
    pub mod allowlist;
    pub mod attribute;
    pub mod backup;
    pub mod conf;
    pub mod fuzz;
    pub mod sysctl;
}
use plugin::*;

static SCRATCH: LazyLock<TempDir> = LazyLock::new(|| tempfile::tempdir().unwrap());

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz::backups(SCRATCH.path(), input));
