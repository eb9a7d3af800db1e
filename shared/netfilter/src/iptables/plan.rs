//! What goes of a table of iptables with attachments' rules: the same whether iptables-save(8) lists the table, or nf_tables, in
//! which iptables-nft keeps it.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::chains::{self, is_own};
use crate::conntrack::Targets;
use crate::kind::{InIptables, Kind, Shared};
use crate::listing::{Content, Hook, Listed, Listing};
use crate::opening;
use crate::reference::names::is_any_chain;
use crate::selector::Selector;

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
            for rule in listing.rules(table, parent)? {
                let is_theirs = this.chains.contains(&rule.target) || selector.has_jump(&rule.comment);
                if is_theirs && !rule.target.is_empty() {
                    this.jumps.push((parent, rule.handle));
                    this.chains.insert(rule.target);
                } else {
                    is_entry_used |= facts.shared.as_ref().is_some_and(|shared| shared.entry == *parent);
                    left.insert(rule.target);
                }
            }
        }
        if facts.shared.is_some() && selector.is_for_many() && !selector.is_dry() {
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

    /// What attachments shared, after the last one, unless rules of others are in it.
    fn take_shared(&mut self, listing: &L, shared: &Shared) -> Result<(), L::Error> {
        for chain in shared.chains {
            let rules = listing.rules(self.table, chain)?;
            let is_ours = |rule: &Listed<L::Handle>| {
                shared.has_rule(&rule.comment) || self.chains.contains(&rule.target)
            };
            if !rules.iter().all(is_ours) {
                return Ok(());
            }
        }
        for hook in shared.hooks {
            let rules = listing.rules(hook.0, hook.1)?.into_iter();
            let ours = rules.filter(|rule| shared.has_rule(&rule.comment));
            self.shared.extend(ours.map(|rule| (*hook, rule.handle)));
        }
        for chain in shared.chains {
            if listing.has_chain(self.table, chain)? {
                self.chains.insert((*chain).to_owned());
            }
        }
        if let Some(way) = shared.in_forward {
            let edit = opening::close(listing, |rule| rule.comment == way)?;
            self.shared.extend(edit.deleted.into_iter().map(|(chain, handle)| ((self.table, chain), handle)));
            self.chains.extend(edit.old_chains);
        }
        Ok(())
    }
}

/// The rules by which the reference accepts packets of addresses: they tell nothing else of whose they are.
pub(crate) fn accepts<L: Listing>(
    listing: &L,
    (table, chain): Hook,
    addresses: &[IpAddr],
) -> Result<Vec<L::Handle>, L::Error> {
    let rules = listing.rules(table, chain)?.into_iter();
    let accepting =
        rules.filter(|rule| matches!(rule.content, Content::AcceptAddress(ip) if addresses.contains(&ip)));
    Ok(accepting.map(|rule| rule.handle).collect())
}
