//! What goes of a table of iptables with attachments' rules: the same whether iptables-save(8) lists the table, or nf_tables, in
//! which iptables-nft keeps it.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::chains::{self, is_own};
use super::script::Hook;
use crate::conntrack::Targets;
use crate::kind::{InIptables, Kind, Shared};
use crate::reference::names::is_any_chain;
use crate::selector::Selector;

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
    /// What it jumps to; empty if it jumps nowhere.
    pub(crate) target: String,
    pub(crate) is_for_udp: bool,
    /// The container whose packets the reference accepts by it, and by nothing else: those from it, or the answers to it.
    pub(crate) accepts: Option<IpAddr>,
}

/// What goes: first the jumps, then what attachments shared, then the chains.
pub(crate) struct Plan<L: Listing> {
    pub(crate) table: &'static str,
    /// Rules that lead packets to the chains, each with the chain that it is in.
    pub(crate) jumps: Vec<(&'static str, L::Handle)>,
    /// Rules that attachments shared, of which none is left.
    pub(crate) shared: Vec<(Hook, L::Handle)>,
    pub(crate) chains: BTreeSet<String>,
    /// Where UDP flows are led to by what is in the chains.
    pub(crate) targets: Targets,
}

impl<L: Listing> Plan<L> {
    /// All that is somebody's, of a kind. Packets were led to the chains that are `known` already.
    pub(crate) fn of(
        listing: &L,
        selector: &Selector<'_>,
        (kind, facts): (Kind, &InIptables),
        known: impl IntoIterator<Item = String>,
    ) -> Result<Self, L::Error> {
        let (table, targets) = (facts.table, Targets::default());
        let mut this =
            Self { table, jumps: Vec::new(), shared: Vec::new(), chains: BTreeSet::new(), targets };
        for chain in chains::of(selector, kind).into_iter().chain(known) {
            if listing.has_chain(table, &chain)? {
                this.chains.insert(chain);
            }
        }
        if this.chains.is_empty() && !selector.is_for_many() {
            return Ok(this);
        }
        let (mut left, mut is_entry_used) = (BTreeSet::new(), false);
        for parent in facts.parents {
            for rule in listing.rules(table, parent)?.into_iter().filter(|rule| !rule.target.is_empty()) {
                if this.chains.contains(&rule.target) || selector.has_jump(&rule.comment) {
                    this.jumps.push((parent, rule.handle));
                    this.chains.insert(rule.target);
                } else {
                    is_entry_used |= facts.shared.as_ref().is_some_and(|shared| shared.entry == *parent);
                    left.insert(rule.target);
                }
            }
        }
        if facts.shared.is_some() && selector.is_for_many() {
            // To where nothing leads: whoever was killed before has removed the rest.
            let own = listing.chains(table)?.into_iter().filter(|chain| is_own(kind, chain));
            this.chains.extend(own.filter(|chain| !left.contains(chain)));
        }
        if kind.facts.redirects {
            this.find_targets(listing)?;
        }
        match &facts.shared {
            Some(shared) if !is_entry_used && this.chains.iter().any(|chain| is_own(kind, chain)) => {
                this.take_shared(listing, shared)?;
            }
            _ => {}
        }
        Ok(this)
    }

    /// The containers' addresses that UDP goes to, as far as rules name them: the reference's do not.
    fn find_targets(&mut self, listing: &L) -> Result<(), L::Error> {
        for chain in &self.chains {
            let rules = listing.rules(self.table, chain)?;
            let udp = rules.iter().filter(|rule| rule.is_for_udp);
            self.targets.addresses.extend(udp.filter_map(|rule| rule.comment.parse::<IpAddr>().ok()));
            self.targets.are_unnamed |= is_any_chain(chain);
        }
        Ok(())
    }

    /// What attachments shared, after the last one. Chains that others may use too stay together with what leads there, as long
    /// as anybody uses one of them.
    fn take_shared(&mut self, listing: &L, shared: &Shared) -> Result<(), L::Error> {
        let (mut lent, mut to_lent) = (BTreeSet::new(), Vec::new());
        for hook in shared.hooks {
            let rules = listing.rules(hook.0, hook.1)?.into_iter();
            for rule in rules.filter(|rule| shared.has_rule(&rule.comment)) {
                let target = rule.target.as_str();
                let is_own = target.is_empty() || shared.chains.contains(&target);
                if is_own || !listing.has_chain(self.table, target)? {
                    self.shared.push((*hook, rule.handle));
                } else {
                    to_lent.push((*hook, rule.handle));
                    lent.insert(rule.target);
                }
            }
        }
        for chain in shared.chains {
            if listing.has_chain(self.table, chain)? {
                self.chains.insert((*chain).to_owned());
            }
        }
        if !lent.is_empty() && !self.are_used(listing, shared, &lent)? {
            self.shared.extend(to_lent);
            self.chains.extend(lent);
        }
        Ok(())
    }

    /// Whether chains have rules of others, or rules of others lead there.
    fn are_used(&self, listing: &L, shared: &Shared, lent: &BTreeSet<String>) -> Result<bool, L::Error> {
        for from in listing.chains(self.table)? {
            let rules = listing.rules(self.table, &from)?;
            let mut of_others = rules.iter().filter(|rule| !shared.has_rule(&rule.comment));
            if of_others.any(|rule| lent.contains(&from) || lent.contains(&rule.target)) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// The rules by which the reference accepts packets of addresses: they tell nothing else of whose they are.
pub(crate) fn accepts<L: Listing>(
    listing: &L,
    (table, chain): Hook,
    addresses: &[IpAddr],
) -> Result<Vec<L::Handle>, L::Error> {
    let rules = listing.rules(table, chain)?.into_iter();
    let accepting = rules.filter(|rule| rule.accepts.is_some_and(|ip| addresses.contains(&ip)));
    Ok(accepting.map(|rule| rule.handle).collect())
}
