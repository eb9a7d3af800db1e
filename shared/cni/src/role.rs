//! What a plugin does in a network.

/// Role of a plugin. It determines what a call needs, and whether GC and STATUS call an IPAM plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Creates an interface in the container. ADD and CHECK need an existing namespace. Addresses come from an IPAM plugin, which GC and
    /// STATUS call too.
    Interface,
    /// Allocates addresses. It needs no namespace. `ipam.type` of its configuration is its own name, so GC and STATUS must not call the
    /// IPAM plugin: the plugin would call itself.
    Ipam,
    /// Works on the interface of an earlier plugin in the chain. ADD needs the earlier plugin's result. The dispatcher does not require an
    /// existing namespace. A chained plugin that needs the namespace opens it as its first step.
    Chained,
    /// Builds a configuration and calls another plugin with it. The other plugin checks the namespace and `prevResult`, and calls the IPAM
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
