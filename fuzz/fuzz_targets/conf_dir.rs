//! A directory of network configurations.
#![no_main]

use std::sync::LazyLock;

use tempfile::TempDir;

static SCRATCH: LazyLock<TempDir> = LazyLock::new(|| tempfile::tempdir().unwrap());

libfuzzer_sys::fuzz_target!(|input: &[u8]| runtime::fuzz::directory(SCRATCH.path(), input));
