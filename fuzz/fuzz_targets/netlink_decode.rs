//! Whatever a netlink socket receives: no decoder panics, and each comes to an end.
//!
//! `cargo +nightly fuzz run netlink_decode fuzz/target/found fuzz/corpus/netlink_decode` keeps the inputs that it finds
//! out of the seeds, which are messages of the kernel; an ordinary test of shared/netlink replays those.
#![no_main]

#[path = "../../shared/netlink/tests/common/decode.rs"]
mod decode;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| decode::everything(bytes));
