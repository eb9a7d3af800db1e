//! Decodes and checks a server's ADVERTISE or REPLY.

use std::net::Ipv6Addr;
use std::time::Duration;

use super::lease::Lease;
use super::message::*;
use super::request::Identity;
use crate::{Time, options};

/// A status code (RFC 8415, section 21.13).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    Success,
    NoAddrsAvail,
    NoBinding,
    NotOnLink,
    /// UnspecFail, UseMulticast (which cannot apply, because all messages are multicast), and unknown codes.
    Other(u16),
}

/// A status code with the server's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerStatus {
    pub status: Status,
    pub text: String,
}

impl std::fmt::Display for ServerStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.status {
            Status::Other(1) => f.write_str("UnspecFail")?,
            Status::Other(5) => f.write_str("UseMulticast")?,
            Status::Other(number) => write!(f, "status {number}")?,
            named => write!(f, "{named:?}")?,
        }
        if self.text.is_empty() { Ok(()) } else { write!(f, " ({:?})", self.text) }
    }
}

/// The status among options. A missing one means success. A malformed one means failure.
pub fn status(options: &Options) -> ServerStatus {
    let number = match options.all(STATUS_CODE).next() {
        None => 0,
        Some([high, low, ..]) => u16::from_be_bytes([*high, *low]),
        Some(_) => u16::MAX,
    };
    let text = options.all(STATUS_CODE).next().and_then(|value| value.get(2..)).unwrap_or_default();
    let status = match number {
        0 => Status::Success,
        2 => Status::NoAddrsAvail,
        3 => Status::NoBinding,
        4 => Status::NotOnLink,
        other => Status::Other(other),
    };
    ServerStatus { status, text: options::text(text) }
}

/// Maximum length of a DUID (RFC 8415, section 11.1): a type of two bytes, and 128 bytes.
const LONGEST_DUID: usize = 130;

/// The DUID of the server that sent a message. None: it is missing or malformed.
pub fn server(message: &Message) -> Option<&[u8]> {
    message.options.get(SERVER_ID).filter(|duid| (3..=LONGEST_DUID).contains(&duid.len()))
}

/// Whether a message is addressed to a client.
pub fn is_for(message: &Message, identity: &Identity) -> bool {
    message.options.get(CLIENT_ID) == Some(identity.duid.bytes())
}

/// An address that a server offers or grants, with its lifetimes in seconds. All ones: unlimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Given {
    pub address: Ipv6Addr,
    preferred: u32,
    valid: u32,
}

impl Given {
    /// Whether its valid lifetime is long enough. If the client already has this address, a shorter one ends the lease.
    pub fn lasts(&self) -> bool {
        self.valid >= SHORTEST
    }
}

/// The message's IA_NA for this client.
#[derive(Clone, Debug)]
pub struct Association {
    t1: u32,
    t2: u32,
    pub server_status: ServerStatus,
    /// The valid addresses, also those with a lifetime of zero.
    pub addresses: Vec<Given>,
}

/// The IA_NA with an IAID. None: it is missing or malformed, or its times are not in order.
pub fn association(message: &Message, iaid: u32) -> Option<Association> {
    let mut all = message.options.all(IA_NA).filter_map(|value| {
        let ([id, t1, t2], options) = numbers(value)?;
        let options = Options::decode(options).filter(|_| id == iaid && !(t2 > 0 && t1 > t2))?;
        let addresses = options.all(IA_ADDR).filter_map(given).collect();
        Some(Association { t1, t2, server_status: status(&options), addresses })
    });
    all.next()
}

/// The first address in a message that a host can have, even if the rest is invalid.
pub fn named(message: &Message) -> Option<Ipv6Addr> {
    let associations = message.options.all(IA_NA).filter_map(|value| Options::decode(value.get(12..)?));
    let addresses = associations.filter_map(|options| {
        let octets = options.get(IA_ADDR)?.first_chunk::<16>()?;
        Some(Ipv6Addr::from(*octets)).filter(|address| is_usable(*address))
    });
    addresses.into_iter().next()
}

/// Three 32-bit numbers, and the rest.
fn numbers(value: &[u8]) -> Option<([u32; 3], &[u8])> {
    let (head, rest) = value.split_first_chunk::<12>()?;
    let (words, _) = head.as_chunks::<4>();
    Some(([words[0], words[1], words[2]].map(u32::from_be_bytes), rest))
}

/// An address with its lifetimes in order, and without an error status.
fn given(value: &[u8]) -> Option<Given> {
    let (head, options) = value.split_first_chunk::<24>()?;
    let (octets, times) = head.split_first_chunk::<16>()?;
    let (times, _) = times.as_chunks::<4>();
    let [preferred, valid] = [times[0], times[1]].map(u32::from_be_bytes);
    let address = Ipv6Addr::from(*octets);
    let server_status = status(&Options::decode(options)?).status;
    let is_good = is_usable(address) && preferred <= valid && server_status == Status::Success;
    is_good.then_some(Given { address, preferred, valid })
}

/// Whether a server can allocate the address to a host: not loopback, multicast, link-local or IPv4-mapped.
pub fn is_usable(address: Ipv6Addr) -> bool {
    !(address.is_unspecified()
        || address.is_loopback()
        || address.is_multicast()
        || address.is_unicast_link_local()
        || address.to_ipv4().is_some())
}

/// An unlimited lifetime.
const INFINITE: u32 = u32::MAX;
/// The shortest accepted lifetime in seconds. A shorter one would be renewed permanently.
const SHORTEST: u32 = 10;
/// The earliest T1 in seconds. With an earlier one, the client would send renewals permanently.
const EARLIEST: u32 = 10;

impl Association {
    /// The address to accept: the client's own or offered one, otherwise the first.
    pub fn pick(&self, requested: Option<Ipv6Addr>) -> Option<Given> {
        let good = || self.addresses.iter().filter(|given| given.lasts());
        good().find(|given| Some(given.address) == requested).or_else(|| good().next()).copied()
    }

    /// The lease of an address, from an answer to a request sent at `since`.
    pub fn lease(&self, given: Given, message: &Message, since: Time) -> Option<Lease> {
        let moment =
            |seconds: u32| (seconds != INFINITE).then(|| since + Duration::from_secs(seconds.into()));
        let (t1, t2) = self.times(given);
        let dns = message.options.get(DNS_SERVERS).unwrap_or_default();
        let (dns, rest) = dns.as_chunks::<16>();
        let dns = dns.iter().copied().map(Ipv6Addr::from).filter(|_| rest.is_empty());
        Some(Lease {
            address: given.address,
            server: server(message)?.to_vec(),
            since,
            renew: moment(t1),
            rebind: moment(t2),
            preferred: moment(given.preferred),
            expiry: moment(given.valid),
            dns: dns.filter(is_usable_in_a_result).collect(),
            search: options::domains(message.options.get(DOMAIN_LIST).unwrap_or_default()),
        })
    }

    /// T1 and T2. If the server leaves them to the client, they are half and four fifths of the preferred lifetime (RFC
    /// 8415, section 21.4), or of the valid lifetime if the preferred one is zero. They are never after the end of the
    /// lease. T1 is not before [`EARLIEST`], or half of the valid lifetime if that is shorter.
    fn times(&self, given: Given) -> (u32, u32) {
        let whole = if given.preferred == 0 { given.valid } else { given.preferred };
        let part = |of_ten: u64| match whole {
            INFINITE => INFINITE,
            _ => u32::try_from(u64::from(whole) * of_ten / 10).unwrap_or(INFINITE).max(1),
        };
        let t2 = if self.t2 == 0 { part(8).max(self.t1) } else { self.t2 };
        let t2 = if t2 > given.valid { part(8) } else { t2 };
        let t1 = if self.t1 == 0 { part(5) } else { self.t1 };
        let earliest = EARLIEST.min(given.valid / 2);
        (t1.min(t2).max(earliest), t2.max(earliest))
    }
}

/// The maximum interval between two SOLICITs, as set by a server (option 82). Values outside of one minute to one day
/// are ignored (RFC 8415, section 21.24).
pub fn sol_max_rt(options: &Options) -> Option<Duration> {
    let value = u32::from_be_bytes(options.get(SOL_MAX_RT)?.try_into().ok()?);
    (60..=86_400).contains(&value).then(|| Duration::from_secs(value.into()))
}

/// Whether a result can contain this name server. A link-local address needs an interface, which a result cannot name.
fn is_usable_in_a_result(server: &Ipv6Addr) -> bool {
    !(server.is_unspecified()
        || server.is_multicast()
        || server.is_loopback()
        || server.is_unicast_link_local())
}
