//! The keys of this plugin.

use cni::schema::{Key, Type, U32, key};

/// The plugin's keys.
pub const KEYS: &[Key] = &[
    key(
        "daemonSocketPath",
        Type::Path,
        "/run/cni/dhcp.sock",
        "Socket of the daemon. Its path has at most 107 bytes.",
    ),
    key(
        "family",
        Type::OneOf(&["ipv4", "ipv6", "both"]),
        "ipv4",
        "Requested address families: `ipv4` uses DHCP, `ipv6` uses DHCPv6. With `both`, ADD needs a lease for each.",
    ),
    key("provide", Type::List(&Type::Object(PROVIDE)), "none", "Options to send to servers."),
    key("request", Type::List(&Type::Object(REQUEST)), "none", "Options to request from servers."),
    key("priority", U32, "the kernel's", "Metric of all routes."),
];

const PROVIDE: &[Key] = &[
    key(
        "option",
        Type::Text,
        "",
        "Name of the option, see dhcp-options(5), or its number from 1 to 254 as a string, such as `\"12\"`.",
    ),
    key(
        "value",
        Type::Text,
        "none",
        "The option's value, at most 255 bytes. Addresses, numbers and flags are written as text, such as \
         `10.1.2.3`, `3600` or `true`, and lists of them with commas.",
    ),
    key(
        "fromArg",
        Type::Text,
        "none",
        "Key of `CNI_ARGS`. The option gets this key's value, else `value`. If neither exists, it is not sent.",
    ),
];

const REQUEST: &[Key] = &[
    key(
        "skipDefault",
        Type::Bool,
        "false",
        "If any entry has `true`, the daemon requests only the options of `request`, without the default options. \
         Such an entry needs no `option`. If no entry names an option, `skipDefault` has no effect.",
    ),
    key(
        "option",
        Type::Text,
        "none",
        "Name or number, as in `provide`. If the server does not send the option, the daemon logs that once, and \
         ADD succeeds. If option 26 (interface-mtu) is here, the daemon lowers the MTU of the link to the \
         server's value, and the interface plugin's result contains it. A larger value changes nothing. If \
         option 26 is requested only by default, the MTU does not change.",
    ),
    key(
        "required",
        Type::Bool,
        "false",
        "If an offer lacks the option, ADD waits for another offer, at most the daemon's `-timeout`, and then \
         fails. If an answer to a later renewal lacks the option, the running container keeps its lease.",
    ),
];
