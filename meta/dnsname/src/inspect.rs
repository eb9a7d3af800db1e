//! Read access for cnitool to networks with dnsname.

use cni::{Attachment, NetworkName};

use crate::network::{self, Network};
use crate::server;

/// The names of an attachment, its own name first. Empty: it has no names, or its network has no server.
pub fn names(network: &NetworkName, at: &Attachment) -> Vec<String> {
    let hosts = Network::peek(network).unwrap_or_default();
    let mut entries = hosts.entries().filter(|entry| entry.owner.as_ref() == Some(at));
    entries.next().map(|entry| entry.names.clone()).unwrap_or_default()
}

/// Whether a network with dnsname exists.
pub fn any_network() -> bool {
    !network::all().is_empty()
}

/// A network with names that its server does not resolve.
#[derive(Debug)]
pub struct Failed {
    /// The network.
    pub network: NetworkName,
    /// Whether the server runs, but has not answered a query. It may only be slow.
    pub runs: bool,
}

/// The networks with names whose server does not run or does not answer. Networks that a plugin is changing are left
/// out, and those that `is_used` rejects. It gets the attachments with names, or None for a line of the original plugin,
/// which does not contain the attachment.
pub fn failed(is_used: impl Fn(&NetworkName, &[Option<Attachment>]) -> bool) -> Vec<Failed> {
    network::all().into_iter().filter_map(|name| failed_server(name, &is_used)).collect()
}

fn failed_server(
    name: NetworkName,
    is_used: impl Fn(&NetworkName, &[Option<Attachment>]) -> bool,
) -> Option<Failed> {
    // A plugin can lock the network while this process waits for the server's answer.
    let network = Network::try_open(&name).ok()??;
    let owners: Vec<_> = network.hosts().ok()?.entries().map(|entry| entry.owner.clone()).collect();
    let service = network.service().ok()?;
    let runs = server::find(&name).ok()?.is_some();
    drop(network);
    if owners.is_empty() || !is_used(&name, &owners) {
        return None;
    }
    let is_silent = || service.is_some_and(|service| server::is_silent(&service).unwrap_or_default());
    (!runs || is_silent()).then_some(Failed { network: name, runs })
}
