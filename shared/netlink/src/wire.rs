//! Netlink messages and attributes (netlink(7), Documentation/userspace-api/netlink/intro.rst).
//!
//! Numbers are in the host's byte order unless a name contains `be`.

mod read;
mod write;

pub use read::{
    Attributes, Frames, MessageRef, read_be32, read_be64, read_i32, read_ip, read_str, read_u8, read_u16,
    read_u32, read_u64,
};
pub use write::Message;

/// `struct nlmsghdr`.
pub(crate) const HEADER: usize = 16;

/// `struct nlattr`.
const ATTRIBUTE: usize = 4;

fn aligned(length: usize) -> usize {
    length.next_multiple_of(4)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn encoded_messages_decode_to_the_same() {
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
