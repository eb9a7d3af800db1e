//! DEL and GC: the container's interface goes, and all that hangs on it.

use std::path::PathBuf;

use cni::{Attachment, Failures, Gc, NetworkName, Result};

use crate::{Namespace, veth};

/// Deletes the attachment's veth pair, by either end: by the host's, if a plugin of this suite made it, even when the
/// container's namespace is gone; else by the container's.
///
/// # Errors
/// If the kernel refuses. That there is nothing is fine.
pub fn veth(host: &Namespace, network: &NetworkName, at: &Attachment, netns: Option<&PathBuf>) -> Result<()> {
    if let Some(link) = host.nl.link(&veth::host_name(network, at))?.filter(|link| link.is("veth")) {
        return Ok(host.nl.delete_link(&link)?);
    }
    let Some(sandbox) = Namespace::open_if_present(netns)? else { return Ok(()) };
    match sandbox.nl.link(&at.ifname)? {
        Some(link) => Ok(sandbox.nl.delete_link(&link)?),
        None => Ok(()),
    }
}

/// Deletes the veth pairs of the network whose attachments are not valid any more.
///
/// # Errors
/// All that could not be deleted.
pub fn stale_veths<R>(host: &Namespace, call: &Gc<R>) -> Result<()> {
    let mut failures = Failures::new();
    for link in host.nl.links()? {
        if link.is("veth") && veth::is_stale(&link, &call.net.name, &call.valid) {
            failures.note(host.nl.delete_link(&link));
        }
    }
    failures.into_result()
}
