//! Netlink messages and their attributes (netlink(7), Documentation/userspace-api/netlink/intro.rst).
//!
//! Numbers are in the host's byte order unless a name says `be`.

use std::net::IpAddr;

use crate::uapi::{NLA_F_NESTED, NLA_TYPE_MASK, NLM_F_ACK, NLM_F_REQUEST};

/// `struct nlmsghdr`.
pub(crate) const HEADER: usize = 16;

/// `struct nlattr`.
const ATTRIBUTE: usize = 4;

fn aligned(length: usize) -> usize {
    length.next_multiple_of(4)
}

/// A message being written.
#[derive(Clone, Debug)]
pub struct Message {
    bytes: Vec<u8>,
    is_too_long: bool,
}

impl Message {
    /// A request of a type, with flags (NLM_F_REQUEST is implied), that begins with the type's own header.
    pub fn new(kind: u16, flags: u16, header: &[u8]) -> Self {
        let mut bytes = Vec::with_capacity(256);
        bytes.extend([0; 4]);
        bytes.extend(kind.to_ne_bytes());
        bytes.extend((flags | NLM_F_REQUEST).to_ne_bytes());
        bytes.extend([0; 8]);
        let mut this = Self { bytes, is_too_long: false };
        this.raw(header);
        this
    }

    /// Writes bytes as they are, padded.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
        self.bytes.resize(aligned(self.bytes.len()), 0);
    }

    /// Writes an attribute.
    pub fn put(&mut self, kind: u16, value: &[u8]) {
        let length = self.attribute_length(ATTRIBUTE + value.len());
        self.bytes.extend(length);
        self.bytes.extend(kind.to_ne_bytes());
        self.raw(value);
    }

    fn attribute_length(&mut self, length: usize) -> [u8; 2] {
        let fits = u16::try_from(length);
        self.is_too_long |= fits.is_err();
        fits.unwrap_or_default().to_ne_bytes()
    }

    /// Writes an attribute without a value.
    pub fn put_flag(&mut self, kind: u16) {
        self.put(kind, &[]);
    }

    /// Writes a `u8`.
    pub fn put_u8(&mut self, kind: u16, value: u8) {
        self.put(kind, &[value]);
    }

    /// Writes a `u16`.
    pub fn put_u16(&mut self, kind: u16, value: u16) {
        self.put(kind, &value.to_ne_bytes());
    }

    /// Writes a `u32`.
    pub fn put_u32(&mut self, kind: u16, value: u32) {
        self.put(kind, &value.to_ne_bytes());
    }

    /// Writes a `u16` in network byte order.
    pub fn put_be16(&mut self, kind: u16, value: u16) {
        self.put(kind, &value.to_be_bytes());
    }

    /// Writes a `u32` in network byte order.
    pub fn put_be32(&mut self, kind: u16, value: u32) {
        self.put(kind, &value.to_be_bytes());
    }

    /// Writes a `u64` in network byte order.
    pub fn put_be64(&mut self, kind: u16, value: u64) {
        self.put(kind, &value.to_be_bytes());
    }

    /// Writes a string, with the NUL that the kernel wants.
    pub fn put_str(&mut self, kind: u16, value: &str) {
        let mut bytes = value.as_bytes().to_vec();
        bytes.push(0);
        self.put(kind, &bytes);
    }

    /// Writes an IP address.
    pub fn put_ip(&mut self, kind: u16, value: IpAddr) {
        match value {
            IpAddr::V4(ip) => self.put(kind, &ip.octets()),
            IpAddr::V6(ip) => self.put(kind, &ip.octets()),
        }
    }

    /// Writes an attribute that has attributes in it.
    pub fn nest(&mut self, kind: u16, inside: impl FnOnce(&mut Self)) {
        let start = self.bytes.len();
        self.put(kind | NLA_F_NESTED, &[]);
        inside(self);
        let length = self.attribute_length(self.bytes.len() - start);
        self.bytes[start..start + 2].copy_from_slice(&length);
    }

    /// Whether an attribute is longer than the 64 KiB that its length field can tell. A socket refuses to send it:
    /// the kernel would take part of a value for further attributes.
    pub fn is_too_long(&self) -> bool {
        self.is_too_long
    }

    /// Whether the message asks for an acknowledgement (NLM_F_ACK).
    pub(crate) fn wants_acknowledgement(&self) -> bool {
        read_u16(&self.bytes[6..]).is_some_and(|flags| flags & NLM_F_ACK != 0)
    }

    /// Adds flags to those of the message's header.
    pub fn add_flags(&mut self, flags: u16) {
        let now = u16::from_ne_bytes([self.bytes[6], self.bytes[7]]) | flags;
        self.bytes[6..8].copy_from_slice(&now.to_ne_bytes());
    }

    /// The finished message with its sequence number.
    pub fn finish(&mut self, sequence: u32) -> &[u8] {
        let length = u32::try_from(self.bytes.len()).unwrap_or(u32::MAX);
        self.bytes[0..4].copy_from_slice(&length.to_ne_bytes());
        self.bytes[8..12].copy_from_slice(&sequence.to_ne_bytes());
        &self.bytes
    }
}

/// A message that was received.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// Its type.
    pub kind: u16,
    /// Its flags.
    pub flags: u16,
    /// The number of the request that it answers or, for an event, that caused it; 0 if none did.
    pub sequence: u32,
    /// The port of the socket that made that request.
    pub port: u32,
    /// What follows the header.
    pub payload: &'a [u8],
}

/// The messages of a datagram. Ends at the first one that does not fit in.
#[derive(Clone, Debug)]
pub struct Frames<'a>(&'a [u8]);

impl<'a> Frames<'a> {
    /// Begins with the datagram's first.
    pub fn new(datagram: &'a [u8]) -> Self {
        Self(datagram)
    }

    /// Whether bytes are left that are no message: the datagram was cut off.
    pub fn is_cut_off(&self) -> bool {
        !self.0.is_empty()
    }
}

impl<'a> Iterator for Frames<'a> {
    type Item = Frame<'a>;

    fn next(&mut self) -> Option<Frame<'a>> {
        let length = usize::try_from(read_u32(self.0)?).ok()?;
        let message = self.0.get(..length).filter(|m| m.len() >= HEADER)?;
        self.0 = self.0.get(aligned(length)..).unwrap_or_default();
        Some(Frame {
            kind: read_u16(&message[4..])?,
            flags: read_u16(&message[6..])?,
            sequence: read_u32(&message[8..])?,
            port: read_u32(&message[12..])?,
            payload: &message[HEADER..],
        })
    }
}

/// The attributes in a payload, as type and value. Ends at the first one that does not fit in.
#[derive(Clone, Copy, Debug)]
pub struct Attributes<'a>(&'a [u8]);

impl<'a> Attributes<'a> {
    /// Those of a nest.
    pub fn of(nest: &'a [u8]) -> Self {
        Self(nest)
    }

    /// Those that follow a header of the given size.
    pub fn after(header: usize, payload: &'a [u8]) -> Self {
        Self(payload.get(aligned(header)..).unwrap_or_default())
    }

    /// The first one of a type.
    pub fn get(mut self, kind: u16) -> Option<&'a [u8]> {
        self.find(|(k, _)| *k == kind).map(|(_, value)| value)
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let length = usize::from(read_u16(self.0)?);
        let kind = read_u16(self.0.get(2..)?)? & NLA_TYPE_MASK;
        let value = self.0.get(ATTRIBUTE..length)?;
        self.0 = self.0.get(aligned(length)..).unwrap_or_default();
        Some((kind, value))
    }
}

/// The `u8` that a value begins with.
pub fn read_u8(value: &[u8]) -> Option<u8> {
    value.first().copied()
}

/// The `u16` that a value begins with.
pub fn read_u16(value: &[u8]) -> Option<u16> {
    value.first_chunk().map(|b| u16::from_ne_bytes(*b))
}

/// The `u32` that a value begins with.
pub fn read_u32(value: &[u8]) -> Option<u32> {
    value.first_chunk().map(|b| u32::from_ne_bytes(*b))
}

/// The `i32` that a value begins with.
pub fn read_i32(value: &[u8]) -> Option<i32> {
    value.first_chunk().map(|b| i32::from_ne_bytes(*b))
}

/// The `u32` in network byte order that a value begins with.
pub fn read_be32(value: &[u8]) -> Option<u32> {
    value.first_chunk().map(|b| u32::from_be_bytes(*b))
}

/// The `u64` in network byte order that a value begins with.
pub fn read_be64(value: &[u8]) -> Option<u64> {
    value.first_chunk().map(|b| u64::from_be_bytes(*b))
}

/// A string up to its NUL, if it is UTF-8.
pub fn read_str(value: &[u8]) -> Option<&str> {
    let end = value.iter().position(|&b| b == 0).unwrap_or(value.len());
    std::str::from_utf8(&value[..end]).ok()
}

/// An address of 4 or 16 bytes.
pub fn read_ip(value: &[u8]) -> Option<IpAddr> {
    match value.len() {
        4 => <[u8; 4]>::try_from(value).ok().map(IpAddr::from),
        16 => <[u8; 16]>::try_from(value).ok().map(IpAddr::from),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_written_reads_back() {
        let mut message = Message::new(16, 0x600, &[1; 5]);
        message.put_str(3, "eth0");
        message.nest(18, |m| {
            m.put_u8(1, 7);
            m.nest(2, |m| m.put_be32(9, 0x0102_0304));
        });
        let bytes = message.finish(42).to_vec();
        let frame = Frames::new(&bytes).next().unwrap();
        assert_eq!((frame.kind, frame.flags, frame.sequence), (16, 0x601, 42));
        let attributes = Attributes::after(5, frame.payload);
        assert_eq!(attributes.get(3).and_then(read_str), Some("eth0"));
        let nest = Attributes::of(attributes.get(18).unwrap());
        assert_eq!(nest.get(1).and_then(read_u8), Some(7));
        assert_eq!(Attributes::of(nest.get(2).unwrap()).get(9), Some(&[1, 2, 3, 4][..]));
    }

    #[test]
    fn a_datagram_that_was_cut_off_is_noticed() {
        let mut message = Message::new(16, 0, &[0; 16]);
        let bytes = message.finish(1);
        let mut frames = Frames::new(&bytes[..bytes.len() - 1]);
        assert!(frames.next().is_none());
        assert!(frames.is_cut_off());
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic_and_always_end(bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
            for frame in Frames::new(&bytes) {
                for (_, value) in Attributes::after(16, frame.payload) {
                    let _ = (read_u16(value), read_be64(value), read_str(value), read_ip(value));
                    prop_assert!(Attributes::of(value).count() <= value.len());
                }
            }
        }
    }
}
