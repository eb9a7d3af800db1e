//! host-local's configuration.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| host_local::fuzz::configuration(input));
