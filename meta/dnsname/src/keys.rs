//! The keys of this plugin.

use cni::schema::{Key, Type, key};

/// The plugin's keys.
pub const KEYS: &[Key] = &[
    key(
        "domainName",
        Type::Text,
        "none",
        "Domain of all names of the network, at most 189 bytes. Without it, names have no domain.",
    ),
    key(
        "multiDomain",
        Type::Bool,
        "false",
        "No effect: each network has its own domain and server. The original plugin ignores this key too.",
    ),
    key(
        "internal",
        Type::Bool,
        "true if the container has no default route",
        "Names outside of the network are not resolved.",
    ),
];
