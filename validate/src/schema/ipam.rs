//! IPAM plugins. Their keys are in `ipam` of another plugin.

use super::common::{DNS, RANGE, ROUTE, U32};
use super::types::{Key, Plugin, Role, Type, key};

pub const PLUGINS: &[Plugin] = &[
    Plugin {
        name: "host-local",
        role: Role::Ipam,
        about: "Allocates addresses from ranges, and stores the leases in files on this host.",
        keys: HOST_LOCAL,
        args: IPS,
        capabilities: &["ips", "ipRanges"],
    },
    Plugin {
        name: "static",
        role: Role::Ipam,
        about: "Assigns the addresses that the configuration or the request contains.",
        keys: &[
            key(
                "addresses",
                Type::List(&Type::Object(ADDRESS)),
                "those of the request",
                "Addresses to assign, and gateways for requested addresses.",
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
        about: "Obtains an address from a DHCP server. A daemon renews the lease.",
        keys: &[
            key("daemonSocketPath", Type::Path, "/run/cni/dhcp.sock", "Socket of the daemon."),
            key(
                "family",
                Type::OneOf(&["ipv4", "ipv6", "both"]),
                "ipv4",
                "Address family: ipv4 uses DHCP, ipv6 uses DHCPv6.",
            ),
            key("provide", Type::List(&Type::Object(PROVIDE)), "none", "DHCP options to send to the server."),
            key(
                "request",
                Type::List(&Type::Object(REQUEST)),
                "none",
                "DHCP options to request from the server.",
            ),
            key("priority", U32, "the kernel's", "Metric of the routes."),
        ],
        args: &[],
        capabilities: &[],
    },
];

const IPS: &[Key] =
    &[key("ips", Type::List(&Type::IpOrCidr), "none", "Addresses to request for the container.")];

const HOST_LOCAL: &[Key] = &[
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
        "File with the container's resolver settings, in the format of \
     resolv.conf(5).",
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
        "STATUS fails with code 50 if a range set has no free \
     address.",
    ),
];

const ADDRESS: &[Key] = &[
    key("address", Type::Cidr, "those of the request", "Address with its prefix length."),
    key("gateway", Type::Ip, "none", "The subnet's gateway."),
];

const PROVIDE: &[Key] = &[
    key("option", Type::Text, "", "Number or name of the option, see dhcp-options(5)."),
    key("value", Type::Text, "none", "Its value."),
    key("fromArg", Type::Text, "none", "Key of CNI_ARGS that contains the value."),
];

const REQUEST: &[Key] = &[
    key("skipDefault", Type::Bool, "false", "Do not request the default options."),
    key("option", Type::Text, "none", "Number or name of the option, see dhcp-options(5)."),
    key("required", Type::Bool, "false", "Fail the ADD if the server does not send the option."),
];
