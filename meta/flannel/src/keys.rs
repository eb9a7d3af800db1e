//! The keys of this plugin.

use cni::schema::{Key, Type, key};

/// The plugin's keys.
pub const KEYS: &[Key] = &[
    key(
        "subnetFile",
        Type::Path,
        "/run/flannel/subnet.env",
        "File that flanneld writes, with the host's subnet.",
    ),
    key(
        "dataDir",
        Type::Path,
        "/var/lib/cni/flannel",
        "Directory of the state for DEL: the delegate's configuration.",
    ),
    key(
        "delegate",
        Type::Delegate,
        "{\"type\": \"bridge\"}",
        "Type and keys of the plugin that creates the interface, without `name` and `ipam`.",
    ),
    key(
        "ipam",
        Type::IpamPart,
        "{\"type\": \"host-local\"}",
        "Keys of its IPAM plugin. flannel replaces `ranges` and appends to `routes`.",
    ),
];
