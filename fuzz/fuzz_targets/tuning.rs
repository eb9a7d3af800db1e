//! tuning's configuration, and the host's list of sysctls.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| tuning::fuzz::configuration(input));
