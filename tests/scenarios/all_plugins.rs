//! What every plugin does in the same way.

pub mod bad_input;
mod conformance;
mod delegation;
mod late_del;
mod mistyped;
mod multicall;
mod old_kernels;
mod words;
