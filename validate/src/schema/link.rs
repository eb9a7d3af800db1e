//! Keys that plugins which make an interface share.

use super::common::{MTU, U32};
use super::types::{Key, Type, key};

pub const IP_MASQ: Key = key(
    "ipMasq",
    Type::Bool,
    "false",
    "Traffic that leaves the network gets the host's address as its source.",
);

pub const IP_MASQ_BACKEND: Key = key(
    "ipMasqBackend",
    Type::OneOf(&["iptables", "nftables"]),
    "nftables if the kernel has it, else iptables",
    "Firewall that ipMasq uses.",
);

pub const IP_MASQ_FAMILY: Key =
    key("ipMasqFamily", Type::OneOf(&["ipv4", "ipv6"]), "both", "The only family that ipMasq is for.");

pub const VETH_MTU: Key =
    key("mtu", MTU, "0 (the kernel's: 1500)", "MTU of both ends of the veth pair, in bytes: 68 to 65535.");

pub const MTU_FROM_DEFAULT_ROUTE: Key = key(
    "mtuFromDefaultRoute",
    Type::Bool,
    "false",
    "The MTU is that of the link that the host's default route leads through. Not together with mtu.",
);

pub const MASTER: Key = key(
    "master",
    Type::IfName,
    "from the chain, else by the default route",
    "Interface that the container's one is made on. If it is left out: in a chain an interface of the result so far, \
     else the one that the host's default route leads through.",
);

pub const MASTERS_MTU: Key = key(
    "mtu",
    MTU,
    "0 (the master's)",
    "MTU of the container's interface, in bytes: 68 to 65535, and no more than the master's.",
);

pub const LINK_IN_CONTAINER: Key = key(
    "linkInContainer",
    Type::Bool,
    "false",
    "The master is an interface of the container, not of the host.",
);

pub const BROADCAST_QUEUE: Key = key(
    "bcqueuelen",
    U32,
    "0 (the kernel's: 1000)",
    "How many broadcast and multicast packets may wait on the master. It is shared by all containers on it, and needs \
     Linux 5.11.",
);

pub const ENABLE_DAD: Key = key(
    "enabledad",
    Type::Bool,
    "false",
    "ADD waits until no other machine answers for the container's IPv6 addresses (duplicate address detection).",
);

pub const ACCEPT_RA: Key = key(
    "acceptRa",
    Type::Bool,
    "the kernel's",
    "The interface configures itself by what IPv6 routers of its link advertise: addresses and routes.",
);
