//! The keys of this plugin.

use cni::schema::{Key, Type, key};

/// The plugin's keys.
pub const KEYS: &[Key] = &[
    key(
        "table",
        Type::Number(1, 4_294_967_295),
        "one for each address, the first free one from 100",
        "Routing table: only add rules that lead to it, and move no routes. The other two keys then have no \
         effect.",
    ),
    key(
        "gateways",
        Type::List(&Type::Ip),
        "the address's gateway in the result, else the gateway of a default route of its family there",
        "Gateways of the tables' default routes, at most one for each family.",
    ),
    key(
        "addSourceHints",
        Type::Bool,
        "false",
        "Also keep the routes to the interface's own subnets in the main table, with the interface's address \
         as preferred source.",
    ),
];
