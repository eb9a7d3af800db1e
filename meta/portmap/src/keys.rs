//! The keys of this plugin.

use cni::schema::{Key, Type, key};

/// The plugin's keys.
pub const KEYS: &[Key] = &[
    key(
        "backend",
        Type::OneOf(&["nftables", "iptables"]),
        "nftables if the kernel has it, else iptables",
        "Backend for the rules. `externalSetMarkChain`, and conditions in iptables' syntax, select iptables. \
         With kube-proxy in IPVS mode (link `kube-ipvs0`), the default is iptables.",
    ),
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
        "Additional matches of the IPv4 rules, in nft's or iptables' syntax.",
    ),
    key(
        "conditionsV6",
        Type::List(&Type::Text),
        "none",
        "Additional matches of the IPv6 rules, in nft's or iptables' syntax.",
    ),
    key(
        "masqAll",
        Type::Bool,
        "false",
        "With `snat`: masquerade all connections to host ports, not only those that need it.",
    ),
    key(
        "markMasqBit",
        Type::Number(0, 31),
        "13",
        "Bit that marks connections to masquerade. iptables: a bit of the packet mark (Kubernetes uses 14 and \
         15, Calico 16 to 31 by default). nftables: a bit of the connection mark.",
    ),
    key(
        "externalSetMarkChain",
        Type::Text,
        "none",
        "Chain of iptables' table `nat`, in both families, that marks these connections instead. Its owner must \
         also masquerade them. Cannot be combined with `markMasqBit`.",
    ),
];
