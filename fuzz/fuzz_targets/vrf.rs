//! vrf's configuration.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| vrf::fuzz::configuration(input));
