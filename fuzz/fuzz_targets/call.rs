//! A call: variables and stdin, served by a plugin without effects.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| cni::fuzz::call(input));
