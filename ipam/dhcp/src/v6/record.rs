//! What is known of an attachment that has a lease for IPv6, as it is kept on disk.

use std::net::Ipv6Addr;

use dhcp_client::v6::{Duid, Identity, Lease};
use serde::{Deserialize, Serialize};

use crate::record::{Key, Place};
use crate::store::Kept;

/// The version of the file.
const VERSION: u32 = 1;

/// The number of the one address that a client asks for (IAID): the DUID is the attachment's own already.
const IAID: u32 = 1;

/// An attachment and its lease.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// The version of the file.
    v: u32,
    /// The network's name.
    pub network: String,
    /// The container's id.
    pub container_id: String,
    /// The interface's name.
    pub if_name: String,
    /// Where the container is.
    pub place: Place,
    /// Who asks. It is on disk so that another release of the daemon asks as the same client.
    pub identity: Identity,
    /// The lease is being given back: who finds it so after a kill gives it back once more, and never uses it.
    #[serde(default)]
    pub leaves: bool,
    /// None: it was lost, and another one is being asked for.
    pub lease: Option<Lease>,
    /// The address that the link has by this lease. It differs from the lease's while that is put on the link.
    pub on_link: Option<Ipv6Addr>,
}

impl Record {
    /// One of an attachment that has no lease yet. The client is the attachment: container, network and interface. So a restart of the daemon, or another
    /// ADD for the same, asks as the same client, and containers that share a hardware address (ipvlan) do not.
    pub fn new(network: &str, container: &str, ifname: &str, place: Place, key: &Key) -> Self {
        Self {
            v: VERSION,
            network: network.to_owned(),
            container_id: container.to_owned(),
            if_name: ifname.to_owned(),
            place,
            identity: Identity { duid: Duid::of_digest(key.digest()), iaid: IAID },
            leaves: false,
            lease: None,
            on_link: None,
        }
    }
}

impl Kept for Record {
    const END: &str = ".v6.json";

    fn key(&self) -> Option<Key> {
        Key::parse(&self.network, &self.container_id, &self.if_name).ok().filter(|_| self.v == VERSION)
    }
}
