//! A plugin as the schemas have it.

use cni::schema::Key;
use cni::{Result, Role};

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
    /// The kinds of links that every ADD needs, each with its kernel module.
    pub link_kinds: &'static [(&'static str, &'static str)],
    accepts: fn(&[u8]) -> Result<()>,
}

impl Plugin {
    pub(super) const fn of<P: cni::Plugin>() -> Self {
        Self {
            name: P::NAME,
            role: P::ROLE,
            about: P::ABOUT,
            keys: P::KEYS,
            args: P::ARGS,
            capabilities: P::CAPABILITIES,
            link_kinds: P::LINK_KINDS,
            accepts: cni::validate::<P>,
        }
    }

    /// Whether its ADD would accept a request. The plugin's own code checks it.
    ///
    /// # Errors
    /// The error of its ADD.
    pub fn accepts(&self, request: &[u8]) -> Result<()> {
        (self.accepts)(request)
    }

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
