//! Releases leases for DEL and for COLLECT ([`cni::collect`]): through the daemon, or in this process if no daemon runs.

use std::path::Path;

use cni::{Attachment, ContainerId, Failures, Gc, IfName, NetworkName, Resource, Result};
use serde_json::Value;

use crate::ask::{DaemonAnswer, ask};
use crate::offline;
use crate::record::lease;
use crate::wire::{Op, Request};

/// Releases the leases in the scope, one attachment after the other.
///
/// # Errors
/// The leases that could not be listed or released.
pub fn by_attachment(socket: &Path, call: &Gc) -> Result<()> {
    let listed = match ask(socket, &Request::new(Op::List, &call.net.name), None)? {
        DaemonAnswer::Answered(answer) => answer?,
        DaemonAnswer::NoDaemon(_) => return offline::collect(socket, call),
    };
    let entries = listed.as_array().into_iter().flatten().filter(|one| one["network"] == *call.net.name);
    let mut failures = Failures::new();
    for resource in entries.filter_map(read) {
        let names = (ContainerId::parse(&resource.container), IfName::parse(&resource.ifname));
        let (Ok(container), Ok(ifname)) = names else { continue };
        if call.scope.should_delete(resource) {
            let at = Attachment { container, ifname };
            failures.note(release(socket, &call.net.name, &at));
        }
    }
    failures.into_result()
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
