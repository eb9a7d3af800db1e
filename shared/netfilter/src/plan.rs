//! Finds the rules to remove from an iptables table. It works on any listing: of iptables-save(8), or of nf_tables, in
//! which iptables-nft stores its tables.

pub(crate) mod chains;

use std::collections::BTreeSet;
use std::net::IpAddr;

use netlink::{Family, RequestError};

use crate::conntrack::{FlowTarget, Targets};
use crate::kind::{IptablesProperties, Kind, Shared};
use crate::listing::{Edit, Listed, Listing, RuleLocation};
use crate::opening::{self, OpenedHook};
use crate::reference::chains::accepts;
use crate::reference::names::is_any_chain;
use crate::ruleset::Table;
use crate::selector::Selector;
use chains::is_own;

/// What to remove: first the jumps, then the rest.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// Jumps to attachments' chains.
    pub(crate) jumps: Vec<RuleLocation>,
    /// Shared rules, if this was the last attachment, and the chains.
    pub(crate) rest: Edit,
    /// Flows according to the chains.
    pub(crate) targets: Targets,
}

impl Plan {
    pub(crate) fn is_empty(&self) -> bool {
        self.jumps.is_empty() && self.rest.is_empty()
    }

    /// Adds the plan for another family.
    pub(crate) fn extend(&mut self, other: Self) {
        self.jumps.extend(other.jumps);
        self.rest.extend(other.rest);
        self.targets.flows.extend(other.targets.flows);
        self.targets.has_rules_without_addresses |= other.targets.has_rules_without_addresses;
    }

    /// All changes as one edit.
    pub(crate) fn whole(self) -> Edit {
        let mut edit = Edit { deleted: self.jumps, ..Edit::default() };
        edit.extend(self.rest);
        edit
    }
}

/// Which rules of a kind are removed.
#[derive(Clone, Copy)]
pub(crate) struct Query<'a> {
    pub(crate) selector: &'a Selector<'a>,
    pub(crate) kind: Kind,
    /// The container's addresses, if known. Some rules of the reference contain nothing else.
    pub(crate) addresses: &'a [IpAddr],
}

impl Query<'_> {
    /// Plans the removal from the tables of a family. Jumps to `known` chains were deleted already.
    pub(crate) fn plan(
        self,
        listing: &dyn Listing,
        family: Family,
        known: impl IntoIterator<Item = String>,
    ) -> Result<Plan, RequestError> {
        let mut plan = match self.kind.iptables() {
            Some(properties) => Search { listing, family, query: self, properties }.plan(known)?,
            None => Plan::default(),
        };
        // These rules belong to the attachment, or to an earlier one with the same addresses. A current attachment with
        // these addresses has its own rules.
        if let (Some(hook), Selector::Of(_)) = (self.kind.properties.reference.accepts, self.selector) {
            plan.jumps.extend(accepts(listing, family, hook, self.addresses)?);
        }
        Ok(plan)
    }
}

/// Search for rules in the tables of a family.
struct Search<'a> {
    listing: &'a dyn Listing,
    family: Family,
    query: Query<'a>,
    properties: &'a IptablesProperties,
}

impl Search<'_> {
    fn table(&self, name: &'static str) -> Table {
        Table::of_iptables(self.family, name)
    }

    fn plan(&self, known: impl IntoIterator<Item = String>) -> Result<Plan, RequestError> {
        let Self { listing, query: Query { selector, kind, .. }, properties, .. } = self;
        let (mut plan, mut found, table) = (Plan::default(), BTreeSet::new(), self.table(properties.table));
        for chain in chains::of(selector, *kind).into_iter().chain(known) {
            if listing.has_chain(table, &chain)? {
                found.insert(chain);
            }
        }
        if found.is_empty() && !selector.is_for_many() {
            return Ok(plan);
        }
        let (mut left, mut left_tracked, mut is_entry_used) = (BTreeSet::new(), BTreeSet::new(), false);
        // Other programs' rules may have comments that look like labels.
        let may_be_theirs = chains::may_be_of(selector, *kind);
        for parent in properties.parents {
            for rule in listing.rules(table, parent)? {
                let is_stale = || selector.has_jump(&rule.comment) && may_be_theirs(&rule.target);
                if found.contains(&rule.target) || is_stale() {
                    plan.jumps.push(rule.location);
                    found.insert(rule.target);
                } else {
                    is_entry_used |= properties.shared.as_ref().is_some_and(|shared| shared.entry == *parent);
                    left_tracked.extend(rule.tracked.map(|_| rule.target.clone()));
                    left.insert(rule.target);
                }
            }
        }
        if properties.shared.is_some() && selector.is_for_many() && !selector.is_dry() {
            // Chains without a jump to them: a process that was killed had removed the jumps.
            let own = listing.chains(table)?.into_iter().filter(|chain| is_own(*kind, chain));
            found.extend(own.filter(|chain| !left.contains(chain)));
        }
        if kind.properties.maps_host_ports {
            plan.targets = self.targets(&found)?;
        }
        if !plan.targets.flows.is_empty() {
            // Another attachment may map a port to the same address: its container has the address now.
            let others = left_tracked.difference(&found).filter(|chain| is_own(*kind, chain));
            let others = self.targets(others)?;
            plan.targets.flows.retain(|flow| !others.flows.contains(flow));
        }
        if let Some(shared) = &properties.shared
            && !is_entry_used
            && found.iter().any(|chain| is_own(*kind, chain))
        {
            plan.rest = self.shared(shared, &mut found)?;
        }
        let mut chains: Vec<_> = found.into_iter().map(|chain| (table, chain)).collect();
        chains.append(&mut plan.rest.old_chains);
        plan.rest.old_chains = chains;
        Ok(plan)
    }

    /// The UDP and SCTP flows to containers, if the rules contain their addresses. The reference's do not.
    fn targets<'c>(&self, chains: impl IntoIterator<Item = &'c String>) -> Result<Targets, RequestError> {
        let mut targets = Targets::default();
        for chain in chains {
            let rules = self.listing.rules(self.table(self.properties.table), chain)?;
            let target = |rule: &Listed| {
                Some(FlowTarget { port: Some((rule.tracked?, rule.port?)), to: rule.comment.parse().ok()? })
            };
            targets.flows.extend(rules.iter().filter_map(target));
            targets.has_rules_without_addresses |= is_any_chain(chain);
        }
        Ok(targets)
    }

    /// Shared rules, if this was the last attachment, unless other programs' rules are in the chains.
    fn shared(&self, shared: &Shared, found: &mut BTreeSet<String>) -> Result<Edit, RequestError> {
        let (table, mut edit) = (self.table(self.properties.table), Edit::default());
        for chain in shared.chains {
            let rules = self.listing.rules(table, chain)?;
            let is_ours = |rule: &Listed| shared.has_rule(&rule.comment) || found.contains(&rule.target);
            if !rules.iter().all(is_ours) {
                return Ok(edit);
            }
        }
        for (table, chain) in shared.hooks {
            let rules = self.listing.rules(self.table(table), chain)?.into_iter();
            let ours = rules.filter(|rule| shared.has_rule(&rule.comment));
            edit.deleted.extend(ours.map(|rule| rule.location));
        }
        for chain in shared.chains {
            if self.listing.has_chain(table, chain)? {
                found.insert((*chain).to_owned());
            }
        }
        if let Some(way) = shared.in_forward {
            edit.extend(opening::close(self.listing, self.family, OpenedHook::FORWARD, |rule| {
                rule.comment == way
            })?);
        }
        Ok(edit)
    }
}
