//! The CNI protocol as a plugin sees it, for every published version of the specification
//! (0.1.0 to 1.1.0, <https://www.cni.dev/docs/spec/>).
//!
//! A plugin implements [`Plugin`] and hands itself to [`main`]; everything between the process's start and the
//! plugin's own steps is done here: the environment and stdin are parsed and checked ([`call`]), versions are
//! negotiated ([`Version`]), the result is converted and printed, and a failed ADD is rolled back ([`Undo`]).
//! Nothing in this crate touches the network.

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
pub mod multicall;
mod name;
mod plugin;
pub mod repair;
mod result;
mod scope;
mod undo;
mod validate;
mod version;
mod written;

pub use args::CniArgs;
pub use attachments::Attachments;
pub use call::{Add, Attachment, Check, Command, Del, Gc, NetConf, Repair, Status};
pub use delegate::{Delegate, Ipam};
pub use error::{Code, Error, Failures, Result, ResultExt};
#[doc(hidden)]
pub use heap;
pub use name::{ContainerId, IfName, NetworkName, PluginType};
pub use plugin::{Plugin, Role, main, warn};
pub use result::{AddResult, Dns, Interface, IpConfig, Route};
pub use scope::{Scope, Thing};
pub use undo::Undo;
pub use validate::validate;
pub use version::{REFERENCE_RELEASE, Version};
pub use written::AsWritten;
