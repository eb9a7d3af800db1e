//! Privileges that plugins need, their errors without them, and access by other users.

mod capabilities;
mod descriptors;
mod locks;
mod modes;
pub mod user_namespace;
