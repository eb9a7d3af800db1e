//! What cnitool sees of networks with names, without a call of a runtime.

use cni::{Attachment, NetworkName};

use crate::network::{self, Network};
use crate::server;

/// The names of an attachment, its own first. Empty: it has none, or its network has no server.
pub fn names(network: &NetworkName, at: &Attachment) -> Vec<String> {
    let hosts = Network::peek(network).unwrap_or_default();
    let mut entries = hosts.entries().filter(|entry| entry.owner.as_ref() == Some(at));
    entries.next().map(|entry| entry.names.clone()).unwrap_or_default()
}

/// Whether there are networks with names.
pub fn any_network() -> bool {
    !network::all().is_empty()
}

/// The networks whose containers have names, and whose server does not run. One that a plugin is at work on is none.
pub fn without_server() -> Vec<NetworkName> {
    let has_names = |network: &Network| network.hosts().is_ok_and(|hosts| hosts.entries().next().is_some());
    let is_stopped = |name: &NetworkName| {
        let network = Network::try_open(name).ok().flatten();
        network.is_some_and(|network| has_names(&network) && matches!(server::find(name), Ok(None)))
    };
    network::all().into_iter().filter(is_stopped).collect()
}
