//! The plugin's side of the CNI protocol, for every published version of the specification (0.1.0 to 1.1.0,
//! <https://www.cni.dev/docs/spec/>).
//!
//! A plugin implements [`Plugin`] and calls [`main`]. This crate parses and checks environment and stdin ([`call`]), negotiates versions
//! ([`Version`]), converts and prints the result, and rolls back a failed ADD ([`Undo`]). It does not use the network.

#![warn(missing_docs)]

pub mod addr;
pub mod args;
mod attachments;
pub mod backup;
pub mod call;
pub mod collect;
mod convert;
mod delegate;
mod error;
pub mod exec;
mod executable;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
pub mod json;
#[cfg(feature = "keys")]
pub mod keys;
mod log;
pub mod multicall;
mod name;
mod plugin;
pub mod repair;
mod result;
mod role;
pub mod schema;
mod scope;
mod undo;
mod validate;
mod version;
mod written;

pub use args::CniArgs;
pub use attachments::{Attachment, Attachments};
pub use call::{Add, Check, Command, Del, Gc, NetConf, Repair, Status};
pub use delegate::{Delegate, Ipam};
pub use error::{Code, Error, Failures, Result, ResultExt};
#[doc(hidden)]
pub use heap;
pub use log::warn;
pub use name::{ContainerId, IfName, LinkName, NetworkName, PluginType};
pub use plugin::{Plugin, main};
pub use result::{AddResult, Dns, Interface, IpConfig, Route};
pub use role::Role;
pub use scope::{Resource, Scope};
pub use undo::Undo;
pub use validate::validate;
pub use version::{REFERENCE_RELEASE, Version};
pub use written::AsWritten;
