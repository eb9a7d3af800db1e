//! Decodes and checks a server's OFFER or ACK.

use std::net::Ipv4Addr;
use std::time::Duration;

use cni::{Code, Error, Result};

use super::no_more_tries;
use crate::options::{self, Number, is_unicast};
use crate::{Lease, Message, Options, Random, Time};

/// An unlimited lease.
const INFINITE: u32 = u32::MAX;
/// The shortest accepted lease in seconds. A shorter one would be renewed permanently.
const SHORTEST: u32 = 2;
/// The time in seconds of a lease without a time. The reference has the same default.
const DEFAULT: u32 = 3600;

/// A server's offer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offer {
    pub address: Ipv4Addr,
    pub server: Ipv4Addr,
}

/// A server's offer.
///
/// # Errors
/// Code 11 without a server identifier, 999 if no host can have the address.
pub(super) fn offer(message: &Message) -> Result<Offer> {
    let address = message.yiaddr;
    let server = server(message).ok_or_else(|| {
        no_more_tries(format!(
            "a DHCP server offered {address} without a valid server identifier (option 54)"
        ))
    })?;
    match is_usable(address, prefix(message), server) {
        true => Ok(Offer { address, server }),
        false => {
            let text = format!("DHCP server {server} offered {address}, which is not a valid host address");
            Err(Error::new(Code::Internal, text))
        }
    }
}

/// The server that sent a message.
pub(super) fn server(message: &Message) -> Option<Ipv4Addr> {
    message.options.address(options::SERVER_ID).filter(|server| is_unicast(*server))
}

/// The lease in an ACK to a REQUEST sent at `since`.
///
/// # Errors
/// As for [`offer`]; code 11 if the lease time is too short.
pub(super) fn lease(message: Message, since: Time, random: &mut Random) -> Result<Lease> {
    let Offer { address, server } = offer(&message)?;
    let length = message.options.number(options::LEASE_TIME).unwrap_or(DEFAULT);
    if length < SHORTEST {
        return Err(no_more_tries(format!(
            "DHCP server {server} leased {address} for {length} s (option 51), which is too short to be renewed"
        )));
    }
    let prefix = prefix(&message);
    let times = (length != INFINITE).then(|| Times::of(&message.options, length, random));
    let at = |of: fn(&Times) -> Duration| times.as_ref().map(|times| since + of(times));
    Ok(Lease {
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

/// Whether the lease time in an ACK to a REQUEST sent at `since` is over, or too short.
pub(super) fn is_over(message: &Message, since: Time, now: Time) -> bool {
    let length = message.options.number(options::LEASE_TIME).filter(|length| *length != INFINITE);
    length.is_some_and(|length| length < SHORTEST || since + Duration::from_secs(length.into()) <= now)
}

/// The required options that are missing.
pub(super) fn missing(required: &[Number], options: &Options) -> Vec<Number> {
    required.iter().copied().filter(|number| options.get(*number).is_none()).collect()
}

/// A lease's times, relative to its start.
struct Times {
    renew: Duration,
    rebind: Duration,
    length: Duration,
}

impl Times {
    /// T1 and T2 as sent by the server if they are in order. Otherwise half and seven eighths of the lease time. T1 is
    /// up to 1/32 earlier, so that containers which were started together do not renew together (RFC 2131, section
    /// 4.4.5).
    fn of(options: &Options, length: u32, random: &mut Random) -> Self {
        let length = u64::from(length) * 1000;
        let said = |number| options.number(number).map(|seconds| u64::from(seconds) * 1000);
        let (default_renew, default_rebind) = (length / 2, length - length / 8);
        let rebind = said(options::REBINDING_TIME).filter(|t2| (1..length).contains(t2));
        let rebind = rebind.unwrap_or(default_rebind);
        let renew = said(options::RENEWAL_TIME).filter(|t1| (1..rebind).contains(t1));
        // If T2 is in the first half, the default T1 would be after it.
        let renew = renew.unwrap_or(if default_renew < rebind { default_renew } else { rebind / 2 });
        let earlier = random.number() % (renew / 32 + 1);
        let millis = Duration::from_millis;
        Self { renew: millis(renew - earlier), rebind: millis(rebind), length: millis(length) }
    }
}

/// The prefix length of the subnet: from the mask, or else from the address's class.
fn prefix(message: &Message) -> u8 {
    let mask = message.options.address(options::SUBNET_MASK).map(u32::from);
    let contiguous = mask.filter(|mask| *mask != 0 && mask.leading_ones() + mask.trailing_zeros() == 32);
    contiguous.map_or_else(|| options::class_prefix(message.yiaddr), |mask| mask.leading_ones() as u8)
}

/// Whether a host can have the address.
fn is_usable(address: Ipv4Addr, prefix: u8, server: Ipv4Addr) -> bool {
    let host_bits = u32::MAX.checked_shr(prefix.into()).unwrap_or(0);
    let host = u32::from(address) & host_bits;
    // Both addresses of a /31 are hosts (RFC 3021).
    let is_host = prefix >= 31 || (host != 0 && host != host_bits);
    is_unicast(address) && is_host && address != server
}
