//! A lease in CNI's terms.

use cni::AddResult;

use crate::Lease;

/// The result of an ADD: the address, its gateway (the first router), routes, and what is for the resolver. The priority is that of all routes.
pub fn of_lease(lease: &Lease, priority: Option<u32>) -> AddResult {
    let _ = (lease, priority);
    AddResult::default()
}

/// The MTU that the server gives the link, in bytes (option 26). One that IPv4 does not permit is none.
pub fn mtu(lease: &Lease) -> Option<u32> {
    let _ = lease;
    None
}
