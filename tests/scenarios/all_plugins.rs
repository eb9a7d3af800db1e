//! What every plugin does in the same way.

pub mod bad_input;
mod conformance;
mod delegation;
mod mistyped;
mod multicall;
mod old_kernels;
mod words;
