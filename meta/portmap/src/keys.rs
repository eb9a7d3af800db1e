//! The keys of this plugin.

use cni::schema::{Key, Type, key};

/// The plugin's keys.
pub const KEYS: &[Key] = &[
    key("backend", Type::OneOf(&["iptables", "nftables"]), "nftables if the kernel has it", "Firewall."),
    key(
        "snat",
        Type::Bool,
        "true",
        "Masquerade connections whose answers would not return through this host.",
    ),
    key(
        "conditionsV4",
        Type::List(&Type::Text),
        "none",
        "Extra match conditions of the IPv4 rules, in the syntax of the backend.",
    ),
    key(
        "conditionsV6",
        Type::List(&Type::Text),
        "none",
        "Extra match conditions of the IPv6 rules, in the syntax of the backend.",
    ),
    key(
        "masqAll",
        Type::Bool,
        "false",
        "Masquerade all connections to host ports, not only those that need it.",
    ),
    key(
        "markMasqBit",
        Type::Number(0, 31),
        "13",
        "Bit of the packet mark that selects connections to masquerade. Cannot be combined with \
         externalSetMarkChain.",
    ),
    key(
        "externalSetMarkChain",
        Type::Text,
        "none",
        "Chain that sets the mark, instead of the plugin's own chain.",
    ),
];
