//! Identity of a client, and the messages that it sends.

use std::net::Ipv6Addr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::message::*;

/// A client's DUID (RFC 8415, section 11).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Duid(Vec<u8>);

/// A DUID of type 4 (RFC 6355).
const DUID_UUID: u16 = 4;

impl Duid {
    /// The DUID of a UUID that is made of a digest (RFC 9562, version 8, whose bits are free). The same digest results
    /// in the same DUID, on each host, after each restart, and with any hardware address.
    pub fn of_digest(digest: [u8; 16]) -> Self {
        let mut uuid = digest;
        uuid[6] = uuid[6] & 0x0f | 0x80;
        uuid[8] = uuid[8] & 0x3f | 0x80;
        Self([&DUID_UUID.to_be_bytes()[..], &uuid].concat())
    }

    /// The encoded DUID.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// The client's identity. It stays the same as long as the attachment exists.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The client.
    pub duid: Duid,
    /// The IAID: identifies one of the client's identity associations.
    pub iaid: u32,
}

/// The options to request.
const REQUESTED: [Number; 3] = [DNS_SERVERS, DOMAIN_LIST, SOL_MAX_RT];

/// Creates a message about an address, or without one, to one server, or to all.
pub(super) fn message(
    identity: &Identity,
    kind: Kind,
    xid: u32,
    elapsed: Duration,
    (address, server): (Option<Ipv6Addr>, Option<&[u8]>),
) -> Message {
    let hundredths = u16::try_from(elapsed.as_millis() / 10).unwrap_or(u16::MAX);
    let mut options = Options::default()
        .with(CLIENT_ID, identity.duid.bytes())
        .with(ELAPSED_TIME, hundredths.to_be_bytes())
        .with(IA_NA, association(identity.iaid, address));
    if let Some(server) = server {
        options = options.with(SERVER_ID, server);
    }
    if kind == Kind::Solicit {
        options = options.with(RAPID_COMMIT, []);
    }
    if matches!(kind, Kind::Solicit | Kind::Request | Kind::Renew | Kind::Rebind) {
        options = options.with(OPTION_REQUEST, REQUESTED.map(u16::to_be_bytes).concat());
    }
    Message { kind, xid, options }
}

/// An IA_NA: IAID, T1, T2 and the address. Servers set all times.
fn association(iaid: u32, address: Option<Ipv6Addr>) -> Vec<u8> {
    let mut value = [iaid, 0, 0].map(u32::to_be_bytes).concat();
    if let Some(address) = address {
        let address = [&address.octets()[..], &[0; 8]].concat();
        value.extend(Options::default().with(IA_ADDR, address).encode());
    }
    value
}
