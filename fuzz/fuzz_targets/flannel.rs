//! flannel's configuration, and the file of flanneld.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| flannel::fuzz::configuration(input));
