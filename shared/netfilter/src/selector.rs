//! Selects rules by their owner, whichever program installed them.

use std::fmt;

use cni::{Attachment, NetworkName, Resource, Scope};

use crate::owner::{self, Owner};
use crate::reference::names;

/// Selects the rules to remove or to find.
#[derive(Debug)]
pub enum Selector<'a> {
    /// The rules of one attachment.
    Of(&'a Owner),
    /// The same without the reference's.
    Own(&'a Owner),
    /// The rules of a network's attachments that are not valid any more.
    Stale(Stale<'a>),
}

/// The rules of one kind that GC removes.
#[derive(Debug)]
pub struct Stale<'a> {
    network: &'a NetworkName,
    scope: &'a Scope,
    /// The name of the kind.
    kind: &'static str,
}

impl<'a> Stale<'a> {
    pub(crate) fn new(network: &'a NetworkName, scope: &'a Scope, kind: &'static str) -> Self {
        Self { network, scope, kind }
    }

    /// Whether rules with a label are selected.
    pub(crate) fn has(&self, label: &str) -> bool {
        owner::should_delete(self.scope, self.network, &format!("{} rules", self.kind), label)
    }

    /// Whether rules of the reference with this network and container are selected.
    fn has_of_reference(&self, network: &str, container: &str) -> bool {
        network == &**self.network && self.scope.should_delete(self.of_reference("").of(container, ""))
    }

    /// Whether rules of the reference with this attachment in a comment of its nftables backend are selected.
    pub(crate) fn has_instance(&self, instance: &str) -> bool {
        let is_owner = |at: &Attachment| names::instance(&Owner::new(self.network, at)) == instance;
        self.scope.should_delete_hashed(self.of_reference(instance), is_owner)
    }

    fn of_reference(&self, name: &str) -> Resource {
        Resource::new(format!("{} rules of containernetworking/plugins", self.kind), name)
    }
}

impl Selector<'_> {
    pub(crate) fn network(&self) -> &str {
        match self {
            Self::Of(owner) | Self::Own(owner) => owner.network(),
            Self::Stale(stale) => stale.network,
        }
    }

    /// Whether this is a dry run.
    pub(crate) fn is_dry(&self) -> bool {
        matches!(self, Self::Stale(stale) if stale.scope.is_dry())
    }

    /// Whether it may select several attachments.
    pub(crate) fn is_for_many(&self) -> bool {
        matches!(self, Self::Stale(_))
    }

    /// Whether an iptables rule that jumps to an attachment's chain is selected, by its comment. For one attachment,
    /// the chain's name is enough.
    pub(crate) fn has_jump(&self, comment: &str) -> bool {
        let Self::Stale(stale) = self else { return false };
        match names::in_comment(comment) {
            Some((network, container)) => stale.has_of_reference(network, container),
            None => stale.has(comment),
        }
    }
}

/// The selection, for errors.
impl fmt::Display for Selector<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Of(owner) | Self::Own(owner) => owner.fmt(f),
            Self::Stale(stale) => stale.network.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cni::{ContainerId, IfName};

    #[test]
    fn only_stale_rules_of_the_network_are_removed() {
        let valid = Attachment {
            container: ContainerId::parse("c1").unwrap(),
            ifname: IfName::parse("eth0").unwrap(),
        };
        let scope = Scope::all_but([valid].into_iter().collect());
        let network = NetworkName::parse("net").unwrap();
        let selector = Selector::Stale(Stale::new(&network, &scope, "hostports"));
        for (comment, goes) in [
            ("net/c1/eth0", false),
            ("net/c2/eth0", true),
            ("network/c2/eth0", false),
            ("name: \"net\" id: \"c1\"", false),
            ("name: \"net\" id: \"c2\"", true),
            ("dnat name: \"net\" id: \"c2\"", true),
            ("dnat name: \"other\" id: \"c2\"", false),
            ("", false),
        ] {
            assert_eq!(selector.has_jump(comment), goes, "{comment}");
        }
    }
}
