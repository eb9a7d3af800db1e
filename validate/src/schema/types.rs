//! Types of the schemas: plugin, key and value type.

pub use cni::Role;

/// A plugin of the suite.
#[derive(Debug)]
pub struct Plugin {
    /// The name of its executable.
    pub name: &'static str,
    /// The plugin's role.
    pub role: Role,
    /// The plugin's task, as a sentence without its subject.
    pub about: &'static str,
    /// The keys that the plugin reads, except those that every plugin has ([`super::PLUGIN`]).
    pub keys: &'static [Key],
    /// The keys of `args.cni` that it reads.
    pub args: &'static [Key],
    /// The capability arguments that the plugin reads, except those of its IPAM plugin.
    pub capabilities: &'static [&'static str],
}

impl Plugin {
    /// Its role, in words.
    pub fn role_name(&self) -> &'static str {
        match self.role {
            Role::Interface => "an interface plugin",
            Role::Ipam => "an IPAM plugin, for the key ipam of another plugin",
            Role::Chained => "a chained plugin, after an interface plugin",
            Role::Delegating => "a plugin that calls another plugin to create the interface",
        }
    }
}

/// A key of a configuration.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    pub name: &'static str,
    pub takes: Type,
    /// The default, in words. Empty: the key is required.
    pub default: &'static str,
    /// The key's effect, as a sentence without its subject.
    pub about: &'static str,
}

impl Key {
    pub fn is_required(&self) -> bool {
        self.default.is_empty()
    }
}

pub const fn key(name: &'static str, takes: Type, default: &'static str, about: &'static str) -> Key {
    Key { name, takes, default, about }
}

/// The type of a key's value.
#[derive(Clone, Copy, Debug)]
pub enum Type {
    Bool,
    /// A boolean, or the string `true` or `false`.
    BoolOrText,
    Text,
    /// A version of the specification.
    Version,
    /// A whole number in a range.
    Number(i64, i64),
    OneOf(&'static [&'static str]),
    Ip,
    /// An address with a prefix length.
    Cidr,
    /// An address, with or without a prefix length.
    IpOrCidr,
    Mac,
    /// An interface's name.
    IfName,
    /// An absolute path.
    Path,
    List(&'static Type),
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
            Self::Text => "text".to_owned(),
            Self::Version => "a version of the specification".to_owned(),
            Self::Number(low, i64::MAX) => format!("a number from {low}"),
            Self::Number(low, high) => format!("a number from {low} to {high}"),
            Self::OneOf(words) => words.join(" | "),
            Self::Ip => "an IP address".to_owned(),
            Self::Cidr => "an address with a prefix length, such as 10.0.0.0/24".to_owned(),
            Self::IpOrCidr => "an IP address, with or without a prefix length".to_owned(),
            Self::Mac => "a MAC address".to_owned(),
            Self::IfName => "the name of an interface".to_owned(),
            Self::Path => "an absolute path".to_owned(),
            Self::List(inner) => format!("a list of: {}", inner.describe()),
            Self::Object(keys) => {
                format!("an object: {}", keys.iter().map(|key| key.name).collect::<Vec<_>>().join(", "))
            }
            Self::Map(inner) => format!("an object, each value {}", inner.describe()),
            Self::Ipam => "an object: the type of an IPAM plugin, and its keys".to_owned(),
            Self::IpamPart => "an object: keys of an IPAM plugin".to_owned(),
            Self::Delegate => "an object: keys of an interface plugin".to_owned(),
            Self::Any => "anything".to_owned(),
        }
    }
}
