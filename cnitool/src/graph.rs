//! `cnitool graph`: draws the attachments of a host.

mod dot;
mod model;
mod svg;
#[cfg(test)]
mod tests;
mod text;
mod trunk;

pub use dot::dot;
pub use model::Graph;
pub use svg::svg;
pub use text::text;
