//! A lease, in its form on disk and as a CNI result.

use std::net::Ipv6Addr;

use cni::{AddResult, Dns, IpConfig};
use ipnetwork::{IpNetwork, Ipv6Network};
use serde::{Deserialize, Serialize};

use crate::Time;

/// The prefix length of the address. Routers announce the link's prefix (RFC 8415, section 18.2.10.1).
pub const PREFIX: u8 = 128;

/// An address that a server has allocated, with its lifetime by the clock of [`Time`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Lease {
    /// The container's address.
    pub address: Ipv6Addr,
    /// The server's DUID, to which renewals and the release are addressed.
    pub server: Vec<u8>,
    /// When the request was sent. The lease's times start then.
    pub since: Time,
    /// T1: when to ask the server for an extension. None: never.
    pub renew: Option<Time>,
    /// T2: when to ask all servers for an extension. None: never.
    pub rebind: Option<Time>,
    /// End of the preferred lifetime: new connections should use another address then. None: unlimited.
    pub preferred: Option<Time>,
    /// When the address may no longer be used. None: never.
    pub expiry: Option<Time>,
    /// Name servers (option 23).
    pub dns: Vec<Ipv6Addr>,
    /// Domains to search for short names (option 24).
    pub search: Vec<String>,
}

/// The result of an ADD: the address and DNS, without gateway and routes.
pub fn of_lease(lease: &Lease) -> AddResult {
    let address = Ipv6Network::new(lease.address, PREFIX).ok().map(IpNetwork::V6);
    AddResult {
        ips: address.map(|address| IpConfig::new(address, None)).into_iter().collect(),
        dns: Dns {
            nameservers: lease.dns.iter().map(Ipv6Addr::to_string).collect(),
            search: lease.search.clone(),
            ..Dns::default()
        },
        ..AddResult::default()
    }
}
