//! Keys that interface plugins share.

use super::common::{MTU, U32};
use super::types::{Key, Type, key};

pub const IP_MASQ: Key = key(
    "ipMasq",
    Type::Bool,
    "false",
    "Masquerade traffic that leaves the network: it gets the host's address as its source.",
);

pub const IP_MASQ_BACKEND: Key = key(
    "ipMasqBackend",
    Type::OneOf(&["iptables", "nftables"]),
    "nftables if the kernel has it, else iptables",
    "Firewall backend of ipMasq.",
);

pub const IP_MASQ_FAMILY: Key =
    key("ipMasqFamily", Type::OneOf(&["ipv4", "ipv6"]), "both", "Masquerade only this address family.");

pub const VETH_MTU: Key =
    key("mtu", MTU, "0 (the kernel's: 1500)", "MTU of both ends of the veth pair, in bytes: 68 to 65535.");

pub const MTU_FROM_DEFAULT_ROUTE: Key = key(
    "mtuFromDefaultRoute",
    Type::Bool,
    "false",
    "Use the MTU of the interface of the host's default route. Cannot be combined with mtu.",
);

/// In a network's configuration or in `args.cni`.
pub const HOST_INTERFACE: Key = key(
    "hostInterface",
    Type::IfName,
    "derived from the attachment",
    "Name of the veth pair's end on the host. Each container needs its own name: args.cni.hostInterface has \
     precedence over this key, and must begin with it.",
);

pub const MASTER: Key = key(
    "master",
    Type::IfName,
    "from the chain, else by the default route",
    "Parent interface. Default: in a chain, an interface of prevResult; otherwise, the interface of the \
     host's default route.",
);

pub const MASTERS_MTU: Key = key(
    "mtu",
    MTU,
    "0 (the master's)",
    "MTU of the container's interface, in bytes: 68 to 65535, and no more than the master's.",
);

pub const LINK_IN_CONTAINER: Key = key(
    "linkInContainer",
    Type::Bool,
    "false",
    "The master is an interface of the container, not of the host.",
);

pub const BROADCAST_QUEUE: Key = key(
    "bcqueuelen",
    U32,
    "0 (the kernel's: 1000)",
    "Length of the master's queue of broadcast and multicast packets. All containers on the master share \
     it. Requires Linux 5.11.",
);

pub const ENABLE_DAD: Key = key(
    "enabledad",
    Type::Bool,
    "false",
    "ADD waits until duplicate address detection (DAD) of the container's IPv6 addresses has finished.",
);

pub const ACCEPT_RA: Key = key(
    "acceptRa",
    Type::Bool,
    "the kernel's",
    "Accept router advertisements: the interface configures addresses and routes that IPv6 routers announce.",
);
