//! Plugins that work on what an earlier one made.

use super::common::{BANDWIDTH_PLUGIN, U32};
use super::types::{Key, Plugin, Role, Type, key};

pub const PLUGINS: &[Plugin] = &[
    Plugin {
        name: "portmap",
        role: Role::Chained,
        about: "Forwards ports of the host to the container.",
        keys: PORTMAP,
        args: &[],
        capabilities: &["portMappings"],
    },
    Plugin {
        name: "tuning",
        role: Role::Chained,
        about: "Changes sysctls of the container and settings of its interface.",
        keys: TUNING,
        args: TUNING_ARGS,
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
            key(
                "acceptMarkBit",
                Type::Number(0, 31),
                "12",
                "Bit of the packet mark by which the container's packets pass.",
            ),
        ],
        args: &[],
        capabilities: &[],
    },
    Plugin {
        name: "bandwidth",
        role: Role::Chained,
        about: "Limits the container's traffic. A rate needs its burst.",
        keys: BANDWIDTH_PLUGIN,
        args: &[],
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
        args: &[],
        capabilities: &[],
    },
    Plugin {
        name: "vrf",
        role: Role::Chained,
        about: "Puts the interface into a VRF of the container.",
        keys: &[
            key("vrfname", Type::IfName, "", "Name of the VRF; it is made if it is not there."),
            key("table", U32, "a free one", "Routing table of the VRF."),
        ],
        args: &[],
        capabilities: &[],
    },
    Plugin {
        name: "dnsname",
        role: Role::Chained,
        about: "Resolves the names of the network's containers.",
        keys: DNSNAME,
        args: &[],
        capabilities: &["aliases"],
    },
    Plugin {
        name: "flannel",
        role: Role::Delegating,
        about: "Has another plugin attach the container, with the subnet that flanneld has for the host.",
        keys: FLANNEL,
        args: &[],
        capabilities: &[],
    },
];

const DNSNAME: &[Key] = &[
    key("domainName", Type::Text, "none", "Domain of all names of the network."),
    key(
        "multiDomain",
        Type::Bool,
        "false",
        "No effect: each network has a domain and a server of its own, with either value.",
    ),
    key(
        "internal",
        Type::Bool,
        "true if the container has no default route",
        "Names outside of the network are not resolved.",
    ),
];

const FLANNEL: &[Key] = &[
    key(
        "subnetFile",
        Type::Path,
        "/run/flannel/subnet.env",
        "File in which flanneld tells the host's subnet.",
    ),
    key(
        "dataDir",
        Type::Path,
        "/var/lib/cni/flannel",
        "Directory in which the delegate's configuration is kept until DEL.",
    ),
    key(
        "delegate",
        Type::Delegate,
        "{\"type\": \"bridge\"}",
        "What the plugin that makes the interface is to be told; name and ipam are set for it.",
    ),
    key(
        "ipam",
        Type::IpamPart,
        "{\"type\": \"host-local\"}",
        "What its IPAM plugin is to be told; ranges are set for it, and routes are added.",
    ),
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
    SYSCTL,
    TUNING_MAC,
    PROMISC,
    TUNING_MTU,
    ALLMULTI,
    TX_QLEN,
    key("dataDir", Type::Path, "/run/cni/tuning", "Directory in which the old values are kept until DEL."),
];

const TUNING_ARGS: &[Key] = &[SYSCTL, TUNING_MAC, PROMISC, TUNING_MTU, ALLMULTI, TX_QLEN];

const SYSCTL: Key = key(
    "sysctl",
    Type::Map(&Type::Text),
    "none",
    "Sysctls below net/, such as {\"net.core.somaxconn\": \"500\"}; IFNAME stands for the interface.",
);
const TUNING_MAC: Key = key("mac", Type::Mac, "as it is", "MAC address of the interface.");
const PROMISC: Key = key("promisc", Type::Bool, "as it is", "The interface takes all frames.");
const TUNING_MTU: Key = key("mtu", U32, "as it is", "MTU of the interface, in bytes.");
const ALLMULTI: Key = key("allmulti", Type::Bool, "as it is", "The interface takes all multicast.");
const TX_QLEN: Key = key("txQLen", U32, "as it is", "Length of the transmit queue, in packets.");
