//! The keys of this plugin.

use cni::schema::{Key, Type, key};

/// The plugin's keys.
pub const KEYS: &[Key] = &[
    key("table", Type::Number(1, 4_294_967_295), "the first free one from 100", "Routing table."),
    key("gateways", Type::List(&Type::Ip), "those of the previous result", "Gateways, one for each family."),
    key(
        "addSourceHints",
        Type::Bool,
        "false",
        "Set the interface's address as the preferred source of the subnet routes in the main table.",
    ),
];
