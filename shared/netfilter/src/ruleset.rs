//! The parts of an nftables ruleset as plain data. The kinds of rules create them, and the engine [`crate::nft`] sends
//! them to the kernel.

mod element;
mod expr;
mod field;
mod layout;
mod set;
pub(crate) mod uapi;

pub(crate) use element::{Element, RECORDS_MAX, Record, Redirected, TrackedPort, concatenated, padded};
pub(crate) use expr::{Expressions, R0, octets};
pub(crate) use field::Field;
pub(crate) use layout::{BRIDGE, Chain, INET, Layout, NAT_IN, Need, POSTROUTING, Rule, Table};
pub(crate) use set::{Set, Type};
