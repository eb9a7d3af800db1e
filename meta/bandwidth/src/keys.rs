//! The keys of this plugin.

use cni::schema::{Key, Type, key};

/// The plugin's keys.
pub const KEYS: &[Key] = &[
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

const INGRESS_BURST: Key =
    key("ingressBurst", BURST, "0", "Burst: how much the container may receive above the rate, in bits.");

const EGRESS_RATE: Key = key(
    "egressRate",
    RATE,
    "0 (no limit)",
    "Rate limit for traffic from the container, in bits per second; at least 8.",
);

const EGRESS_BURST: Key =
    key("egressBurst", BURST, "0", "Burst: how much the container may send above the rate, in bits.");

const SHAPED_SUBNETS: Key =
    key("shapedSubnets", Type::List(&Type::Text), "none", "Not supported: must be empty.");

const UNSHAPED_SUBNETS: Key =
    key("unshapedSubnets", Type::List(&Type::Text), "none", "Not supported: must be empty.");

/// Bits per second.
const RATE: Type = Type::Number(0, i64::MAX);

/// Bits. The kernel counts bytes in 32 bits.
const BURST: Type = Type::Number(0, 34_359_738_367);

/// Limits of a container's traffic: the keys of the capability `bandwidth`.
pub const LIMITS: &[Key] =
    &[INGRESS_RATE, INGRESS_BURST, EGRESS_RATE, EGRESS_BURST, SHAPED_SUBNETS, UNSHAPED_SUBNETS];
