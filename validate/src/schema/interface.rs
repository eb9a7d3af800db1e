//! Plugins that make an interface.

use super::common::{MAC, MTU};
use super::link::{
    ACCEPT_RA, BROADCAST_QUEUE, ENABLE_DAD, IP_MASQ, IP_MASQ_BACKEND, IP_MASQ_FAMILY, LINK_IN_CONTAINER,
    MASTER, MASTERS_MTU, MTU_FROM_DEFAULT_ROUTE, VETH_MTU,
};
use super::types::{Key, Plugin, Role, Type, key};

pub const PLUGINS: &[Plugin] = &[
    Plugin {
        name: "loopback",
        role: Role::Interface,
        about: "Sets the container's loopback interface up.",
        keys: &[],
        args: &[],
        capabilities: &[],
    },
    Plugin {
        name: "bridge",
        role: Role::Interface,
        about: "Attaches the container to a bridge of the host with a veth pair.",
        keys: BRIDGE,
        args: &[MAC],
        capabilities: &["mac"],
    },
    Plugin {
        name: "ptp",
        role: Role::Interface,
        about: "Connects the container with the host by a veth pair, without a bridge: the host routes to it.",
        keys: &[
            IP_MASQ,
            IP_MASQ_BACKEND,
            IP_MASQ_FAMILY,
            VETH_MTU,
            MTU_FROM_DEFAULT_ROUTE,
            MAC,
            ENABLE_DAD,
            ACCEPT_RA,
        ],
        args: &[MAC],
        capabilities: &["mac"],
    },
    Plugin {
        name: "macvlan",
        role: Role::Interface,
        about: "Gives the container an interface with a MAC of its own on an interface of the host.",
        keys: MACVLAN,
        args: &[MAC],
        capabilities: &["mac"],
    },
    Plugin {
        name: "ipvlan",
        role: Role::Interface,
        about: "Gives the container an interface that shares the MAC of an interface of the host.",
        keys: IPVLAN,
        args: &[MAC],
        capabilities: &["mac"],
    },
    Plugin {
        name: "vlan",
        role: Role::Interface,
        about: "Gives the container a VLAN of an interface of the host.",
        keys: VLAN,
        args: &[MAC],
        capabilities: &["mac"],
    },
    Plugin {
        name: "host-device",
        role: Role::Interface,
        about: "Moves a device of the host into the container. One of the first four keys, or the capability deviceID, says which: \
                deviceID counts most, then they in this order.",
        keys: &[
            key("device", Type::IfName, "none", "Name of the device's interface."),
            key("hwaddr", Type::Mac, "none", "MAC address of the device. Only one interface may have it."),
            key("kernelpath", Type::Text, "none", "Path of the device in the kernel, below /sys/devices."),
            key("pciBusID", Type::Text, "none", "PCI address of the device, such as 0000:00:1f.6."),
            key(
                "useInterfaceNetwork",
                Type::Bool,
                "false",
                "The device's addresses and routes go with it into the container, and come back with it.",
            ),
            ENABLE_DAD,
            ACCEPT_RA,
        ],
        args: &[],
        capabilities: &["deviceID"],
    },
    Plugin {
        name: "dummy",
        role: Role::Interface,
        about: "Gives the container an interface that leads nowhere, to hold addresses.",
        keys: &[
            key("mtu", MTU, "0 (the kernel's: 1500)", "MTU of the interface, in bytes: 68 to 65535."),
            MAC,
            ENABLE_DAD,
            ACCEPT_RA,
        ],
        args: &[MAC],
        capabilities: &["mac"],
    },
    Plugin {
        name: "tap",
        role: Role::Interface,
        about: "Gives the container a tap device, as virtual machines use them.",
        keys: &[
            key(
                "multiQueue",
                Type::Bool,
                "false",
                "A program may open several queues. It has to say so when it opens the device.",
            ),
            key(
                "mtu",
                Type::Number(0, 65521),
                "0 (the kernel's: 1500)",
                "MTU of the device, in bytes: 68 to 65521.",
            ),
            MAC,
            key(
                "owner",
                ID,
                "anybody, if there is no group either",
                "Id of the user that may open the device.",
            ),
            key(
                "group",
                ID,
                "anybody, if there is no owner either",
                "Id of the group that may open the device.",
            ),
            key(
                "selinuxContext",
                Type::Text,
                "the plugin's",
                "SELinux context of the device. Ignored on hosts without SELinux.",
            ),
            key("bridge", Type::IfName, "none", "Bridge in the container that the device becomes a port of."),
            ENABLE_DAD,
            ACCEPT_RA,
        ],
        args: &[MAC],
        capabilities: &["mac"],
    },
];

/// The number of a user or a group.
const ID: Type = Type::Number(0, 4_294_967_294);

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
    IP_MASQ_FAMILY,
    key(
        "mtu",
        MTU,
        "0 (the kernel's: 1500)",
        "MTU of the veth pair, and of the bridge if it is made now, in bytes: 68 to 65535.",
    ),
    MTU_FROM_DEFAULT_ROUTE,
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
    ENABLE_DAD,
    ACCEPT_RA,
    key(
        "disableContainerInterface",
        Type::Bool,
        "false",
        "The container's interface is left down. Not together with ipam.",
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

const IPVLAN: &[Key] = &[
    MASTER,
    key(
        "mode",
        Type::OneOf(&["l2", "l3", "l3s"]),
        "l2",
        "Layer that the interface works on. l2: it is on the master's network. l3: the host routes for it, and it hears no \
         broadcast. l3s: as l3, and its packets pass the host's firewall. All containers on a master have one mode.",
    ),
    key(
        "flag",
        Type::OneOf(&["bridge", "private", "vepa"]),
        "bridge",
        "How containers on the same master reach each other. bridge: directly. private: not at all. vepa: by way of the switch \
         that the master is plugged into. All containers on a master have one flag.",
    ),
    MASTERS_MTU,
    key(
        "mac",
        Type::Mac,
        "the master's",
        "Cannot be set: the plugin warns, and the interface has the master's MAC.",
    ),
    LINK_IN_CONTAINER,
    ENABLE_DAD,
    ACCEPT_RA,
];

const MACVLAN: &[Key] = &[
    MASTER,
    key(
        "mode",
        Type::OneOf(&["bridge", "private", "vepa", "passthru"]),
        "bridge",
        "How containers on the same master reach each other. bridge: directly. vepa: by way of the switch that the \
         master is plugged into. private: not at all. passthru: one container has the master alone, and its MAC.",
    ),
    MASTERS_MTU,
    MAC,
    LINK_IN_CONTAINER,
    BROADCAST_QUEUE,
    ENABLE_DAD,
    ACCEPT_RA,
];

const VLAN: &[Key] = &[
    key(
        "master",
        Type::IfName,
        "from the chain",
        "Interface that carries the VLAN. It can be left out only in a chain, where it is an interface of the result so far.",
    ),
    key(
        "vlanId",
        Type::Number(0, 4094),
        "none: it is required",
        "Id of the VLAN. With 0 frames have a tag with a priority, and no VLAN.",
    ),
    key(
        "protocol",
        Type::OneOf(&["802.1Q", "802.1ad"]),
        "802.1Q",
        "Kind of the tag. 802.1ad: the outer one where frames have two (QinQ).",
    ),
    MASTERS_MTU,
    MAC,
    LINK_IN_CONTAINER,
    ENABLE_DAD,
    ACCEPT_RA,
];
