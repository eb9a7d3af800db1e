//! portmap's configuration.
#![no_main]
#![allow(dead_code, reason = "the recipe, which is not here, uses the rest")]

#[path = "../../meta/portmap/src"]
mod plugin {
    pub mod conf;
    pub mod fuzz;
}
use plugin::*;

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz::configuration(input));
