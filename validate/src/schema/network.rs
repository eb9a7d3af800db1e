//! Keys of a network, and those that every plugin has (SPEC.md, section 1).

use bandwidth::keys::LIMITS;
use cni::schema::{DNS, Key, RANGE, Type, key};

/// Keys of a configuration list.
pub const LIST: &[Key] = &[
    key("cniVersion", Type::Version, "0.1.0", "CNI version of the calls to the plugins."),
    key(
        "cniVersions",
        Type::List(&Type::Version),
        "none",
        "Other CNI versions of this configuration. The runtime uses the highest version that it and the \
         plugins support.",
    ),
    key(
        "name",
        Type::Text,
        "",
        "Name of the network: letters, digits, '_', '.' and '-'; unique on the host.",
    ),
    key("disableCheck", Type::BoolOrText, "false", "CHECK succeeds without a call of the plugins."),
    key(
        "disableGC",
        Type::BoolOrText,
        "false",
        "GC does nothing: the network is shared with another runtime.",
    ),
    key(
        "loadOnlyInlinedPlugins",
        Type::BoolOrText,
        "false",
        "Use only the plugins of this file. Plugins in the directory NAME/ next to it are ignored.",
    ),
    key(
        "plugins",
        Type::List(&Type::Plugin),
        "those of the directory NAME/",
        "The plugins, in the order of ADD.",
    ),
];

/// Keys of every plugin.
pub const PLUGIN: &[Key] = &[
    key("type", Type::Text, "", "Name of the plugin's executable in `CNI_PATH`."),
    key("name", Type::Text, "that of the network", "Overwritten by the runtime with the network's name."),
    key(
        "cniVersion",
        Type::Version,
        "that of the network",
        "Overwritten by the runtime with the network's version.",
    ),
    key(
        "capabilities",
        Type::Map(&Type::Bool),
        "none",
        "Capability arguments that the runtime passes to the plugin, such as `{\"portMappings\": true}`.",
    ),
    key(
        "ipam",
        Type::Ipam,
        "none",
        "The IPAM plugin and its keys. Without it, the container gets no address (layer 2 only).",
    ),
    key(
        "dns",
        Type::Object(DNS),
        "the IPAM plugin's",
        "Settings for the container's resolver. They replace all DNS settings of the IPAM plugin in the result.",
    ),
    key(
        "args",
        Type::Any,
        "none",
        "Structured arguments, filled in by the runtime (`args.cni.ips`, `args.cni.mac`, ...).",
    ),
    key(
        "runtimeConfig",
        Type::Object(CAPABILITIES),
        "none",
        "Reserved: the runtime puts capability arguments here.",
    ),
    key("prevResult", Type::Any, "none", "Reserved: the runtime puts the previous plugin's result here."),
];

/// Capability arguments (CONVENTIONS.md, "Well-known Capabilities").
pub const CAPABILITIES: &[Key] = &[
    key(
        "portMappings",
        Type::List(&Type::Object(MAPPING)),
        "none",
        "Ports of the host that are forwarded to the container.",
    ),
    key("ips", Type::List(&Type::IpOrCidr), "none", "Addresses to request for the container."),
    key(
        "ipRanges",
        Type::List(&Type::List(&Type::Object(RANGE))),
        "none",
        "Range sets of this request. They precede the configured ones.",
    ),
    key("mac", Type::Mac, "none", "MAC address of the container's interface."),
    key("bandwidth", Type::Object(LIMITS), "none", "Rate limits for the container's traffic."),
    key("deviceID", Type::Text, "none", "Device of the host, such as a PCI address."),
    key("infinibandGUID", Type::Text, "none", "InfiniBand GUID of the container's interface."),
    key("dns", Type::Any, "none", "Settings for the container's resolver: servers, searches, options."),
    key(
        "aliases",
        Type::List(&Type::Text),
        "none",
        "More names of the container on the network. Podman sends an object with a list for each network.",
    ),
    key("cgroupPath", Type::Path, "none", "Control group of the pod."),
];

const MAPPING: &[Key] = &[
    key("hostPort", Type::Number(1, 65535), "", "Port of the host."),
    key("containerPort", Type::Number(1, 65535), "", "Port of the container."),
    key("protocol", Type::OneOf(&["tcp", "udp", "sctp"]), "", "Protocol, in upper or lower case."),
    key(
        "hostIP",
        Type::Ip,
        "all",
        "Address of the host that accepts connections to the port. 0.0.0.0 means all IPv4 addresses, :: all \
         IPv6 addresses. If the container has no address of its family, the mapping is ignored with a \
         warning; if no other mapping remains, ADD fails with code 7. A mapping of 0.0.0.0 or :: without \
         such an address is ignored without a warning or error.",
    ),
];
