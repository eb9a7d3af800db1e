//! A lease, in its form on disk.

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

use crate::{Options, Time};

/// What a server has given, and until when. All times are moments of the clock of [`Time`], which a restart of the daemon does not change;
/// a restart of the machine does, and leaves no lease in /run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Lease {
    /// The container's address.
    pub address: Ipv4Addr,
    /// The length of its subnet's prefix, in bits.
    pub prefix: u8,
    /// The server's identifier (option 54), which renewals are sent to.
    pub server: Ipv4Addr,
    /// When what the server agreed to was asked for. The lease's times begin then.
    pub since: Time,
    /// T1: when to ask the server for more time. None: never, the lease has no end.
    pub renew: Option<Time>,
    /// T2: when to ask any server for more time. None: never.
    pub rebind: Option<Time>,
    /// When the address may no longer be used. None: never.
    pub expiry: Option<Time>,
    /// All options that came with it.
    pub options: Options,
}
