//! Descriptions of keys. Each plugin describes the keys that it reads in [`Plugin::KEYS`](crate::Plugin::KEYS). cnitool validates and explains
//! configurations with these descriptions, and generates the JSON Schemas. A plugin's executable does not contain them.

/// A key of a configuration.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Its name.
    pub name: &'static str,
    /// The type of its value.
    pub takes: Type,
    /// The default, in words. Empty: the key is required.
    pub default: &'static str,
    /// The key's effect, as a sentence without its subject, in Markdown: names of keys and values are `code`.
    pub about: &'static str,
}

impl Key {
    /// Whether a configuration must have it.
    pub fn is_required(&self) -> bool {
        self.default.is_empty()
    }
}

/// A description.
pub const fn key(name: &'static str, takes: Type, default: &'static str, about: &'static str) -> Key {
    Key { name, takes, default, about }
}

/// The type of a key's value.
#[derive(Clone, Copy, Debug)]
pub enum Type {
    /// A boolean.
    Bool,
    /// A boolean, or the string `true` or `false`.
    BoolOrText,
    /// A string.
    Text,
    /// A version of the specification.
    Version,
    /// A whole number in a range.
    Number(i64, i64),
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// An address.
    Ip,
    /// An address with a prefix length.
    Cidr,
    /// An address, with or without a prefix length.
    IpOrCidr,
    /// A MAC address.
    Mac,
    /// An interface's name.
    IfName,
    /// The name or an alternative name of an existing interface.
    LinkName,
    /// A path. It should be absolute, see [`relative_path`].
    Path,
    /// A list of values of a type.
    List(&'static Type),
    /// An object with these keys.
    Object(&'static [Key]),
    /// An object whose keys the user chooses.
    Map(&'static Type),
    /// The configuration of an IPAM plugin, which its key `type` names.
    Ipam,
    /// The configuration of an IPAM plugin that the plugin completes. `type` is optional, with the default
    /// host-local.
    IpamPart,
    /// The configuration of the delegate that creates the interface. `type` is optional, with the default bridge.
    Delegate,
    /// The configuration of a plugin of a network.
    Plugin,
    /// Any value. It is not checked.
    Any,
}

impl Type {
    /// The keys of the objects in a value of this type.
    pub fn keys(self) -> &'static [Key] {
        match self {
            Self::Object(keys) => keys,
            Self::List(element) => element.keys(),
            _ => &[],
        }
    }

    /// The type in words.
    pub fn describe(self) -> String {
        match self {
            Self::Bool | Self::BoolOrText => "true or false".to_owned(),
            Self::Text => "a string".to_owned(),
            Self::Version => "a version of the specification".to_owned(),
            Self::Number(low, i64::MAX) => format!("a number from {low}"),
            Self::Number(low, high) => format!("a number from {low} to {high}"),
            Self::OneOf(words) => words.join(" | "),
            Self::Ip => "an IP address".to_owned(),
            Self::Cidr => "an address with a prefix length, such as 10.0.0.0/24".to_owned(),
            Self::IpOrCidr => "an IP address, with or without a prefix length".to_owned(),
            Self::Mac => "a MAC address".to_owned(),
            Self::IfName | Self::LinkName => "the name of an interface".to_owned(),
            Self::Path => "an absolute path".to_owned(),
            Self::List(inner) => format!("a list of {}", inner.plural()),
            Self::Object(keys) => {
                format!("an object: {}", keys.iter().map(|key| key.name).collect::<Vec<_>>().join(", "))
            }
            Self::Map(inner) => format!("an object, each value {}", inner.describe()),
            Self::Ipam => "an object: the type of an IPAM plugin, and its keys".to_owned(),
            Self::IpamPart => "an object: keys of an IPAM plugin".to_owned(),
            Self::Delegate => "an object: keys of an interface plugin".to_owned(),
            Self::Plugin => "an object: the type of a plugin, and its keys".to_owned(),
            Self::Any => "anything".to_owned(),
        }
    }

    /// The type of a list's elements in words.
    fn plural(self) -> String {
        match self {
            Self::Text => "strings".to_owned(),
            Self::Version => "versions of the specification".to_owned(),
            Self::Ip => "IP addresses".to_owned(),
            Self::IpOrCidr => "IP addresses, with or without a prefix length".to_owned(),
            Self::List(inner) => format!("lists of {}", inner.plural()),
            Self::Object(_) => "objects".to_owned(),
            Self::Plugin => "plugin objects".to_owned(),
            other => format!("values, each {}", other.describe()),
        }
    }
}

/// The warning of a relative path in a configuration. `None` for other paths. As the reference, plugins accept relative paths, because the
/// runtimes of running hosts may always start plugins in the same directory.
pub fn relative_path(path: &str) -> Option<String> {
    let is_relative = !path.is_empty() && !path.starts_with('/');
    is_relative.then(|| {
        format!(
            "{path:?} is relative to the plugin's working directory, so a DEL from another directory does not find it; use an absolute path"
        )
    })
}

/// Keys with their paths, including those in inner objects. `[]` is the element of a list.
pub fn paths(keys: &'static [Key], place: &str) -> Vec<(String, &'static Key)> {
    let mut all = Vec::new();
    for key in keys {
        let path = format!("{place}{}", key.name);
        all.push((path.clone(), key));
        all.extend(paths(key.takes.keys(), &format!("{path}{}.", lists(key.takes))));
    }
    all
}

fn lists(takes: Type) -> String {
    match takes {
        Type::List(inner) => format!("[]{}", lists(*inner)),
        _ => String::new(),
    }
}

/// An unsigned number of 32 bits.
pub const U32: Type = Type::Number(0, 4_294_967_295);

/// Settings for a resolver.
pub const DNS: &[Key] = &[
    key("nameservers", Type::List(&Type::Ip), "none", "Name servers, by preference."),
    key("domain", Type::Text, "none", "The local domain."),
    key("search", Type::List(&Type::Text), "none", "Domains to search for short names."),
    key("options", Type::List(&Type::Text), "none", "Options, see resolv.conf(5)."),
];

/// Consecutive addresses of one family.
pub const RANGE: &[Key] = &[
    key(
        "subnet",
        Type::Cidr,
        "",
        "Subnet of at least 4 addresses, without host bits. Allocated addresses get its prefix length.",
    ),
    key("rangeStart", Type::Ip, "the subnet's first", "First address that is allocated."),
    key(
        "rangeEnd",
        Type::Ip,
        "IPv4: the one before broadcast; IPv6: the subnet's last",
        "Last address that is allocated.",
    ),
    key(
        "gateway",
        Type::Ip,
        "the subnet's first",
        "Gateway: returned with each address, and never allocated. A gateway that is not on the container's link causes a \
         warning. It is an error (code 7) if a route without `gw` needs it. On the link are link-local gateways, those in \
         the subnets of another range set, and destinations of routes with `gw` 0.0.0.0 or `::`.",
    ),
    key("exclude", Type::List(&Type::IpOrCidr), "none", "Addresses and subnets that are never allocated."),
];

/// A route.
pub const ROUTE: &[Key] = &[
    key("dst", Type::Cidr, "", "Destination. 0.0.0.0/0 and ::/0 are default routes."),
    key(
        "gw",
        Type::Ip,
        "the gateway of the first address of this family that has a gateway",
        "Next hop. Without any, packets go directly to the link.",
    ),
    key("mtu", U32, "the kernel's", "Path MTU, in bytes."),
    key("advmss", U32, "the kernel's", "Segment size that TCP advertises, in bytes."),
    key("priority", U32, "the kernel's", "Metric: the lowest wins."),
    key("table", U32, "254 (main)", "Routing table."),
    key("scope", Type::Number(0, 255), "by the gateway", "Scope. 0: global, 253: link, 254: host."),
];

/// The key `ips` of `args.cni`.
pub const IPS: Key =
    key("ips", Type::List(&Type::IpOrCidr), "none", "Addresses to request for the container.");
