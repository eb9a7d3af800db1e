//! What the engines know of rules. They know no kind by its name: each kind describes itself, in a file of [`crate::kinds`].

use std::fmt::{self, Debug, Display};

use netlink::{Family, RequestError};

use crate::backend::Backend;
use crate::listing::{Hook, Listing};
use crate::opening::{Opening, Way};
use crate::owner::Owner;
use crate::ruleset::{Layout, Need, Record, Rule, Table};
use crate::script::Script;
use crate::selector::Selector;

/// The rules of one attachment, of one kind: by backend.
pub trait Rules: Debug {
    /// Their kind.
    fn kind(&self) -> Kind;

    /// The backend that alone can do what they ask for, if it is so.
    fn backend(&self) -> Option<Backend> {
        None
    }

    /// In nftables. Each kind has them there.
    fn nftables(&self) -> NftablesRules;

    /// In iptables. None: they are always nftables'.
    fn iptables(&self) -> Option<&dyn IptablesRules> {
        None
    }

    /// As the reference installs them. None: not in a way that CHECK could look for.
    fn reference(&self) -> Option<&dyn ReferenceRules> {
        None
    }
}

/// An attachment, and its rules of a kind.
pub(crate) type OwnedRules<'a> = (&'a Owner, &'a dyn Rules);

/// The rules of one attachment for nftables, in addition to what all attachments share.
#[derive(Clone, Debug, Default)]
pub struct NftablesRules {
    /// What is recorded of them. Elements follow from it.
    pub(crate) records: Vec<Record>,
    /// What these need in addition to the layout of the kind.
    pub(crate) layout: Layout,
    /// Rules that are the attachment's own. Their comment becomes the owner's label.
    pub(crate) rules: Vec<Rule>,
    /// What lets the packets of a family that they mark through FORWARD of iptables.
    pub(crate) openings: Vec<(Family, Opening)>,
}

impl NftablesRules {
    /// Rules that are nothing but elements of sets.
    pub(crate) fn of(records: Vec<Record>) -> Self {
        Self { records, ..Self::default() }
    }
}

/// The rules of one attachment for iptables.
pub trait IptablesRules {
    /// Writes the rules of a family; nothing if there are none. The label is the comment by which GC finds them.
    fn write(&self, script: &mut Script, label: &str, family: Family);
}

/// The rules of one attachment as the reference installs them, for CHECK: its containers run on when our plugins take its place.
pub trait ReferenceRules {
    /// Whether the reference's nftables backend has them.
    ///
    /// # Errors
    /// If the tables are not listed.
    fn are_in_nftables(&self, _tables: &dyn Listing, _owner: &Owner) -> Result<bool, RequestError> {
        Ok(false)
    }

    /// Whether its iptables backend has those of a family, in whichever variant of iptables.
    ///
    /// # Errors
    /// If the tables are not listed.
    fn are_in_iptables(
        &self,
        _tables: &dyn Listing,
        _family: Family,
        _owner: &Owner,
    ) -> Result<bool, RequestError> {
        Ok(false)
    }
}

/// What the rules of an attachment are for. Each kind is installed and removed as a whole.
#[derive(Clone, Copy)]
pub struct Kind {
    pub(crate) properties: &'static KindProperties,
}

/// What there is to know of a kind without an attachment's rules.
#[derive(Debug)]
pub(crate) struct KindProperties {
    /// The name in the ruleset, of 12 letters at most: comments have room for no more.
    pub(crate) name: &'static str,
    /// Whether they lead ports of this host to containers: UDP flows go on when the rules are gone, and several may claim a port.
    pub(crate) redirects: bool,
    pub(crate) nftables: NftablesProperties,
    /// None: they are always nftables'.
    pub(crate) iptables: Option<IptablesProperties>,
    pub(crate) reference: ReferenceProperties,
}

/// A kind in nftables.
#[derive(Debug)]
pub(crate) struct NftablesProperties {
    pub(crate) table: Table,
    /// A chain that is there if rules of the kind were ever installed.
    pub(crate) chain: &'static str,
    /// What all attachments share.
    pub(crate) layout: fn() -> Layout,
    /// What the comments of shared rules begin with that only some attachments need.
    pub(crate) comments: &'static [&'static str],
    /// Reads a record.
    pub(crate) parse: fn(&str) -> Option<Record>,
    /// Modules that the kernel may lack. Where one of them is for NAT, nft_chain_nat is another one.
    pub(crate) needs: &'static [Need],
    /// The chain of others that is opened for what they mark, if one is.
    pub(crate) opens: Option<Way>,
}

/// A kind in iptables, in both families.
#[derive(Debug)]
pub(crate) struct IptablesProperties {
    /// The table with the attachments' chains.
    pub(crate) table: &'static str,
    /// What the name of an attachment's chain begins with, 13 characters at most.
    pub(crate) prefix: &'static str,
    /// The chains in which rules jump to those of attachments: ours, and the reference's.
    pub(crate) parents: &'static [&'static str],
    /// What attachments share. None: nothing.
    pub(crate) shared: Option<Shared>,
    /// What of an attachment waits until a newer one is deleted, a line for each, by what iptables-save lists and by the name of the
    /// attachment's chain. None: nothing ever waits.
    pub(crate) waiting: Option<fn(&str, &str) -> Vec<String>>,
}

/// What all attachments share in iptables.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Writes those of the shared rules that do not depend on a configuration.
    pub(crate) rules: fn(&mut Script, Family),
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

/// A kind as the reference has it: what is removed of an attachment.
#[derive(Debug)]
pub(crate) struct ReferenceProperties {
    /// The table of iptables with its chains.
    pub(crate) table: &'static str,
    /// What the names of an attachment's chains begin with in iptables.
    pub(crate) prefixes: &'static [&'static str],
    /// The chain of iptables that has rules which name a container by its addresses alone, and nobody's. They lead nowhere else.
    pub(crate) accepts: Option<Hook>,
    /// The chains of its nftables backend whose rules have comments that say whose they are.
    pub(crate) rules: &'static [(Table, &'static str)],
    /// Whether a rule is somebody's, by its comment.
    pub(crate) has_rule: fn(&Selector<'_>, &str) -> bool,
    /// The chains of its nftables backend that are somebody's.
    pub(crate) chains: fn(&Selector<'_>) -> Vec<(Table, String)>,
}

impl ReferenceProperties {
    /// The reference has nothing of the kind, or nothing that says whose it is.
    pub(crate) const NONE: Self = Self {
        table: "",
        prefixes: &[],
        accepts: None,
        rules: &[],
        has_rule: |_, _| false,
        chains: |_| Vec::new(),
    };
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
    pub(crate) const fn new(properties: &'static KindProperties) -> Self {
        Self { properties }
    }

    pub(crate) fn table(self) -> Table {
        self.properties.nftables.table
    }

    pub(crate) fn iptables(self) -> Option<&'static IptablesProperties> {
        self.properties.iptables.as_ref()
    }
}

impl PartialEq for Kind {
    fn eq(&self, other: &Self) -> bool {
        self.properties.name == other.properties.name
    }
}

impl Eq for Kind {}

impl Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.properties.name)
    }
}

impl Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.properties.name)
    }
}
