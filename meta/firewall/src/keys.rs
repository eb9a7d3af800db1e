//! The keys of this plugin.

use cni::schema::{Key, Type, key};

/// The plugin's keys.
pub const KEYS: &[Key] = &[
    key(
        "backend",
        Type::OneOf(&["nftables", "iptables", "firewalld"]),
        "firewalld if it is on the system bus (D-Bus), else nftables if the kernel has it, else iptables",
        "Backend that allows the container's traffic.",
    ),
    key(
        "iptablesAdminChainName",
        Type::Text,
        "CNI-ADMIN",
        "Chain for the administrator's rules in iptables' table `filter`, 1 to 28 characters. It is evaluated \
         before the plugin's rule that accepts packets.",
    ),
    key(
        "firewalldZone",
        Type::Text,
        "trusted",
        "Zone of firewalld to which the plugin adds the container's addresses. firewalld only.",
    ),
    key(
        "ingressPolicy",
        Type::OneOf(&["open", "same-bridge", "isolated"]),
        "open",
        "Who may open connections to the container. `open`: all sources. `same-bridge`: all sources except \
         containers on other bridges that have the policy `same-bridge` or `isolated`. `isolated`: like \
         `same-bridge`, but containers on the same bridge are excluded, too.",
    ),
    key(
        "acceptMarkBit",
        Type::Number(0, 31),
        "12",
        "Bit of the packet mark that the plugin sets on allowed packets. Bit 12 is the mark 0x1000. nftables \
         only.",
    ),
];
