//! What a bus answers to a client of D-Bus.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| system::bus::fuzz::answers(input));
