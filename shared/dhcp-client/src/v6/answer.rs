//! Decodes and checks a server's ADVERTISE or REPLY.

use std::net::Ipv6Addr;
use std::time::Duration;

use super::lease::Lease;
use super::message::*;
use super::request::Identity;
use crate::{Time, options};

/// How a request went (RFC 8415, section 21.13).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    Success,
    NoAddrsAvail,
    NoBinding,
    NotOnLink,
    /// UnspecFail, UseMulticast (nothing is sent otherwise), and what is of no meaning here.
    Other(u16),
}

/// A status, and the server's text to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    pub status: Status,
    pub text: String,
}

impl std::fmt::Display for Said {
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

/// The status among options. None said: it went well. A malformed one says that it did not.
pub fn status(options: &Options) -> Said {
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
    Said { status, text: options::text(text) }
}

/// The longest DUID (RFC 8415, section 11.1): a type of two bytes, and 128.
const LONGEST_DUID: usize = 130;

/// The server that a message is from. None: it does not say, or nothing that a DUID can be.
pub fn server(message: &Message) -> Option<&[u8]> {
    message.options.get(SERVER_ID).filter(|duid| (3..=LONGEST_DUID).contains(&duid.len()))
}

/// Whether a message is for a client.
pub fn is_for(message: &Message, identity: &Identity) -> bool {
    message.options.get(CLIENT_ID) == Some(identity.duid.bytes())
}

/// An address that a server offers or gives, with its times in seconds. All ones: no end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Given {
    pub address: Ipv6Addr,
    preferred: u32,
    valid: u32,
}

impl Given {
    /// Whether its time is long enough to use it. An address of the client's whose time is not has ended: it may not be used as long as was said before.
    pub fn lasts(&self) -> bool {
        self.valid >= SHORTEST
    }
}

/// What a message says about the client's identity association.
#[derive(Clone, Debug)]
pub struct Association {
    t1: u32,
    t2: u32,
    pub said: Said,
    /// Those that can be used, or could, if their time were not zero.
    pub addresses: Vec<Given>,
}

/// The association of a number. None: there is none, it is malformed, or its times are in no order.
pub fn association(message: &Message, iaid: u32) -> Option<Association> {
    let mut all = message.options.all(IA_NA).filter_map(|value| {
        let ([id, t1, t2], options) = numbers(value)?;
        let options = Options::decode(options).filter(|_| id == iaid && !(t2 > 0 && t1 > t2))?;
        let addresses = options.all(IA_ADDR).filter_map(given).collect();
        Some(Association { t1, t2, said: status(&options), addresses })
    });
    all.next()
}

/// The first address that a message names and a host can have, whatever else is wrong with what is said of it.
pub fn named(message: &Message) -> Option<Ipv6Addr> {
    let associations = message.options.all(IA_NA).filter_map(|value| Options::decode(value.get(12..)?));
    let addresses = associations.filter_map(|options| {
        let octets = options.get(IA_ADDR)?.first_chunk::<16>()?;
        Some(Ipv6Addr::from(*octets)).filter(|address| is_usable(*address))
    });
    addresses.into_iter().next()
}

/// Three numbers of four bytes, and what comes behind.
fn numbers(value: &[u8]) -> Option<([u32; 3], &[u8])> {
    let (head, rest) = value.split_first_chunk::<12>()?;
    let (words, _) = head.as_chunks::<4>();
    Some(([words[0], words[1], words[2]].map(u32::from_be_bytes), rest))
}

/// An address whose times are in order, and that is not refused by a status of its own.
fn given(value: &[u8]) -> Option<Given> {
    let (head, options) = value.split_first_chunk::<24>()?;
    let (octets, times) = head.split_first_chunk::<16>()?;
    let (times, _) = times.as_chunks::<4>();
    let [preferred, valid] = [times[0], times[1]].map(u32::from_be_bytes);
    let address = Ipv6Addr::from(*octets);
    let said = status(&Options::decode(options)?).status;
    let is_good = is_usable(address) && preferred <= valid && said == Status::Success;
    is_good.then_some(Given { address, preferred, valid })
}

/// Whether a server can give one host the address: not loopback, no group, none that is of one link only or stands for an IPv4 address.
pub fn is_usable(address: Ipv6Addr) -> bool {
    !(address.is_unspecified()
        || address.is_loopback()
        || address.is_multicast()
        || address.is_unicast_link_local()
        || address.to_ipv4().is_some())
}

/// A time without end.
const INFINITE: u32 = u32::MAX;
/// The shortest time that an address is taken for, in seconds: with a shorter one there would be nothing but renewals.
const SHORTEST: u32 = 10;
/// The earliest T1, in seconds: a server that says a shorter one would have nothing but renewals, without end.
const EARLIEST: u32 = 10;

impl Association {
    /// The address to take: the one that the client has or was offered, else the first.
    pub fn pick(&self, wanted: Option<Ipv6Addr>) -> Option<Given> {
        let good = || self.addresses.iter().filter(|given| given.lasts());
        good().find(|given| Some(given.address) == wanted).or_else(|| good().next()).copied()
    }

    /// The lease of an address, for what was asked for at `since`.
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
            dns: dns.filter(can_be_asked).collect(),
            search: options::domains(message.options.get(DOMAIN_LIST).unwrap_or_default()),
        })
    }

    /// T1 and T2. Those that the server leaves to the client are half and four fifths of the preferred time (RFC 8415, section
    /// 21.4), or of the valid time, if it is not to be preferred at all. They are never past the address's end, and T1 is not before
    /// [`EARLIEST`], or before half of the valid time, where that is shorter.
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

/// How long a server wants clients to wait between two SOLICITs at most (option 82). Others than from one minute to a day are not
/// believed (RFC 8415, section 21.24).
pub fn sol_max_rt(options: &Options) -> Option<Duration> {
    let value = u32::from_be_bytes(options.get(SOL_MAX_RT)?.try_into().ok()?);
    (60..=86_400).contains(&value).then(|| Duration::from_secs(value.into()))
}

/// Whether a result can name this name server: one of the link has no meaning without an interface, which a result cannot give it.
fn can_be_asked(server: &Ipv6Addr) -> bool {
    !(server.is_unspecified()
        || server.is_multicast()
        || server.is_loopback()
        || server.is_unicast_link_local())
}
