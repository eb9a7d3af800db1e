//! Sets and maps.

use netlink::Family;

use std::borrow::Cow;

/// The type of a value, by its number in nft (`enum datatypes` of nftables), and its length in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Type(u32, u32);

impl Type {
    pub(crate) const ETHER_ADDR: Self = Self(9, 6);
    pub(crate) const INET_PROTO: Self = Self(12, 1);
    pub(crate) const INET_SERVICE: Self = Self(13, 2);
    pub(crate) const IFNAME: Self = Self(41, 16);

    /// An address of a family.
    pub(crate) const fn ip_addr(family: Family) -> Self {
        family.choose(Self(7, 4), Self(8, 16))
    }
}

/// A set. With data, it is a map.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Set {
    pub(crate) name: Cow<'static, str>,
    pub(crate) key: Vec<Type>,
    pub(crate) data: Vec<Type>,
    /// Whether several attachments may claim a key: the newest has it, and the others wait for it.
    pub(crate) is_claimed: bool,
    /// Whether attachments share its elements: an element is deleted with the last record that needs it.
    pub(crate) is_shared: bool,
}

impl Set {
    pub(crate) fn new(name: impl Into<Cow<'static, str>>, key: &[Type]) -> Self {
        Self { name: name.into(), key: key.into(), data: Vec::new(), is_claimed: false, is_shared: false }
    }

    /// A set whose keys start with a container's address. By mistake, two containers may have the same address. When
    /// one of them is deleted, the other one must still have its element.
    pub(crate) fn of_containers(name: impl Into<Cow<'static, str>>, key: &[Type]) -> Self {
        Self { is_claimed: true, ..Self::new(name, key) }
    }

    /// A set whose elements attachments share.
    pub(crate) fn shared(name: &'static str, key: &[Type]) -> Self {
        Self { is_shared: true, ..Self::new(name, key) }
    }

    /// The set for containers with networks of one prefix length. Each prefix length has a separate set.
    pub(crate) fn of_networks(name: &str, family: Family, prefix: u8) -> Self {
        let name = format!("{name}{}/{prefix}", family.version());
        Self::of_containers(name, &[Type::ip_addr(family), Type::ip_addr(family)])
    }

    /// The records of all attachments: the label of each owner, then its records.
    pub(crate) fn attachments() -> Self {
        Self::new("attachments", &[Type::IFNAME, Type::INET_SERVICE])
    }

    /// nft's number for a concatenation: six bits for each type.
    pub(crate) fn type_number(types: &[Type]) -> u32 {
        types.iter().fold(0, |number, Type(next, _)| number << 6 | next)
    }

    /// The length of a concatenation: each part starts a new register.
    pub(crate) fn length(types: &[Type]) -> u32 {
        match types {
            [Type(_, length)] => *length,
            _ => types.iter().map(|Type(_, length)| length.next_multiple_of(4)).sum(),
        }
    }

    /// Whether the keys are in host byte order, which nft cannot derive from the type.
    pub(crate) fn is_in_host_order(&self) -> bool {
        self.key == [Type::IFNAME]
    }
}
