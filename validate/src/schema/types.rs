//! Types of the schemas: plugin, key and value type.

pub use cni::Role;

/// A plugin of the suite.
#[derive(Debug)]
pub struct Plugin {
    /// The name of its executable.
    pub name: &'static str,
    /// What kind of plugin it is.
    pub role: Role,
    /// What it does, in a sentence without its subject.
    pub about: &'static str,
    /// The keys that it reads, but for those that every plugin has ([`super::PLUGIN`]).
    pub keys: &'static [Key],
    /// The keys of `args.cni` that it reads.
    pub args: &'static [Key],
    /// The capability arguments that it takes, but for those of its IPAM plugin.
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
    /// What holds if it is left out. Empty: the key is required.
    pub default: &'static str,
    /// What it does, in a sentence without its subject.
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

/// What a key's value must be.
#[derive(Clone, Copy, Debug)]
pub enum Type {
    Bool,
    /// A boolean, or its word as a string.
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
    /// An object whose keys are names of the user's own.
    Map(&'static Type),
    /// The part of another plugin, that `type` in it names.
    Ipam,
    /// The same, completed by the plugin: `type` may be left out, and is host-local then.
    IpamPart,
    /// The part of another plugin that makes the interface: `type` may be left out, and is bridge then.
    Delegate,
    /// Something that is not looked at.
    Any,
}

impl Type {
    /// The keys of the objects that such a value consists of.
    pub fn keys(self) -> &'static [Key] {
        match self {
            Self::Object(keys) => keys,
            Self::List(element) => element.keys(),
            _ => &[],
        }
    }

    /// In words.
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
