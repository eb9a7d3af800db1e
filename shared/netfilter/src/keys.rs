//! Descriptions of the keys of [`MasqueradeConf`](crate::MasqueradeConf).

#![allow(missing_docs, reason = "each key has its description")]

use cni::schema::{Key, Type, key};

pub const IP_MASQ: Key = key(
    "ipMasq",
    Type::Bool,
    "false",
    "Masquerade traffic that leaves the network: it gets the host's address as its source.",
);

pub const IP_MASQ_BACKEND: Key = key(
    "ipMasqBackend",
    Type::OneOf(&["iptables", "nftables"]),
    "nftables if the kernel has it, else iptables",
    "Firewall backend of ipMasq.",
);

pub const IP_MASQ_FAMILY: Key =
    key("ipMasqFamily", Type::OneOf(&["ipv4", "ipv6"]), "both", "Masquerade only this address family.");
