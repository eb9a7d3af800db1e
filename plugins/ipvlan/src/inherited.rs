//! Addresses from an earlier plugin, in a chain without `ipam`: that plugin created no interface in the container, or its interface there
//! is the master.

use cni::{Add, AddResult};

use crate::conf::Conf;

/// Splits the addresses and routes for this interface from `prevResult`. `None` if there are none, or an interface in the container has
/// them.
pub fn leases(call: &Add<Conf>) -> Option<(AddResult, Add<Conf>)> {
    let prev = &call.prev_result;
    let parent = &call.conf.stacked.parent;
    let is_on_earlier = parent.in_container && parent.name.is_none();
    let has_interface = prev.interfaces.iter().any(|interface| interface.sandbox.is_some());
    if call.net.ipam.is_some() || prev.ips.is_empty() || has_interface && !is_on_earlier {
        return None;
    }
    let AddResult { ips, routes, interfaces, dns } = prev.clone();
    let leases = AddResult { ips, routes, ..AddResult::default() };
    let rest = AddResult { interfaces, dns, ..AddResult::default() };
    Some((leases, Add { prev_result: rest, ..call.clone() }))
}
