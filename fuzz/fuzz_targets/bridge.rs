//! bridge's configuration.
#![no_main]
#![allow(dead_code, reason = "the recipe, which is not here, uses the rest")]

#[path = "../../plugins/bridge/src"]
mod plugin {
    pub mod conf;
    pub mod hostile;
}
use plugin::*;

libfuzzer_sys::fuzz_target!(|input: &[u8]| hostile::configuration(input));
