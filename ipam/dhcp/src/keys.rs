//! The keys of this plugin.

use cni::schema::{Key, Type, U32, key};

/// The plugin's keys.
pub const KEYS: &[Key] = &[
    key("daemonSocketPath", Type::Path, "/run/cni/dhcp.sock", "Socket of the daemon."),
    key(
        "family",
        Type::OneOf(&["ipv4", "ipv6", "both"]),
        "ipv4",
        "Address family: ipv4 uses DHCP, ipv6 uses DHCPv6.",
    ),
    key("provide", Type::List(&Type::Object(PROVIDE)), "none", "DHCP options to send to the server."),
    key("request", Type::List(&Type::Object(REQUEST)), "none", "DHCP options to request from the server."),
    key("priority", U32, "the kernel's", "Metric of the routes."),
];

const PROVIDE: &[Key] = &[
    key("option", Type::Text, "", "Number or name of the option, see dhcp-options(5)."),
    key("value", Type::Text, "none", "Its value."),
    key("fromArg", Type::Text, "none", "Key of CNI_ARGS that contains the value."),
];

const REQUEST: &[Key] = &[
    key("skipDefault", Type::Bool, "false", "Do not request the default options."),
    key("option", Type::Text, "none", "Number or name of the option, see dhcp-options(5)."),
    key("required", Type::Bool, "false", "Fail the ADD if the server does not send the option."),
];
