//! The nftables engine: nf_tables over netlink. It works for any kind of rules; [`crate::kind`] describes the kinds.
//!
//! The layout is the table with its chains, rules, maps and sets, which all attachments share. An attachment owns
//! elements of the maps and sets. An ADD reads which parts of the layout exist. It adds the missing parts and the
//! attachment's elements in one transaction. It replaces an element only if an older attachment has one with the same
//! key. A DEL reads the attachment's records, and deletes the elements that still belong to the attachment.

mod batch;
mod blocking;
mod check;
mod claims;
pub(crate) mod connection;
mod content;
mod decode;
mod deletion;
mod foreign;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod in_iptables;
mod install;
mod installed;
mod message;
mod probe;
mod query;
mod remove;
mod repair;
mod retry;
mod tables;
mod view;

use std::cell::{Cell, OnceCell};
use std::os::fd::{AsFd, BorrowedFd};

use cni::{Code, Error, Result};
use netlink::{Family, RequestError, Socket};
use nix::errno::Errno;
use system::{boot, close_later};

use crate::kind::{Kind, NftablesRules, ReferenceRules};
use crate::listing::Listing as _;
use crate::owner::{Owner, are_of_one_container};
use crate::plan::chains;
use crate::reference::names::is_any_chain;
use crate::ruleset::{Element, RECORDS_MAX, Set, Table, TrackedPort};
use crate::selector::Stale;
pub use blocking::BlockingChain;
use connection::Connection;
use in_iptables::warn_if_not_compared;
use install::Installation;
use installed::RecordKey;
pub(crate) use repair::Prepared;
use retry::{failure, retry};
use tables::Tables;

/// How often a list is read again because the ruleset has changed meanwhile.
const MAX_READS: usize = 20;

/// A socket to nf_tables.
#[derive(Debug)]
pub(crate) struct Nft {
    socket: Connection,
    /// A second socket, for dumps that end at the first match. Unread replies would confuse requests on `socket`.
    partial_dumps: OnceCell<Socket>,
    has_deleted: Cell<bool>,
    /// The ruleset's generation when the socket was opened. None after the first change has taken it.
    generation: Cell<Option<u32>>,
    /// Whether another process closes the sockets.
    is_handed_over: Cell<bool>,
}

impl Drop for Nft {
    /// Closing a socket waits for pending deletions, also those of other processes.
    fn drop(&mut self) {
        if !self.is_handed_over.get() {
            close_later::hand_over(&self.sockets());
        }
    }
}

impl Nft {
    /// Opens a socket. Fails if the kernel has no nf_tables, see [`Nft::is_missing`].
    ///
    /// # Errors
    /// If the kernel has no nf_tables, or there are no more descriptors.
    pub(crate) fn open() -> Result<Self, RequestError> {
        let this = Self {
            socket: Connection::open()?,
            partial_dumps: OnceCell::new(),
            has_deleted: Cell::new(false),
            generation: Cell::new(None),
            is_handed_over: Cell::new(false),
        };
        this.generation.set(Some(query::generation(&this.socket)?));
        Ok(this)
    }

    /// Opens a socket. `None`: the kernel has no nf_tables.
    ///
    /// # Errors
    /// If it cannot be opened for another reason.
    pub(crate) fn open_if_present() -> netlink::Result<Option<Self>> {
        match Self::open().map_err(|r| r.during("open", "nf_tables")) {
            Err(e) if Self::is_missing(&e) => Ok(None),
            opened => opened.map(Some),
        }
    }

    /// Whether [`Nft::open`] failed because the kernel has no nf_tables: it supports neither the protocol nor the
    /// subsystem.
    pub(crate) fn is_missing(error: &netlink::Error) -> bool {
        error.is_unsupported() || error.errno() == Some(Errno::EINVAL)
    }

    /// The netlink socket. [`crate::removal::Removal`] also uses it for conntrack.
    pub(crate) fn socket(&self) -> &Socket {
        &self.socket
    }

    /// Passes the sockets to another process, which closes them. Does nothing if no rules were deleted: then closing
    /// does not wait.
    pub(crate) fn close_later(self) {
        if self.has_deleted.get() {
            close_later::hand_over_or_start(&self.sockets());
            self.is_handed_over.set(true);
        }
    }

    fn sockets(&self) -> Vec<BorrowedFd<'_>> {
        self.socket.sockets().chain(self.partial_dumps.get()).map(AsFd::as_fd).collect()
    }

    /// Installs an attachment's rules, replacing its existing ones in nftables. Returns whether it also has rules of the kind in
    /// iptables-nft, which the caller must remove.
    ///
    /// # Errors
    /// Code 2 if the kernel lacks a module that the rules need. Code 7 if the attachment has too many records. Otherwise
    /// the kernel's error.
    pub(crate) fn install(&self, owner: &Owner, kind: Kind, rules: &NftablesRules) -> Result<bool> {
        if rules.records.len() >= RECORDS_MAX {
            return Err(Error::config(format!(
                "{} records of one attachment are too many: map fewer than {RECORDS_MAX} host ports",
                rules.records.len()
            )));
        }
        let change =
            Installation::new(&self.socket, owner, kind, rules).with_generation(self.generation.take());
        let mut missing_part = None;
        retry(&self.socket, owner, "install", |replace| match change.attempt(replace) {
            Err((step, refusal)) if change.is_missing_part(&refusal) => {
                missing_part = Some(failure("install", owner, &step, refusal));
                Ok(())
            }
            other => other,
        })?;
        if let Some(error) = missing_part {
            return Err(self.with_missing_module(kind, error));
        }
        if !rules.openings.is_empty() {
            let open = |_| tables::open(&self.socket, rules);
            retry(&self.socket, owner, "open the host's firewall to", open)?;
        }
        change.warn_of_takeovers();
        warn_if_not_compared(owner, change.warn_of_preceding_rules());
        Ok(self.warn_of_iptables(owner, kind, rules))
    }

    /// The ports of an attachment whose flows the kernel may keep, without those that another attachment has.
    pub(crate) fn tracked_ports(
        &self,
        owner: &Owner,
        kind: Kind,
        rules: &NftablesRules,
    ) -> Result<Vec<TrackedPort>, RequestError> {
        let (mut ports, label) = (Vec::new(), owner.label());
        for record in &rules.records {
            let Some(port) = record.tracked else { continue };
            let mut is_anothers = false;
            for element in &record.elements {
                let holder = query::comment_of(&self.socket, kind.table(), element)?;
                is_anothers |= holder.is_some_and(|holder| holder != label);
            }
            ports.extend((!is_anothers).then_some(port));
        }
        Ok(ports)
    }

    /// Whether any attachment has an element. False if the kernel does not report it.
    pub(crate) fn has_element(&self, kind: Kind, element: &Element) -> bool {
        query::comment_of(&self.socket, kind.table(), element).is_ok_and(|comment| comment.is_some())
    }

    /// Other programs' base chains that drop forwarded packets, as arguments of `nft list chain`, each with its families.
    pub(crate) fn dropping_chains(&self) -> Result<Vec<(String, &'static [Family])>, RequestError> {
        blocking::dropping(&self.socket)
    }

    /// Other programs' chains that drop forwarded packets, even packets with this bit of the mark.
    pub(crate) fn blocking_chains(&self, bit: Option<u8>) -> Result<Vec<BlockingChain>, RequestError> {
        blocking::find(&self.socket, bit)
    }

    /// The labels of stale attachments that have rules of a kind.
    pub(crate) fn stale_labels(&self, kind: Kind, stale: &Stale<'_>) -> Result<Vec<String>> {
        let found = RecordKey::find(&self.socket, kind, |label| stale.has(label));
        let found = found.map_err(|r| r.during("list", "the attachments' records"))?;
        Ok(found.into_iter().map(|key| key.label).collect())
    }

    /// Whether any attachment has rules of a kind. Also true if other programs change the ruleset during each attempt: the
    /// kernel continues a list at a position, so it skips elements if earlier ones are deleted.
    pub(crate) fn has_any(&self, kind: Kind) -> Result<bool, RequestError> {
        for _ in 0..MAX_READS {
            let generation = query::generation(&self.socket)?;
            let mut found = false;
            query::visit(self.partial_dumps(), kind.table(), &Set::attachments().name, |_, comment| {
                found |= installed::label(kind, comment).is_some();
                found
            })?;
            if found || query::generation(&self.socket)? == generation {
                return Ok(found);
            }
        }
        Ok(true)
    }

    /// Describes the kernel module, or the family of tables, that rules of a kind need and the kernel lacks. None: the
    /// kernel has everything. If no rules of the kind were installed since the boot, the probe takes an RCU grace period.
    pub(crate) fn missing_module(&self, kind: Kind) -> Result<Option<String>, RequestError> {
        let properties = &kind.properties.nftables;
        if query::has_chain(&self.socket, properties.table, properties.chain)? {
            return Ok(None);
        }
        let part = probe::missing_part(&self.socket, properties.table.family, properties.needs)?;
        Ok(part.map(|part| format!("the kernel has no {part}, which nftables needs for {kind}")))
    }

    /// Like [`Nft::missing_module`], for STATUS. The kubelet calls STATUS every few seconds, and the probe takes a grace
    /// period, so its success is noted until the next boot. A failure is not noted, because an administrator may
    /// install the module at any time.
    pub(crate) fn missing_module_since_boot(&self, kind: Kind) -> Result<Option<String>, RequestError> {
        let fact = format!("nf_tables-{kind}");
        if boot::noted(&fact).is_some() {
            return Ok(None);
        }
        let missing = self.missing_module(kind)?;
        if missing.is_none() {
            boot::note(&fact, "");
        }
        Ok(missing)
    }

    /// Adds the missing kernel module to an error, and sets code 2.
    fn with_missing_module(&self, kind: Kind, error: Error) -> Error {
        let missing = self.missing_module(kind).ok().flatten();
        missing.map_or(error.clone(), |missing| error.detail(missing)).with_code(Code::UnsupportedField)
    }

    /// Whether an attachment has rules of a kind, by nftables or by iptables-nft.
    pub(crate) fn has(&self, owner: &Owner, kind: Kind) -> Result<bool> {
        self.query_rules(owner, kind).map_err(|r| failure("look for", owner, "read the ruleset", r))
    }

    /// Whether an attachment has rules of a kind, by nftables.
    pub(crate) fn has_records(&self, owner: &Owner, kind: Kind) -> Result<bool> {
        self.query_records(owner, kind).map_err(|r| failure("look for", owner, "read the ruleset", r))
    }

    fn query_records(&self, owner: &Owner, kind: Kind) -> Result<bool, RequestError> {
        let title = Element::record(&RecordKey::of(owner, kind).digest, 0);
        Ok(query::comment_of(&self.socket, kind.table(), &title)?.is_some())
    }

    fn query_rules(&self, owner: &Owner, kind: Kind) -> Result<bool, RequestError> {
        if self.query_records(owner, kind)? {
            return Ok(true);
        }
        let Some((properties, chain)) = kind.iptables().zip(chains::chain(owner, kind)) else {
            return Ok(false);
        };
        for family in Family::ALL {
            if Tables(&self.socket).has_chain(Table::of_iptables(family, properties.table), &chain)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether a chain of iptables-nft may have a rule of another attachment of the owner's container.
    pub(crate) fn may_have_sibling(&self, table: Table, chain: &str, owner: &Owner) -> bool {
        let label = owner.label();
        let rules = query::rules(&self.socket, table, chain);
        rules.map_or(true, |rules| rules.iter().any(|rule| are_of_one_container(&rule.comment, &label)))
    }

    /// Whether a table has a chain. True if the kernel does not report it.
    pub(crate) fn has_chain(&self, table: Table, chain: &str) -> bool {
        query::has_chain(&self.socket, table, chain).unwrap_or(true)
    }

    /// Whether the reference may have rules of a kind, for any attachment.
    pub(crate) fn has_any_of_reference(&self, kind: Kind) -> Result<bool, RequestError> {
        let (tables, reference) = (Tables(&self.socket), &kind.properties.reference);
        for (table, chain) in reference.rules {
            if !tables.rules(*table, chain)?.is_empty() {
                return Ok(true);
            }
        }
        for family in Family::ALL {
            let chains = tables.chains(Table::of_iptables(family, reference.table))?;
            if chains.iter().any(|chain| is_any_chain(chain)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether the reference's rules of an attachment exist, including those of iptables-nft.
    pub(crate) fn has_reference(
        &self,
        owner: &Owner,
        rules: &dyn ReferenceRules,
    ) -> Result<bool, RequestError> {
        let tables = Tables(&self.socket);
        Ok(rules.are_in_nftables(&tables, owner)?
            || rules.are_in_iptables(&tables, Family::V4, owner)?
                && rules.are_in_iptables(&tables, Family::V6, owner)?)
    }
}
