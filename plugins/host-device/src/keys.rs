//! The keys of this plugin.

use cni::schema::{Key, Type, key};
use iface::keys::{ACCEPT_RA, ENABLE_DAD};

/// The plugin's keys.
pub const KEYS: &[Key] = &[
    key("device", Type::IfName, "none", "Name of the device's interface."),
    key("hwaddr", Type::Mac, "none", "MAC address of the device. Only one interface may have it."),
    key("kernelpath", Type::Text, "none", "Path of the device in the kernel, below /sys/devices."),
    key("pciBusID", Type::Text, "none", "PCI address of the device, such as 0000:00:1f.6."),
    key(
        "useInterfaceNetwork",
        Type::Bool,
        "false",
        "ADD also moves the device's addresses and routes into the container. DEL restores them on the host.",
    ),
    ENABLE_DAD,
    ACCEPT_RA,
];
