//! The nftables backend: nf_tables over netlink.
//!
//! An ADD reads which of the rules around the elements are there, and adds what misses together with the attachment's own elements
//! in one transaction. It deletes nothing unless an older attachment holds a key that it needs. A DEL
//! reads the attachment's records and deletes the elements that follow from them, as far as they still are its own.

mod batch;
mod element;
mod expr;
mod foreign;
mod layout;
mod own;
mod query;
mod uapi;

use std::collections::BTreeSet;
use std::fmt::Display;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use cni::{Code, Error, Result};
use netlink::{Protocol, Refusal, Socket};
use nix::errno::Errno;

use crate::leftovers::Whose;
use crate::owner::{Owner, network_prefix};
use crate::rules::{Kind, Mark, Rules};
use batch::Batch;
use element::{Element, RECORDS_MAX, Record};
use layout::{HOSTPORTS, Layout, Set, Table};

/// How long to try again because other writers change the ruleset.
const PATIENCE: Duration = Duration::from_secs(20);

/// A socket to nf_tables.
#[derive(Debug)]
pub(crate) struct Nft {
    socket: Socket,
}

/// How often to try again because something was not found, or was found, against expectation.
const TRIES: u32 = 32;

/// What is in the ruleset of an attachment, by kind.
#[derive(Debug)]
struct Installed {
    /// What its elements are commented with.
    label: String,
    digest: String,
    records: Vec<Record>,
    /// How many places in the set of records are taken, the label's included.
    places: usize,
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

    /// The socket, which conntrack is spoken through as well.
    pub(crate) fn socket(&self) -> &Socket {
        &self.socket
    }

    /// Installs an attachment's rules, in place of those that it may have.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub(crate) fn install(&self, owner: &Owner, rules: &Rules) -> Result<()> {
        let records = Record::all(rules);
        if records.len() >= RECORDS_MAX {
            return Err(Error::config(format!("{} rules for one attachment are too many", records.len())));
        }
        let change = Change::new(self, owner, rules, &records);
        retry(owner, "install", |replace| change.attempt(replace))
    }

    /// Whether an attachment's rules are as they were installed.
    ///
    /// # Errors
    /// What misses.
    pub(crate) fn check(&self, owner: &Owner, rules: &Rules) -> Result<()> {
        let (kind, records) = (rules.kind(), Record::all(rules));
        let failed = |r: Refusal| failure("check", owner, "read the ruleset", r);
        let layout = Layout::of(kind, &records, mark_of(rules));
        if let Some(rule) = self.missing(kind.table(), &layout).map_err(failed)?.rules.first() {
            let chain = rule.chain;
            return Err(drift(owner, format!("the rule \"{}\" of chain {chain} misses", rule.comment)));
        }
        let found = self.installed(owner, kind).map_err(failed)?;
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
        if own > 0 && self.own_rules(&found.label).map_err(failed)?.len() != own {
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
            let found = self.installed(owner, kind).map_err(failed)?;
            lines.extend(found.records.iter().map(Record::to_string));
        }
        Ok(lines)
    }

    /// Removes an attachment's rules of a kind, and gives the container's addresses that they named.
    ///
    /// # Errors
    /// The kernel's refusal. That there are none is fine.
    pub(crate) fn remove(&self, owner: &Owner, kind: Kind) -> Result<Vec<IpAddr>> {
        let mut held = Vec::new();
        retry(owner, "remove", |_| {
            let generation = query::generation(&self.socket).map_err(plain)?;
            let found = self.installed(owner, kind).map_err(plain)?;
            if found.places == 0 {
                return Ok(());
            }
            held = found.addresses();
            self.delete(kind, &[found], generation)
        })?;
        Ok(held)
    }

    /// Removes the rules of a kind of all attachments of a network but the valid ones.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub(crate) fn retain(&self, network: &str, kind: Kind, valid: &[Owner]) -> Result<Vec<IpAddr>> {
        let keep: BTreeSet<String> = valid.iter().map(Owner::label).collect();
        let (of_kind, prefix) = (format!("{kind} "), network_prefix(network));
        let mut held = Vec::new();
        retry(network, "sweep", |_| {
            let generation = query::generation(&self.socket).map_err(plain)?;
            let set = Set::attachments();
            let all = query::elements(&self.socket, kind.table(), &set.name).map_err(plain)?;
            let mut stale = Vec::new();
            for (key, comment) in &all {
                let label = comment.strip_prefix(&of_kind).filter(|label| label.starts_with(&prefix));
                let Some((label, digest)) = label.zip(Element::digest_of(key)) else { continue };
                if !keep.contains(label) {
                    stale.push(self.read(kind, label.to_owned(), digest).map_err(plain)?);
                }
            }
            if stale.is_empty() {
                return Ok(());
            }
            held = stale.iter().flat_map(Installed::addresses).collect();
            self.delete(kind, &stale, generation)
        })?;
        Ok(held)
    }

    /// Removes what iptables-nft, or the reference, installed.
    ///
    /// # Errors
    /// The kernel's refusal. That there is nothing is fine.
    pub(crate) fn remove_foreign(&self, whose: &Whose<'_>, kind: Kind) -> Result<()> {
        retry("other backends and the reference", "remove", |_| foreign::remove(&self.socket, whose, kind))
    }

    /// One transaction that deletes what attachments still hold; the table too, if nothing of others is in it.
    fn delete(&self, kind: Kind, stale: &[Installed], generation: u32) -> Attempt {
        let mut batch = Batch::new(Some(generation));
        let mine: usize = stale.iter().map(|found| found.places).sum();
        if self.only(kind.table(), mine).map_err(plain)? {
            batch.delete_table(kind.table());
        } else {
            for found in stale {
                self.put_deletion(kind.table(), found, &mut batch).map_err(plain)?;
            }
        }
        batch.commit(&self.socket)
    }

    fn put_deletion(&self, table: Table, found: &Installed, batch: &mut Batch) -> Result<(), Refusal> {
        for element in unique(&found.records) {
            if query::comment_of(&self.socket, table, &element)?.as_ref() == Some(&found.label) {
                batch.delete_element(table, &element);
            }
        }
        if found.records.iter().any(|record| matches!(record, Record::OwnRule(_))) {
            for handle in self.own_rules(&found.label)? {
                batch.delete_rule(table, HOSTPORTS.name, handle);
            }
        }
        for index in 0..found.places {
            batch.delete_element(table, &Element::record(&found.digest, index as u16));
        }
        Ok(())
    }

    /// Whether a table has as many records as given, and so no attachment's but theirs.
    fn only(&self, table: Table, places: usize) -> Result<bool, Refusal> {
        Ok(query::count_up_to(table, &Set::attachments().name, places + 1)? == places)
    }

    /// The handles of the rules that are an attachment's own.
    fn own_rules(&self, label: &str) -> Result<Vec<u64>, Refusal> {
        let rules = query::rules(&self.socket, layout::INET, HOSTPORTS.name)?;
        Ok(rules.into_iter().filter(|rule| rule.comment == label).map(|rule| rule.handle).collect())
    }

    fn installed(&self, owner: &Owner, kind: Kind) -> Result<Installed, Refusal> {
        self.read(kind, owner.label(), owner.digest(kind.as_str()))
    }

    fn read(&self, kind: Kind, label: String, digest: String) -> Result<Installed, Refusal> {
        let mut found = Installed { label, digest, records: Vec::new(), places: 0 };
        for index in 0..=u16::MAX {
            let place = Element::record(&found.digest, index);
            let Some(comment) = query::comment_of(&self.socket, kind.table(), &place)? else { break };
            found.places += 1;
            found.records.extend(comment.parse());
        }
        Ok(found)
    }

    /// What of a layout is not there.
    fn missing(&self, table: Table, layout: &Layout) -> Result<Layout, Refusal> {
        let mut missing = Layout::default();
        for chain in &layout.chains {
            let found = query::rules(&self.socket, table, chain.name)?;
            let wanted = layout.rules.iter().filter(|rule| rule.chain == chain.name);
            let here = |rule: &layout::Rule| found.iter().any(|f| f.comment == rule.comment);
            missing.rules.extend(wanted.filter(|rule| !here(rule)).cloned());
        }
        if !missing.rules.is_empty() {
            missing.chains.clone_from(&layout.chains);
            missing.sets.clone_from(&layout.sets);
        }
        Ok(missing)
    }
}

impl Installed {
    fn has(&self, element: &Element) -> bool {
        let same = |other: Element| other.set == element.set && other.key == element.key;
        self.records.iter().flat_map(Record::elements).any(same)
    }

    /// The container's addresses.
    fn addresses(&self) -> Vec<IpAddr> {
        let address = |record: &Record| match record {
            Record::Masquerade(address) => Some(address.ip()),
            Record::Forward(forward) | Record::OwnRule(forward) => Some(forward.to.ip()),
            Record::Hairpin { .. } | Record::Port(..) => None,
        };
        let addresses: BTreeSet<IpAddr> = self.records.iter().filter_map(address).collect();
        addresses.into_iter().collect()
    }
}

/// What one try of a transaction comes to: what was refused, and why.
type Attempt = Result<(), (String, Refusal)>;

/// The installation of an attachment's rules, which may take several tries.
struct Change<'a> {
    nft: &'a Nft,
    owner: &'a Owner,
    rules: &'a Rules,
    records: &'a [Record],
    layout: Layout,
    label: String,
}

impl<'a> Change<'a> {
    fn new(nft: &'a Nft, owner: &'a Owner, rules: &'a Rules, records: &'a [Record]) -> Self {
        let layout = Layout::of(rules.kind(), records, mark_of(rules));
        Self { nft, owner, rules, records, layout, label: owner.label() }
    }

    /// Adds all that is wanted. With `replace`, what others or an earlier ADD hold of it is deleted before.
    fn attempt(&self, replace: bool) -> Attempt {
        let (nft, table) = (self.nft, self.rules.kind().table());
        let generation = query::generation(&nft.socket).map_err(plain)?;
        let missing = nft.missing(table, &self.layout).map_err(plain)?;
        // Additions alone need not be bound to what was read: they fail if it is no longer so.
        let bound = replace || !missing.rules.is_empty();
        let mut batch = Batch::new(bound.then_some(generation));
        if !missing.rules.is_empty() {
            batch.add_table(table);
        }
        missing.chains.iter().for_each(|chain| batch.add_chain(table, *chain));
        missing.sets.iter().for_each(|set| batch.add_set(table, set));
        missing.rules.iter().for_each(|rule| batch.add_rule(table, rule));
        if replace {
            self.put_replacement(&mut batch).map_err(plain)?;
        }
        self.put_additions(&mut batch);
        batch.commit(&nft.socket)
    }

    fn put_additions(&self, batch: &mut Batch) {
        let (kind, table) = (self.rules.kind(), self.rules.kind().table());
        let digest = self.owner.digest(kind.as_str());
        batch.add_element(table, &Element::record(&digest, 0), &format!("{kind} {}", self.label));
        for (index, record) in (1..).zip(self.records) {
            batch.add_element(table, &Element::record(&digest, index), &record.to_string());
        }
        for element in unique(self.records) {
            batch.add_element(table, &element, &self.label);
        }
        own_rules(self.owner, self.rules).iter().for_each(|rule| batch.add_rule(table, rule));
    }

    /// Deletes what this attachment has already, and what others have under a key that it needs.
    fn put_replacement(&self, batch: &mut Batch) -> Result<(), Refusal> {
        let kind = self.rules.kind();
        let earlier = self.nft.installed(self.owner, kind)?;
        if earlier.places > 0 {
            self.nft.put_deletion(kind.table(), &earlier, batch)?;
        }
        for element in unique(self.records) {
            let holder = query::comment_of(&self.nft.socket, kind.table(), &element)?;
            let is_deleted = |label: &str| label == earlier.label && earlier.has(&element);
            if holder.is_some_and(|label| !is_deleted(&label)) {
                batch.delete_element(kind.table(), &element);
            }
        }
        Ok(())
    }
}

/// The elements of records, each once: of two mappings of the same port the last one counts.
fn unique(records: &[Record]) -> Vec<Element> {
    let mut elements: Vec<Element> = Vec::new();
    let mut places = std::collections::HashMap::new();
    for element in records.iter().flat_map(Record::elements) {
        let place = places.entry((element.set.name.clone(), element.key.clone())).or_insert(elements.len());
        if *place == elements.len() {
            elements.push(element);
        } else {
            elements[*place] = element;
        }
    }
    elements
}

fn own_rules(owner: &Owner, rules: &Rules) -> Vec<layout::Rule> {
    match rules {
        Rules::HostPorts(ports) if own::needed(ports) => own::rules(ports, &owner.label()),
        _ => Vec::new(),
    }
}

fn mark_of(rules: &Rules) -> &Mark {
    const DEFAULT: &Mark = &Mark::Bit(Mark::DEFAULT_BIT);
    match rules {
        Rules::HostPorts(ports) => &ports.mark,
        _ => DEFAULT,
    }
}

/// Tries until no other writer comes between. The closure is told whether a key that it needs was found taken.
fn retry(subject: impl Display, verb: &str, mut attempt: impl FnMut(bool) -> Attempt) -> Result<()> {
    let (deadline, mut replace) = (Instant::now() + PATIENCE, false);
    for tries in 1.. {
        let (step, refusal) = match attempt(replace) {
            Ok(()) => return Ok(()),
            Err(refused) => refused,
        };
        match refusal.errno() {
            // A key is taken, with the same value or with another.
            Some(Errno::EEXIST | Errno::EBUSY) if !replace => replace = true,
            // Another writer came between: the generation is not the one that was read.
            Some(Errno::ERESTART | Errno::EAGAIN) if Instant::now() < deadline => {}
            // The same, or the kernel lacks an expression: it says ENOENT to that as well.
            Some(Errno::ENOENT | Errno::EEXIST | Errno::EBUSY) if tries < TRIES => {}
            _ => {
                return Err(failure(verb, subject, &step, refusal));
            }
        }
    }
    Ok(())
}

/// A refusal outside of a batch.
fn plain(refusal: Refusal) -> (String, Refusal) {
    ("read the ruleset".into(), refusal)
}

fn failure(verb: &str, subject: impl Display, step: &str, refusal: Refusal) -> Error {
    let lacking = matches!(refusal.errno(), Some(Errno::ENOENT | Errno::EOPNOTSUPP | Errno::EAFNOSUPPORT));
    let error =
        Error::from(refusal.during("nf_tables:", step)).context(format!("{verb} the rules of {subject}"));
    if lacking {
        error.detail("the kernel may lack a module, such as nft_fib, nft_nat or nft_masq")
    } else {
        error
    }
}

fn drift(owner: &Owner, what: String) -> Error {
    Error::new(Code::Internal, format!("the nftables rules of {owner} are not as ADD left them: {what}"))
}
