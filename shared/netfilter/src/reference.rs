//! Rules of the reference, containernetworking/plugins: their names, and how to recognize them. Its containers keep
//! running when Ferrule replaces it.

pub(crate) mod chains;
pub(crate) mod names;
