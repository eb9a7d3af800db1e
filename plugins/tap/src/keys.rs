//! The keys of this plugin.

use cni::schema::{Key, Type, key};
use iface::keys::{ACCEPT_RA, ENABLE_DAD, MAC};

/// The plugin's keys.
pub const KEYS: &[Key] = &[
    key(
        "multiQueue",
        Type::Bool,
        "false",
        "Allow a program to open several queues, one for each of its threads. It must open the device with \
         `IFF_MULTI_QUEUE`.",
    ),
    key("mtu", Type::Number(0, 65521), "0: the kernel's, 1500", "MTU of the device, in bytes: 68 to 65521."),
    MAC,
    key("owner", ID, "none", "Id of the user who may open the device."),
    key("group", ID, "none", "Id of the group that may open the device."),
    key(
        "selinuxContext",
        Type::Text,
        "the plugin's",
        "SELinux context of the device, such as `system_u:system_r:container_t:s0`. On a host without SELinux it is \
         ignored with a warning.",
    ),
    key(
        "bridge",
        Type::IfName,
        "none",
        "Bridge in the container, which must exist before ADD. The device becomes its port.",
    ),
    ENABLE_DAD,
    ACCEPT_RA,
];

/// The keys of `args.cni`.
pub const ARGS: &[Key] = &[MAC];

/// The id of a user or a group.
const ID: Type = Type::Number(0, 4_294_967_294);
