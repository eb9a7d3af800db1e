//! Traffic control: queueing disciplines and filters (tc(8), Documentation/networking/tc-*.rst).
//!
//! All numbers are in the host's byte order, except a filter's protocol.

mod filter;
mod qdisc;

pub use filter::{Filter, INGRESS, Redirect};
pub use qdisc::{Qdisc, Tbf};

use crate::link::Link;

/// `struct tcmsg`.
const HEADER: usize = 20;

/// `struct tcmsg` of a link.
fn header(link: &Link, handle: u32, parent: u32, info: u32) -> [u8; HEADER] {
    let mut bytes = [0; HEADER];
    for (place, number) in bytes[4..].chunks_exact_mut(4).zip([link.index, handle, parent, info]) {
        place.copy_from_slice(&number.to_ne_bytes());
    }
    bytes
}
