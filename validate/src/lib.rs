//! What a network's configuration may say, and what is wrong with one: the checks of `cnitool validate`, which others make as well
//! before they use a configuration.

mod checks;
pub mod ranges;
pub mod schema;
mod suite;

pub use checks::{Finding, Level, Ranges, Report};
