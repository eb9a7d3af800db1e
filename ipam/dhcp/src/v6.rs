//! Leases for IPv6: an attachment's client, its record on disk, and what is done with both in its container.

mod attached;
mod record;

pub use attached::{Attached, Leaving, RELEASING, UNUSED};
pub use record::{Record, host_id, identity};
