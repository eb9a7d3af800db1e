//! The nftables backend: nf_tables over netlink.
//!
//! An ADD reads which of the rules around the elements are there, and adds what is missing together with the
//! attachment's own elements in one transaction. It deletes nothing unless an older attachment holds a key
//! that it needs. A DEL reads the attachment's records and deletes the elements that follow from them, as far
//! as they still are its own.

mod batch;
mod claims;
mod element;
mod expr;
mod foreign;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod install;
mod installed;
mod layout;
mod own;
mod probe;
mod query;
mod reference;
mod retry;
mod set;
pub(crate) mod uapi;
mod view;

use std::cell::{Cell, OnceCell};
use std::collections::BTreeSet;
use std::fmt::Display;

use cni::{Code, Error, Result};
use netlink::{Protocol, RequestError, Socket};
use nix::errno::Errno;
use system::linger;

use crate::leftovers::Whose;
use crate::owner::{Owner, network_prefix};
use crate::removal::{Addresses, Forget, ForgetAll};
use crate::rules::{Kind, Rules};
use batch::Batch;
use claims::Queue;
use element::{Element, RECORDS_MAX, Record};
use foreign::Theirs;
use install::{Change, mark_of, missing, own_rules};
use installed::{Installed, Place, put_deletion};
use layout::{Layout, Table};
use retry::{Attempt, failure, plain, retry};
use set::Set;
use view::View;

/// The name of our tables.
pub(crate) const TABLE: &str = layout::INET.name;

/// A socket to nf_tables.
#[derive(Debug)]
pub(crate) struct Nft {
    socket: Socket,
    /// What records are counted through.
    counter: OnceCell<Socket>,
    has_deleted: Cell<bool>,
}

impl Nft {
    /// Opens a socket, if the kernel has nf_tables.
    ///
    /// # Errors
    /// If the kernel has none, or descriptors run out.
    pub(crate) fn open() -> Result<Self, RequestError> {
        let this = Self {
            socket: Socket::open(Protocol::Netfilter)?,
            counter: OnceCell::new(),
            has_deleted: Cell::new(false),
        };
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

    /// Leaves the closing of the sockets to another process, if there is anything to wait for.
    pub(crate) fn leave(self) {
        if self.has_deleted.get() {
            let Self { socket, counter, .. } = self;
            linger::leave(socket.into(), counter.into_inner().map(Into::into));
        }
    }

    /// Installs an attachment's rules, in place of those that it may have.
    ///
    /// # Errors
    /// Code 2 if the kernel lacks something; else its refusal.
    pub(crate) fn install(&self, owner: &Owner, rules: &Rules) -> Result<()> {
        let records = Record::all(rules);
        if records.len() >= RECORDS_MAX {
            return Err(Error::config(format!(
                "{} records of one attachment are too many: map fewer than {RECORDS_MAX} host ports",
                records.len()
            )));
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
    pub(crate) fn lack(&self, kind: Kind) -> Result<Option<String>, RequestError> {
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

    /// Whether an attachment's rules are as they were installed. The host ports that wait are returned: a newer
    /// attachment has them. A port that is a rule of its own is none of these: a newer rule before it takes only the packets that
    /// fulfil its conditions, and the kernel does not tell which these are.
    ///
    /// # Errors
    /// What is missing, or another attachment's.
    pub(crate) fn check(&self, owner: &Owner, rules: &Rules) -> Result<Vec<String>> {
        let (kind, records) = (rules.kind(), Record::all(rules));
        let failed = |r: RequestError| failure("check", owner, "read the ruleset", r);
        let layout = Layout::of(kind, &records, mark_of(rules));
        if let Some(rule) = missing(&self.socket, kind.table(), &layout).map_err(failed)?.rules.first() {
            let chain = rule.chain;
            return Err(drift(owner, format!("the rule \"{}\" of chain {chain} is missing", rule.comment)));
        }
        let view = View::new(&self.socket, kind.table(), 1);
        let found = installed(&view, owner, kind).map_err(failed)?;
        if found.records != records {
            return Err(drift(owner, format!("the {kind} rules are not those of the configuration")));
        }
        let mut waiting = Vec::new();
        for record in &records {
            for element in record.elements() {
                match view.comment_of(&element).map_err(failed)? {
                    Some(comment) if comment == found.place.label => {}
                    Some(other) if Queue::read(&view, &element).map_err(failed)?.has(&found.place.label) => {
                        waiting.push(format!("{other} has it now: {record}"));
                    }
                    Some(other) => {
                        return Err(drift(
                            owner,
                            format!("an element of set {} belongs to {other}", element.set.name),
                        ));
                    }
                    None => {
                        return Err(drift(
                            owner,
                            format!("an element of set {} is missing", element.set.name),
                        ));
                    }
                }
            }
        }
        let own = own_rules(owner, rules).len();
        if own > 0 && installed::own_rules(&self.socket, &found.place.label).map_err(failed)?.len() != own {
            return Err(drift(owner, "a rule with its conditions is missing".into()));
        }
        Ok(waiting)
    }

    /// What is installed of an attachment, a line for each record.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub(crate) fn describe(&self, owner: &Owner) -> Result<Vec<String>> {
        let mut lines = Vec::new();
        for kind in [Kind::Masquerade, Kind::HostPorts, Kind::SpoofCheck] {
            let failed = |r: RequestError| failure("list", owner, "read the ruleset", r);
            let view = View::new(&self.socket, kind.table(), 1);
            let found = installed(&view, owner, kind).map_err(failed)?;
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

    /// Removes an attachment's rules of a kind.
    ///
    /// # Errors
    /// The kernel's refusal. That there are none is fine.
    pub(crate) fn remove(&self, owner: &Owner, kind: Kind, forget: Forget<'_>) -> Result<()> {
        let place = Place { label: owner.label(), digest: owner.digest(kind.as_str()) };
        self.take_out(owner, kind, forget, || Ok(vec![place.clone()]))
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
    ) -> Result<()> {
        let keep: BTreeSet<String> = valid.iter().map(Owner::label).collect();
        let (of_kind, prefix) = (format!("{kind} "), network_prefix(network));
        self.take_out(network, kind, forget, || {
            let all = query::elements(&self.socket, kind.table(), &Set::attachments().name)?;
            let stale = all.iter().filter_map(|(key, comment)| {
                let label = comment.strip_prefix(&of_kind)?;
                let is_stale = label.starts_with(&prefix) && !keep.contains(label);
                is_stale.then_some(Place { label: label.to_owned(), digest: Element::digest_of(key)? })
            });
            Ok(stale.collect())
        })
    }

    /// Whether the reference's rules of an attachment are there, those of iptables-nft among them.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub(crate) fn has_reference(&self, whose: &Whose<'_>, rules: &Rules) -> Result<bool, RequestError> {
        reference::has(&self.socket, whose, rules)
    }

    /// Removes what is at the places that are found, in one transaction; in several where others change the ruleset so often
    /// that there is no time for all at once. UDP flows are forgotten when no packet can begin one again, but before the records
    /// go: whoever is killed meanwhile leaves these to the next one.
    fn take_out(
        &self,
        subject: impl Display,
        kind: Kind,
        forget: Forget<'_>,
        find: impl Fn() -> Result<Vec<Place>, RequestError>,
    ) -> Result<()> {
        let mut limit = usize::MAX;
        loop {
            let (mut places, mut more, mut flows) = (Vec::new(), false, Addresses::new());
            retry(&subject, "remove", |_| {
                let generation = query::generation(&self.socket).map_err(plain)?;
                places = find().map_err(plain)?;
                more = places.len() > limit;
                places.truncate(limit);
                // For the next try, if this one is voided.
                limit = places.len().div_ceil(2).max(1);
                let stale = self.read(kind, &places).map_err(plain)?;
                flows = stale.iter().flat_map(Installed::udp_targets).collect();
                self.delete(kind, &stale, generation, flows.is_empty())
            })?;
            if !flows.is_empty() {
                forget(&flows);
                retry(&subject, "remove", |_| {
                    let generation = query::generation(&self.socket).map_err(plain)?;
                    let stale = self.read(kind, &places).map_err(plain)?;
                    self.delete(kind, &stale, generation, true)
                })?;
            }
            if !more {
                return Ok(());
            }
        }
    }

    fn read(&self, kind: Kind, places: &[Place]) -> Result<Vec<Installed>, RequestError> {
        let view = View::new(&self.socket, kind.table(), places.len());
        let mut found = Vec::new();
        for place in places {
            let installed = Installed::read(&view, kind, place.clone())?;
            found.extend((installed.places > 0).then_some(installed));
        }
        Ok(found)
    }

    /// One transaction that deletes what attachments still hold, with or without their records; the table too, if nothing of
    /// others is in it.
    fn delete(&self, kind: Kind, stale: &[Installed], generation: u32, records: bool) -> Attempt {
        if stale.is_empty() {
            return Ok(());
        }
        let (mut batch, table) = (Batch::new(Some(generation)), kind.table());
        let view = View::new(&self.socket, table, stale.len());
        let mut gone = put_deletion(&view, stale, |_| false, &mut batch).map_err(plain)?;
        if records {
            stale.iter().for_each(|found| found.put_records(table, &mut batch));
            gone += stale.iter().map(|found| found.places).sum::<usize>();
            if self.count_up_to(table, gone + 1).map_err(plain)? == gone {
                batch = Batch::new(Some(generation));
                batch.delete_table(table);
            }
        }
        self.has_deleted.set(true);
        if batch.is_empty() { Ok(()) } else { batch.commit(&self.socket) }
    }

    /// How many records there are, or at least `enough`: not all are looked at. The answer's rest is left unread, so it has a
    /// socket of its own; and that is kept, because closing one waits for whatever anybody has deleted.
    fn count_up_to(&self, table: Table, enough: usize) -> Result<usize, RequestError> {
        if self.counter.get().is_none() {
            // A removal must not fail because descriptors ran out: all is read then.
            if let Ok(socket) = Socket::open(Protocol::Netfilter) {
                self.counter.set(socket).ok();
            }
        }
        let set = &Set::attachments().name;
        match self.counter.get() {
            Some(counter) => query::count_up_to(counter, table, set, enough),
            None => query::count_up_to(&self.socket, table, set, enough),
        }
    }

    /// Removes what iptables-nft, or the reference, installed. UDP flows are forgotten as by [`Nft::remove`]; `forget` is also
    /// told whether rules are the reference's, which name no addresses.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub(crate) fn remove_foreign(&self, whose: &Whose<'_>, kind: Kind, forget: ForgetAll<'_>) -> Result<()> {
        let subject = "other backends and the reference";
        let has_flows = |theirs: &Theirs| kind == Kind::HostPorts && theirs.has_flows();
        let mut theirs = Theirs::default();
        retry(subject, "remove", |_| {
            theirs = foreign::remove(&self.socket, whose, kind, &Theirs::default(), has_flows)?;
            self.has_deleted.set(self.has_deleted.get() || theirs.was_there);
            Ok(())
        })?;
        if !has_flows(&theirs) {
            return Ok(());
        }
        forget(&theirs.addresses, theirs.unnamed);
        retry(subject, "remove", |_| foreign::remove(&self.socket, whose, kind, &theirs, |_| false).map(drop))
    }
}

fn installed(view: &View<'_>, owner: &Owner, kind: Kind) -> Result<Installed, RequestError> {
    Installed::read(view, kind, Place { label: owner.label(), digest: owner.digest(kind.as_str()) })
}

fn drift(owner: &Owner, what: String) -> Error {
    Error::new(Code::Internal, format!("the nftables rules of {owner} are not as ADD left them: {what}"))
}
