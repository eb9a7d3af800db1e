//! What containernetworking/plugins, the reference, calls and leaves of its rules: its containers run on when our plugins take its
//! place.

pub(crate) mod chains;
pub(crate) mod names;
