//! static's configuration.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| static_ipam::fuzz::configuration(input));
