//! Addresses from an earlier plugin, in a chain without `ipam`: that plugin created no interface in the container, or its interface there
//! is the master.

use cni::{Add, AddResult, NetConf};

use crate::conf::Conf;

/// Splits the addresses and routes for this interface from `prevResult`. `None` if there are none, or an interface in the container has
/// them.
pub fn leases(call: &Add<Conf>) -> Option<(AddResult, Add<Conf>)> {
    let prev = call.net.prev_result.clone().filter(|_| call.net.ipam.is_none())?;
    let parent = &call.conf.parent;
    let is_on_earlier = parent.in_container && parent.name.is_none();
    let has_interface = prev.interfaces.iter().any(|interface| interface.sandbox.is_some());
    if prev.ips.is_empty() || has_interface && !is_on_earlier {
        return None;
    }
    let AddResult { ips, routes, interfaces, dns } = prev;
    let leases = AddResult { ips, routes, ..AddResult::default() };
    let rest = AddResult { interfaces, dns, ..AddResult::default() };
    let net = NetConf { prev_result: Some(rest), ..call.net.clone() };
    Some((leases, Add { net, ..call.clone() }))
}
