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

/// The networks with names whose server does not run. Networks that a plugin is changing are left out.
pub fn without_server() -> Vec<NetworkName> {
    let has_names = |network: &Network| network.hosts().is_ok_and(|hosts| hosts.entries().next().is_some());
    let is_stopped = |name: &NetworkName| {
        let network = Network::try_open(name).ok().flatten();
        network.is_some_and(|network| has_names(&network) && matches!(server::find(name), Ok(None)))
    };
    network::all().into_iter().filter(is_stopped).collect()
}
