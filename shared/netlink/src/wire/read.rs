//! Decoding messages from untrusted bytes.

use std::net::IpAddr;

use super::{ATTRIBUTE, HEADER, aligned};
use crate::uapi::*;

/// A received message.
#[derive(Clone, Copy, Debug)]
pub struct MessageRef<'a> {
    /// Its type.
    pub kind: u16,
    /// Its flags.
    pub flags: u16,
    /// Sequence number of the request that it answers or, for an event, that caused it; 0 without a request.
    pub sequence: u32,
    /// Port of the socket that sent that request.
    pub port: u32,
    /// The bytes after the header.
    pub payload: &'a [u8],
}

/// The messages of a datagram. Ends at the first one that does not fit.
#[derive(Clone, Debug)]
pub struct Frames<'a>(&'a [u8]);

impl<'a> Frames<'a> {
    /// Starts at the first message of a datagram.
    pub fn new(datagram: &'a [u8]) -> Self {
        Self(datagram)
    }

    /// Whether bytes are left that form no message: the datagram was truncated.
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

/// The attributes of a payload, as type and value. Ends at the first one that does not fit.
#[derive(Clone, Copy, Debug)]
pub struct Attributes<'a>(&'a [u8]);

impl<'a> Attributes<'a> {
    /// The attributes of a nest.
    pub fn of(nest: &'a [u8]) -> Self {
        Self(nest)
    }

    /// The attributes after a header of the given size.
    pub fn after(header: usize, payload: &'a [u8]) -> Self {
        Self(payload.get(aligned(header)..).unwrap_or_default())
    }

    /// The first attribute of a type.
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

/// Decodes a `u8`. Ignores further bytes.
pub fn read_u8(value: &[u8]) -> Option<u8> {
    value.first().copied()
}

/// Decodes a `u16`. Ignores further bytes.
pub fn read_u16(value: &[u8]) -> Option<u16> {
    value.first_chunk().map(|b| u16::from_ne_bytes(*b))
}

/// Decodes a `u32`. Ignores further bytes.
pub fn read_u32(value: &[u8]) -> Option<u32> {
    value.first_chunk().map(|b| u32::from_ne_bytes(*b))
}

/// Decodes a `u64`. Ignores further bytes.
pub fn read_u64(value: &[u8]) -> Option<u64> {
    value.first_chunk().map(|b| u64::from_ne_bytes(*b))
}

/// Decodes an `i32`. Ignores further bytes.
pub fn read_i32(value: &[u8]) -> Option<i32> {
    value.first_chunk().map(|b| i32::from_ne_bytes(*b))
}

/// Decodes a `u32` in network byte order. Ignores further bytes.
pub fn read_be32(value: &[u8]) -> Option<u32> {
    value.first_chunk().map(|b| u32::from_be_bytes(*b))
}

/// Decodes a `u64` in network byte order. Ignores further bytes.
pub fn read_be64(value: &[u8]) -> Option<u64> {
    value.first_chunk().map(|b| u64::from_be_bytes(*b))
}

/// Decodes a string up to its NUL. `None` if it is not UTF-8.
pub fn read_str(value: &[u8]) -> Option<&str> {
    let end = value.iter().position(|&b| b == 0).unwrap_or(value.len());
    std::str::from_utf8(&value[..end]).ok()
}

/// Decodes an address of 4 or 16 bytes.
pub fn read_ip(value: &[u8]) -> Option<IpAddr> {
    match value.len() {
        4 => <[u8; 4]>::try_from(value).ok().map(IpAddr::from),
        16 => <[u8; 16]>::try_from(value).ok().map(IpAddr::from),
        _ => None,
    }
}
