//! The nftables engine: nf_tables over netlink. It knows no kind of rules.
//!
//! An ADD reads which parts of the layout exist, and adds the missing ones together with the attachment's own elements
//! in one transaction. It deletes nothing, unless an older attachment has an element with the same key. A DEL reads the
//! attachment's records and deletes their elements, if these still belong to the attachment.

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
mod install;
mod installed;
mod ours;
mod probe;
mod query;
mod record_key;
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
use crate::owner::Owner;
use crate::plan::chains;
use crate::reference::names::is_any_chain;
use crate::ruleset::{Element, RECORDS_MAX, Set, Table};
pub use blocking::BlockingChain;
use connection::Connection;
use install::Change;
use record_key::RecordKey;
pub(crate) use repair::Prepared;
use retry::{failure, retry};
use tables::Tables;

/// A socket to nf_tables.
#[derive(Debug)]
pub(crate) struct Nft {
    socket: Connection,
    /// A socket for dumps that are not read to their end.
    lister: OnceCell<Socket>,
    has_deleted: Cell<bool>,
    /// The ruleset's generation when this was opened, until a change is bound to it.
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
    /// Opens a socket, if the kernel has nf_tables.
    ///
    /// # Errors
    /// If the kernel has no nf_tables, or there are no more descriptors.
    pub(crate) fn open() -> Result<Self, RequestError> {
        let this = Self {
            socket: Connection::open()?,
            lister: OnceCell::new(),
            has_deleted: Cell::new(false),
            generation: Cell::new(None),
            is_handed_over: Cell::new(false),
        };
        this.generation.set(Some(query::generation(&this.socket)?));
        Ok(this)
    }

    /// Whether [`Nft::open`] failed because the kernel has no nf_tables: it supports neither the protocol nor the
    /// subsystem.
    pub(crate) fn is_missing(error: &netlink::Error) -> bool {
        error.is_unsupported() || error.errno() == Some(Errno::EINVAL)
    }

    /// The socket. It is also used for conntrack.
    pub(crate) fn socket(&self) -> &Socket {
        &self.socket
    }

    /// Passes the sockets to another process to close. That process is started if closing would wait for deletions.
    pub(crate) fn close_later(self) {
        if self.has_deleted.get() {
            close_later::hand_over_or_start(&self.sockets());
            self.is_handed_over.set(true);
        }
    }

    fn sockets(&self) -> Vec<BorrowedFd<'_>> {
        self.socket.sockets().chain(self.lister.get()).map(AsFd::as_fd).collect()
    }

    /// Installs an attachment's rules, replacing its existing ones.
    ///
    /// # Errors
    /// Code 2 if the kernel lacks a part. Otherwise the kernel's error.
    pub(crate) fn install(&self, owner: &Owner, kind: Kind, rules: &NftablesRules) -> Result<()> {
        if rules.records.len() >= RECORDS_MAX {
            return Err(Error::config(format!(
                "{} records of one attachment are too many: map fewer than {RECORDS_MAX} host ports",
                rules.records.len()
            )));
        }
        let change = Change::new(&self.socket, owner, kind, rules).reading_since(self.generation.take());
        let mut lack = None;
        retry(&self.socket, owner, "install", |replace| match change.attempt(replace) {
            Err((step, refusal)) if change.is_lack(&refusal) => {
                lack = Some(failure("install", owner, &step, refusal));
                Ok(())
            }
            other => other,
        })?;
        if let Some(error) = lack {
            return Err(self.named(kind, error));
        }
        if !rules.openings.is_empty() {
            let open = |_| tables::open(&self.socket, &rules.openings);
            retry(&self.socket, owner, "open the host's firewall to", open)?;
        }
        change.warn_of_losers();
        Ok(())
    }

    /// Other programs' base chains that drop forwarded packets, as arguments of `nft list chain`.
    pub(crate) fn dropping_chains(&self) -> Result<Vec<String>, RequestError> {
        blocking::dropping(&self.socket)
    }

    /// Other programs' chains that drop forwarded packets even if they have a bit of the mark.
    pub(crate) fn blocking_chains(&self, bit: Option<u8>) -> Result<Vec<BlockingChain>, RequestError> {
        blocking::find(&self.socket, bit)
    }

    /// Whether any attachment has rules of a kind.
    pub(crate) fn has_any(&self, kind: Kind) -> Result<bool, RequestError> {
        let mut found = false;
        query::visit(self.lister(), kind.table(), &Set::attachments().name, |_, comment| {
            found |= record_key::label(kind, comment).is_some();
            found
        })?;
        Ok(found)
    }

    /// The part of the kernel that is missing for rules of a kind. None: rules were installed before, or can be
    /// installed. If they never were, the test takes a grace period.
    pub(crate) fn lack(&self, kind: Kind) -> Result<Option<String>, RequestError> {
        let properties = &kind.properties.nftables;
        if query::has_chain(&self.socket, properties.table, properties.chain)? {
            return Ok(None);
        }
        let module = probe::lacking(&self.socket, properties.needs)?;
        Ok(module.map(|module| format!("the kernel has no {module}, which nftables needs for {kind}")))
    }

    /// Like [`Nft::lack`], for STATUS: the probe takes a grace period, and the kubelet calls STATUS every few seconds.
    /// A missing module may be installed at any time, so only success is remembered, until the next boot.
    pub(crate) fn lack_since_boot(&self, kind: Kind) -> Result<Option<String>, RequestError> {
        let fact = format!("nf_tables-{kind}");
        if boot::noted(&fact).is_some() {
            return Ok(None);
        }
        let lack = self.lack(kind)?;
        if lack.is_none() {
            boot::note(&fact, "");
        }
        Ok(lack)
    }

    /// Adds the missing module to the error, if that is the cause.
    fn named(&self, kind: Kind, error: Error) -> Error {
        let lack = self.lack(kind).ok().flatten();
        lack.map_or(error.clone(), |lack| error.detail(lack)).with_code(Code::UnsupportedField)
    }

    /// Whether an attachment has rules of a kind, including those of iptables-nft.
    pub(crate) fn has(&self, owner: &Owner, kind: Kind) -> Result<bool> {
        self.looks_for(owner, kind).map_err(|r| failure("look for", owner, "read the ruleset", r))
    }

    fn looks_for(&self, owner: &Owner, kind: Kind) -> Result<bool, RequestError> {
        let title = Element::record(&RecordKey::of(owner, kind).digest, 0);
        if query::comment_of(&self.socket, kind.table(), &title)?.is_some() {
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
