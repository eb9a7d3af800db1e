//! The keys of this plugin.

use cni::schema::{Key, Type, key};

/// The plugin's keys.
pub const KEYS: &[Key] = &[
    key("backend", Type::OneOf(&["iptables", "nftables", "firewalld"]), "detected on the host", "Firewall."),
    key("iptablesAdminChainName", Type::Text, "CNI-ADMIN", "Chain for the administrator's rules."),
    key("firewalldZone", Type::Text, "trusted", "Zone of firewalld that the container's addresses join."),
    key(
        "ingressPolicy",
        Type::OneOf(&["open", "same-bridge", "isolated"]),
        "open",
        "Who may open connections to the container. open: all sources. same-bridge: all sources except \
         containers on other bridges that have the policy same-bridge or isolated. isolated: as \
         same-bridge, and also not containers on the same bridge.",
    ),
    key(
        "acceptMarkBit",
        Type::Number(0, 31),
        "12",
        "Bit of the packet mark (fwmark) of the container's allowed packets.",
    ),
];
