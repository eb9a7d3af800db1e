//! Encoding messages.

use std::net::IpAddr;

use super::{ATTRIBUTE, HEADER, aligned, read_u16};
use crate::uapi::*;

/// A message that is being encoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    bytes: Vec<u8>,
    is_too_long: bool,
}

impl Message {
    /// A request with flags (NLM_F_REQUEST is implied) and the header of its type.
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

    /// Writes bytes and padding.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
        self.bytes.resize(aligned(self.bytes.len()), 0);
    }

    /// The bytes after the header.
    pub fn payload(&self) -> &[u8] {
        &self.bytes[HEADER..]
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

    /// Writes a `u64`.
    pub fn put_u64(&mut self, kind: u16, value: u64) {
        self.put(kind, &value.to_ne_bytes());
    }

    /// Writes a `u32`, if there is one.
    pub fn put_optional(&mut self, kind: u16, value: Option<u32>) {
        if let Some(value) = value {
            self.put_u32(kind, value);
        }
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

    /// Writes a string with a NUL.
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

    /// Writes an attribute that contains attributes.
    pub fn nest(&mut self, kind: u16, inside: impl FnOnce(&mut Self)) {
        let start = self.bytes.len();
        self.put(kind | NLA_F_NESTED, &[]);
        inside(self);
        let length = self.attribute_length(self.bytes.len() - start);
        self.bytes[start..start + 2].copy_from_slice(&length);
    }

    /// Writes a structure that starts with its length in two bytes, such as `struct rtnexthop`, and the attributes after it.
    pub fn raw_with_length(&mut self, header: &[u8], inside: impl FnOnce(&mut Self)) {
        let start = self.bytes.len();
        self.raw(header);
        inside(self);
        let length = self.attribute_length(self.bytes.len() - start);
        self.bytes[start..start + 2].copy_from_slice(&length);
    }

    /// Whether an attribute exceeds the 64 KiB of its length field. Sockets refuse to send it, because the kernel would read part of a
    /// value as further attributes.
    pub fn is_too_long(&self) -> bool {
        self.is_too_long
    }

    /// Whether the message has NLM_F_ACK.
    pub(crate) fn wants_acknowledgement(&self) -> bool {
        read_u16(&self.bytes[6..]).is_some_and(|flags| flags & NLM_F_ACK != 0)
    }

    /// Adds flags to the header.
    pub fn add_flags(&mut self, flags: u16) {
        let now = u16::from_ne_bytes([self.bytes[6], self.bytes[7]]) | flags;
        self.bytes[6..8].copy_from_slice(&now.to_ne_bytes());
    }

    /// Sets length and sequence number, and returns the message.
    pub fn finish(&mut self, sequence: u32) -> &[u8] {
        let length = u32::try_from(self.bytes.len()).unwrap_or(u32::MAX);
        self.bytes[0..4].copy_from_slice(&length.to_ne_bytes());
        self.bytes[8..12].copy_from_slice(&sequence.to_ne_bytes());
        &self.bytes
    }
}
