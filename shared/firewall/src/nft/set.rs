//! The sets and maps that attachments' elements are in.

use std::borrow::Cow;

/// The type of a value, by nft's numbers (`enum datatypes` of nftables), and its length in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Type(u32, u32);

const IPV4_ADDR: Type = Type(7, 4);
const IPV6_ADDR: Type = Type(8, 16);
const ETHER_ADDR: Type = Type(9, 6);
const INET_PROTO: Type = Type(12, 1);
const INET_SERVICE: Type = Type(13, 2);
const IFNAME: Type = Type(41, 16);

fn ip_addr(v4: bool) -> Type {
    if v4 { IPV4_ADDR } else { IPV6_ADDR }
}

/// A set; a map if it has data.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Set {
    pub(super) name: Cow<'static, str>,
    pub(super) key: Vec<Type>,
    pub(super) data: Vec<Type>,
}

impl Set {
    fn new(name: impl Into<Cow<'static, str>>, key: &[Type], data: &[Type]) -> Self {
        Self { name: name.into(), key: key.into(), data: data.into() }
    }

    /// nft's number for a concatenation: six bits a type.
    pub(super) fn type_number(types: &[Type]) -> u32 {
        types.iter().fold(0, |number, Type(next, _)| number << 6 | next)
    }

    /// Each part of a concatenation begins a new register.
    pub(super) fn length(types: &[Type]) -> u32 {
        match types {
            [Type(_, length)] => *length,
            _ => types.iter().map(|Type(_, length)| length.next_multiple_of(4)).sum(),
        }
    }

    /// Whether the keys are in the host's byte order, which nft does not know by itself.
    pub(super) fn is_in_host_order(&self) -> bool {
        self.key == [IFNAME]
    }

    /// What each attachment has: the label of the owner, then its records one by one.
    pub(super) fn attachments() -> Self {
        Self::new("attachments", &[IFNAME, INET_SERVICE], &[])
    }

    /// The containers whose traffic to the outside is masqueraded.
    pub(super) fn masquerade(v4: bool) -> Self {
        Self::new(if v4 { "masquerade4" } else { "masquerade6" }, &[ip_addr(v4)], &[])
    }

    /// What is not outside: each masqueraded container with the subnet that it is in.
    pub(super) fn subnets(v4: bool, prefix: u8) -> Self {
        Self::new(pair_name("subnet", v4, prefix), &[ip_addr(v4), ip_addr(v4)], &[])
    }

    /// Each container with a network whose connections to it, through a host port, get the host's address.
    pub(super) fn hairpin(v4: bool, prefix: u8) -> Self {
        Self::new(pair_name("hairpin", v4, prefix), &[ip_addr(v4), ip_addr(v4)], &[])
    }

    /// Ports of all of the host's addresses.
    pub(super) fn host_ports(v4: bool) -> Self {
        let name = if v4 { "hostport4" } else { "hostport6" };
        Self::new(name, &[INET_PROTO, INET_SERVICE], &[ip_addr(v4), INET_SERVICE])
    }

    /// Ports of one of the host's addresses.
    pub(super) fn host_ip_ports(v4: bool) -> Self {
        let name = if v4 { "hostip4" } else { "hostip6" };
        Self::new(name, &[ip_addr(v4), INET_PROTO, INET_SERVICE], &[ip_addr(v4), INET_SERVICE])
    }

    /// Whether its keys are ports of this host.
    pub(super) fn is_of_host_ports(&self) -> bool {
        self.name.starts_with("hostport") || self.name.starts_with("hostip")
    }

    /// The bridge ports that are watched.
    pub(super) fn ports() -> Self {
        Self::new("ports", &[IFNAME], &[])
    }

    /// The source address that each of them may use.
    pub(super) fn macs() -> Self {
        Self::new("macs", &[IFNAME, ETHER_ADDR], &[])
    }
}

fn pair_name(name: &str, v4: bool, prefix: u8) -> String {
    format!("{name}{}/{prefix}", if v4 { 4 } else { 6 })
}
