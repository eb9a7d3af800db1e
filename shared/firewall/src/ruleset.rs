//! What a ruleset of nftables is made of, as plain data: the engine [`crate::nft`] brings it to the kernel, the kinds of rules
//! put it together.

pub(crate) mod element;
pub(crate) mod expr;
pub(crate) mod field;
pub(crate) mod layout;
pub(crate) mod record;
pub(crate) mod set;
pub(crate) mod uapi;
