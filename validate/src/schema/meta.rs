//! Chained plugins: they change the interface of an earlier plugin.

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
        about: "Allows the container's traffic through the host's firewall.",
        keys: &[
            key(
                "backend",
                Type::OneOf(&["iptables", "nftables", "firewalld"]),
                "detected on the host",
                "Firewall.",
            ),
            key("iptablesAdminChainName", Type::Text, "CNI-ADMIN", "Chain for the administrator's rules."),
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
                "Who may open connections to the container. open: all sources. same-bridge: all sources except \
                 containers on other bridges that have the policy same-bridge or isolated. isolated: as \
                 same-bridge, and also not containers on the same bridge.",
            ),
            key(
                "acceptMarkBit",
                Type::Number(0, 31),
                "12",
                "Bit of the packet mark (fwmark) of the container's allowed packets.",
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
        about: "Source-based routing: packets with the interface's source address leave through that interface.",
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
                "Set the interface's address as the preferred source of the subnet routes in the main table.",
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
            key("vrfname", Type::IfName, "", "Name of the VRF. ADD creates it if it does not exist."),
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
        about: "Calls another plugin to attach the container, with the host's subnet from flanneld.",
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

const PORTMAP: &[Key] = &[
    key("backend", Type::OneOf(&["iptables", "nftables"]), "nftables if the kernel has it", "Firewall."),
    key(
        "snat",
        Type::Bool,
        "true",
        "Masquerade connections whose answers would not return through this host.",
    ),
    key(
        "conditionsV4",
        Type::List(&Type::Text),
        "none",
        "Extra match conditions of the IPv4 rules, in the syntax of the backend.",
    ),
    key(
        "conditionsV6",
        Type::List(&Type::Text),
        "none",
        "Extra match conditions of the IPv6 rules, in the syntax of the backend.",
    ),
    key(
        "masqAll",
        Type::Bool,
        "false",
        "Masquerade all connections to host ports, not only those that need it.",
    ),
    key(
        "markMasqBit",
        Type::Number(0, 31),
        "13",
        "Bit of the packet mark that selects connections to masquerade. Cannot be combined with \
         externalSetMarkChain.",
    ),
    key(
        "externalSetMarkChain",
        Type::Text,
        "none",
        "Chain that sets the mark, instead of the plugin's own \
     chain.",
    ),
];

const TUNING: &[Key] = &[
    SYSCTL,
    TUNING_MAC,
    PROMISC,
    TUNING_MTU,
    ALLMULTI,
    TX_QLEN,
    FEATURES,
    key("dataDir", Type::Path, "/run/cni/tuning", "Directory that stores the old values until DEL."),
];

const TUNING_ARGS: &[Key] = &[SYSCTL, TUNING_MAC, PROMISC, TUNING_MTU, ALLMULTI, TX_QLEN, FEATURES];

const SYSCTL: Key = key(
    "sysctl",
    Type::Map(&Type::Text),
    "none",
    "Sysctls below net/, such as {\"net.core.somaxconn\": \"500\"}; IFNAME stands for the interface.",
);
const TUNING_MAC: Key = key("mac", Type::Mac, "as it is", "MAC address of the interface.");
const PROMISC: Key =
    key("promisc", Type::Bool, "as it is", "Promiscuous mode: the interface accepts all frames.");
const TUNING_MTU: Key = key("mtu", U32, "as it is", "MTU of the interface, in bytes.");
const ALLMULTI: Key = key("allmulti", Type::Bool, "as it is", "The interface accepts all multicast.");
const TX_QLEN: Key = key("txQLen", U32, "as it is", "Length of the transmit queue, in packets.");
const FEATURES: Key = key(
    "features",
    Type::Map(&Type::Bool),
    "as they are",
    "Offload features of the interface by the kernel's names, such as {\"tx-checksum-ip-generic\": false}.",
);
