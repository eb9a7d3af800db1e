//! What a ruleset of nftables is made of, as plain data: the engine [`crate::nft`] brings it to the kernel, the kinds of rules
//! put it together.

mod element;
mod expr;
mod field;
mod layout;
mod set;
pub(crate) mod uapi;

pub(crate) use element::{Element, RECORDS_MAX, Record, UdpPort, concatenated, padded};
pub(crate) use expr::{Expressions, R0, octets};
pub(crate) use field::Field;
pub(crate) use layout::{BRIDGE, Chain, INET, Layout, NAT_IN, Need, POSTROUTING, Rule, Table};
pub(crate) use set::{Set, Type};
