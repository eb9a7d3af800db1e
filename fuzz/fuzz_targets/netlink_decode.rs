//! Whatever a netlink socket receives: no decoder panics, and each comes to an end.
//!
//! Its seeds are messages of the kernel; an ordinary test of shared/netlink replays them.
#![no_main]

#[path = "../../shared/netlink/tests/common/decode.rs"]
mod decode;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| decode::everything(bytes));
