//! Whatever a netlink socket receives. Its seeds are messages of the kernel.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| netlink::fuzz::decode(input));
