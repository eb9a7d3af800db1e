//! The schema of network configurations, and the checks of `cnitool validate`. Other programs run the same checks
//! before they use a configuration.

mod checks;
pub mod ranges;
pub mod schema;

pub use checks::{Finding, Level, Ranges, Report};
