//! Changing addresses and routes of a link in use, after a lease was renewed.

use cni::{AddResult, Failures, IpConfig, Result, Route};
use netlink::Link;

use crate::{Namespace, apply, tables};

/// Replaces addresses and routes of the old lease by those of the new one. Unchanged ones are kept, so that connections survive. Routes of
/// a link in a VRF are in its table. A refused route does not prevent the others.
///
/// A route of both leases is not added again: another program, such as sbr, may have moved, replaced or deleted it. If an address is added,
/// all routes are added, because the kernel deletes the routes with the last address of a link.
///
/// # Errors
/// If the kernel refuses an address or a route; the message names it.
pub fn replace(sandbox: &Namespace, link: &Link, old: &AddResult, new: &AddResult) -> Result<()> {
    let table = tables::of_master(sandbox, link)?;
    let at_home = |route: &Route| Route { table: route.table.or(table), ..route.clone() };
    let kernel = |result: &AddResult| {
        let own: Vec<&IpConfig> = result.ips.iter().collect();
        result.routes.iter().map(|route| apply::kernel_route(link, &at_home(route), &own)).collect::<Vec<_>>()
    };
    let (routes, expected) = (kernel(old), kernel(new));
    for route in routes.iter().filter(|route| !expected.contains(route)) {
        sandbox.nl.delete_route(route)?;
    }
    // Delete old addresses first: with the first address of a subnet, the kernel also deletes later ones.
    for address in old.addresses().filter(|address| !new.addresses().any(|expected| expected == *address)) {
        sandbox.nl.delete_address(link, address)?;
    }
    let there = sandbox.nl.addresses(Some(link))?;
    let missing: Vec<_> =
        new.addresses().filter(|expected| !there.iter().any(|address| address.net == *expected)).collect();
    for address in &missing {
        apply::add_address(sandbox, link, *address, false, true)?;
    }
    sandbox.nl.set_up(link)?;
    let own: Vec<&IpConfig> = new.ips.iter().collect();
    let mut failures = Failures::new();
    for (route, expected) in new.routes.iter().zip(&expected) {
        if !missing.is_empty() || !routes.contains(expected) {
            failures.note(apply::add_route(sandbox, link, &at_home(route), &own));
        }
    }
    failures.into_result()
}
