//! The DHCP client's state machine.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| dhcp_client::fuzz::client(input));
