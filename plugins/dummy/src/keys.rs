//! The keys of this plugin.

use cni::schema::{Key, key};
use iface::keys::{ACCEPT_RA, ENABLE_DAD, MAC, MTU};

/// The plugin's keys.
pub const KEYS: &[Key] = &[
    key("mtu", MTU, "0: the kernel's, 1500", "MTU of the interface, in bytes: 68 to 65535."),
    MAC,
    ENABLE_DAD,
    ACCEPT_RA,
];

/// The keys of `args.cni`.
pub const ARGS: &[Key] = &[MAC];
