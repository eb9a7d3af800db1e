//! tuning's files of what is to be restored.
#![no_main]

use std::sync::LazyLock;

use tempfile::TempDir;

static SCRATCH: LazyLock<TempDir> = LazyLock::new(|| tempfile::tempdir().unwrap());

libfuzzer_sys::fuzz_target!(|input: &[u8]| tuning::fuzz::backups(SCRATCH.path(), input));
