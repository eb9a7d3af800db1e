//! Objects that several tables have.

use super::types::{Key, Type, key};

/// What a link takes, in bytes; 0 for the default.
pub const MTU: Type = Type::Number(0, 65535);

/// What the kernel takes in 32 bits.
pub const U32: Type = Type::Number(0, 4_294_967_295);

/// The key `mac`, in a network's configuration or in `args.cni`.
pub const MAC: Key = key(
    "mac",
    Type::Mac,
    "chosen by the kernel",
    "MAC address of the container's interface. If several are given: runtimeConfig.mac counts most, then \
     args.cni.mac, then MAC of CNI_ARGS, then this key.",
);

/// Bits, or bits in a second.
const BITS: Type = Type::Number(0, i64::MAX);

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

/// Addresses of one family that follow each other.
pub const RANGE: &[Key] = &[
    key("subnet", Type::Cidr, "", "Subnet."),
    key("rangeStart", Type::Ip, "the subnet's first", "First address that is given out."),
    key("rangeEnd", Type::Ip, "the subnet's last", "Last address that is given out."),
    key("gateway", Type::Ip, "the subnet's first", "Gateway, which is never given out."),
    key("exclude", Type::List(&Type::IpOrCidr), "none", "Addresses and blocks that are never given out."),
];

/// Limits of the traffic of a container.
pub const BANDWIDTH: &[Key] = &[
    key("ingressRate", BITS, "0 (no limit)", "Limit of what the container gets, in bits per second."),
    key("ingressBurst", BITS, "0", "What may come at once, in bits."),
    key("egressRate", BITS, "0 (no limit)", "Limit of what the container sends, in bits per second."),
    key("egressBurst", BITS, "0", "What may go at once, in bits."),
];
