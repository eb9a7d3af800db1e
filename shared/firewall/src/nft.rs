//! The nftables backend: nf_tables over netlink.
//!
//! An ADD reads which of the rules around the elements are there, and adds what misses together with the
//! attachment's own elements in one transaction. It deletes nothing unless an older attachment holds a key
//! that it needs. A DEL reads the attachment's records and deletes the elements that follow from them, as far
//! as they still are its own.

mod batch;
mod element;
mod expr;
mod foreign;
#[cfg(any(test, fuzzing))]
pub(crate) mod hostile;
mod install;
mod installed;
mod layout;
mod own;
mod probe;
mod query;
mod reference;
mod retry;
mod set;
mod uapi;

use std::collections::BTreeSet;

use cni::{Code, Error, Result};
use netlink::{Protocol, Refusal, Socket};
use nix::errno::Errno;

use crate::leftovers::Whose;
use crate::owner::{Owner, network_prefix};
use crate::rules::{Kind, Rules};
use crate::sweep::{Addresses, Forget};
use batch::Batch;
use element::{Element, RECORDS_MAX, Record};
use install::{Change, mark_of, missing, own_rules};
use installed::Installed;
use layout::Layout;
use retry::{Attempt, failure, plain, retry};
use set::Set;

/// A socket to nf_tables.
#[derive(Debug)]
pub(crate) struct Nft {
    socket: Socket,
}

impl Nft {
    /// Opens a socket, if the kernel has nf_tables.
    ///
    /// # Errors
    /// If the kernel has none, or descriptors run out.
    pub(crate) fn open() -> Result<Self, Refusal> {
        let this = Self { socket: Socket::open(Protocol::Netfilter)? };
        query::generation(&this.socket)?;
        Ok(this)
    }

    /// Whether [`Nft::open`] failed because the kernel has no nf_tables: it knows the protocol not, or not that subsystem.
    pub(crate) fn is_missing(error: &netlink::Error) -> bool {
        error.is_unsupported() || error.errno() == Some(Errno::EINVAL)
    }

    /// The socket, which conntrack is spoken through as well.
    pub(crate) fn socket(&self) -> &Socket {
        &self.socket
    }

    /// Installs an attachment's rules, in place of those that it may have.
    ///
    /// # Errors
    /// Code 2 if the kernel lacks something; else its refusal.
    pub(crate) fn install(&self, owner: &Owner, rules: &Rules) -> Result<()> {
        let records = Record::all(rules);
        if records.len() >= RECORDS_MAX {
            return Err(Error::config(format!("{} rules for one attachment are too many", records.len())));
        }
        let change = Change::new(&self.socket, owner, rules, &records);
        let mut lack = None;
        retry(owner, "install", |replace| match change.attempt(replace) {
            Err((step, refusal)) if change.is_lack(&refusal) => {
                lack = Some(failure("install", owner, &step, refusal));
                Ok(())
            }
            other => other,
        })?;
        lack.map_or(Ok(()), |error| Err(self.named(rules.kind(), error)))
    }

    /// What the kernel lacks for rules of a kind, in words. None: they were installed before, or can be. If
    /// they never were, it takes a grace period to know.
    ///
    /// # Errors
    /// The kernel's refusal to tell.
    pub(crate) fn lack(&self, kind: Kind) -> Result<Option<String>, Refusal> {
        if query::has_chain(&self.socket, kind.table(), kind.chain())? {
            return Ok(None);
        }
        let module = probe::lacking(&self.socket, kind)?;
        Ok(module.map(|module| format!("the kernel has no {module}, which nftables needs for {kind}")))
    }

    /// With the module that is missing, if it is one.
    fn named(&self, kind: Kind, error: Error) -> Error {
        let lack = self.lack(kind).ok().flatten();
        lack.map_or(error.clone(), |lack| error.detail(lack)).with_code(Code::UnsupportedField)
    }

    /// Whether an attachment's rules are as they were installed.
    ///
    /// # Errors
    /// What misses.
    pub(crate) fn check(&self, owner: &Owner, rules: &Rules) -> Result<()> {
        let (kind, records) = (rules.kind(), Record::all(rules));
        let failed = |r: Refusal| failure("check", owner, "read the ruleset", r);
        let layout = Layout::of(kind, &records, mark_of(rules));
        if let Some(rule) = missing(&self.socket, kind.table(), &layout).map_err(failed)?.rules.first() {
            let chain = rule.chain;
            return Err(drift(owner, format!("the rule \"{}\" of chain {chain} misses", rule.comment)));
        }
        let found = installed(&self.socket, owner, kind).map_err(failed)?;
        if found.records != records {
            return Err(drift(
                owner,
                format!("the records of its {kind} are not those of the configuration"),
            ));
        }
        for element in records.iter().flat_map(Record::elements) {
            match query::comment_of(&self.socket, kind.table(), &element).map_err(failed)? {
                Some(comment) if comment == found.label => {}
                Some(other) => {
                    return Err(drift(owner, format!("an element of {} is {other}'s", element.set.name)));
                }
                None => return Err(drift(owner, format!("an element of {} misses", element.set.name))),
            }
        }
        let own = own_rules(owner, rules).len();
        if own > 0 && installed::own_rules(&self.socket, &found.label).map_err(failed)?.len() != own {
            return Err(drift(owner, "a rule with its conditions misses".into()));
        }
        Ok(())
    }

    /// What is installed of an attachment, a line for each record.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub(crate) fn describe(&self, owner: &Owner) -> Result<Vec<String>> {
        let mut lines = Vec::new();
        for kind in [Kind::Masquerade, Kind::HostPorts, Kind::SpoofCheck] {
            let failed = |r: Refusal| failure("list", owner, "read the ruleset", r);
            let found = installed(&self.socket, owner, kind).map_err(failed)?;
            lines.extend(found.records.iter().map(Record::to_string));
        }
        Ok(lines)
    }

    /// Whether an attachment has rules of a kind, be it by iptables-nft.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub(crate) fn has(&self, owner: &Owner, kind: Kind) -> Result<bool> {
        let label = Element::record(&owner.digest(kind.as_str()), 0);
        let found = query::comment_of(&self.socket, kind.table(), &label).and_then(|comment| {
            Ok(comment.is_some() || foreign::has_chain(&self.socket, &crate::iptables::chain(owner, kind))?)
        });
        found.map_err(|r| failure("look for", owner, "read the ruleset", r))
    }

    /// Removes an attachment's rules of a kind, and gives the container's addresses that they named.
    ///
    /// # Errors
    /// The kernel's refusal. That there are none is fine.
    pub(crate) fn remove(&self, owner: &Owner, kind: Kind, forget: Forget<'_>) -> Result<Addresses> {
        let mut held = Addresses::new();
        retry(owner, "remove", |_| {
            let generation = query::generation(&self.socket).map_err(plain)?;
            let found = installed(&self.socket, owner, kind).map_err(plain)?;
            if found.places == 0 {
                return Ok(());
            }
            held.extend(found.addresses());
            forget(&held);
            delete(&self.socket, kind, &[found], generation)
        })?;
        Ok(held)
    }

    /// Removes the rules of a kind of all attachments of a network but the valid ones.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub(crate) fn retain(
        &self,
        network: &str,
        kind: Kind,
        valid: &[Owner],
        forget: Forget<'_>,
    ) -> Result<Addresses> {
        let keep: BTreeSet<String> = valid.iter().map(Owner::label).collect();
        let (of_kind, prefix) = (format!("{kind} "), network_prefix(network));
        let mut held = Addresses::new();
        retry(network, "sweep", |_| {
            let generation = query::generation(&self.socket).map_err(plain)?;
            let set = Set::attachments();
            let all = query::elements(&self.socket, kind.table(), &set.name).map_err(plain)?;
            let mut stale = Vec::new();
            for (key, comment) in &all {
                let label = comment.strip_prefix(&of_kind).filter(|label| label.starts_with(&prefix));
                let Some((label, digest)) = label.zip(Element::digest_of(key)) else { continue };
                if !keep.contains(label) {
                    stale.push(Installed::read(&self.socket, kind, label.to_owned(), digest).map_err(plain)?);
                }
            }
            if stale.is_empty() {
                return Ok(());
            }
            held.extend(stale.iter().flat_map(Installed::addresses));
            forget(&held);
            delete(&self.socket, kind, &stale, generation)
        })?;
        Ok(held)
    }

    /// Whether the reference's rules of an attachment are there, those of iptables-nft among them.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub(crate) fn has_reference(&self, whose: &Whose<'_>, rules: &Rules) -> Result<bool, Refusal> {
        reference::has(&self.socket, whose, rules)
    }

    /// Removes what iptables-nft, or the reference, installed. None: there is nothing. Else the container's addresses, as
    /// far as the rules name them.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub(crate) fn remove_foreign(
        &self,
        whose: &Whose<'_>,
        kind: Kind,
        forget: Forget<'_>,
    ) -> Result<Option<Addresses>> {
        let mut found = None;
        retry("other backends and the reference", "remove", |_| {
            found = foreign::remove(&self.socket, whose, kind, forget)?;
            Ok(())
        })?;
        Ok(found)
    }
}

/// One transaction that deletes what attachments still hold; the table too, if nothing of others is in it.
fn delete(socket: &Socket, kind: Kind, stale: &[Installed], generation: u32) -> Attempt {
    let (mut batch, table) = (Batch::new(Some(generation)), kind.table());
    let places: usize = stale.iter().map(|found| found.places).sum();
    if query::count_up_to(socket, table, &Set::attachments().name, places + 1).map_err(plain)? == places {
        batch.delete_table(table);
    } else {
        for found in stale {
            found.put_deletion(socket, table, &mut batch).map_err(plain)?;
        }
    }
    batch.commit(socket)
}

fn installed(socket: &Socket, owner: &Owner, kind: Kind) -> Result<Installed, Refusal> {
    Installed::read(socket, kind, owner.label(), owner.digest(kind.as_str()))
}

fn drift(owner: &Owner, what: String) -> Error {
    Error::new(Code::Internal, format!("the nftables rules of {owner} are not as ADD left them: {what}"))
}
