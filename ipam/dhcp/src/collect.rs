//! Releases leases for DEL, GC and COLLECT ([`cni::collect`]): through the daemon, or in this process if no daemon runs.

use std::path::Path;

use cni::{Attachment, Gc, NetworkName, Resource, Result};
use serde_json::Value;

use crate::ask::{DaemonAnswer, ask};
use crate::offline;
use crate::record::lease;
use crate::wire::{Op, Request};

/// Releases the leases in the scope: through the daemon, or in this process if no daemon runs.
///
/// # Errors
/// The leases that could not be listed or released.
pub fn collect(socket: &Path, call: &Gc) -> Result<()> {
    let listed = match ask(socket, &Request::new(Op::List, &call.net.name), None)? {
        DaemonAnswer::Answered(answer) => answer?,
        DaemonAnswer::NoDaemon(_) => return offline::collect(socket, call),
    };
    // The scope may be older than an ADD that is still running.
    let entries = listed.as_array().into_iter().flatten();
    let entries = entries.filter(|one| one["network"] == *call.net.name && one["adding"] != true);
    let is_stale = |resource: Resource| {
        let names = (resource.container.clone(), resource.ifname.clone());
        call.scope.should_delete(resource).then_some(names)
    };
    let stale: Vec<_> = entries.filter_map(read).filter_map(is_stale).collect();
    if stale.is_empty() {
        return Ok(());
    }
    match ask(socket, &Request { stale, ..Request::new(Op::Gc, &call.net.name) }, None)? {
        DaemonAnswer::Answered(answer) => answer.map(drop),
        DaemonAnswer::NoDaemon(_) => offline::collect(socket, call),
    }
}

/// Releases an attachment's leases: through the daemon, or in this process if no daemon runs.
///
/// # Errors
/// The leases that could not be released.
pub fn release(socket: &Path, network: &NetworkName, at: &Attachment) -> Result<()> {
    match ask(socket, &Request::about(Op::Release, network, at), None)? {
        DaemonAnswer::Answered(answer) => answer.map(drop),
        DaemonAnswer::NoDaemon(_) => offline::release(socket, network, at),
    }
}

/// An entry of `dhcp list`.
fn read(entry: &Value) -> Option<Resource> {
    let text = |key: &str| entry[key].as_str();
    let address = text("address").and_then(|address| address.split('/').next()?.parse().ok());
    Some(lease(text("containerId")?, text("ifName")?, Path::new(text("netns")?), address))
}
