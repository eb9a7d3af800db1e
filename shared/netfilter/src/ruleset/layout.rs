//! What is in the ruleset around the elements: tables, chains, sets and the rules that look into them.
//!
//! A packet meets the same few rules however many attachments there are: what belongs to an attachment are
//! elements of sets and maps. Nothing here jumps by way of a map, because the kernel walks all of such a map,
//! chain by chain, on every change.

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

/// Our table for what is routed, of both families.
pub(crate) const INET: Table = Table::new(NFPROTO_INET, "ferrule");
/// Our table for what is bridged.
pub(crate) const BRIDGE: Table = Table::new(NFPROTO_BRIDGE, "ferrule");

/// A chain; a base chain if it has a hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chain {
    pub(crate) name: &'static str,
    pub(crate) hook: Option<Hook>,
    /// The name that older versions gave it.
    pub(crate) former: Option<&'static str>,
}

/// Where a base chain is met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hook {
    pub(crate) kind: &'static str,
    pub(crate) number: u32,
    pub(crate) priority: i32,
}

impl Chain {
    /// The same under another name.
    pub(crate) const fn named(self, name: &'static str) -> Self {
        Self { name, ..self }
    }

    /// Whether addresses are translated in it.
    pub(crate) fn is_for_nat(self) -> bool {
        self.hook.is_some_and(|hook| hook.kind == "nat")
    }

    /// A chain that others jump to.
    pub(crate) const fn regular(name: &'static str) -> Self {
        Self { name, hook: None, former: None }
    }

    /// The same, on hosts where an older version has given it another name.
    pub(crate) const fn formerly(self, former: &'static str) -> Self {
        Self { former: Some(former), ..self }
    }

    /// A chain in which packets are dropped as early as can be: before conntrack (`enum nf_ip_hook_priorities`), or at the
    /// bridge family's lowest common priority.
    pub(crate) const fn first_filter(name: &'static str) -> Self {
        Self::filter(name, NF_INET_PRE_ROUTING, -300)
    }

    /// A chain for what is forwarded, routed or bridged, at a priority.
    pub(crate) const fn forward(name: &'static str, priority: i32) -> Self {
        Self::filter(name, NF_INET_FORWARD, priority)
    }

    /// A chain in which packets are looked at, at a hook and a priority.
    pub(crate) const fn filter(name: &'static str, number: u32, priority: i32) -> Self {
        Self { name, hook: Some(Hook { kind: "filter", number, priority }), former: None }
    }

    /// A chain in which addresses are translated.
    pub(crate) const fn nat(name: &'static str, number: u32) -> Self {
        let priority = if number == NAT_OUT { 100 } else { -100 };
        Self { name, hook: Some(Hook { kind: "nat", number, priority }), former: None }
    }
}

/// Hooks that addresses are translated at: destinations, and sources.
pub(crate) const NAT_IN: u32 = NF_INET_PRE_ROUTING;
pub(crate) const NAT_OUT: u32 = NF_INET_POST_ROUTING;

/// Where the addresses of sources are translated, by whatever kind of rules.
pub(crate) const POSTROUTING: Chain = Chain::nat("postrouting", NAT_OUT);

/// A rule that every packet may meet. It is known by its comment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    pub(crate) chain: &'static str,
    pub(crate) comment: String,
    /// Whether it comes before the rules that the chain begins with.
    pub(crate) first: bool,
    pub(crate) expressions: Expressions,
    /// What older versions wrote in its place, to the same effect: CHECK accepts it, and ADD replaces it.
    pub(crate) former: Option<Expressions>,
}

impl Rule {
    pub(crate) fn new(chain: Chain, comment: impl Into<String>, expressions: Expressions) -> Self {
        Self { chain: chain.name, comment: comment.into(), first: false, expressions, former: None }
    }
}

/// All that must be there before elements can be added.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    pub(crate) chains: Vec<Chain>,
    pub(crate) sets: Vec<Set>,
    pub(crate) rules: Vec<Rule>,
}

impl Layout {
    /// What others need in addition.
    pub(crate) fn extend(&mut self, other: Self) {
        self.chains.extend(other.chains);
        self.sets.extend(other.sets);
        self.rules.extend(other.rules);
    }

    /// A set, and the rule that looks into it.
    pub(crate) fn add(&mut self, set: Set, rule: Rule) {
        self.sets.push(set);
        self.rules.push(rule);
    }
}

/// A module of the kernel, and a rule that needs it.
#[derive(Debug)]
pub struct Need {
    pub(crate) module: &'static str,
    /// A chain like the one that has such a rule.
    pub(crate) chain: Chain,
    pub(crate) rule: fn() -> Expressions,
}
