//! Messages between clients and servers (RFC 8415, sections 8 and 21).

/// The message type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names of RFC 8415, section 7.3")]
pub enum Kind {
    Solicit = 1,
    Advertise = 2,
    Request = 3,
    Confirm = 4,
    Renew = 5,
    Rebind = 6,
    Reply = 7,
    Release = 8,
    Decline = 9,
}

const KINDS: [Kind; 9] = [
    Kind::Solicit,
    Kind::Advertise,
    Kind::Request,
    Kind::Confirm,
    Kind::Renew,
    Kind::Rebind,
    Kind::Reply,
    Kind::Release,
    Kind::Decline,
];

/// The number of an option.
pub type Number = u16;

/// The client's DUID.
pub const CLIENT_ID: Number = 1;
/// The server's DUID.
pub const SERVER_ID: Number = 2;
/// An identity association with non-temporary addresses.
pub const IA_NA: Number = 3;
/// An address in an identity association.
pub const IA_ADDR: Number = 5;
/// The numbers of the requested options.
pub const OPTION_REQUEST: Number = 6;
/// The server's preference, 0 to 255.
pub const PREFERENCE: Number = 7;
/// The time since the start of an exchange, in hundredths of a second.
pub const ELAPSED_TIME: Number = 8;
/// A status code with a text.
pub const STATUS_CODE: Number = 13;
/// Rapid commit: two messages instead of four.
pub const RAPID_COMMIT: Number = 14;
/// Name servers (RFC 3646).
pub const DNS_SERVERS: Number = 23;
/// Domains to search for short names (RFC 3646).
pub const DOMAIN_LIST: Number = 24;
/// The maximum interval between two SOLICITs, in seconds.
pub const SOL_MAX_RT: Number = 82;

/// The options of a message or of another option, in the received order. An option may occur several times.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options(Vec<(Number, Vec<u8>)>);

impl Options {
    /// Decodes the options. None: an option is longer than the message.
    pub fn decode(mut bytes: &[u8]) -> Option<Self> {
        let mut all = Vec::new();
        while let Some((head, rest)) = bytes.split_first_chunk::<4>() {
            let [number, length] = [[head[0], head[1]], [head[2], head[3]]].map(u16::from_be_bytes);
            let (value, behind) = rest.split_at_checked(length.into())?;
            all.push((number, value.to_vec()));
            bytes = behind;
        }
        bytes.is_empty().then_some(Self(all))
    }

    /// Encodes the options. No value is longer than 65535 bytes: each came in a datagram, or was created here.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (number, value) in &self.0 {
            let length = u16::try_from(value.len()).unwrap_or(u16::MAX);
            bytes.extend([number.to_be_bytes(), length.to_be_bytes()].concat());
            bytes.extend(value.iter().take(length.into()));
        }
        bytes
    }

    /// Appends an option.
    #[must_use]
    pub fn with(mut self, number: Number, value: impl Into<Vec<u8>>) -> Self {
        self.0.push((number, value.into()));
        self
    }

    /// All options of a number.
    pub fn all(&self, number: Number) -> impl Iterator<Item = &[u8]> {
        self.0.iter().filter(move |(n, _)| *n == number).map(|(_, value)| value.as_slice())
    }

    /// The only option of a number. None if it occurs several times, which is an error.
    pub fn get(&self, number: Number) -> Option<&[u8]> {
        let mut all = self.all(number);
        all.next().filter(|_| all.next().is_none())
    }
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The message type.
    pub kind: Kind,
    /// The transaction id: 24 bits.
    pub xid: u32,
    /// The options.
    pub options: Options,
}

impl Message {
    /// Decodes the payload of a datagram. None: its type is not one between clients and servers, or it is truncated.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let ([kind, xid @ ..], options) = bytes.split_first_chunk::<4>()?;
        let kind = *KINDS.iter().find(|known| **known as u8 == *kind)?;
        let xid = u32::from_be_bytes([0, xid[0], xid[1], xid[2]]);
        Some(Self { kind, xid, options: Options::decode(options)? })
    }

    /// Encodes the message.
    pub fn encode(&self) -> Vec<u8> {
        let [_, a, b, c] = self.xid.to_be_bytes();
        [&[self.kind as u8, a, b, c][..], &self.options.encode()].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_read_as_it_was_written() {
        let options =
            Options::default().with(CLIENT_ID, [0, 4, 9]).with(RAPID_COMMIT, []).with(IA_NA, [7; 12]);
        let message = Message { kind: Kind::Solicit, xid: 0x0012_3456, options };
        let bytes = message.encode();
        assert_eq!(bytes[..11], [1, 0x12, 0x34, 0x56, 0, 1, 0, 3, 0, 4, 9]);
        assert_eq!(Message::decode(&bytes), Some(message));
    }

    #[test]
    fn a_truncated_message_or_one_of_an_unknown_type_is_refused() {
        let whole =
            Message { kind: Kind::Reply, xid: 1, options: Options::default().with(SERVER_ID, [1, 2, 3]) }
                .encode();
        for end in (0..4).chain(5..whole.len()) {
            assert_eq!(Message::decode(&whole[..end]), None, "{end} bytes");
        }
        for kind in [0, 10, 11, 12, 13, 255] {
            assert_eq!(Message::decode(&[kind, 0, 0, 1]), None);
        }
        assert_eq!(Message::decode(&[7, 0, 0, 1, 0, 2, 0xff, 0xff, 1]), None);
    }

    #[test]
    fn a_duplicate_option_is_ignored() {
        let options = Options::default().with(PREFERENCE, [1]).with(PREFERENCE, [2]);
        assert_eq!((options.get(PREFERENCE), options.all(PREFERENCE).count()), (None, 2));
    }
}
