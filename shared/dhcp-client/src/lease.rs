//! A lease, in its form on disk.

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

use crate::{Options, Time};

/// An address that a server has allocated, with its lifetime. All times are of the clock of [`Time`], which continues
/// when the daemon restarts. It starts again at a boot, which also empties /run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Lease {
    /// The container's address.
    pub address: Ipv4Addr,
    /// The prefix length of its subnet.
    pub prefix: u8,
    /// The server's identifier (option 54), to which renewals are sent.
    pub server: Ipv4Addr,
    /// When the request was sent. The lease's times start then.
    pub since: Time,
    /// T1: when to ask the server for an extension. None: never, the lease is unlimited.
    pub renew: Option<Time>,
    /// T2: when to ask all servers for an extension. None: never.
    pub rebind: Option<Time>,
    /// When the address may no longer be used. None: never.
    pub expiry: Option<Time>,
    /// All options of the ACK.
    pub options: Options,
}
