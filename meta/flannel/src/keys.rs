//! The keys of this plugin.

use cni::schema::{Key, Type, key};

/// The plugin's keys.
pub const KEYS: &[Key] = &[
    key(
        "subnetFile",
        Type::Path,
        "/run/flannel/subnet.env",
        "File in which flanneld writes the host's subnet.",
    ),
    key(
        "dataDir",
        Type::Path,
        "/var/lib/cni/flannel",
        "Directory that stores the delegate's configuration until DEL.",
    ),
    key(
        "delegate",
        Type::Delegate,
        "{\"type\": \"bridge\"}",
        "Configuration of the plugin that creates the interface. flannel sets its name and ipam.",
    ),
    key(
        "ipam",
        Type::IpamPart,
        "{\"type\": \"host-local\"}",
        "Configuration of the IPAM plugin. flannel sets its ranges and adds routes.",
    ),
];
