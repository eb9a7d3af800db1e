//! Plugins that work on what an earlier one made.

use super::common::BANDWIDTH;
use super::types::{Key, Plugin, Role, Type, key};

pub const PLUGINS: &[Plugin] = &[
    Plugin {
        name: "portmap",
        role: Role::Chained,
        about: "Forwards ports of the host to the container.",
        keys: PORTMAP,
        capabilities: &["portMappings"],
    },
    Plugin {
        name: "tuning",
        role: Role::Chained,
        about: "Changes sysctls of the container and settings of its interface.",
        keys: TUNING,
        capabilities: &["mac"],
    },
    Plugin {
        name: "firewall",
        role: Role::Chained,
        about: "Lets the container's traffic pass the host's firewall.",
        keys: &[
            key(
                "backend",
                Type::OneOf(&["iptables", "nftables", "firewalld"]),
                "what the host has",
                "Firewall.",
            ),
            key(
                "iptablesAdminChainName",
                Type::Text,
                "CNI-ADMIN",
                "Chain for the administrator's own rules.",
            ),
            key(
                "firewalldZone",
                Type::Text,
                "trusted",
                "Zone of firewalld that the container's addresses join.",
            ),
            key(
                "ingressPolicy",
                Type::OneOf(&["open", "same-bridge", "isolated"]),
                "open",
                "Who may open a connection to the container.",
            ),
        ],
        capabilities: &[],
    },
    Plugin {
        name: "bandwidth",
        role: Role::Chained,
        about: "Limits the container's traffic. A rate needs its burst.",
        keys: BANDWIDTH,
        capabilities: &["bandwidth"],
    },
    Plugin {
        name: "sbr",
        role: Role::Chained,
        about: "Routes what has the interface's source address through that interface.",
        keys: &[
            key("table", Type::Number(1, 4_294_967_295), "the first free one from 100", "Routing table."),
            key(
                "gateways",
                Type::List(&Type::Ip),
                "those of the previous result",
                "Gateways, one for each family.",
            ),
            key(
                "addSourceHints",
                Type::Bool,
                "false",
                "Subnet routes of the main table prefer the interface's address.",
            ),
        ],
        capabilities: &[],
    },
    Plugin {
        name: "vrf",
        role: Role::Chained,
        about: "Puts the interface into a VRF of the container.",
        keys: &[
            key("vrfname", Type::IfName, "", "Name of the VRF; it is made if it is not there."),
            key("table", Type::Number(0, 4_294_967_295), "a free one", "Routing table of the VRF."),
        ],
        capabilities: &[],
    },
];

const PORTMAP: &[Key] = &[
    key("backend", Type::OneOf(&["iptables", "nftables"]), "nftables where the kernel has it", "Firewall."),
    key("snat", Type::Bool, "true", "Hide the sender where an answer would not find its way back."),
    key(
        "conditionsV4",
        Type::List(&Type::Text),
        "none",
        "Further conditions of a rule, in the backend's own words; IPv4.",
    ),
    key(
        "conditionsV6",
        Type::List(&Type::Text),
        "none",
        "Further conditions of a rule, in the backend's own words; IPv6.",
    ),
    key("masqAll", Type::Bool, "false", "Hide every sender, not only those that need it."),
    key(
        "markMasqBit",
        Type::Number(0, 31),
        "13",
        "Bit of the packet mark that asks for hiding; not with externalSetMarkChain.",
    ),
    key("externalSetMarkChain", Type::Text, "none", "Chain that sets the mark in place of our own."),
];

const TUNING: &[Key] = &[
    key(
        "sysctl",
        Type::Map(&Type::Text),
        "none",
        "Sysctls below net/, such as {\"net.core.somaxconn\": \"500\"}; IFNAME stands for the interface.",
    ),
    key("mac", Type::Mac, "as it is", "MAC address of the interface."),
    key("promisc", Type::Bool, "as it is", "The interface takes all frames."),
    key("mtu", Type::Number(0, 65535), "as it is", "MTU of the interface, in bytes."),
    key("allmulti", Type::Bool, "as it is", "The interface takes all multicast."),
    key("txQLen", Type::Number(0, 4_294_967_295), "as it is", "Length of the transmit queue, in packets."),
    key("dataDir", Type::Path, "/run/cni/tuning", "Directory in which the old values are kept until DEL."),
];
