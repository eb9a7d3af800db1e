//! The keys of this plugin.

use cni::schema::{Key, Type, U32, key};

/// The plugin's keys.
pub const KEYS: &[Key] = &[
    key("vrfname", Type::IfName, "", "Name of the VRF. ADD creates it if it does not exist."),
    key("table", U32, "a free one", "Routing table of the VRF."),
];
