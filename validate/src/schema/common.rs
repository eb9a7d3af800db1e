//! Objects that several schemas contain.

use super::types::{Key, Type, key};

/// An MTU in bytes. 0: the default.
pub const MTU: Type = Type::Number(0, 65535);

/// An unsigned number of 32 bits.
pub const U32: Type = Type::Number(0, 4_294_967_295);

/// The key `mac`, in a network's configuration or in `args.cni`.
pub const MAC: Key = key(
    "mac",
    Type::Mac,
    "chosen by the kernel",
    "MAC address of the container's interface. If several are set: runtimeConfig.mac has precedence, then \
     args.cni.mac, then MAC of CNI_ARGS, then this key.",
);

/// Bits per second.
const RATE: Type = Type::Number(0, i64::MAX);

/// Bits. The kernel counts bytes in 32 bits.
const BURST: Type = Type::Number(0, 34_359_738_367);

/// Settings for a resolver.
pub const DNS: &[Key] = &[
    key("nameservers", Type::List(&Type::Ip), "none", "Name servers, by preference."),
    key("domain", Type::Text, "none", "The local domain."),
    key("search", Type::List(&Type::Text), "none", "Domains to search for short names."),
    key("options", Type::List(&Type::Text), "none", "Options, see resolv.conf(5)."),
];

/// A route.
pub const ROUTE: &[Key] = &[
    key("dst", Type::Cidr, "", "Destination."),
    key("gw", Type::Ip, "the subnet's gateway", "Next hop."),
    key("mtu", U32, "the link's", "MTU of the path, in bytes."),
    key("advmss", U32, "what the MTU allows", "MSS to advertise, in bytes."),
    key("priority", U32, "the kernel's", "Metric; the lowest wins."),
    key("table", U32, "254 (main)", "Routing table."),
    key("scope", Type::Number(0, 255), "by the gateway", "Scope: 0 global, 253 link, 254 host."),
];

/// Consecutive addresses of one family.
pub const RANGE: &[Key] = &[
    key("subnet", Type::Cidr, "", "Subnet."),
    key("rangeStart", Type::Ip, "the subnet's first", "First address that is allocated."),
    key("rangeEnd", Type::Ip, "the subnet's last", "Last address that is allocated."),
    key("gateway", Type::Ip, "the subnet's first", "Gateway. It is never allocated."),
    key("exclude", Type::List(&Type::IpOrCidr), "none", "Addresses and blocks that are never allocated."),
];

/// Limits of a container's traffic.
pub const BANDWIDTH: &[Key] =
    &[INGRESS_RATE, INGRESS_BURST, EGRESS_RATE, EGRESS_BURST, SHAPED_SUBNETS, UNSHAPED_SUBNETS];

/// The keys of the plugin itself.
pub const BANDWIDTH_PLUGIN: &[Key] = &[
    INGRESS_RATE,
    INGRESS_BURST,
    EGRESS_RATE,
    EGRESS_BURST,
    key(
        "latencyMs",
        Type::Number(1, 10_000),
        "25",
        "Longest time that a packet may wait after the burst is used up, in milliseconds.",
    ),
    key(
        "shapeInContainer",
        Type::Bool,
        "false",
        "Limit egress traffic inside the container. Needed for interfaces without a host end, such as macvlan.",
    ),
    SHAPED_SUBNETS,
    UNSHAPED_SUBNETS,
];

const INGRESS_RATE: Key = key(
    "ingressRate",
    RATE,
    "0 (no limit)",
    "Rate limit for traffic to the container, in bits per second; at least 8.",
);
const INGRESS_BURST: Key = key(
    "ingressBurst",
    BURST,
    "0",
    "Burst: how much the container may receive above \
 the rate, in bits.",
);
const EGRESS_RATE: Key = key(
    "egressRate",
    RATE,
    "0 (no limit)",
    "Rate limit for traffic from the container, in bits per second; at least 8.",
);
const EGRESS_BURST: Key = key(
    "egressBurst",
    BURST,
    "0",
    "Burst: how much the container may send above the \
 rate, in bits.",
);
const SHAPED_SUBNETS: Key =
    key("shapedSubnets", Type::List(&Type::Text), "none", "Not supported: must be empty.");
const UNSHAPED_SUBNETS: Key =
    key("unshapedSubnets", Type::List(&Type::Text), "none", "Not supported: must be empty.");
