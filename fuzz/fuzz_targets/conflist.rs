//! A network configuration.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| runtime::fuzz::configuration(input));
