//! The keys of this plugin.

use cni::schema::{Key, Type, key};
use iface::keys::{ACCEPT_RA, ENABLE_DAD, LINK_IN_CONTAINER, MAC, MASTER, MASTERS_MTU};

/// The plugin's keys.
pub const KEYS: &[Key] = &[
    MASTER,
    key(
        "mode",
        Type::OneOf(&["l2", "l3", "l3s"]),
        "l2",
        "Mode of the interface. `l2`: it is on the master's network. `l3`: the host routes its packets, and it \
         receives no broadcast. `l3s`: like l3, and its packets traverse the host's firewall. All containers \
         on a master must have the same mode.",
    ),
    key(
        "flag",
        Type::OneOf(&["bridge", "private", "vepa"]),
        "bridge",
        "How containers on the same master reach each other. `bridge`: directly. `private`: not at all. `vepa`: \
         through the external switch. All containers on a master must have the same flag.",
    ),
    MASTERS_MTU,
    key(
        "mac",
        Type::Mac,
        "the master's",
        "Cannot be set: the plugin prints a warning, and the interface has the master's MAC address.",
    ),
    LINK_IN_CONTAINER,
    ENABLE_DAD,
    ACCEPT_RA,
];

/// The keys of `args.cni`.
pub const ARGS: &[Key] = &[MAC];
