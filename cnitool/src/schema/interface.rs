//! Plugins that make an interface.

use super::types::{Key, Plugin, Role, Type, key};

/// What a link takes, in bytes; 0 for the kernel's default.
const MTU: Type = Type::Number(0, 65535);
const BACKENDS: Type = Type::OneOf(&["iptables", "nftables"]);
const IP_MASQ: Key = key(
    "ipMasq",
    Type::Bool,
    "false",
    "Hide the container behind the host's address for traffic that leaves the network.",
);
const IP_MASQ_BACKEND: Key = key(
    "ipMasqBackend",
    BACKENDS,
    "nftables where the kernel has it, else iptables",
    "Firewall that ipMasq uses.",
);
const LINK_IN_CONTAINER: Key = key(
    "linkInContainer",
    Type::Bool,
    "false",
    "The master is an interface of the container, not of the host.",
);

pub const PLUGINS: &[Plugin] = &[
    Plugin {
        name: "loopback",
        role: Role::Interface,
        about: "Sets the container's loopback interface up.",
        keys: &[],
        capabilities: &[],
    },
    Plugin {
        name: "bridge",
        role: Role::Interface,
        about: "Attaches the container to a bridge of the host with a veth pair.",
        keys: BRIDGE,
        capabilities: &["mac", "ips", "ipRanges"],
    },
    Plugin {
        name: "ptp",
        role: Role::Interface,
        about: "Connects the container with the host by a veth pair, without a bridge.",
        keys: &[
            IP_MASQ,
            IP_MASQ_BACKEND,
            key("mtu", MTU, "0 (the kernel's)", "MTU of the veth pair, in bytes."),
        ],
        capabilities: &["ips", "ipRanges"],
    },
    Plugin {
        name: "macvlan",
        role: Role::Interface,
        about: "Gives the container an interface with a MAC of its own on an interface of the host.",
        keys: MACVLAN,
        capabilities: &["mac", "ips", "ipRanges"],
    },
    Plugin {
        name: "ipvlan",
        role: Role::Interface,
        about: "Gives the container an interface that shares the MAC of an interface of the host.",
        keys: &[
            key(
                "master",
                Type::IfName,
                "that of the default route, or of the previous result",
                "Interface below.",
            ),
            key(
                "mode",
                Type::OneOf(&["l2", "l3", "l3s"]),
                "l2",
                "Layer that the container's interface works on.",
            ),
            key("mtu", MTU, "that of the master", "MTU, in bytes; no more than the master's."),
            LINK_IN_CONTAINER,
        ],
        capabilities: &["ips", "ipRanges"],
    },
    Plugin {
        name: "vlan",
        role: Role::Interface,
        about: "Gives the container a VLAN of an interface of the host.",
        keys: &[
            key("master", Type::IfName, "", "Interface below."),
            key("vlanId", Type::Number(0, 4094), "", "Id of the VLAN."),
            key("mtu", MTU, "that of the master", "MTU, in bytes; no more than the master's."),
            LINK_IN_CONTAINER,
        ],
        capabilities: &["ips", "ipRanges"],
    },
    Plugin {
        name: "host-device",
        role: Role::Interface,
        about: "Moves a device of the host into the container. One of the four keys names it.",
        keys: &[
            key("device", Type::IfName, "none", "Name of the device."),
            key("hwaddr", Type::Mac, "none", "MAC address of the device."),
            key("kernelpath", Type::Path, "none", "Path of the device in the kernel, below /sys/devices."),
            key("pciBusID", Type::Text, "none", "PCI address of the device, such as 0000:00:1f.6."),
        ],
        capabilities: &["deviceID", "ips", "ipRanges"],
    },
    Plugin {
        name: "dummy",
        role: Role::Interface,
        about: "Gives the container an interface that leads nowhere.",
        keys: &[],
        capabilities: &["ips", "ipRanges"],
    },
    Plugin {
        name: "tap",
        role: Role::Interface,
        about: "Gives the container a tap device, as virtual machines use them.",
        keys: &[
            key("multiQueue", Type::Bool, "false", "Several queues."),
            key("mtu", MTU, "0 (the kernel's)", "MTU, in bytes."),
            key("mac", Type::Mac, "made by the kernel", "MAC address."),
            key("owner", Type::Number(0, 4_294_967_295), "root", "User id that may open the device."),
            key("group", Type::Number(0, 4_294_967_295), "none", "Group id that may open the device."),
            key("selinuxContext", Type::Text, "none", "SELinux context of the device."),
            key("bridge", Type::IfName, "none", "Bridge in the container that the device becomes a port of."),
        ],
        capabilities: &["mac", "ips", "ipRanges"],
    },
];

const BRIDGE: &[Key] = &[
    key("bridge", Type::IfName, "cni0", "Name of the bridge; it is made if it is not there."),
    key("isGateway", Type::Bool, "false", "The bridge gets the gateway's address of each subnet."),
    key(
        "isDefaultGateway",
        Type::Bool,
        "false",
        "As isGateway, and the container's default route leads there.",
    ),
    key("forceAddress", Type::Bool, "false", "An address of the bridge that is in the way is replaced."),
    IP_MASQ,
    IP_MASQ_BACKEND,
    key("ipMasqFamily", Type::OneOf(&["ipv4", "ipv6"]), "both", "Family that ipMasq is limited to."),
    key("mtu", MTU, "0 (the kernel's)", "MTU of the bridge when it is made, and of the veth pair, in bytes."),
    key(
        "mtuFromDefaultRoute",
        Type::Bool,
        "false",
        "Take the MTU of the link that the host's default route leaves by.",
    ),
    key("hairpinMode", Type::Bool, "false", "Frames may leave through the port that they came from."),
    key("promiscMode", Type::Bool, "false", "The bridge takes all frames."),
    key("vlan", Type::Number(0, 4094), "0 (none)", "VLAN that the container's port belongs to."),
    key(
        "vlanTrunk",
        Type::List(&Type::Object(TRUNK)),
        "none",
        "VLANs that pass the container's port with their tag.",
    ),
    key("preserveDefaultVlan", Type::Bool, "false", "The VLAN that the bridge puts new ports into stays."),
    key("macspoofchk", Type::Bool, "false", "Frames from another MAC than the container's are dropped."),
    key("enabledad", Type::Bool, "false", "The container's IPv6 addresses are tested for duplicates first."),
    key(
        "disableContainerInterface",
        Type::Bool,
        "false",
        "The container's interface is left down; without ipam.",
    ),
    key("portIsolation", Type::Bool, "false", "Isolated ports of the bridge cannot reach each other."),
    key(
        "allowUplinkPort",
        Type::Bool,
        "false",
        "The host's own uplink may become a port, if prevResult lists it.",
    ),
];

const TRUNK: &[Key] = &[
    key("minID", Type::Number(1, 4094), "none", "First VLAN of a range."),
    key("maxID", Type::Number(1, 4094), "none", "Last VLAN of a range."),
    key("id", Type::Number(1, 4094), "none", "A single VLAN."),
];

const MACVLAN: &[Key] = &[
    key("master", Type::IfName, "that of the default route", "Interface below."),
    key(
        "mode",
        Type::OneOf(&["bridge", "private", "vepa", "passthru"]),
        "bridge",
        "Whether containers on the same master reach each other, and how.",
    ),
    key("mtu", MTU, "that of the master", "MTU, in bytes; no more than the master's."),
    key("mac", Type::Mac, "made by the kernel", "MAC address."),
    LINK_IN_CONTAINER,
    key(
        "bcqueuelen",
        Type::Number(0, 4_294_967_295),
        "1000",
        "Length of the queue for broadcasts, in packets.",
    ),
];
