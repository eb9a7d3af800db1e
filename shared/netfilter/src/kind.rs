//! The interface between engines and kinds of rules. Each kind is in a file of [`crate::kinds`] and describes itself.
//! The engines know no kind by name.

use std::fmt::{self, Debug, Display};
use std::net::IpAddr;

use netlink::{Family, RequestError};

use crate::backend::Backend;
use crate::listing::{Listing, TableChain};
use crate::opening::{OpenedHook, Opening};
use crate::owner::Owner;
use crate::ruleset::{Element, Layout, Need, Record, Redirected, Rule, Table, TrackedPort};
use crate::script::Script;
use crate::selector::Selector;

/// The rules of one attachment, of one kind, for each backend.
pub trait Rules: Debug {
    /// Their kind.
    fn kind(&self) -> Kind;

    /// The backend, if only one supports these rules.
    fn backend(&self) -> Option<Backend> {
        None
    }

    /// Whether rules of another kind already do what these do, so that a kernel that does not support these is no error.
    fn is_optional(&self) -> bool {
        false
    }

    /// The rules for nftables. Every kind has them.
    fn nftables(&self) -> NftablesRules;

    /// The rules for iptables. None: the kind always uses nftables.
    fn iptables(&self) -> Option<&dyn IptablesRules> {
        None
    }

    /// The rules as the reference installs them. None: CHECK cannot recognize them.
    fn reference(&self) -> Option<&dyn ReferenceRules> {
        None
    }

    /// The mapped ports of the host whose flows the kernel may keep.
    fn tracked_ports(&self) -> Vec<TrackedPort> {
        Vec::new()
    }

    /// The nftables element, of any attachment, that maps a port at one of the host's addresses. It precedes a mapping of
    /// all addresses. None: no such element precedes these rules.
    fn port_of_address(&self, _port: &TrackedPort, _host_ip: IpAddr) -> Option<Element> {
        None
    }
}

/// An attachment, and its rules of a kind.
pub(crate) type OwnedRules<'a> = (&'a Owner, &'a dyn Rules);

/// The rules of one attachment for nftables, without those that all attachments share.
#[derive(Clone, Debug, Default)]
pub struct NftablesRules {
    /// The records. They contain the elements.
    pub(crate) records: Vec<Record>,
    /// The layout that these need in addition to the kind's.
    pub(crate) layout: Layout,
    /// The attachment's own rules. Their comment becomes the owner's label.
    pub(crate) rules: Vec<Rule>,
    /// How to open FORWARD or INPUT of iptables for the packets that the rules mark, by family.
    pub(crate) openings: Vec<(Family, Opening)>,
    /// The container's addresses. The reference's rules for them in the opened chain are stale, and ADD deletes them.
    pub(crate) accepted: Vec<IpAddr>,
}

impl NftablesRules {
    /// Rules that consist only of elements of sets.
    pub(crate) fn of(records: Vec<Record>) -> Self {
        Self { records, ..Self::default() }
    }
}

/// The rules of one attachment for iptables.
pub trait IptablesRules {
    /// Writes the rules of a family, if there are any. The label is the comment by which GC finds them.
    fn write(&self, script: &mut Script, label: &str, family: Family);
}

/// The rules of one attachment as the reference installs them. CHECK accepts them, because containers keep running when
/// Ferrule replaces the reference.
pub trait ReferenceRules {
    /// Whether the reference's nftables backend installed them.
    ///
    /// # Errors
    /// If the kernel does not list the tables.
    fn are_in_nftables(&self, _tables: &dyn Listing, _owner: &Owner) -> Result<bool, RequestError> {
        Ok(false)
    }

    /// Whether the reference's iptables backend installed those of a family, with either variant of iptables.
    ///
    /// # Errors
    /// If the tables cannot be listed.
    fn are_in_iptables(
        &self,
        _tables: &dyn Listing,
        _family: Family,
        _owner: &Owner,
    ) -> Result<bool, RequestError> {
        Ok(false)
    }
}

/// The purpose of an attachment's rules. Each kind is installed and removed as a whole.
#[derive(Clone, Copy)]
pub struct Kind {
    pub(crate) properties: &'static KindProperties,
}

/// The properties of a kind that do not depend on an attachment.
#[derive(Debug)]
pub(crate) struct KindProperties {
    /// The name in the ruleset, at most 12 letters, because of the limited length of comments.
    pub(crate) name: &'static str,
    /// Whether the rules map host ports to containers. Then UDP and SCTP flows must be flushed, and several attachments may
    /// claim a port.
    pub(crate) maps_host_ports: bool,
    pub(crate) nftables: NftablesProperties,
    /// None: the kind always uses nftables.
    pub(crate) iptables: Option<IptablesProperties>,
    pub(crate) reference: ReferenceProperties,
}

/// A kind's properties in nftables.
#[derive(Debug)]
pub(crate) struct NftablesProperties {
    pub(crate) table: Table,
    /// A chain that exists if rules of the kind were ever installed.
    pub(crate) chain: &'static str,
    /// The layout that all attachments share.
    pub(crate) layout: fn() -> Layout,
    /// Prefixes of the comments of shared rules that only some attachments need.
    pub(crate) comments: &'static [&'static str],
    /// Parses a record.
    pub(crate) parse: fn(&str) -> Option<Record>,
    /// Modules that the kernel may lack. If one of them is for NAT, nft_chain_nat is needed too.
    pub(crate) needs: &'static [Need],
    /// The chain of other programs to open for marked packets, if any.
    pub(crate) opens: Option<OpenedHook>,
}

/// A kind's properties in iptables, for both families.
#[derive(Debug)]
pub(crate) struct IptablesProperties {
    /// The table with the attachments' own chains.
    pub(crate) table: &'static str,
    /// Prefix of the names of these chains, at most 13 characters.
    pub(crate) prefix: &'static str,
    /// The chains that jump to the attachments' chains: Ferrule's and the reference's.
    pub(crate) parents: &'static [&'static str],
    /// What attachments share, if anything.
    pub(crate) shared: Option<Shared>,
    /// Lists the host ports of an attachment that wait until another attachment is deleted. None: no rules of this kind
    /// wait.
    pub(crate) waiting: Option<FindWaiting>,
}

/// Lists waiting ports, from the output of iptables-save for a family and the name of the attachment's chain.
type FindWaiting = fn(&str, &str, Family) -> Vec<WaitingPort>;

/// A host port that waits until another attachment is deleted.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct WaitingPort {
    pub(crate) port: Redirected,
    /// The attachment that has it, for operators: `HOLDER has it now: tcp 8080`.
    pub(crate) text: String,
}

/// What all attachments share in iptables.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Writes the shared rules that do not depend on a configuration.
    pub(crate) rules: fn(&mut Script, Family),
    /// Prefixes of the comments of the shared rules.
    pub(crate) comments: &'static [&'static str],
    /// The chain that jumps to the attachments' chains.
    pub(crate) entry: &'static str,
    /// All chains, including the entry.
    pub(crate) chains: &'static [&'static str],
    /// The chains, each with its table, that contain jumps to these chains or other shared rules.
    pub(crate) hooks: &'static [TableChain],
    /// The comment of the jump from CNI-FORWARD to these chains, if there is one. See [`crate::opening`].
    pub(crate) in_forward: Option<&'static str>,
}

/// A kind's properties in the reference, to remove an attachment's rules.
#[derive(Debug)]
pub(crate) struct ReferenceProperties {
    /// The iptables table with its chains.
    pub(crate) table: &'static str,
    /// Prefixes of the names of an attachment's iptables chains.
    pub(crate) prefixes: &'static [&'static str],
    /// The iptables chain with rules that contain only a container's addresses, and do not jump to another chain.
    pub(crate) accepts: Option<TableChain>,
    /// The chains of the reference's nftables backend whose rules have comments with the attachment.
    pub(crate) rules: &'static [(Table, &'static str)],
    /// Whether a rule belongs to the selected attachments, by its comment.
    pub(crate) has_rule: fn(&Selector<'_>, &str) -> bool,
    /// The chains of the nftables backend that belong to the selected attachments.
    pub(crate) chains: fn(&Selector<'_>) -> Vec<(Table, String)>,
}

impl ReferenceProperties {
    /// The reference has no rules of the kind, or none that identify an attachment.
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
    /// Whether a rule is shared, by its comment.
    pub(crate) fn has_rule(&self, comment: &str) -> bool {
        self.comments.iter().any(|start| comment.starts_with(start))
    }

    /// The tables with shared rules, except the one with the attachments' own chains.
    pub(crate) fn tables_other_than(&self, own: &str) -> Vec<&'static str> {
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
