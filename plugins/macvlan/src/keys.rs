//! The keys of this plugin.

use cni::schema::{Key, Type, U32, key};
use iface::keys::{ACCEPT_RA, ENABLE_DAD, LINK_IN_CONTAINER, MAC, MASTER, MASTERS_MTU};

/// The plugin's keys.
pub const KEYS: &[Key] = &[
    MASTER,
    key(
        "mode",
        Type::OneOf(&["bridge", "private", "vepa", "passthru"]),
        "bridge",
        "How containers on the same master reach each other. `bridge`: directly. `vepa`: through the external \
         switch. `private`: not at all. `passthru`: one container has exclusive use of the master, with its MAC \
         address.",
    ),
    key(
        "tap",
        Type::Bool,
        "false",
        "The interface is a macvtap: a program in the container, such as a virtual machine, has its packets.",
    ),
    MASTERS_MTU,
    Key { default: "random; with `passthru`, the master's", ..MAC },
    LINK_IN_CONTAINER,
    BROADCAST_QUEUE,
    ENABLE_DAD,
    ACCEPT_RA,
];

/// The keys of `args.cni`.
pub const ARGS: &[Key] = &[MAC];

const BROADCAST_QUEUE: Key = key(
    "bcqueuelen",
    U32,
    "0: the kernel's, 1000",
    "Length of the master's queue of broadcast and multicast packets. All containers on the master share \
     it. Requires Linux 5.11.",
);
