//! Fuzz target for this crate. The seeds are messages of the kernel; unit tests replay them.

use crate::tc::{Filter, Qdisc};
use crate::wire::Frames;
use crate::{Address, BridgeVlan, Features, Link, Route, Rule};

/// Decodes any bytes as a datagram, and as the payload of each kind of message: no decoder may panic, and each must return.
pub fn decode(bytes: &[u8]) {
    payload(bytes);
    for frame in Frames::new(bytes) {
        let _ = frame.status().map_err(|refusal| refusal.during("read", "bytes").to_string());
        payload(frame.payload);
    }
}

fn payload(bytes: &[u8]) {
    let _ = Link::parse(bytes);
    let _ = Address::parse(bytes);
    if let Some(route) = Route::parse(bytes) {
        let again = Route::parse(&route.payload());
        assert_eq!(
            again.map(|again| again.payload()),
            Some(route.payload()),
            "what is put back is what was there"
        );
    }
    let _ = Rule::parse(bytes);
    let _ = BridgeVlan::parse(bytes);
    let _ = Qdisc::parse(bytes).and_then(|qdisc| qdisc.tbf());
    let _ = Filter::parse(bytes);
    let _ = Features::parse(bytes, bytes);
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn truncated_messages_cause_no_panic() {
        seeds::replay("netlink_decode", |bytes| {
            assert!(Frames::new(bytes).next().is_some());
            (0..=bytes.len()).for_each(|end| decode(&bytes[..end]));
        });
    }

    /// Attributes with small types, and lengths that need not be correct. They reach further than random bytes.
    fn attributes() -> impl Strategy<Value = Vec<u8>> {
        let attribute = (0..64_u16, prop_oneof![0..40_u16, any::<u16>()], vec(any::<u8>(), 0..24));
        vec(attribute, 0..8).prop_map(|list| {
            let parts = list.into_iter().map(|(kind, length, mut value)| {
                value.resize(value.len().next_multiple_of(4), 0);
                [&length.to_ne_bytes()[..], &kind.to_ne_bytes(), &value].concat()
            });
            parts.collect::<Vec<_>>().concat()
        })
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_cause_no_panic(bytes in vec(any::<u8>(), 0..512)) {
            decode(&bytes);
        }

        #[test]
        fn arbitrary_attributes_cause_no_panic(family in 0..12_u8, header in vec(any::<u8>(), 7..16), list in attributes()) {
            for length in [8, 12, 16, 20] {
                let mut bytes = vec![family];
                bytes.extend(&header);
                bytes.resize(length, 0);
                bytes.extend(&list);
                decode(&bytes);
            }
        }
    }
}
