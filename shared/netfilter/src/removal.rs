//! Removes rules, whichever backend installed them.

use std::collections::BTreeSet;
use std::net::IpAddr;

use cni::{Code, Error, Failures, NetworkName, Result, Scope};
use netlink::{Protocol, Socket};

use crate::backend::Backend;
use crate::conntrack::{self, FlowTarget, Targets};
use crate::iptables;
use crate::kind::{Kind, OwnedRules};
use crate::nft::Nft;
use crate::owner::Owner;
use crate::plan::Query;
use crate::route_localnet;
use crate::selector::{Selector, Stale};

/// The removal of rules of Ferrule or the reference, whichever backend installed them.
///
/// Dropping a removal closes its netlink sockets. This waits for an RCU grace period of 12 to 24 ms, as deleting a link
/// does. Drop the removal after the links were deleted, so that the two waits overlap.
#[derive(Debug)]
pub struct Removal {
    /// The result of the wait for iptables tools that outlive a killed plugin. They may still add rules, so the rules
    /// are listed only after that wait.
    settled: Result<()>,
    /// None: the kernel has no nf_tables.
    nft: netlink::Result<Option<Nft>>,
    /// The container's addresses. Empty if the caller does not know them.
    addresses: Vec<IpAddr>,
}

impl Removal {
    /// Waits for iptables tools of killed plugins, then opens nf_tables. On a host without nf_tables, the removal reads
    /// only the legacy tables of iptables.
    pub fn start() -> Self {
        let settled = iptables::tools::settle();
        Self { settled, nft: Nft::open_if_present(), addresses: Vec::new() }
    }

    /// Sets the addresses of the one container whose rules are removed, if the caller knows them. The reference's rules
    /// do not contain the destinations of flows, and some contain only addresses.
    #[must_use]
    pub fn with_addresses(self, addresses: impl IntoIterator<Item = IpAddr>) -> Self {
        Self { addresses: addresses.into_iter().collect(), ..self }
    }

    /// Removes an attachment's rules of these kinds, and flushes their UDP and SCTP flows. Succeeds if there are no rules.
    ///
    /// # Errors
    /// If the kernel or an iptables tool fails. The other rules are removed nevertheless.
    pub fn remove(&self, owner: &Owner, kinds: &[Kind]) -> Result<()> {
        self.remove_kinds(&Selector::Of(owner), kinds)
    }

    /// Removes rules that a concurrent `cnitool repair` has installed since [`Removal::remove`], and rules of other
    /// plugins of the chain whose DEL was not called. Restores `route_localnet` first, if portmap has set it. Call this
    /// function after the attachment's link was deleted: from then on, no repair installs rules. It sends a few requests
    /// to the kernel, and does not read the legacy tables of iptables.
    ///
    /// # Errors
    /// If the kernel or an iptables tool fails, or `route_localnet` cannot be restored: a guard of 127.0.0.0/8 then stays.
    /// The other rules are removed nevertheless.
    pub fn remove_repaired(&self, owner: &Owner) -> Result<()> {
        let mut failures = Failures::new();
        let nft = self.nft.as_ref().ok().and_then(Option::as_ref);
        let mut has = |kind| nft.is_some_and(|nft| failures.note(nft.has(owner, kind)) == Some(true));
        let mut found: Vec<_> = Kind::ALL.into_iter().filter(|kind| *kind != Kind::KEPT_GUARD).collect();
        found.retain(|kind| has(*kind));
        let is_used =
            found.iter().copied().any(route_localnet::is_guarding) || route_localnet::has_user(owner);
        // If the DEL of portmap has kept a guard, because it could not restore `route_localnet`, it will be repeated.
        if is_used && !has(Kind::KEPT_GUARD) {
            let removable = route_localnet::release(owner, &mut failures);
            found.retain(|kind| !route_localnet::is_guarding(*kind) || removable.contains(kind));
        }
        if !found.is_empty() {
            // `self` has cached the ruleset from before the repair, so a new removal is needed.
            failures.note(Self::start().remove(owner, &found));
        }
        failures.into_result()
    }

    /// Removes an attachment's rules from a backend after `rules` were installed in the other one. The reference's rules stay: they may
    /// be another interface's. Flows that `rules` lead to the same container are not flushed.
    ///
    /// # Errors
    /// If the kernel or an iptables tool fails.
    pub(crate) fn remove_replaced(&self, backend: Backend, (owner, rules): OwnedRules<'_>) -> Result<()> {
        let (kind, selector) = (rules.kind(), Selector::Own(owner));
        let current: BTreeSet<FlowTarget> = rules.tracked_ports().into_iter().map(FlowTarget::from).collect();
        let flush = |targets: &Targets| {
            let mut targets = targets.clone();
            targets.flows.retain(|flow| !current.contains(flow));
            self.flush(&targets);
        };
        let nft = self.nft.as_ref().map_err(|e| Error::new(Code::Internal, e.to_string()))?;
        if backend == Backend::Nftables {
            return nft.as_ref().map_or(Ok(()), |nft| nft.remove(&selector, kind, &flush));
        }
        self.settled.clone()?;
        let query = Query { selector: &selector, kind, addresses: &[] };
        if let Some(nft) = nft {
            nft.remove_foreign(query, &flush)?;
        }
        iptables::legacy::remove(query, &flush)
    }

    /// Removes a network's stale rules of these kinds (GC).
    ///
    /// # Errors
    /// If the kernel or an iptables tool fails. The other rules are removed nevertheless.
    pub fn collect(&self, network: &NetworkName, kinds: &[Kind], scope: &Scope) -> Result<()> {
        let mut failures = Failures::new();
        for kind in kinds {
            failures.note(
                self.remove_kind(&Selector::Stale(Stale::new(network, scope, kind.properties.name)), *kind),
            );
        }
        failures.into_result()
    }

    /// Ends the removal without waiting for the grace period: another process closes the sockets. For plugins that
    /// delete no links.
    pub fn close_later(self) {
        if let Ok(Some(nft)) = self.nft {
            nft.close_later();
        }
    }

    fn remove_kinds(&self, selector: &Selector<'_>, kinds: &[Kind]) -> Result<()> {
        let mut failures = Failures::new();
        for kind in kinds {
            failures.note(self.remove_kind(selector, *kind));
        }
        failures.into_result()
    }

    fn remove_kind(&self, selector: &Selector<'_>, kind: Kind) -> Result<()> {
        let mut failures = Failures::new();
        let flush = |targets: &Targets| self.flush(targets);
        let query = Query { selector, kind, addresses: &self.addresses };
        failures.note(self.settled.clone());
        match &self.nft {
            Ok(nft) => {
                if let Some(nft) = nft {
                    failures.note(nft.remove(selector, kind, &flush));
                    failures.note(nft.remove_foreign(query, &flush));
                }
                if let Some(hook) = kind.properties.nftables.opens.filter(|_| !selector.is_dry()) {
                    failures.note(iptables::forward::close(hook, || has_any(nft.as_ref(), kind)));
                }
            }
            // It may contain rules that this removal has missed, and those of attachments that need the opened hook.
            Err(e) => {
                failures.note(Err::<(), _>(Error::new(Code::Internal, e.to_string())));
            }
        }
        failures.note(iptables::legacy::remove(query, &flush));
        failures.into_result()
    }

    /// Flushes UDP and SCTP flows through the removed host ports. A failure is only a warning: the rules are
    /// removed nevertheless, and a flow expires when its client stops sending.
    fn flush(&self, targets: &Targets) {
        // Use the container's addresses only if rules existed: at a repeated DEL, another container may have them.
        let known = self.addresses.iter().filter(|_| targets.has_rules_without_addresses);
        let known = known.map(|ip| FlowTarget { port: None, to: *ip });
        let flows: BTreeSet<FlowTarget> = targets.flows.iter().copied().chain(known).collect();
        if flows.is_empty() {
            return;
        }
        let flush = |socket: &Socket| conntrack::flush_containers(socket, flows.iter().copied());
        let attempt = || match &self.nft {
            Ok(Some(nft)) => flush(nft.socket()),
            _ => Socket::open(Protocol::Netfilter).and_then(|socket| flush(&socket)),
        };
        // The kernel may have been short of memory for a moment, so a second attempt is worthwhile.
        if let Err(refusal) = attempt().or_else(|_| attempt()) {
            let addresses: BTreeSet<IpAddr> = flows.iter().map(|flow| flow.to).collect();
            let listed = addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            let error = refusal.during("delete the connection tracking entries of", listed);
            cni::warn(&format!(
                "{error}; UDP and SCTP clients of its host ports may keep sending to the removed container for some minutes"
            ));
        }
    }
}

/// Whether any attachment has rules of a kind in nf_tables.
fn has_any(nft: Option<&Nft>, kind: Kind) -> Result<bool> {
    let Some(nft) = nft else { return Ok(false) };
    Ok(nft.has_any(kind).map_err(|r| r.during("list", "the attachments' records"))?)
}
