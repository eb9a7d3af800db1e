//! The DHCPv6 client's messages and state machine.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| dhcp_client::v6::fuzz::client(input));
