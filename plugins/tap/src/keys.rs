//! The keys of this plugin.

use cni::schema::{Key, Type, key};
use iface::keys::{ACCEPT_RA, ENABLE_DAD, MAC};

/// The plugin's keys.
pub const KEYS: &[Key] = &[
    key(
        "multiQueue",
        Type::Bool,
        "false",
        "Allow several queues. The program must open the device with IFF_MULTI_QUEUE.",
    ),
    key("mtu", Type::Number(0, 65521), "0 (the kernel's: 1500)", "MTU of the device, in bytes: 68 to 65521."),
    MAC,
    key("owner", ID, "any user, if group is not set either", "Id of the user that may open the device."),
    key("group", ID, "any user, if owner is not set either", "Id of the group that may open the device."),
    key(
        "selinuxContext",
        Type::Text,
        "the plugin's",
        "SELinux context of the device. Ignored on hosts without SELinux.",
    ),
    key("bridge", Type::IfName, "none", "Bridge in the container. The device becomes a port of it."),
    ENABLE_DAD,
    ACCEPT_RA,
];

/// The keys of `args.cni`.
pub const ARGS: &[Key] = &[MAC];

/// The id of a user or a group.
const ID: Type = Type::Number(0, 4_294_967_294);
