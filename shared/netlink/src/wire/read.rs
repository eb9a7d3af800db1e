//! Reading messages, whatever their bytes.

use std::net::IpAddr;

use super::{ATTRIBUTE, HEADER, aligned};
use crate::uapi::*;

/// A message that was received.
#[derive(Clone, Copy, Debug)]
pub struct MessageRef<'a> {
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
    type Item = MessageRef<'a>;

    fn next(&mut self) -> Option<MessageRef<'a>> {
        let length = usize::try_from(read_u32(self.0)?).ok()?;
        let message = self.0.get(..length).filter(|m| m.len() >= HEADER)?;
        self.0 = self.0.get(aligned(length)..).unwrap_or_default();
        Some(MessageRef {
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

/// The `u64` that a value begins with.
pub fn read_u64(value: &[u8]) -> Option<u64> {
    value.first_chunk().map(|b| u64::from_ne_bytes(*b))
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
