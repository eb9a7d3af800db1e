//! Descriptions of the keys of [`MasqueradeConf`](crate::MasqueradeConf).

#![allow(missing_docs, reason = "each key has its description")]

use cni::schema::{Key, Type, key};

pub const IP_MASQ: Key = key(
    "ipMasq",
    Type::Bool,
    "false",
    "Masquerade packets that leave the container's subnet, except multicast: they get the host's address as \
     their source.",
);

pub const IP_MASQ_BACKEND: Key = key(
    "ipMasqBackend",
    Type::OneOf(&["nftables", "iptables"]),
    "nftables if the kernel has it, else iptables",
    "Backend for the masquerade rules.",
);

pub const IP_MASQ_FAMILY: Key =
    key("ipMasqFamily", Type::OneOf(&["ipv4", "ipv6"]), "both", "Masquerade only this address family.");
