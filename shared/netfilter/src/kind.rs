//! What the engines know of rules. They know no kind by its name: each kind describes itself, in a file of [`crate::kinds`].

use std::fmt::{self, Debug, Display};
use std::net::IpAddr;

use netlink::{Family, RequestError};

use crate::backend::Backend;
use crate::conntrack::MappedPort;
use crate::iptables::script::Script;
use crate::listing::Hook;
use crate::nft::reader::Reader;
use crate::opening::Opening;
use crate::ruleset::{Layout, Need, Record, Rule, Table};
use crate::selector::Selector;

/// The rules of one attachment, of one kind.
pub trait Rules: Debug {
    /// Their kind.
    fn kind(&self) -> Kind;

    /// The backend that alone can do what they ask for, if it is so.
    fn backend(&self) -> Option<Backend> {
        None
    }

    /// What nftables is to record of them.
    fn records(&self) -> Vec<Record>;

    /// Adds to the kind's own layout what these rules need beside it.
    fn extend_layout(&self, _layout: &mut Layout) {}

    /// Rules of nftables that are the attachment's own, since they have conditions. Their comment is the owner's label.
    fn conditional_rules(&self, _label: &str) -> Vec<Rule> {
        Vec::new()
    }

    /// What lets the packets of a family that they mark through a chain of others.
    fn opening(&self, _family: Family) -> Option<&Opening> {
        None
    }

    /// Writes the rules of a family for iptables.
    fn write(&self, _script: &mut Script, _label: &str, _family: Family) {}

    /// What of them waits until a newer attachment is gone, by the rules that iptables-save lists: a line for each.
    fn waiting(&self, _saved: &str, _chain: &str) -> Vec<String> {
        Vec::new()
    }

    /// The ports of this host that lead to the container from now on by UDP.
    fn mapped_udp_ports(&self) -> Vec<MappedPort> {
        Vec::new()
    }

    /// The container's addresses, if the reference's rules name nothing else.
    fn accepted(&self) -> Vec<IpAddr> {
        Vec::new()
    }

    /// How many rules the reference has for them in a family, at least.
    fn reference_count(&self, family: Family) -> usize;

    /// Whether the reference's nftables backend has them.
    ///
    /// # Errors
    /// The kernel's refusal to tell.
    fn is_in_reference(&self, reader: &Reader<'_>, selector: &Selector<'_>) -> Result<bool, RequestError>;
}

/// What the rules of an attachment are for. Each kind is installed and removed as a whole.
#[derive(Clone, Copy)]
pub struct Kind {
    pub(crate) facts: &'static Facts,
}

/// What there is to know of a kind without an attachment's rules.
#[derive(Debug)]
pub(crate) struct Facts {
    /// The name in the ruleset, of 12 letters at most: comments have room for no more.
    pub(crate) name: &'static str,
    /// Whether they lead ports of this host to containers: UDP flows go on when the rules are gone, and several may claim a port.
    pub(crate) redirects: bool,
    pub(crate) nftables: InNftables,
    /// None: they are always nftables'.
    pub(crate) iptables: Option<InIptables>,
    pub(crate) reference: InReference,
}

/// A kind in nftables.
#[derive(Debug)]
pub(crate) struct InNftables {
    pub(crate) table: Table,
    /// A chain that is there if rules of the kind were ever installed.
    pub(crate) chain: &'static str,
    /// What all attachments share.
    pub(crate) layout: fn() -> Layout,
    /// Reads a record.
    pub(crate) parse: fn(&str) -> Option<Record>,
    /// Modules that the kernel may lack. Where one of them is for NAT, nft_chain_nat is another one.
    pub(crate) needs: &'static [Need],
    /// Whether a chain of others is opened for what they mark.
    pub(crate) opens: bool,
}

/// A kind in iptables, in both families.
#[derive(Debug)]
pub(crate) struct InIptables {
    /// The table with the attachments' chains.
    pub(crate) table: &'static str,
    /// What the name of an attachment's chain begins with, 13 characters at most.
    pub(crate) prefix: &'static str,
    /// The chains in which rules jump to those of attachments: ours, and the reference's.
    pub(crate) parents: &'static [&'static str],
    /// What attachments share. None: nothing.
    pub(crate) shared: Option<Shared>,
}

/// What all attachments share in iptables.
#[derive(Debug)]
pub(crate) struct Shared {
    /// What the comments of the shared rules begin with.
    pub(crate) comments: &'static [&'static str],
    /// The chain whose rules jump to the chains of attachments.
    pub(crate) entry: &'static str,
    /// All chains, the entry among them.
    pub(crate) chains: &'static [&'static str],
    /// The chains with rules that lead to these, and with other rules that attachments share, each with its table.
    pub(crate) hooks: &'static [Hook],
    /// The comment of the rule in CNI-FORWARD that leads to these chains, if one does. See [`crate::opening`].
    pub(crate) in_forward: Option<&'static str>,
}

/// A kind as the reference has it.
#[derive(Debug)]
pub(crate) struct InReference {
    /// What the names of an attachment's chains begin with in iptables. The first one has the rules that count.
    pub(crate) prefixes: &'static [&'static str],
    /// How packets come to that chain (None): from a chain to another.
    pub(crate) ways: &'static [(&'static str, Option<&'static str>)],
    /// The chain of iptables that has rules which name a container by its addresses alone, and nobody's. They lead nowhere else.
    pub(crate) accepts: Option<Hook>,
    /// The chains of its nftables backend whose rules have comments that say whose they are.
    pub(crate) rules: &'static [(Table, &'static str)],
    /// Whether a rule is somebody's, by its comment.
    pub(crate) has_rule: fn(&Selector<'_>, &str) -> bool,
    /// The chains of its nftables backend that are somebody's.
    pub(crate) chains: fn(&Selector<'_>) -> Vec<(Table, String)>,
}

impl Shared {
    /// Whether a rule is one of the shared ones, by its comment.
    pub(crate) fn has_rule(&self, comment: &str) -> bool {
        self.comments.iter().any(|start| comment.starts_with(start))
    }

    /// The tables that have something shared, beside the one with the attachments' chains.
    pub(crate) fn tables_beside(&self, own: &str) -> Vec<&'static str> {
        let mut tables: Vec<_> =
            self.hooks.iter().map(|(table, _)| *table).filter(|table| *table != own).collect();
        tables.dedup();
        tables
    }
}

impl Kind {
    pub(crate) const fn new(facts: &'static Facts) -> Self {
        Self { facts }
    }

    pub(crate) fn table(self) -> Table {
        self.facts.nftables.table
    }

    pub(crate) fn iptables(self) -> Option<&'static InIptables> {
        self.facts.iptables.as_ref()
    }
}

impl PartialEq for Kind {
    fn eq(&self, other: &Self) -> bool {
        self.facts.name == other.facts.name
    }
}

impl Eq for Kind {}

impl Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.facts.name)
    }
}

impl Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.facts.name)
    }
}
