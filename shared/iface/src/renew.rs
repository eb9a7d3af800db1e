//! Addresses and routes of a link that is in use, changed: a lease that is renewed may come with others.

use cni::{AddResult, Failures, IpConfig, Result, Route};
use netlink::Link;

use crate::{Namespace, apply, tables};

/// Puts what a lease says now in the place of what it said before. What both say is left alone, so that connections live on. The routes of a link
/// in a VRF are in its table. One that the kernel refuses keeps no other one from being added.
///
/// # Errors
/// What the kernel refuses, named.
pub fn replace(sandbox: &Namespace, link: &Link, old: &AddResult, new: &AddResult) -> Result<()> {
    let table = tables::of_master(sandbox, link)?;
    let at_home = |route: &Route| Route { table: route.table.or(table), ..route.clone() };
    let kernel = |result: &AddResult| {
        let own: Vec<&IpConfig> = result.ips.iter().collect();
        result.routes.iter().map(|route| apply::kernel_route(link, &at_home(route), &own)).collect::<Vec<_>>()
    };
    let (routes, wanted) = (kernel(old), kernel(new));
    for route in routes.iter().filter(|route| !wanted.contains(route)) {
        sandbox.nl.delete_route(route)?;
    }
    // Before another one of its subnet comes, which would go with it.
    for address in old.addresses().filter(|address| !new.addresses().any(|wanted| wanted == *address)) {
        sandbox.nl.delete_address(link, address)?;
    }
    let there = sandbox.nl.addresses(Some(link))?;
    for address in new.addresses().filter(|wanted| !there.iter().any(|address| address.net == *wanted)) {
        apply::add_address(sandbox, link, address, false, true)?;
    }
    sandbox.nl.set_up(link)?;
    let own: Vec<&IpConfig> = new.ips.iter().collect();
    let mut failures = Failures::new();
    for route in &new.routes {
        failures.note(apply::add_route(sandbox, link, &at_home(route), &own));
    }
    failures.into_result()
}
