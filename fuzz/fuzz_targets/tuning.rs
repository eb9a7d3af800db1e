//! tuning's configuration, and the host's list of sysctls.
#![no_main]
#![allow(dead_code, reason = "the recipe, which is not here, uses the rest")]

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

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz::configuration(input));
