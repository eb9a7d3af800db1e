//! A packet of a DHCP server.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| dhcp_client::fuzz::packet(input));
