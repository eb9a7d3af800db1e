//! The keys of this plugin.

use cni::schema::{Key, Type, key};
use iface::keys::{ACCEPT_RA, ENABLE_DAD, LINK_IN_CONTAINER, MAC, MASTERS_MTU};

/// The plugin's keys.
pub const KEYS: &[Key] = &[
    key(
        "master",
        Type::LinkName,
        "from the chain",
        "Interface that carries the VLAN, by its name or an alternative name. Required, except in a chain: there the default is an interface of \
         `prevResult`.",
    ),
    key(
        "vlanId",
        Type::Number(0, 4094),
        "none: it is required",
        "VLAN id in the tag. 0: a priority tag only, the frames belong to no VLAN.",
    ),
    key(
        "protocol",
        Type::OneOf(&["802.1Q", "802.1ad"]),
        "802.1Q",
        "Kind of tag. `802.1ad` is the outer tag of frames with two tags (QinQ).",
    ),
    MASTERS_MTU,
    Key { default: "the master's", ..MAC },
    LINK_IN_CONTAINER,
    ENABLE_DAD,
    ACCEPT_RA,
];

/// The keys of `args.cni`.
pub const ARGS: &[Key] = &[MAC];
