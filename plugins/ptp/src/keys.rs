//! The keys of this plugin.

use cni::schema::{Key, Type, key};
use iface::keys::{ACCEPT_RA, ENABLE_DAD, HOST_INTERFACE, MAC, MTU_FROM_DEFAULT_ROUTE, VETH_MTU};
use netfilter::keys::{IP_MASQ, IP_MASQ_BACKEND, IP_MASQ_FAMILY};

/// The plugin's keys.
pub const KEYS: &[Key] = &[
    IP_MASQ,
    IP_MASQ_BACKEND,
    IP_MASQ_FAMILY,
    VETH_MTU,
    MTU_FROM_DEFAULT_ROUTE,
    MAC,
    ENABLE_DAD,
    ACCEPT_RA,
    key(
        "proxyArp",
        Type::Bool,
        "false",
        "Proxy ARP: the host's end answers the container's ARP requests for addresses that the host reaches \
         through other interfaces.",
    ),
    HOST_INTERFACE,
];

/// The keys of `args.cni`.
pub const ARGS: &[Key] = &[MAC, HOST_INTERFACE];
