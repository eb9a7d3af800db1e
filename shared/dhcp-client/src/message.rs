//! Messages as bytes: BOOTP (RFC 951) with DHCP's options (RFC 2131, section 2; RFC 2132; RFC 3396).

use std::net::Ipv4Addr;

use crate::Options;
use crate::options::{self, Number};

/// The length of the fields before the options, with the magic cookie.
const HEADER: usize = 240;
const COOKIE: [u8; 4] = [99, 130, 83, 99];
/// The minimum size of a BOOTP message. Relays and servers may drop shorter ones.
const SHORTEST: usize = 300;
/// Ethernet's hardware type.
const ETHERNET: u8 = 1;
const BROADCAST: u16 = 0x8000;

const SNAME: std::ops::Range<usize> = 44..108;
const FILE: std::ops::Range<usize> = 108..236;

const PAD: Number = 0;
const END: Number = 255;

/// The message type (option 53).
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

/// A message. Fields that a client neither sends nor reads are omitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Whether it is from a server.
    pub is_reply: bool,
    /// The transaction's id, which a reply repeats.
    pub xid: u32,
    /// Seconds since the client began.
    pub secs: u16,
    /// The broadcast flag.
    pub broadcast: bool,
    /// The client's address, if it can receive packets at it.
    pub ciaddr: Ipv4Addr,
    /// The address that the server allocates.
    pub yiaddr: Ipv4Addr,
    /// The relay agent's address.
    pub giaddr: Ipv4Addr,
    /// The client's hardware address, which a reply repeats.
    pub mac: [u8; 6],
    /// The options, from all fields.
    pub options: Options,
}

/// Sets the hardware address (`chaddr`) of an encoded message to the sending link's.
pub fn set_mac(message: &mut [u8], mac: [u8; 6]) {
    message.get_mut(28..34).into_iter().for_each(|chaddr| chaddr.copy_from_slice(&mac));
}

impl Message {
    /// Decodes a message. Malformed options are ignored. An option with a wrong length ends the options of its field.
    ///
    /// None: it is not a DHCP message over Ethernet.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let header = bytes.get(..HEADER)?;
        let [op, hardware, length, _hops, ..] = *header else { return None };
        let of_ethernet = hardware == ETHERNET && length == 6;
        if !(1..=2).contains(&op) || !of_ethernet || header[236..] != COOKIE {
            return None;
        }
        let mut options = Options::default();
        read_options(&bytes[HEADER..], &mut options);
        // RFC 3396, section 5: an option may continue in `file`, then in `sname`. These two fields cannot be overloaded
        // again.
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

    /// Encodes the message. The message type is the first option.
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

    /// The message type. None: it is missing, or not in RFC 2131.
    pub fn kind(&self) -> Option<Kind> {
        match self.options.get(options::MESSAGE_TYPE) {
            Some(&[number]) => Kind::from_number(number),
            _ => None,
        }
    }
}

/// `N` bytes of the header, which must be long enough.
fn array<const N: usize>(header: &[u8], at: usize) -> [u8; N] {
    header.get(at..at + N).and_then(|bytes| bytes.try_into().ok()).unwrap_or([0; N])
}

/// Decodes the options of one field. Further parts of an option are appended to it (RFC 3396).
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

/// Encodes an option. A long one is split.
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A hand-written OFFER: BOOTREPLY over Ethernet, yiaddr 10.0.0.7, chaddr 02:42:ac:11:00:02, with these options.
    fn offer(options: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; HEADER];
        bytes[..8].copy_from_slice(&[2, 1, 6, 0, 0xde, 0xad, 0xbe, 0xef]);
        bytes[16..20].copy_from_slice(&[10, 0, 0, 7]);
        bytes[28..34].copy_from_slice(&[0x02, 0x42, 0xac, 0x11, 0, 2]);
        bytes[236..].copy_from_slice(&[0x63, 0x82, 0x53, 0x63]);
        bytes.extend_from_slice(options);
        bytes
    }

    fn options_of(bytes: &[u8]) -> Vec<(Number, Vec<u8>)> {
        let message = Message::decode(bytes).unwrap();
        message.options.iter().map(|(number, value)| (number, value.to_vec())).collect()
    }

    #[test]
    fn the_fields_are_where_the_rfc_has_them() {
        let message = Message::decode(&offer(&[53, 1, 2, 54, 4, 10, 0, 0, 1, 255])).unwrap();
        assert_eq!((message.is_reply, message.xid, message.kind()), (true, 0xdead_beef, Some(Kind::Offer)));
        assert_eq!(
            (message.yiaddr, message.mac),
            (Ipv4Addr::new(10, 0, 0, 7), [0x02, 0x42, 0xac, 0x11, 0, 2])
        );
        assert_eq!(message.options.address(options::SERVER_ID), Some(Ipv4Addr::new(10, 0, 0, 1)));
    }

    #[test]
    fn padding_data_after_the_end_and_options_that_do_not_fit_are_ignored() {
        for (options, expected) in [
            (&[0, 0, 53, 1, 2, 0, 255, 3, 4, 1, 2, 3, 4][..], vec![(53, vec![2])]),
            (&[53, 1, 2], vec![(53, vec![2])]),
            (&[53, 1, 2, 3], vec![(53, vec![2])]),
            (&[53, 1, 2, 3, 200, 10, 0, 0, 1], vec![(53, vec![2])]),
            (&[12, 0, 53, 1, 2], vec![(12, vec![]), (53, vec![2])]),
            (&[], vec![]),
        ] {
            assert_eq!(options_of(&offer(options)), expected, "{options:?}");
        }
    }

    #[test]
    fn options_in_the_fields_for_names_are_read_and_parts_are_put_together() {
        // RFC 3396: the parts in options, then in `file`, then in `sname`.
        let whole = |overload: u8| {
            let mut bytes = offer(&[52, 1, overload, 15, 2, b'a', b'b', 255]);
            bytes[FILE][..6].copy_from_slice(&[15, 2, b'c', b'd', 255, 9]);
            bytes[SNAME][..8].copy_from_slice(&[15, 1, b'e', 52, 1, 3, 0, 255]);
            Message::decode(&bytes).unwrap().options.get(15).unwrap().to_vec()
        };
        for (overload, expected) in [(0, &b"ab"[..]), (1, b"abcd"), (2, b"abe"), (3, b"abcde")] {
            assert_eq!(whole(overload), expected);
        }
    }

    #[test]
    fn a_long_option_is_written_in_parts() {
        let mut message = Message::decode(&offer(&[53, 1, 2])).unwrap();
        message.options.set(77, [7; 600]);
        let bytes = message.encode();
        assert_eq!(bytes[HEADER..HEADER + 5], [53, 1, 2, 77, 255]);
        assert_eq!(Message::decode(&bytes).unwrap(), message);
    }

    #[test]
    fn other_messages_are_not_parsed() {
        let good = offer(&[53, 1, 2, 255]);
        for (at, value) in [(0, 0), (0, 3), (1, 6), (2, 16), (236, 0), (239, 0)] {
            let mut bytes = good.clone();
            bytes[at] = value;
            assert_eq!(Message::decode(&bytes), None, "byte {at}");
        }
        assert!((0..HEADER).all(|length| Message::decode(&good[..length]).is_none()));
    }

    #[test]
    fn no_message_is_shorter_than_bootp_has_it() {
        assert_eq!(Message::decode(&offer(&[53, 1, 2])).unwrap().encode().len(), 300);
    }

    proptest! {
        #[test]
        fn arbitrary_options_never_panic_and_are_encoded_as_they_were_decoded(
            options in proptest::collection::vec(any::<u8>(), 0..700),
            fields in proptest::collection::vec(any::<u8>(), 192),
            overload in 0..=4_u8,
        ) {
            let mut bytes = offer(&[&[52, 1, overload], &options[..]].concat());
            bytes[SNAME.start..FILE.end].copy_from_slice(&fields);
            let mut message = Message::decode(&bytes).unwrap();
            // The overloaded fields are in the options now.
            message.options.set(options::OVERLOAD, [0]);
            prop_assert_eq!(Message::decode(&message.encode()).unwrap(), message);
        }
    }
}
