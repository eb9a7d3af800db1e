//! The host's end of a container's veth.

use std::os::fd::AsFd;

use cni::Result;
use netlink::Link;

use crate::Namespace;

/// Finds the host's link at the other end of a container's link. `None` if that is not a veth, or its peer is in a third namespace.
///
/// # Errors
/// If the kernel refuses to list links.
pub fn find(host: &Namespace, sandbox: &Namespace, container: &Link) -> Result<Option<Link>> {
    let Some(index) = container.peer.filter(|_| container.is("veth")) else { return Ok(None) };
    // Indexes are local to a namespace: the host's link with that index may lead to another container.
    let netns_id = host.nl.netns_id(sandbox.as_fd())?;
    let leads_back =
        |link: &Link| link.is("veth") && link.peer == Some(container.index) && link.peer_netns_id == netns_id;
    Ok(host.nl.link_by_index(index)?.filter(leads_back))
}
