//! The keys of this plugin.

use cni::schema::{Key, Type, U32, key};

/// The plugin's keys.
pub const KEYS: &[Key] = &[
    key(
        "vrfname",
        Type::IfName,
        "",
        "Name of the VRF in the container. ADD creates it if it does not exist.",
    ),
    key(
        "table",
        U32,
        "a free one",
        "Routing table of the VRF. Default, or 0: the existing VRF's table; for a new VRF, the first table \
         from 1 that no VRF, route or rule uses. The kernel's own tables (253, 254, 255) are not allowed.",
    ),
];
