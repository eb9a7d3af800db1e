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
    key("dataDir", Type::Path, "/run/cni/tuning", "Directory that stores the old values until DEL."),
];

/// The keys of `args.cni`.
pub const ARGS: &[Key] = &[SYSCTL, MAC, PROMISC, MTU, ALLMULTI, TX_QLEN, FEATURES];

const SYSCTL: Key = key(
    "sysctl",
    Type::Map(&Type::Text),
    "none",
    "Sysctls below net/, such as {\"net.core.somaxconn\": \"500\"}; IFNAME stands for the interface.",
);

const MAC: Key = key("mac", Type::Mac, "as it is", "MAC address of the interface.");

const PROMISC: Key =
    key("promisc", Type::Bool, "as it is", "Promiscuous mode: the interface accepts all frames.");

const MTU: Key = key("mtu", U32, "as it is", "MTU of the interface, in bytes.");

const ALLMULTI: Key = key("allmulti", Type::Bool, "as it is", "The interface accepts all multicast.");

const TX_QLEN: Key = key("txQLen", U32, "as it is", "Length of the transmit queue, in packets.");

const FEATURES: Key = key(
    "features",
    Type::Map(&Type::Bool),
    "as they are",
    "Offload features of the interface by the kernel's names, such as {\"tx-checksum-ip-generic\": false}.",
);
