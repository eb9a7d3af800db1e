//! The keys of this plugin.

use cni::schema::{DNS, IPS, Key, ROUTE, Type, key};

/// The plugin's keys.
pub const KEYS: &[Key] = &[
    key(
        "addresses",
        Type::List(&Type::Object(ADDRESS)),
        "those of the request",
        "Addresses to assign, and gateways for requested addresses.",
    ),
    key("routes", Type::List(&Type::Object(ROUTE)), "none", "Routes for the container."),
    key("dns", Type::Object(DNS), "none", "Settings for the container's resolver."),
];

/// The keys of `args.cni`.
pub const ARGS: &[Key] = &[IPS];

const ADDRESS: &[Key] = &[
    key("address", Type::Cidr, "those of the request", "Address with its prefix length."),
    key("gateway", Type::Ip, "none", "The subnet's gateway."),
];
