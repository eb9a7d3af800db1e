//! The keys of this plugin.

use cni::schema::{DNS, IPS, Key, ROUTE, Type, key};

/// The plugin's keys.
pub const KEYS: &[Key] = &[
    key(
        "addresses",
        Type::List(&Type::Object(ADDRESS)),
        "those of the request",
        "Addresses to assign. An entry with only a `gateway` serves requested addresses.",
    ),
    key("routes", Type::List(&Type::Object(ROUTE)), "none", "Routes for the container."),
    key("dns", Type::Object(DNS), "none", "Settings for the container's resolver, returned in the result."),
];

/// The keys of `args.cni`.
pub const ARGS: &[Key] = &[IPS];

const ADDRESS: &[Key] = &[
    key("address", Type::Cidr, "none", "The container's address with its host bits, such as 10.10.0.5/24."),
    key(
        "gateway",
        Type::Ip,
        "none",
        "Gateway of the same family. If it is outside of the subnet, such as 169.254.1.1 for a /32, routes \
         through it have the flag `onlink`.",
    ),
];
