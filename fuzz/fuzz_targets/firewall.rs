//! firewall's configuration.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| firewall::fuzz::configuration(input));
