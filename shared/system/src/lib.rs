//! Operating system services besides the network: child processes, untrusted files, locks between processes, D-Bus. Nothing here depends on
//! CNI.

#![warn(missing_docs)]

pub mod boot;
pub mod bus;
pub mod child;
pub mod close_later;
pub mod file;
pub mod host_path;
pub mod lock;
mod retry;
pub mod size_limit;
pub mod socket;

pub use retry::Retry;

/// Whether the process runs as root, in its own user namespace.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
