//! Whose rules to look for, whoever installed them.

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::fmt;

use crate::owner::{Owner, network_prefix};
use crate::reference::names;

/// Whose rules to look for.
#[derive(Debug)]
pub enum Selector<'a> {
    /// One attachment's.
    Of(&'a Owner),
    /// Those of a network that are not valid any more.
    Stale(Stale<'a>),
}

/// A network's attachments that are not valid any more. All others are looked up in sets, for there may be thousands.
#[derive(Debug)]
pub struct Stale<'a> {
    network: &'a str,
    prefix: String,
    valid: &'a [Owner],
    labels: BTreeSet<String>,
    containers: BTreeSet<&'a str>,
    instances: OnceCell<BTreeSet<String>>,
}

impl<'a> Stale<'a> {
    pub(crate) fn new(network: &'a str, valid: &'a [Owner]) -> Self {
        Self {
            network,
            prefix: network_prefix(network),
            valid,
            labels: valid.iter().map(Owner::label).collect(),
            containers: valid.iter().map(Owner::container).collect(),
            instances: OnceCell::new(),
        }
    }

    /// Whether a label is of an attachment of the network that is not valid.
    pub(crate) fn has(&self, label: &str) -> bool {
        label.starts_with(&self.prefix) && !self.labels.contains(label)
    }

    /// Whether the reference calls an attachment so that is valid, in a comment of its nftables rules.
    pub(crate) fn is_valid_instance(&self, instance: &str) -> bool {
        self.instances.get_or_init(|| self.valid.iter().map(names::instance).collect()).contains(instance)
    }
}

impl Selector<'_> {
    pub(crate) fn network(&self) -> &str {
        match self {
            Self::Of(owner) => owner.network(),
            Self::Stale(stale) => stale.network,
        }
    }

    /// Whether it may be many attachments'.
    pub(crate) fn is_for_many(&self) -> bool {
        matches!(self, Self::Stale(_))
    }

    /// Whether a rule of iptables that jumps to an attachment's chain is theirs, by its comment. One attachment's is known by the
    /// chain.
    pub(crate) fn has_jump(&self, comment: &str) -> bool {
        let Self::Stale(stale) = self else { return false };
        match names::in_comment(comment) {
            Some((network, container)) => network == stale.network && !stale.containers.contains(container),
            None => stale.has(comment),
        }
    }
}

/// As errors name it.
impl fmt::Display for Selector<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Of(owner) => owner.fmt(f),
            Self::Stale(stale) => f.write_str(stale.network),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::owner::tests::owner;

    #[test]
    fn only_stale_rules_of_the_network_are_removed() {
        let valid = [owner("net", "c1", "eth0")];
        let selector = Selector::Stale(Stale::new("net", &valid));
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
