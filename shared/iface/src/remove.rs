//! DEL and GC: deleting the container's interface and everything that belongs to it.
//!
//! A DEL may follow an ADD that failed because CNI_IFNAME existed. Only links of the plugin's own kind are therefore deleted.

use cni::{AddResult, Command, Del, Failures, Gc, Interface, Ipam, NetConf, Result};
use netlink::Link;

use crate::{Namespace, child, conf, host_end, ownership, veth};

/// DEL or GC: deletes links, and releases the leases. A failure of one does not prevent the other.
///
/// Leases are released last, so that nobody gets an address that the container still answers to. They are released first if the IPAM plugin
/// needs the link.
///
/// # Errors
/// All failures.
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

/// Deletes the attachment's interface in the container if it has this kind and does not belong to another attachment. Succeeds if link
/// or container do not exist.
///
/// # Errors
/// If the kernel refuses.
pub fn child(call: &Del, kind: &str) -> Result<()> {
    child_like(call, |link| link.is(kind)).map(drop)
}

/// Like [`child`], with a condition, for kinds that the container may create itself. Returns whether a link was deleted.
///
/// # Errors
/// If the kernel refuses.
pub fn child_like(call: &Del, is_made_here: impl Fn(&Link) -> bool) -> Result<bool> {
    let Some(sandbox) = Namespace::open_if_present(call.netns.as_ref())? else { return Ok(false) };
    let (network, at) = (&call.net.name, &call.attachment);
    // A link without Ferrule's alias may be the reference's. In the host's namespace, it may also be another program's.
    let may_be_others = |link: &Link| {
        !ownership::is_of(network, link) && sandbox.is_hosts() && !is_listed_in_container(call, link)
    };
    let own = |link: &Link| !ownership::is_of_another(network, at, link) && !may_be_others(link);
    let link = match sandbox.nl.link(&at.ifname)?.filter(|link| is_made_here(link) && own(link)) {
        // Left by an ADD that was killed before it renamed the link.
        None => sandbox.nl.link(&child::temporary_name(network, at))?.filter(&is_made_here),
        link => link,
    };
    let is_there = link.is_some();
    delete(&sandbox, link).map(|()| is_there)
}

/// The interface whose settings a chained plugin restores. `None` if it does not exist or belongs to another attachment.
///
/// # Errors
/// If the kernel refuses.
pub fn chained(call: &Del, sandbox: &Namespace) -> Result<Option<Link>> {
    let Some(link) = sandbox.nl.link(&call.attachment.ifname)? else { return Ok(None) };
    // The alias of a veth pair is on the host's end.
    let has_other_end = link.is("veth") && !ownership::is_owned(&link);
    let end = if has_other_end { host_end::find(&Namespace::host()?, sandbox, &link)? } else { None };
    let is_foreign =
        ownership::is_of_another(&call.net.name, &call.attachment, end.as_ref().unwrap_or(&link));
    Ok(Some(link).filter(|_| !is_foreign))
}

/// Deletes the attachment's veth pair: by the host's end, which Ferrule finds by its name without the container's namespace, else by the
/// container's end. Succeeds if it does not exist.
///
/// The reference's ends have no alias. Such an end may be another network's: this network's ADD may have failed because CNI_IFNAME existed.
/// Its pair is therefore deleted only if the result of ADD lists the end, or `is_attached` recognizes what the plugin does with an end.
///
/// A pair without an end on the host, such as a link to another container, is deleted only if the result of ADD lists the container's end.
///
/// # Errors
/// If the kernel refuses.
pub fn veth(host: &Namespace, call: &Del, is_attached: impl Fn(&Link) -> Result<bool>) -> Result<()> {
    let (network, at) = (&call.net.name, &call.attachment);
    let own = named_end(host, call)?;
    if own.is_some() {
        return delete(host, own);
    }
    let Some(sandbox) = Namespace::open_if_present(call.netns.as_ref())? else { return Ok(()) };
    let Some(link) = sandbox.nl.link(&at.ifname)?.filter(|link| link.is("veth")) else { return Ok(()) };
    // The host's end has an unknown name: it was renamed, or the pair is another network's or the reference's.
    let is_own = match host_end::find(host, &sandbox, &link)? {
        Some(end) if ownership::is_owned(&end) => ownership::is_owner(network, at, &end),
        Some(end) => ownership::is_of(network, &end) || is_listed(call, &end) || is_attached(&end)?,
        None => is_listed_in_container(call, &link),
    };
    delete(&sandbox, Some(link).filter(|_| is_own))
}

/// Whether the result of ADD lists an interface of the host.
fn is_listed(call: &Del, link: &Link) -> bool {
    host_interfaces(call).any(|one| one.name == link.name)
}

/// Whether the result of ADD lists the container's interface with its hardware address.
fn is_listed_in_container(call: &Del, link: &Link) -> bool {
    let listed = call.prev_result.as_ref().and_then(|prev| prev.container_interface(&link.name));
    let mac = listed.and_then(|listed| listed.mac.as_deref());
    mac.zip(link.mac).is_some_and(|(listed, mac)| listed.eq_ignore_ascii_case(&mac.to_string()))
}

fn host_interfaces(call: &Del) -> impl Iterator<Item = &Interface> {
    call.prev_result.iter().flat_map(AddResult::host_interfaces)
}

/// Finds the host's end by the attachment's name, else by the configured one, else by those in the result of ADD.
fn named_end(host: &Namespace, call: &Del) -> Result<Option<Link>> {
    let requested = conf::host_interface_as_written(&call.conf).map(|name| name.to_string());
    let listed = host_interfaces(call).map(|one| one.name.clone());
    veth::find_host_end(host, &call.net.name, &call.attachment, requested.into_iter().chain(listed))
}

/// GC: deletes the network's veth pairs whose attachments are not valid.
///
/// # Errors
/// All pairs that could not be deleted.
pub fn stale_veths(host: &Namespace, call: &Gc) -> Result<()> {
    stale_links(host, |link| veth::is_taken(link, &call.net.name, &call.scope))
}

/// GC of a plugin with [`child()`] interfaces: deletes those in the host's namespace whose attachments are not valid, and releases the
/// leases. The kernel deletes an interface together with a container's namespace, but with `CNI_NETNS_OVERRIDE` there may be none.
///
/// # Errors
/// All failures.
pub fn stale_children(call: &Gc, is_made_here: impl Fn(&Link) -> bool) -> Result<()> {
    let (network, scope) = (&call.net.name, &call.scope);
    with_leases(&call.net, Command::Gc, |failures| {
        if let Some(host) = failures.note(Namespace::host()) {
            let is_stale = |link: &Link| is_made_here(link) && child::is_taken(link, network, scope);
            failures.note(stale_links(&host, is_stale));
        }
    })
}

fn stale_links(host: &Namespace, is_stale: impl Fn(&Link) -> bool) -> Result<()> {
    let mut failures = Failures::new();
    for link in host.nl.links()?.iter().filter(|link| is_stale(link)) {
        failures.note(host.nl.delete_link(link));
    }
    failures.into_result()
}

fn delete(namespace: &Namespace, link: Option<Link>) -> Result<()> {
    link.map_or(Ok(()), |link| Ok(namespace.nl.delete_link(&link)?))
}
