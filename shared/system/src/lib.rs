//! What plugins ask of the operating system besides the network: child processes, files in whose place something else
//! may have been put, locks between processes, and questions to services over D-Bus. Nothing here knows CNI.

#![warn(missing_docs)]

pub mod boot;
pub mod bus;
pub mod child;
pub mod close_later;
pub mod file;
pub mod lock;
mod retry;
pub mod size_limit;
pub mod socket;

pub use retry::Retry;
