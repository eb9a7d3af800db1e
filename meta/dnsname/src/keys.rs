//! The keys of this plugin.

use cni::schema::{Key, Type, key};

/// The plugin's keys.
pub const KEYS: &[Key] = &[
    key("domainName", Type::Text, "none", "Domain of all names of the network."),
    key(
        "multiDomain",
        Type::Bool,
        "false",
        "No effect: each network has a domain and a server of its own, with either value.",
    ),
    key(
        "internal",
        Type::Bool,
        "true if the container has no default route",
        "Names outside of the network are not resolved.",
    ),
];
