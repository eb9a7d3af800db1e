//! Plugins that give addresses. Their keys stand in another plugin's `ipam`.

use super::common::{DNS, RANGE, ROUTE, U32};
use super::types::{Key, Plugin, Role, Type, key};

pub const PLUGINS: &[Plugin] = &[
    Plugin {
        name: "host-local",
        role: Role::Ipam,
        about: "Gives addresses from ranges, and keeps the leases in files of this host.",
        keys: HOST_LOCAL,
        args: IPS,
        capabilities: &["ips", "ipRanges"],
    },
    Plugin {
        name: "static",
        role: Role::Ipam,
        about: "Gives the addresses that the configuration or the call names.",
        keys: &[
            key(
                "addresses",
                Type::List(&Type::Object(ADDRESS)),
                "those of the call",
                "Addresses to give, and gateways of addresses that a call asks for.",
            ),
            key("routes", Type::List(&Type::Object(ROUTE)), "none", "Routes for the container."),
            key("dns", Type::Object(DNS), "none", "Settings for the container's resolver."),
        ],
        args: IPS,
        capabilities: &["ips"],
    },
    Plugin {
        name: "dhcp",
        role: Role::Ipam,
        about: "Gets an address from a DHCP server, through a daemon that renews the lease.",
        keys: &[
            key("daemonSocketPath", Type::Path, "/run/cni/dhcp.sock", "Socket of the daemon."),
            key(
                "family",
                Type::OneOf(&["ipv4", "ipv6", "both"]),
                "ipv4",
                "Which addresses are asked for: by DHCP, by DHCPv6, or by both.",
            ),
            key(
                "provide",
                Type::List(&Type::Object(PROVIDE)),
                "none",
                "Options that are sent to the server.",
            ),
            key(
                "request",
                Type::List(&Type::Object(REQUEST)),
                "none",
                "Options that the server is asked for.",
            ),
            key("priority", U32, "the kernel's", "Metric of the routes."),
        ],
        args: &[],
        capabilities: &[],
    },
];

const IPS: &[Key] =
    &[key("ips", Type::List(&Type::IpOrCidr), "none", "Addresses that the container is to get.")];

const HOST_LOCAL: &[Key] = &[
    key(
        "ranges",
        Type::List(&Type::List(&Type::Object(RANGE))),
        "the single range of subnet",
        "Range sets: a container gets one address from each; the ranges of a set continue each other.",
    ),
    key("subnet", Type::Cidr, "none", "The old form of a single range: its subnet."),
    key("rangeStart", Type::Ip, "the subnet's first", "The old form: first address that is given out."),
    key("rangeEnd", Type::Ip, "the subnet's last", "The old form: last address that is given out."),
    key("gateway", Type::Ip, "the subnet's first", "The old form: gateway, which is never given out."),
    key("exclude", Type::List(&Type::IpOrCidr), "none", "Addresses and blocks that are never given out."),
    key("routes", Type::List(&Type::Object(ROUTE)), "none", "Routes for the container."),
    key(
        "dataDir",
        Type::Path,
        "/var/lib/cni/networks",
        "Directory of leases; each network has a directory of its own in it.",
    ),
    key("resolvConf", Type::Path, "none", "File that the container's resolver settings are taken from."),
    key(
        "resetOnReboot",
        Type::Bool,
        "when addresses run out",
        "Release leases from before the last start of the host: by the first ADD, or never.",
    ),
    key(
        "reuseStaleLeases",
        Type::Bool,
        "true",
        "If no address is free, release leases of containers that have certainly exited.",
    ),
    key(
        "staleLeaseAge",
        Type::Number(0, 4_294_967_295),
        "600",
        "Seconds that a stale lease is at least old.",
    ),
    key("statusFailsWhenFull", Type::Bool, "false", "STATUS says 50 when a range set has no free address."),
];

const ADDRESS: &[Key] = &[
    key("address", Type::Cidr, "those of the call", "Address with its prefix length."),
    key("gateway", Type::Ip, "none", "The subnet's gateway."),
];

const PROVIDE: &[Key] = &[
    key("option", Type::Text, "", "Number or name of the option, see dhcp-options(5)."),
    key("value", Type::Text, "none", "Its value."),
    key("fromArg", Type::Text, "none", "Key of CNI_ARGS that has its value."),
];

const REQUEST: &[Key] = &[
    key("skipDefault", Type::Bool, "false", "Leave out what is asked for by default."),
    key("option", Type::Text, "none", "Number or name of the option, see dhcp-options(5)."),
    key("required", Type::Bool, "false", "Fail the ADD if the server does not send the option."),
];
