//! DEL and GC: the container's interface goes, and all that hangs on it.
//!
//! A DEL may follow an ADD that failed because CNI_IFNAME was taken: only a link of the plugin's own kind is ever removed.

use std::path::PathBuf;

use cni::{Attachment, Command, Del, Failures, Gc, Ipam, NetConf, NetworkName, Result};
use netlink::Link;

use crate::{Namespace, host_end, ownership, veth};

/// DEL or GC: removes links and what belongs to them, and gives the leases back. Neither keeps the other from its end.
///
/// The leases go last, so that nobody else gets an address while the container still answers to it; but first if they can be given
/// back only over the link.
///
/// # Errors
/// All that could not be removed.
pub fn with_leases(net: &NetConf, command: Command, links: impl FnOnce(&mut Failures)) -> Result<()> {
    let mut failures = Failures::new();
    let leases_first = net.ipam.as_ref().is_some_and(Ipam::needs_link);
    if leases_first {
        failures.note(net.ask_ipam(command));
    }
    links(&mut failures);
    if !leases_first {
        failures.note(net.ask_ipam(command));
    }
    failures.into_result()
}

/// Deletes the attachment's interface in the container, if it is of a kind and not another network's. That there is no such
/// link, or no container any more, is fine.
///
/// # Errors
/// If the kernel refuses.
pub fn child(call: &Del, kind: &str) -> Result<()> {
    child_like(call, |link| link.is(kind)).map(drop)
}

/// As [`child`], by more than the kind, where a container may well have made a link of the kind itself. Whether there was one.
///
/// # Errors
/// If the kernel refuses.
pub fn child_like(call: &Del, is_made_here: impl Fn(&Link) -> bool) -> Result<bool> {
    let Some(sandbox) = Namespace::open_if_present(call.netns.as_ref())? else { return Ok(false) };
    let (network, at) = (&call.net.name, &call.attachment);
    // One without an alias of this suite may be the reference's.
    let own = |link: &Link| !ownership::is_owned(link) || ownership::owner(link, network).is_some();
    let link = sandbox.nl.link(&at.ifname)?.filter(|link| is_made_here(link) && own(link));
    let is_there = link.is_some();
    delete(&sandbox, link).map(|()| is_there)
}

/// Deletes the attachment's veth pair, by either end: by the host's, if a plugin of this suite made it, even when the
/// container's namespace is gone; else by the container's.
///
/// # Errors
/// If the kernel refuses. That there is nothing is fine.
pub fn veth(host: &Namespace, network: &NetworkName, at: &Attachment, netns: Option<&PathBuf>) -> Result<()> {
    let own = host.nl.link(&veth::host_name(network, at))?.filter(|link| link.is("veth"));
    if own.is_some() {
        return delete(host, own);
    }
    let Some(sandbox) = Namespace::open_if_present(netns)? else { return Ok(()) };
    let Some(link) = sandbox.nl.link(&at.ifname)?.filter(|link| link.is("veth")) else { return Ok(()) };
    // One of this suite is found by its name: this one is another network's.
    let foreign = host_end::find(host, &sandbox, &link)?.is_some_and(|end| ownership::is_owned(&end));
    delete(&sandbox, Some(link).filter(|_| !foreign))
}

/// Deletes the veth pairs of the network whose attachments are not valid any more (GC).
///
/// # Errors
/// All that could not be deleted.
pub fn stale_veths(host: &Namespace, call: &Gc) -> Result<()> {
    let mut failures = Failures::new();
    let links = host.nl.links()?;
    for link in links.iter().filter(|link| veth::is_taken(link, &call.net.name, &call.scope)) {
        failures.note(host.nl.delete_link(link));
    }
    failures.into_result()
}

fn delete(namespace: &Namespace, link: Option<Link>) -> Result<()> {
    link.map_or(Ok(()), |link| Ok(namespace.nl.delete_link(&link)?))
}
