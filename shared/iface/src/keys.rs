//! Descriptions of keys that interface plugins share.

#![allow(missing_docs, reason = "each key has its description")]

use cni::schema::{Key, Type, key};

/// An MTU in bytes. 0: the default.
pub const MTU: Type = Type::Number(0, 65535);

/// The key `mac`, in a network's configuration or in `args.cni`.
pub const MAC: Key = key(
    "mac",
    Type::Mac,
    "random",
    "MAC address of the container's interface. If several are set: `runtimeConfig.mac` has precedence, then \
     `args.cni.mac`, then `MAC=` in `CNI_ARGS`, then this key.",
);

pub const VETH_MTU: Key =
    key("mtu", MTU, "0: the kernel's, 1500", "MTU of both ends of the veth pair, in bytes: 68 to 65535.");

pub const MTU_FROM_DEFAULT_ROUTE: Key = key(
    "mtuFromDefaultRoute",
    Type::Bool,
    "false",
    "Use the MTU of the interface of the host's default route, or the kernel's default if the host has none. \
     Cannot be combined with `mtu`.",
);

/// In a network's configuration or in `args.cni`.
pub const HOST_INTERFACE: Key = key(
    "hostInterface",
    Type::IfName,
    "derived from the attachment",
    "Name of the veth pair's end on the host. Each container needs its own name: `args.cni.hostInterface` has \
     precedence over this key. Its value must begin with the value of this key.",
);

pub const MASTER: Key = key(
    "master",
    Type::LinkName,
    "from the chain, else by the default route",
    "Interface below the container's interface, by its name or an alternative name. Default: in a chain, an interface of `prevResult`; otherwise, \
     the interface of the host's default route.",
);

pub const MASTERS_MTU: Key = key(
    "mtu",
    MTU,
    "0: the master's",
    "MTU of the container's interface, in bytes: 68 to 65535, and at most the master's.",
);

pub const LINK_IN_CONTAINER: Key = key(
    "linkInContainer",
    Type::Bool,
    "false",
    "The master is an interface of the container, not of the host.",
);

pub const ENABLE_DAD: Key = key(
    "enabledad",
    Type::Bool,
    "false",
    "Run duplicate address detection (DAD) for IPv6 addresses before ADD returns. This takes one or two \
     seconds. Without this key, DAD stays off for all addresses of the interface.",
);

pub const ACCEPT_RA: Key = key(
    "acceptRa",
    Type::Bool,
    "the kernel's",
    "Whether the interface accepts addresses and routes from IPv6 router advertisements.",
);
