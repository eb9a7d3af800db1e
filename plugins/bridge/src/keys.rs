//! The keys of this plugin.

use cni::schema::{Key, Type, key};
use iface::keys::{ACCEPT_RA, ENABLE_DAD, HOST_INTERFACE, MAC, MTU, MTU_FROM_DEFAULT_ROUTE};
use netfilter::keys::{IP_MASQ, IP_MASQ_BACKEND, IP_MASQ_FAMILY};

/// The plugin's keys.
pub const KEYS: &[Key] = &[
    key("bridge", Type::IfName, "cni0", "Name of the bridge. ADD creates it if it does not exist."),
    key("isGateway", Type::Bool, "false", "Assign the gateway address of each subnet to the bridge."),
    key(
        "isDefaultGateway",
        Type::Bool,
        "false",
        "Like isGateway, and the bridge is the container's default gateway.",
    ),
    key(
        "forceAddress",
        Type::Bool,
        "false",
        "Replace the bridge's address if it is different from the gateway address.",
    ),
    IP_MASQ,
    IP_MASQ_BACKEND,
    IP_MASQ_FAMILY,
    key(
        "mtu",
        MTU,
        "0 (the kernel's: 1500)",
        "MTU of the veth pair, and of a new bridge, in bytes: 68 to 65535.",
    ),
    MTU_FROM_DEFAULT_ROUTE,
    key(
        "hairpinMode",
        Type::Bool,
        "false",
        "Hairpin mode: the bridge may send a frame back through the port that received it.",
    ),
    key("promiscMode", Type::Bool, "false", "Promiscuous mode of the bridge: it accepts all frames."),
    key("vlan", Type::Number(0, 4094), "0 (none)", "Untagged VLAN of the container's bridge port."),
    key(
        "vlanTrunk",
        Type::List(&Type::Object(TRUNK)),
        "none",
        "Tagged VLANs of the container's bridge port.",
    ),
    key(
        "preserveDefaultVlan",
        Type::Bool,
        "false",
        "Keep the bridge's default VLAN on the container's port.",
    ),
    key("macspoofchk", Type::Bool, "false", "Drop frames whose source MAC address is not the container's."),
    ENABLE_DAD,
    ACCEPT_RA,
    key(
        "disableContainerInterface",
        Type::Bool,
        "false",
        "Keep the container's interface down. Cannot be combined with ipam.",
    ),
    key(
        "portIsolation",
        Type::Bool,
        "false",
        "Isolate the bridge port: isolated ports cannot reach each other.",
    ),
    key(
        "allowUplinkPort",
        Type::Bool,
        "false",
        "Allow the host's uplink as a bridge port, if prevResult lists it.",
    ),
    HOST_INTERFACE,
];

/// The keys of `args.cni`.
pub const ARGS: &[Key] = &[MAC, HOST_INTERFACE];

const TRUNK: &[Key] = &[
    key("minID", Type::Number(1, 4094), "none", "First VLAN of a range."),
    key("maxID", Type::Number(1, 4094), "none", "Last VLAN of a range."),
    key("id", Type::Number(1, 4094), "none", "A single VLAN."),
];
