//! host-device's configuration.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| host_device::fuzz::configuration(input));
