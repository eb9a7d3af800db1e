//! host-local's configuration.
#![no_main]
#![allow(dead_code, reason = "the recipe, which is not here, uses the rest")]

#[path = "../../ipam/host-local/src"]
mod plugin {
    pub mod allocator;
    pub mod conf;
    pub mod fuzz;
    pub mod range;
    pub mod resolv;
    pub mod store;
}
use plugin::*;

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz::configuration(input));
