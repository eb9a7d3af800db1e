//! The keys of this plugin.

use cni::schema::{Key, Type, U32, key};

/// The plugin's keys.
pub const KEYS: &[Key] = &[
    SYSCTL,
    MAC,
    PROMISC,
    MTU,
    ALLMULTI,
    TX_QLEN,
    FEATURES,
    key("dataDir", Type::Path, "/run/cni/tuning", "Directory of the saved values, for DEL."),
];

/// The keys of `args.cni`.
pub const ARGS: &[Key] = &[SYSCTL, MAC, PROMISC, MTU, ALLMULTI, TX_QLEN, FEATURES];

const SYSCTL: Key = key(
    "sysctl",
    Type::Map(&Type::Text),
    "none",
    "Sysctls below `net/`, such as `{\"net.core.somaxconn\": \"500\"}`; `IFNAME` stands for the interface.",
);

const MAC: Key =
    key("mac", Type::Mac, "unchanged", "MAC address of the interface: not multicast, not all zero.");

const PROMISC: Key = key(
    "promisc",
    Type::Bool,
    "unchanged",
    "`true` sets promiscuous mode: the interface accepts all frames. `false`: unchanged.",
);

const MTU: Key = key(
    "mtu",
    U32,
    "unchanged",
    "MTU of the interface, in bytes; 0: unchanged. The kernel checks the range.",
);

const ALLMULTI: Key =
    key("allmulti", Type::Bool, "unchanged", "Whether the interface accepts all multicast frames.");

const TX_QLEN: Key = key("txQLen", U32, "unchanged", "Length of the transmit queue, in packets.");

const FEATURES: Key = key(
    "features",
    Type::Map(&Type::Bool),
    "unchanged",
    "Offload features of the interface by the kernel's names, such as `{\"tx-checksum-ip-generic\": false}`.",
);
