//! The keys of this plugin.

use cni::schema::{IPS, Key, RANGE, ROUTE, Type, key};

/// The plugin's keys.
pub const KEYS: &[Key] = &[
    key(
        "ranges",
        Type::List(&Type::List(&Type::Object(RANGE))),
        "the single range of `subnet`",
        "Range sets. An attachment gets one address from each set. A set continues with its next range when \
         one is full. The ranges of a set have the same family, and no two ranges overlap.",
    ),
    key(
        "subnet",
        Type::Cidr,
        "none",
        "The old form of a single range: its subnet. It becomes the first range set.",
    ),
    key("rangeStart", Type::Ip, "the subnet's first", "The old form: first address that is allocated."),
    key("rangeEnd", Type::Ip, "the subnet's last", "The old form: last address that is allocated."),
    key("gateway", Type::Ip, "the subnet's first", "The old form: gateway. It is never allocated."),
    key(
        "exclude",
        Type::List(&Type::IpOrCidr),
        "none",
        "Addresses and subnets that are never allocated, in all ranges.",
    ),
    key("routes", Type::List(&Type::Object(ROUTE)), "none", "Routes for the container."),
    key(
        "dataDir",
        Type::Path,
        "/var/lib/cni/networks",
        "Directory of the leases, with a subdirectory for each network. Must be on a local file system.",
    ),
    key(
        "resolvConf",
        Type::Path,
        "none",
        "File in the format of resolv.conf(5). Its `nameserver`, `domain`, `search` and `options` become the result's \
         `dns`.",
    ),
    key(
        "resetOnReboot",
        Type::Bool,
        "unset: leases from before the reboot are stale",
        "Whether the first ADD after a reboot releases all older leases.",
    ),
    key(
        "reuseStaleLeases",
        Type::Bool,
        "true",
        "Release the leases of containers that have certainly exited, when a range set has no free address or \
         few.",
    ),
    key(
        "staleLeaseAge",
        Type::Number(0, 4_294_967_295),
        "600",
        "Seconds: a lease that was changed less than this time ago is never stale.",
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
