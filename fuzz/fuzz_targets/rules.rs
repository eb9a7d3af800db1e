//! Firewall rules, and what is installed already.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| netfilter::fuzz::rules(input));
