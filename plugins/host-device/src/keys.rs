//! The keys of this plugin.

use cni::schema::{Key, Type, key};
use iface::keys::{ACCEPT_RA, ENABLE_DAD};

/// The plugin's keys.
pub const KEYS: &[Key] = &[
    key("device", Type::LinkName, "none", "Name or alternative name of the device's interface."),
    key(
        "hwaddr",
        Type::Mac,
        "none",
        "MAC address of the device, such as `02:00:00:00:00:01`, or the 20 bytes of an IP over InfiniBand \
         interface. Only one interface of the host may have it.",
    ),
    key(
        "kernelpath",
        Type::Text,
        "none",
        "Directory of the device below `/sys/devices`, such as `/sys/devices/pci0000:00/0000:00:1f.6`.",
    ),
    key("pciBusID", Type::Text, "none", "PCI address of the device, such as `0000:00:1f.6`."),
    key(
        "useInterfaceNetwork",
        Type::Bool,
        "false",
        "ADD also moves the device's addresses and routes into the container. DEL moves them back.",
    ),
    ENABLE_DAD,
    ACCEPT_RA,
];
