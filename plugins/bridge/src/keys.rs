//! The keys of this plugin.

use cni::schema::{Key, Type, key};
use iface::keys::{ACCEPT_RA, ENABLE_DAD, HOST_INTERFACE, MAC, MTU, MTU_FROM_DEFAULT_ROUTE};
use netfilter::keys::{IP_MASQ, IP_MASQ_BACKEND, IP_MASQ_FAMILY};

/// The plugin's keys.
pub const KEYS: &[Key] = &[
    key("bridge", Type::IfName, "cni0", "Name of the bridge. ADD creates it if it does not exist."),
    key(
        "isGateway",
        Type::Bool,
        "false",
        "Give the bridge the gateway address of each subnet, and turn on forwarding.",
    ),
    key(
        "isDefaultGateway",
        Type::Bool,
        "false",
        "Like `isGateway`; also add default routes through the bridge to the container.",
    ),
    key(
        "forceAddress",
        Type::Bool,
        "false",
        "Replace another gateway address of the bridge, which cuts off the containers that use it. Without this key, such \
         an address is an error.",
    ),
    IP_MASQ,
    IP_MASQ_BACKEND,
    IP_MASQ_FAMILY,
    key(
        "mtu",
        MTU,
        "0: the kernel's, 1500",
        "MTU of the veth pair, and of the bridge when it is created, in bytes: 68 to 65535.",
    ),
    MTU_FROM_DEFAULT_ROUTE,
    key(
        "hairpinMode",
        Type::Bool,
        "false",
        "Allow frames to leave through the port on which they arrived. A container then reaches itself through \
         a host port.",
    ),
    key(
        "promiscMode",
        Type::Bool,
        "false",
        "Set the bridge to promiscuous mode: it accepts all frames. Cannot be combined with `hairpinMode`.",
    ),
    key("vlan", Type::Number(0, 4094), "0: none", "VLAN of the container's untagged frames."),
    key(
        "vlanTrunk",
        Type::List(&Type::Object(TRUNK)),
        "none",
        "VLANs whose tagged frames pass. Without `vlan`, untagged frames belong to VLAN 1.",
    ),
    key("preserveDefaultVlan", Type::Bool, "false", "Keep the port in the bridge's default VLAN as well."),
    key(
        "macspoofchk",
        Type::Bool,
        "false",
        "Drop frames whose source MAC address is not the container's. Code 7 for an interface that an earlier \
         plugin of the chain created.",
    ),
    ENABLE_DAD,
    ACCEPT_RA,
    key(
        "disableContainerInterface",
        Type::Bool,
        "false",
        "Leave the container's interface down. Cannot be combined with `ipam`.",
    ),
    key(
        "portIsolation",
        Type::Bool,
        "false",
        "Block traffic between this port and other isolated ports. The host stays reachable.",
    ),
    key(
        "allowUplinkPort",
        Type::Bool,
        "false",
        "In a chain: also accept a physical interface, or one with a default route, as the port. DEL leaves it in the bridge.",
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
