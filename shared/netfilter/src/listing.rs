//! The tables of iptables as they are listed: by iptables-save(8), or by nf_tables, in which iptables-nft keeps them.

use std::net::IpAddr;

/// A table, and a chain of it that is not an attachment's.
pub(crate) type Hook = (&'static str, &'static str);

/// The tables of a family.
pub(crate) trait Listing {
    /// By what a rule is deleted.
    type Handle;
    /// Why they are not listed.
    type Error;

    /// The chains of a table.
    fn chains(&self, table: &'static str) -> Result<Vec<String>, Self::Error>;

    /// Whether a table has a chain.
    fn has_chain(&self, table: &'static str, chain: &str) -> Result<bool, Self::Error>;

    /// The rules of a chain; none if there is no such chain.
    fn rules(&self, table: &'static str, chain: &str) -> Result<Vec<Listed<Self::Handle>>, Self::Error>;
}

/// A rule that is listed.
pub(crate) struct Listed<Handle> {
    pub(crate) handle: Handle,
    /// Empty if it has none.
    pub(crate) comment: String,
    /// The chain or target that it jumps to, whatever its conditions; empty if it jumps nowhere.
    pub(crate) target: String,
    pub(crate) is_for_udp: bool,
    pub(crate) content: Content,
}

/// All that a rule does, its comment and its counter aside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Content {
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
    /// None of these.
    Other,
}
