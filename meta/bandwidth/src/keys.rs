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
        "Maximum time in milliseconds that a packet waits after the burst is used up. Packets that would wait \
         longer are dropped.",
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
    "0: no limit",
    "Rate limit for traffic to the container, in bits per second: 0, or 8 and more. Needs a burst.",
);

const INGRESS_BURST: Key = key(
    "ingressBurst",
    BURST,
    "0",
    "Bits to the container that pass before the rate applies. Needs `ingressRate`.",
);

const EGRESS_RATE: Key = key(
    "egressRate",
    RATE,
    "0: no limit",
    "Rate limit for traffic from the container, in bits per second: 0, or 8 and more. Needs a burst.",
);

const EGRESS_BURST: Key = key(
    "egressBurst",
    BURST,
    "0",
    "Bits from the container that pass before the rate applies. Needs `egressRate`.",
);

const SHAPED_SUBNETS: Key =
    key("shapedSubnets", Type::List(&Type::Text), "none", "Not supported: code 2 unless the list is empty.");

const UNSHAPED_SUBNETS: Key = key(
    "unshapedSubnets",
    Type::List(&Type::Text),
    "none",
    "Not supported: code 2 unless the list is empty.",
);

/// Bits per second.
const RATE: Type = Type::Number(0, i64::MAX);

/// Bits. The kernel counts bytes in 32 bits.
const BURST: Type = Type::Number(0, 34_359_738_367);

/// Limits of a container's traffic: the keys of the capability `bandwidth`.
pub const LIMITS: &[Key] =
    &[INGRESS_RATE, INGRESS_BURST, EGRESS_RATE, EGRESS_BURST, SHAPED_SUBNETS, UNSHAPED_SUBNETS];
