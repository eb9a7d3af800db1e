//! What a plugin does in a network.

/// Role of a plugin. It determines what a call needs, and whether GC and STATUS call an IPAM plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Creates an interface in the container. ADD and CHECK need an existing namespace. Addresses come from an IPAM plugin, which GC and
    /// STATUS call too.
    Interface,
    /// Allocates addresses. It needs no namespace, and is the IPAM plugin of its configuration itself.
    Ipam,
    /// Works on the interface of an earlier plugin in the chain. ADD needs that plugin's result. If the plugin needs the namespace, it opens
    /// the namespace itself, before all other steps.
    Chained,
    /// Delegates to another plugin, with a configuration that it builds. The other plugin checks its own needs, and has its own IPAM
    /// plugin.
    Delegating,
}

impl Role {
    pub(crate) fn needs_prev(self) -> bool {
        self == Self::Chained
    }

    pub(crate) fn needs_netns(self) -> bool {
        self == Self::Interface
    }
}
