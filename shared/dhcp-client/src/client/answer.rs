//! Decodes and checks a server's OFFER or ACK.

use std::net::Ipv4Addr;
use std::time::Duration;

use crate::options::{self, Number, is_unicast};
use crate::{Lease, Message, Options, Random, Time};

/// A lease without end.
const INFINITE: u32 = u32::MAX;
/// The shortest accepted lease, in seconds: a shorter one would be renewed all the time.
const SHORTEST: u32 = 2;

/// An address that a server offers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offer {
    pub address: Ipv4Addr,
    pub server: Ipv4Addr,
}

/// What a server offers. None: it names no server, or an address that no host can have.
pub(super) fn offer(message: &Message) -> Option<Offer> {
    let server = server(message)?;
    is_usable(message.yiaddr, prefix(message), server).then_some(Offer { address: message.yiaddr, server })
}

/// The server that a message is from.
pub(super) fn server(message: &Message) -> Option<Ipv4Addr> {
    message.options.address(options::SERVER_ID).filter(|server| is_unicast(*server))
}

/// The lease that an ACK gives for what was asked for at `since`. None: as for [`offer`], or it says no time.
pub(super) fn lease(message: Message, since: Time, random: &mut Random) -> Option<Lease> {
    let Offer { address, server } = offer(&message)?;
    let length = message.options.number(options::LEASE_TIME).filter(|length| *length >= SHORTEST)?;
    let prefix = prefix(&message);
    let times = (length != INFINITE).then(|| Times::of(&message.options, length, random));
    let at = |of: fn(&Times) -> Duration| times.as_ref().map(|times| since + of(times));
    Some(Lease {
        address,
        prefix,
        server,
        since,
        renew: at(|times| times.renew),
        rebind: at(|times| times.rebind),
        expiry: at(|times| times.length),
        options: message.options,
    })
}

/// Whether the time that an ACK gives, for what was asked for at `since`, is over, or too short for a lease.
pub(super) fn is_over(message: &Message, since: Time, now: Time) -> bool {
    let length = message.options.number(options::LEASE_TIME).filter(|length| *length != INFINITE);
    length.is_some_and(|length| length < SHORTEST || since + Duration::from_secs(length.into()) <= now)
}

/// The options that are asked for and did not come.
pub(super) fn missing(required: &[Number], options: &Options) -> Vec<Number> {
    required.iter().copied().filter(|number| options.get(*number).is_none()).collect()
}

/// A lease's times, from its beginning.
struct Times {
    renew: Duration,
    rebind: Duration,
    length: Duration,
}

impl Times {
    /// T1 and T2 as the server says, if they are in order, else half and seven eighths of the whole. T1 is up to 1/32 earlier, so that
    /// containers that were started together do not renew together (RFC 2131, section 4.4.5).
    fn of(options: &Options, length: u32, random: &mut Random) -> Self {
        let length = u64::from(length) * 1000;
        let said = |number| options.number(number).map(|seconds| u64::from(seconds) * 1000);
        let (default_renew, default_rebind) = (length / 2, length - length / 8);
        let rebind = said(options::REBINDING_TIME).filter(|t2| (1..length).contains(t2));
        let rebind = rebind.unwrap_or(default_rebind);
        let renew = said(options::RENEWAL_TIME).filter(|t1| (1..rebind).contains(t1));
        // A T2 within the first half leaves no room for the usual T1.
        let renew = renew.unwrap_or(if default_renew < rebind { default_renew } else { rebind / 2 });
        let earlier = random.number() % (renew / 32 + 1);
        let millis = Duration::from_millis;
        Self { renew: millis(renew - earlier), rebind: millis(rebind), length: millis(length) }
    }
}

/// The length of the subnet's prefix: of its mask, else that of the address's class.
fn prefix(message: &Message) -> u8 {
    let mask = message.options.address(options::SUBNET_MASK).map(u32::from);
    let contiguous = mask.filter(|mask| *mask != 0 && mask.leading_ones() + mask.trailing_zeros() == 32);
    contiguous.map_or_else(|| options::class_prefix(message.yiaddr), |mask| mask.leading_ones() as u8)
}

/// Whether a host can have the address.
fn is_usable(address: Ipv4Addr, prefix: u8, server: Ipv4Addr) -> bool {
    let host_bits = u32::MAX.checked_shr(prefix.into()).unwrap_or(0);
    let host = u32::from(address) & host_bits;
    // A prefix of 31 bits has two hosts and nothing else (RFC 3021).
    let is_host = prefix >= 31 || (host != 0 && host != host_bits);
    is_unicast(address) && is_host && address != server
}
