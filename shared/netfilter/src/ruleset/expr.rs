//! The expressions of a rule, as the kernel evaluates them: values are loaded into registers, compared and looked up.
//! An expression that does not match ends the rule.
//!
//! Registers are the 16 of 32 bits. A wider value uses consecutive ones.

mod actions;

use std::net::IpAddr;

use netlink::Family;
use netlink::wire::Message;

use super::field::Field;
use super::uapi::*;

/// The first register. Most rules need only this one.
pub(crate) const R0: u32 = NFT_REG32_00;

/// A rule's expressions, encoded as the list for the kernel. Each method appends one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expressions(Message);

impl Expressions {
    pub(crate) fn new() -> Self {
        Self(Message::new(0, 0, &[]))
    }

    /// Appends other expressions.
    pub(crate) fn and(mut self, others: Self) -> Self {
        self.0.raw(others.0.payload());
        self
    }

    /// Tests the transport protocol, for equality or inequality.
    pub(crate) fn protocol(self, op: u32, number: u8) -> Self {
        self.load_meta(NFT_META_L4PROTO, R0).compare(R0, op, &[number])
    }

    /// Tests the address family (`meta nfproto`). Every rule with addresses starts with this.
    pub(crate) fn family(self, family: Family) -> Self {
        self.load_meta(NFT_META_NFPROTO, R0).compare(R0, NFT_CMP_EQ, &[family.number()])
    }

    pub(crate) fn load(self, field: Field, register: u32) -> Self {
        self.push("payload", &|data| {
            data.put_be32(NFTA_PAYLOAD_DREG, register);
            data.put_be32(NFTA_PAYLOAD_BASE, field.base);
            data.put_be32(NFTA_PAYLOAD_OFFSET, field.offset);
            data.put_be32(NFTA_PAYLOAD_LEN, field.length);
        })
    }

    pub(crate) fn load_meta(self, key: u32, register: u32) -> Self {
        self.push("meta", &|data| {
            data.put_be32(NFTA_META_DREG, register);
            data.put_be32(NFTA_META_KEY, key);
        })
    }

    pub(crate) fn compare(self, register: u32, op: u32, value: &[u8]) -> Self {
        self.push("cmp", &|data| {
            data.put_be32(NFTA_CMP_SREG, register);
            data.put_be32(NFTA_CMP_OP, op);
            put_value(data, NFTA_CMP_DATA, value);
        })
    }

    /// Tests whether a value is in a range, both ends included.
    pub(crate) fn range(self, register: u32, op: u32, from: &[u8], to: &[u8]) -> Self {
        self.push("range", &|data| {
            data.put_be32(NFTA_RANGE_SREG, register);
            data.put_be32(NFTA_RANGE_OP, op);
            put_value(data, NFTA_RANGE_FROM_DATA, from);
            put_value(data, NFTA_RANGE_TO_DATA, to);
        })
    }

    /// `register = (register & mask) ^ xor`
    pub(crate) fn bitwise(self, register: u32, mask: &[u8], xor: &[u8]) -> Self {
        self.push("bitwise", &|data| {
            data.put_be32(NFTA_BITWISE_SREG, register);
            data.put_be32(NFTA_BITWISE_DREG, register);
            data.put_be32(NFTA_BITWISE_LEN, mask.len() as u32);
            put_value(data, NFTA_BITWISE_MASK, mask);
            put_value(data, NFTA_BITWISE_XOR, xor);
        })
    }

    /// Clears all bits but the prefix of the address in a register.
    pub(crate) fn prefix(self, register: u32, mask: IpAddr) -> Self {
        let mask = octets(mask);
        if mask.iter().all(|byte| *byte == 0xff) {
            return self;
        }
        let zero = vec![0; mask.len()];
        self.bitwise(register, &mask, &zero)
    }

    /// Tests whether a set contains the value that starts in a register.
    pub(crate) fn in_set(self, register: u32, set: &str) -> Self {
        self.lookup(register, set, None)
    }

    /// Tests whether a set does not contain it.
    pub(crate) fn not_in_set(self, register: u32, set: &str) -> Self {
        self.lookup(register, set, Some((NFTA_LOOKUP_FLAGS, NFT_LOOKUP_F_INV)))
    }

    /// Replaces the value that starts in a register by its value in a map.
    pub(crate) fn map(self, register: u32, map: &str) -> Self {
        self.lookup(register, map, Some((NFTA_LOOKUP_DREG, register)))
    }

    fn lookup(self, register: u32, set: &str, more: Option<(u16, u32)>) -> Self {
        self.push("lookup", &|data| {
            data.put_be32(NFTA_LOOKUP_SREG, register);
            data.put_str(NFTA_LOOKUP_SET, set);
            if let Some((kind, number)) = more {
                data.put_be32(kind, number);
            }
        })
    }

    /// Tests whether the destination is one of this host's own addresses (`fib daddr type local`).
    pub(crate) fn addressed_here(self) -> Self {
        self.push("fib", &|data| {
            data.put_be32(NFTA_FIB_DREG, R0);
            data.put_be32(NFTA_FIB_RESULT, NFT_FIB_RESULT_ADDRTYPE);
            data.put_be32(NFTA_FIB_FLAGS, NFTA_FIB_F_DADDR);
        })
        .compare(R0, NFT_CMP_EQ, &RTN_LOCAL.to_ne_bytes())
    }

    /// Tests whether the connection's destination was rewritten (`ct status dnat`).
    pub(crate) fn was_dnatted(self) -> Self {
        self.load_ct(NFT_CT_STATUS, R0).bitwise(R0, &IPS_DST_NAT.to_ne_bytes(), &[0; 4]).compare(
            R0,
            NFT_CMP_NEQ,
            &[0; 4],
        )
    }

    /// Tests a bit of the connection's mark. The packet's mark is not used, because kube-proxy, the reference and
    /// others masquerade packets by it.
    pub(crate) fn marked(self, bit: u8) -> Self {
        let bit = (1_u32 << bit).to_ne_bytes();
        self.load_ct(NFT_CT_MARK, R0).bitwise(R0, &bit, &[0; 4]).compare(R0, NFT_CMP_EQ, &bit)
    }

    /// Tests a bit of the packet's mark, as `-m mark` of iptables does.
    pub(crate) fn packet_marked(self, bit: u8) -> Self {
        let bit = (1_u32 << bit).to_ne_bytes();
        self.load_meta(NFT_META_MARK, R0).bitwise(R0, &bit, &[0; 4]).compare(R0, NFT_CMP_EQ, &bit)
    }

    /// The match `mark` of iptables (`struct xt_mark_mtinfo1`, padded to a multiple of 8 bytes).
    pub(crate) fn xt_mark(self, bit: u8) -> Self {
        let bit = (1_u32 << bit).to_ne_bytes();
        self.push("match", &|data| {
            data.put_str(NFTA_MATCH_NAME, "mark");
            data.put_be32(NFTA_MATCH_REV, 1);
            data.put(NFTA_MATCH_INFO, &[&bit[..], &bit, &[0; 8]].concat());
        })
    }

    /// Counts packets.
    pub(crate) fn counter(self) -> Self {
        self.push("counter", &|_| {})
    }

    /// Tests whether the connection's state is one of these bits, or none of them.
    pub(crate) fn state(self, bits: u32, negated: bool) -> Self {
        let op = if negated { NFT_CMP_EQ } else { NFT_CMP_NEQ };
        self.load_ct(NFT_CT_STATE, R0).bitwise(R0, &bits.to_ne_bytes(), &[0; 4]).compare(R0, op, &[0; 4])
    }

    pub(crate) fn load_ct(self, key: u32, register: u32) -> Self {
        self.push("ct", &|data| {
            data.put_be32(NFTA_CT_DREG, register);
            data.put_be32(NFTA_CT_KEY, key);
        })
    }

    /// An expression that no kernel knows.
    #[cfg(test)]
    pub(crate) fn unknown(self) -> Self {
        self.push("nosuch", &|_| {})
    }

    fn push(mut self, name: &str, data: &dyn Fn(&mut Message)) -> Self {
        self.0.nest(NFTA_LIST_ELEM, |element| {
            element.put_str(NFTA_EXPR_NAME, name);
            element.nest(NFTA_EXPR_DATA, data);
        });
        self
    }

    /// The attributes of the list.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.0.payload()
    }

    /// Writes them as a rule's list.
    pub(crate) fn write(&self, message: &mut Message) {
        message.nest(NFTA_RULE_EXPRESSIONS, |list| list.raw(self.0.payload()));
    }
}

fn put_value(data: &mut Message, kind: u16, value: &[u8]) {
    data.nest(kind, |nest| nest.put(NFTA_DATA_VALUE, value));
}

/// An address as on the wire.
pub(crate) fn octets(ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use netlink::wire::Attributes;

    use super::*;

    /// The encoded expressions: each one's name, and the bytes of its attributes.
    fn written(expressions: &Expressions) -> Vec<(String, Vec<u8>)> {
        let mut message = Message::new(0, 0, &[]);
        expressions.write(&mut message);
        let bytes = message.finish(1)[16..].to_vec();
        let list = Attributes::of(&bytes).get(NFTA_RULE_EXPRESSIONS).unwrap();
        let read = |(_, expression)| {
            let expression = Attributes::of(expression);
            let name = expression.get(NFTA_EXPR_NAME).and_then(netlink::wire::read_str).unwrap();
            (name.to_owned(), expression.get(NFTA_EXPR_DATA).unwrap().to_vec())
        };
        Attributes::of(list).map(read).collect()
    }

    #[test]
    fn a_rule_is_written_as_nft_writes_it() {
        // strace -xx nft add rule inet t c ip daddr 10.1.0.0/16 jump d; registers by their 32-bit numbers
        let rule = Expressions::new()
            .family(Family::V4)
            .load(Field::daddr(Family::V4), R0)
            .prefix(R0, "255.255.0.0".parse().unwrap())
            .jump("d");
        let (names, data): (Vec<_>, Vec<_>) = written(&rule).into_iter().unzip();
        assert_eq!(names, ["meta", "cmp", "payload", "bitwise", "immediate"]);
        assert_eq!(data[0], b"\x08\0\x01\0\0\0\0\x08\x08\0\x02\0\0\0\0\x0f");
        assert_eq!(
            data[1],
            b"\x08\0\x01\0\0\0\0\x08\x08\0\x02\0\0\0\0\0\x0c\0\x03\x80\x05\0\x01\0\x02\0\0\0"
        );
        assert_eq!(data[2][8..], *b"\x08\0\x02\0\0\0\0\x01\x08\0\x03\0\0\0\0\x10\x08\0\x04\0\0\0\0\x04");
        assert_eq!(
            data[3][24..],
            *b"\x0c\0\x04\x80\x08\0\x01\0\xff\xff\0\0\x0c\0\x05\x80\x08\0\x01\0\0\0\0\0"
        );
        assert_eq!(
            data[4][8..],
            *b"\x18\0\x02\x80\x14\0\x02\x80\x08\0\x01\0\xff\xff\xff\xfd\x06\0\x02\0d\0\0\0"
        );
    }
}
