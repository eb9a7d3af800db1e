//! Tables as they are listed: by nf_tables over netlink, or by iptables-save(8), which lists the legacy variant of iptables.

use std::net::IpAddr;

use netlink::{Family, RequestError};

use crate::ruleset::Table;

/// A table of iptables, and a chain of it that is not an attachment's.
pub(crate) type Hook = (&'static str, &'static str);

/// The tables of one variant.
pub trait Listing {
    /// The chains of a table.
    fn chains(&self, table: Table) -> Result<Vec<String>, RequestError>;

    /// Whether a table has a chain.
    fn has_chain(&self, table: Table, chain: &str) -> Result<bool, RequestError>;

    /// The rules of a chain; none if there is no such chain.
    fn rules(&self, table: Table, chain: &str) -> Result<Vec<Listed>, RequestError>;

    /// Whether a rule of a chain leads to another chain, whatever its conditions.
    fn leads(&self, table: Table, from: &str, to: &str) -> Result<bool, RequestError> {
        Ok(self.rules(table, from)?.iter().any(|rule| rule.target == to))
    }
}

/// A rule that is listed.
#[derive(Debug)]
pub struct Listed {
    pub(crate) place: Place,
    /// Empty if it has none.
    pub(crate) comment: String,
    /// The chain or target that it jumps to, whatever its conditions; empty if it jumps nowhere.
    pub(crate) target: String,
    pub(crate) is_for_udp: bool,
    pub(crate) content: Content,
}

/// Where a rule is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub(crate) table: Table,
    pub(crate) chain: String,
    /// The kernel's number of the rule, or that of its line in what iptables-save has listed.
    pub(crate) handle: u64,
}

/// All that a rule does, its comment and its counter aside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// It has neither conditions nor a target.
    Nothing,
    /// It sends every packet to a chain.
    Jump(String),
    /// It accepts packets that have a bit of their mark set.
    Accept(u8),
    /// The same, without the match `mark`: iptables up to 1.8.7 lists such a rule as a bare `-j ACCEPT`.
    AcceptNatively(u8),
    /// It accepts packets from an address, or the answers to it.
    AcceptAddress(IpAddr),
    /// Its only conditions are interfaces. As iptables writes it: `-i br0 ! -o br0 -j CHAIN`.
    Interfaces(String),
    /// None of these.
    Other,
}

/// A rule to be added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NewRule {
    pub(crate) table: Table,
    pub(crate) chain: String,
    pub(crate) first: bool,
    pub(crate) comment: String,
    pub(crate) content: Content,
}

/// Changes of tables: the same whether nf_tables makes them, or iptables-restore(8).
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Edit {
    pub(crate) new_chains: Vec<(Table, String)>,
    pub(crate) deleted: Vec<Place>,
    pub(crate) added: Vec<NewRule>,
    /// Chains that are deleted with the rules in them, after all rules that jump to them.
    pub(crate) old_chains: Vec<(Table, String)>,
}

impl Edit {
    pub(crate) fn is_empty(&self) -> bool {
        self.deleted.is_empty() && self.added.is_empty() && self.old_chains.is_empty()
    }

    /// Other changes, after these.
    pub(crate) fn extend(&mut self, other: Self) {
        self.new_chains.extend(other.new_chains);
        self.deleted.extend(other.deleted);
        self.added.extend(other.added);
        self.old_chains.extend(other.old_chains);
    }
}

impl Table {
    /// A table of iptables.
    pub(crate) fn of_iptables(family: Family, name: &'static str) -> Self {
        Self::new(family.number(), name)
    }
}
