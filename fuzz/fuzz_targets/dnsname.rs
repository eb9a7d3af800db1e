//! dnsname's configuration, the hosts file of a network, and dnsmasq's configuration.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| dnsname::fuzz::configuration(input));
