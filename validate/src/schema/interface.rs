//! Interface plugins.

use super::common::{MAC, MTU};
use super::link::{
    ACCEPT_RA, BROADCAST_QUEUE, ENABLE_DAD, HOST_INTERFACE, IP_MASQ, IP_MASQ_BACKEND, IP_MASQ_FAMILY,
    LINK_IN_CONTAINER, MASTER, MASTERS_MTU, MTU_FROM_DEFAULT_ROUTE, VETH_MTU,
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
        args: &[MAC, HOST_INTERFACE],
        capabilities: &["mac"],
    },
    Plugin {
        name: "ptp",
        role: Role::Interface,
        about: "Connects the container with the host by a veth pair, without a bridge. The host routes \
         packets to the container.",
        keys: &[
            IP_MASQ,
            IP_MASQ_BACKEND,
            IP_MASQ_FAMILY,
            VETH_MTU,
            MTU_FROM_DEFAULT_ROUTE,
            MAC,
            ENABLE_DAD,
            ACCEPT_RA,
            key(
                "proxyArp",
                Type::Bool,
                "false",
                "Proxy ARP: the host's end answers the container's ARP requests for addresses that the host \
                 reaches through other interfaces.",
            ),
            HOST_INTERFACE,
        ],
        args: &[MAC, HOST_INTERFACE],
        capabilities: &["mac"],
    },
    Plugin {
        name: "macvlan",
        role: Role::Interface,
        about: "Creates a macvlan interface in the container: a MAC address of its own, on an interface of \
         the host.",
        keys: MACVLAN,
        args: &[MAC],
        capabilities: &["mac"],
    },
    Plugin {
        name: "ipvlan",
        role: Role::Interface,
        about: "Creates an ipvlan interface in the container: it shares the MAC address of an interface of \
         the host.",
        keys: IPVLAN,
        args: &[MAC],
        capabilities: &["mac"],
    },
    Plugin {
        name: "vlan",
        role: Role::Interface,
        about: "Creates a VLAN interface in the container, on an interface of the host.",
        keys: VLAN,
        args: &[MAC],
        capabilities: &["mac"],
    },
    Plugin {
        name: "host-device",
        role: Role::Interface,
        about: "Moves a device of the host into the container. The capability deviceID or one of the first \
         four keys selects the device. deviceID has precedence, then the keys in this order.",
        keys: &[
            key("device", Type::IfName, "none", "Name of the device's interface."),
            key("hwaddr", Type::Mac, "none", "MAC address of the device. Only one interface may have it."),
            key("kernelpath", Type::Text, "none", "Path of the device in the kernel, below /sys/devices."),
            key("pciBusID", Type::Text, "none", "PCI address of the device, such as 0000:00:1f.6."),
            key(
                "useInterfaceNetwork",
                Type::Bool,
                "false",
                "ADD also moves the device's addresses and routes into the container. DEL restores them on \
                 the host.",
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
        about: "Creates a dummy interface in the container. It holds addresses, and drops all packets.",
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
        about: "Creates a tap device in the container, for a virtual machine.",
        keys: &[
            key(
                "multiQueue",
                Type::Bool,
                "false",
                "Allow several queues. The program must open the device with IFF_MULTI_QUEUE.",
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
                "any user, if group is not set either",
                "Id of the user that may open the device.",
            ),
            key(
                "group",
                ID,
                "any user, if owner is not set either",
                "Id of the group that may open the device.",
            ),
            key(
                "selinuxContext",
                Type::Text,
                "the plugin's",
                "SELinux context of the device. Ignored on hosts without SELinux.",
            ),
            key("bridge", Type::IfName, "none", "Bridge in the container. The device becomes a port of it."),
            ENABLE_DAD,
            ACCEPT_RA,
        ],
        args: &[MAC],
        capabilities: &["mac"],
    },
];

/// The id of a user or a group.
const ID: Type = Type::Number(0, 4_294_967_294);

const BRIDGE: &[Key] = &[
    key("bridge", Type::IfName, "cni0", "Name of the bridge. ADD creates it if it does not exist."),
    key("isGateway", Type::Bool, "false", "Assign the gateway address of each subnet to the bridge."),
    key(
        "isDefaultGateway",
        Type::Bool,
        "false",
        "Like isGateway, and the bridge is the container's default gateway.",
    ),
    key(
        "forceAddress",
        Type::Bool,
        "false",
        "Replace the bridge's address if it is different from the \
     gateway address.",
    ),
    IP_MASQ,
    IP_MASQ_BACKEND,
    IP_MASQ_FAMILY,
    key(
        "mtu",
        MTU,
        "0 (the kernel's: 1500)",
        "MTU of the veth pair, and of a new bridge, in bytes: 68 to 65535.",
    ),
    MTU_FROM_DEFAULT_ROUTE,
    key(
        "hairpinMode",
        Type::Bool,
        "false",
        "Hairpin mode: the bridge may send a frame back through the \
     port that received it.",
    ),
    key("promiscMode", Type::Bool, "false", "Promiscuous mode of the bridge: it accepts all frames."),
    key("vlan", Type::Number(0, 4094), "0 (none)", "Untagged VLAN of the container's bridge port."),
    key(
        "vlanTrunk",
        Type::List(&Type::Object(TRUNK)),
        "none",
        "Tagged VLANs of the container's bridge port.",
    ),
    key(
        "preserveDefaultVlan",
        Type::Bool,
        "false",
        "Keep the bridge's default VLAN on the container's port.",
    ),
    key("macspoofchk", Type::Bool, "false", "Drop frames whose source MAC address is not the container's."),
    ENABLE_DAD,
    ACCEPT_RA,
    key(
        "disableContainerInterface",
        Type::Bool,
        "false",
        "Keep the container's interface down. Cannot be combined with ipam.",
    ),
    key(
        "portIsolation",
        Type::Bool,
        "false",
        "Isolate the bridge port: isolated ports cannot reach each other.",
    ),
    key(
        "allowUplinkPort",
        Type::Bool,
        "false",
        "Allow the host's uplink as a bridge port, if prevResult lists it.",
    ),
    HOST_INTERFACE,
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
        "Mode of the interface. l2: it is on the master's network. l3: the host routes its packets, and it \
         receives no broadcast. l3s: like l3, and its packets traverse the host's firewall. All containers \
         on a master must have the same mode.",
    ),
    key(
        "flag",
        Type::OneOf(&["bridge", "private", "vepa"]),
        "bridge",
        "How containers on the same master reach each other. bridge: directly. private: not at all. vepa: \
         through the external switch. All containers on a master must have the same flag.",
    ),
    MASTERS_MTU,
    key(
        "mac",
        Type::Mac,
        "the master's",
        "Cannot be set: the plugin prints a warning, and the interface has the master's MAC address.",
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
        "How containers on the same master reach each other. bridge: directly. vepa: through the external \
         switch. private: not at all. passthru: one container has exclusive use of the master, with its MAC \
         address.",
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
        "Parent interface of the VLAN. Required, except in a chain: there the default is an interface of \
         prevResult.",
    ),
    key(
        "vlanId",
        Type::Number(0, 4094),
        "none: it is required",
        "VLAN id. 0: frames are tagged with a priority only.",
    ),
    key(
        "protocol",
        Type::OneOf(&["802.1Q", "802.1ad"]),
        "802.1Q",
        "Protocol of the tag. 802.1ad: the outer tag of frames with two tags (QinQ).",
    ),
    MASTERS_MTU,
    MAC,
    LINK_IN_CONTAINER,
    ENABLE_DAD,
    ACCEPT_RA,
];
