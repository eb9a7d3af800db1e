//! Messages as bytes: BOOTP (RFC 951) with DHCP's options (RFC 2131, section 2; RFC 2132; RFC 3396).

use std::net::Ipv4Addr;

use crate::Options;
use crate::options::{self, Number};

/// The length of the fields before the options, with the cookie that says that options follow.
const HEADER: usize = 240;
const COOKIE: [u8; 4] = [99, 130, 83, 99];
/// BOOTP's shortest message: relays and servers may drop a shorter one.
const SHORTEST: usize = 300;
/// Ethernet's hardware type.
const ETHERNET: u8 = 1;
const BROADCAST: u16 = 0x8000;

const SNAME: std::ops::Range<usize> = 44..108;
const FILE: std::ops::Range<usize> = 108..236;

const PAD: Number = 0;
const END: Number = 255;

/// The kind of a message (option 53).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[expect(missing_docs, reason = "the names of RFC 2131")]
pub enum Kind {
    Discover = 1,
    Offer,
    Request,
    Decline,
    Ack,
    Nak,
    Release,
    Inform,
}

impl Kind {
    const ALL: [Self; 8] = [
        Self::Discover,
        Self::Offer,
        Self::Request,
        Self::Decline,
        Self::Ack,
        Self::Nak,
        Self::Release,
        Self::Inform,
    ];

    fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == number)
    }
}

/// A message. What a client neither says nor needs to know is left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Whether it is from a server.
    pub is_reply: bool,
    /// The transaction's id, which a reply repeats.
    pub xid: u32,
    /// Seconds since the client began.
    pub secs: u16,
    /// Whether the client asks for replies by broadcast.
    pub broadcast: bool,
    /// The client's address, if it has one that it can be reached by.
    pub ciaddr: Ipv4Addr,
    /// The address that the server gives.
    pub yiaddr: Ipv4Addr,
    /// The relay that it came through.
    pub giaddr: Ipv4Addr,
    /// The client's hardware address, which a reply repeats.
    pub mac: [u8; 6],
    /// The options, whichever fields they were in.
    pub options: Options,
}

impl Message {
    /// Reads a message. Options that are malformed are passed over, and so is all that is behind one whose length does not fit.
    ///
    /// None: it is no BOOTP message over Ethernet with DHCP's options.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let header = bytes.get(..HEADER)?;
        let [op, hardware, length, _hops, ..] = *header else { return None };
        let of_ethernet = hardware == ETHERNET && length == 6;
        if !(1..=2).contains(&op) || !of_ethernet || header[236..] != COOKIE {
            return None;
        }
        let mut options = Options::default();
        read_options(&bytes[HEADER..], &mut options);
        // RFC 3396, section 5: the parts of an option go on in `file`, then in `sname`. Those two cannot overload again.
        let overload = options.get(options::OVERLOAD).and_then(|value| value.first().copied()).unwrap_or(0);
        if overload & 1 != 0 {
            read_options(&header[FILE], &mut options);
        }
        if overload & 2 != 0 {
            read_options(&header[SNAME], &mut options);
        }
        let address = |at: usize| Ipv4Addr::from(array::<4>(header, at));
        Some(Self {
            is_reply: op == 2,
            xid: u32::from_be_bytes(array(header, 4)),
            secs: u16::from_be_bytes(array(header, 8)),
            broadcast: u16::from_be_bytes(array(header, 10)) & BROADCAST != 0,
            ciaddr: address(12),
            yiaddr: address(16),
            giaddr: address(24),
            mac: array(header, 28),
            options,
        })
    }

    /// Writes it, its kind as the first option.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; HEADER];
        bytes[..4].copy_from_slice(&[if self.is_reply { 2 } else { 1 }, ETHERNET, 6, 0]);
        bytes[4..8].copy_from_slice(&self.xid.to_be_bytes());
        bytes[8..10].copy_from_slice(&self.secs.to_be_bytes());
        bytes[10..12].copy_from_slice(&(if self.broadcast { BROADCAST } else { 0 }).to_be_bytes());
        bytes[12..16].copy_from_slice(&self.ciaddr.octets());
        bytes[16..20].copy_from_slice(&self.yiaddr.octets());
        bytes[24..28].copy_from_slice(&self.giaddr.octets());
        bytes[28..34].copy_from_slice(&self.mac);
        bytes[236..].copy_from_slice(&COOKIE);
        let is_kind = |(number, _): &(Number, &[u8])| *number == options::MESSAGE_TYPE;
        for (number, value) in self.options.iter().filter(is_kind) {
            write_option(&mut bytes, number, value);
        }
        for (number, value) in self.options.iter().filter(|option| !is_kind(option)) {
            write_option(&mut bytes, number, value);
        }
        bytes.push(END);
        if bytes.len() < SHORTEST {
            bytes.resize(SHORTEST, PAD);
        }
        bytes
    }

    /// Its kind. None: it has none, or one that RFC 2131 does not have.
    pub fn kind(&self) -> Option<Kind> {
        match self.options.get(options::MESSAGE_TYPE) {
            Some(&[number]) => Kind::from_number(number),
            _ => None,
        }
    }
}

/// `N` bytes of a header that is long enough.
fn array<const N: usize>(header: &[u8], at: usize) -> [u8; N] {
    header.get(at..at + N).and_then(|bytes| bytes.try_into().ok()).unwrap_or([0; N])
}

/// Reads the options of one field. The later parts of an option are appended to it (RFC 3396).
fn read_options(mut field: &[u8], options: &mut Options) {
    loop {
        field = match *field {
            [PAD, ref rest @ ..] => rest,
            [END, ..] | [] | [_] => return,
            [number, length, ref rest @ ..] => {
                let Some((value, rest)) = rest.split_at_checked(length.into()) else { return };
                options.append(number, value);
                rest
            }
        };
    }
}

/// Writes an option, in parts if it is long.
fn write_option(bytes: &mut Vec<u8>, number: Number, value: &[u8]) {
    let mut write = |part: &[u8]| {
        bytes.extend([number, u8::try_from(part.len()).unwrap_or(u8::MAX)]);
        bytes.extend_from_slice(part);
    };
    match value {
        [] => write(&[]),
        _ => value.chunks(usize::from(u8::MAX)).for_each(write),
    }
}
