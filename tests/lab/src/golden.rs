//! Kernel state compared with text that a person can read.

use std::{env, fs};

use crate::under_test::repository;

/// Compares with tests/scenarios/golden/NAME.txt; `UPDATE_GOLDEN=1` writes it anew.
#[track_caller]
pub fn golden(name: &str, text: &str) {
    let path = repository().join(format!("tests/scenarios/golden/{name}.txt"));
    if env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, text).unwrap_or_else(|e| panic!("write {}: {e}", path.display()));
        return;
    }
    let wanted = fs::read_to_string(&path).unwrap_or_else(|e| panic!("read {}: {e}", path.display()));
    assert_eq!(wanted, text, "differs from {} (UPDATE_GOLDEN=1 rewrites it)", path.display());
}
