//! `CNI_ARGS`, names and addresses.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| cni::fuzz::arguments(input));
