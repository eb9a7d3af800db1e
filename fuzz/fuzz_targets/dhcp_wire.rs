//! What plugin and daemon of dhcp say to each other, and the daemon's files.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| dhcp::fuzz::wire(input));
