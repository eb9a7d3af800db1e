//! The keys of this plugin.

use cni::schema::{IPS, Key, RANGE, ROUTE, Type, key};

/// The plugin's keys.
pub const KEYS: &[Key] = &[
    key(
        "ranges",
        Type::List(&Type::List(&Type::Object(RANGE))),
        "the single range of subnet",
        "Range sets. A container gets one address from each set. A set continues with its next range when \
         one is full.",
    ),
    key("subnet", Type::Cidr, "none", "The old form of a single range: its subnet."),
    key("rangeStart", Type::Ip, "the subnet's first", "The old form: first address that is allocated."),
    key("rangeEnd", Type::Ip, "the subnet's last", "The old form: last address that is allocated."),
    key("gateway", Type::Ip, "the subnet's first", "The old form: gateway. It is never allocated."),
    key("exclude", Type::List(&Type::IpOrCidr), "none", "Addresses and blocks that are never allocated."),
    key("routes", Type::List(&Type::Object(ROUTE)), "none", "Routes for the container."),
    key(
        "dataDir",
        Type::Path,
        "/var/lib/cni/networks",
        "Directory of the leases, with a subdirectory for each network.",
    ),
    key(
        "resolvConf",
        Type::Path,
        "none",
        "File with the container's resolver settings, in the format of resolv.conf(5).",
    ),
    key(
        "resetOnReboot",
        Type::Bool,
        "if no address is free",
        "true: the first ADD after a reboot releases all older leases. false: it keeps them.",
    ),
    key(
        "reuseStaleLeases",
        Type::Bool,
        "true",
        "If no address is free, release the leases of containers that have provably exited.",
    ),
    key(
        "staleLeaseAge",
        Type::Number(0, 4_294_967_295),
        "600",
        "Minimum age of a stale lease before it is released, in seconds.",
    ),
    key(
        "statusFailsWhenFull",
        Type::Bool,
        "false",
        "STATUS fails with code 50 if a range set has no free address.",
    ),
];

/// The keys of `args.cni`.
pub const ARGS: &[Key] = &[IPS];
