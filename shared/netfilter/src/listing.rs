//! Listed tables: from nf_tables over netlink, or from iptables-save(8) for the legacy variant of iptables.

use std::net::IpAddr;

use netlink::{Family, RequestError};

use crate::ruleset::Table;

/// An iptables table, and one of its chains that is not an attachment's.
pub(crate) type TableChain = (&'static str, &'static str);

/// The tables of one variant.
pub trait Listing {
    /// The chains of a table.
    fn chains(&self, table: Table) -> Result<Vec<String>, RequestError>;

    /// Whether a table has a chain.
    fn has_chain(&self, table: Table, chain: &str) -> Result<bool, RequestError>;

    /// The rules of a chain. Empty if the chain does not exist.
    fn rules(&self, table: Table, chain: &str) -> Result<Vec<Listed>, RequestError>;

    /// Whether a rule of a chain jumps to another chain, with any conditions.
    fn leads(&self, table: Table, from: &str, to: &str) -> Result<bool, RequestError> {
        Ok(self.rules(table, from)?.iter().any(|rule| rule.target == to))
    }
}

/// A listed rule.
#[derive(Debug)]
pub struct Listed {
    pub(crate) location: RuleLocation,
    /// Empty without a comment.
    pub(crate) comment: String,
    /// The chain or target of the rule, with any conditions. Empty without one.
    pub(crate) target: String,
    /// The transport protocol, if the kernel may keep its flows: one of the `TRACKED_PROTOCOLS`.
    pub(crate) tracked: Option<u8>,
    /// The destination port, if the rule is for one.
    pub(crate) port: Option<u16>,
    pub(crate) content: Content,
}

/// The location of a rule, by which it is deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleLocation {
    pub(crate) table: Table,
    pub(crate) chain: String,
    /// The kernel's handle of the rule, or its line number in the output of iptables-save.
    pub(crate) handle: u64,
}

/// What a rule does. Its comment and its counter are ignored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Neither conditions nor a target.
    Nothing,
    /// Jumps to a chain without conditions.
    Jump(String),
    /// Accepts packets with a bit of their mark.
    Accept(u8),
    /// The same, without the match `mark`. iptables up to 1.8.7 lists such a rule as a bare `-j ACCEPT`.
    AcceptNatively(u8),
    /// Accepts packets from an address, or answers to it.
    AcceptAddress(IpAddr),
    /// Has only conditions about interfaces. In iptables' syntax: `-i br0 ! -o br0 -j CHAIN`.
    Interfaces(String),
    /// Anything else.
    Other,
}

/// A rule to add.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NewRule {
    pub(crate) table: Table,
    pub(crate) chain: String,
    pub(crate) first: bool,
    pub(crate) comment: String,
    pub(crate) content: Content,
}

/// Changes of tables, to be applied by nf_tables or by iptables-restore(8).
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Edit {
    pub(crate) new_chains: Vec<(Table, String)>,
    pub(crate) deleted: Vec<RuleLocation>,
    pub(crate) added: Vec<NewRule>,
    /// Chains to delete with their rules, after all rules that jump to them.
    pub(crate) old_chains: Vec<(Table, String)>,
}

impl Edit {
    pub(crate) fn is_empty(&self) -> bool {
        self.deleted.is_empty() && self.added.is_empty() && self.old_chains.is_empty()
    }

    /// Appends other changes.
    pub(crate) fn extend(&mut self, other: Self) {
        self.new_chains.extend(other.new_chains);
        self.deleted.extend(other.deleted);
        self.added.extend(other.added);
        self.old_chains.extend(other.old_chains);
    }
}

impl Table {
    /// An iptables table.
    pub(crate) fn of_iptables(family: Family, name: &'static str) -> Self {
        Self::new(family.number(), name)
    }
}
