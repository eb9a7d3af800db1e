//! The part of the ruleset that attachments share: tables, chains, sets, and the rules that look into the sets.
//!
//! A packet passes the same few rules, regardless of the number of attachments. An attachment only adds elements to
//! sets and maps. No rule jumps through a map, because the kernel would walk through all chains of the map with every
//! change.

use super::expr::Expressions;
use super::set::Set;
use super::uapi::*;

/// A table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Table {
    pub(crate) family: u8,
    pub(crate) name: &'static str,
}

impl Table {
    pub(crate) const fn new(family: u8, name: &'static str) -> Self {
        Self { family, name }
    }
}

/// Ferrule's table for routed packets, of both families.
pub(crate) const INET: Table = Table::new(NFPROTO_INET, "ferrule");
/// Ferrule's table for bridged frames.
pub(crate) const BRIDGE: Table = Table::new(NFPROTO_BRIDGE, "ferrule");

/// A chain. With a hook, it is a base chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chain {
    pub(crate) name: &'static str,
    pub(crate) hook: Option<Hook>,
    /// Whether the order of its rules in the layout is significant, and checked.
    pub(crate) is_ordered: bool,
}

/// The hook of a base chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hook {
    pub(crate) kind: &'static str,
    pub(crate) number: u32,
    pub(crate) priority: i32,
}

impl Chain {
    /// The same chain with another name.
    pub(crate) const fn named(self, name: &'static str) -> Self {
        Self { name, ..self }
    }

    /// Whether it is a NAT chain.
    pub(crate) fn is_for_nat(self) -> bool {
        self.hook.is_some_and(|hook| hook.kind == "nat")
    }

    /// A chain without a hook, to which others jump.
    pub(crate) const fn regular(name: &'static str) -> Self {
        Self { name, hook: None, is_ordered: false }
    }

    /// The same chain, whose rules must be in the order of the layout.
    pub(crate) const fn ordered(self) -> Self {
        Self { is_ordered: true, ..self }
    }

    /// A chain that drops packets as early as possible: before conntrack (`enum nf_ip_hook_priorities`), or at the
    /// lowest common priority of the bridge family.
    pub(crate) const fn first_filter(name: &'static str) -> Self {
        Self::filter(name, NF_INET_PRE_ROUTING, -300)
    }

    /// A chain for forwarded packets, routed or bridged, with a priority.
    pub(crate) const fn forward(name: &'static str, priority: i32) -> Self {
        Self::filter(name, NF_INET_FORWARD, priority)
    }

    /// A filter chain at a hook, with a priority.
    pub(crate) const fn filter(name: &'static str, number: u32, priority: i32) -> Self {
        Self { name, hook: Some(Hook { kind: "filter", number, priority }), is_ordered: false }
    }

    /// A NAT chain. It is evaluated after those of other programs, which have the usual priorities -100 and 100, as iptables
    /// has: the first chain that changes an address of a connection decides.
    pub(crate) const fn nat(name: &'static str, number: u32) -> Self {
        let priority = if number == NAT_OUT { 105 } else { -95 };
        Self { name, hook: Some(Hook { kind: "nat", number, priority }), is_ordered: false }
    }
}

/// Hooks of NAT chains: for destinations, and for sources.
pub(crate) const NAT_IN: u32 = NF_INET_PRE_ROUTING;
pub(crate) const NAT_OUT: u32 = NF_INET_POST_ROUTING;

/// The chain for source NAT, for all kinds of rules.
pub(crate) const POSTROUTING: Chain = Chain::nat("postrouting", NAT_OUT);

/// A rule that attachments share. It is identified by its comment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    pub(crate) chain: &'static str,
    pub(crate) comment: String,
    /// Whether it comes before the chain's other rules.
    pub(crate) first: bool,
    pub(crate) expressions: Expressions,
}

impl Rule {
    pub(crate) fn new(chain: Chain, comment: impl Into<String>, expressions: Expressions) -> Self {
        Self { chain: chain.name, comment: comment.into(), first: false, expressions }
    }
}

/// The layout that must exist before elements can be added.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    pub(crate) chains: Vec<Chain>,
    pub(crate) sets: Vec<Set>,
    pub(crate) rules: Vec<Rule>,
}

impl Layout {
    /// Adds another layout.
    pub(crate) fn extend(&mut self, other: Self) {
        self.chains.extend(other.chains);
        self.sets.extend(other.sets);
        self.rules.extend(other.rules);
    }

    /// A set, and the rule that uses it.
    pub(crate) fn add(&mut self, set: Set, rule: Rule) {
        self.sets.push(set);
        self.rules.push(rule);
    }
}

/// A kernel module, and a rule that needs it.
#[derive(Debug)]
pub struct Need {
    pub(crate) module: &'static str,
    /// A chain of the same type as the one with such a rule.
    pub(crate) chain: Chain,
    pub(crate) rule: fn() -> Expressions,
}
