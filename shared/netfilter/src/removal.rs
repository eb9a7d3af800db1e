//! Removes rules, whichever backend installed them.

use std::net::IpAddr;

use cni::{Code, Error, Failures, NetworkName, Result, Scope};
use netlink::{Protocol, Socket};

use crate::conntrack::{self, Targets};
use crate::iptables;
use crate::kind::Kind;
use crate::nft::Nft;
use crate::owner::Owner;
use crate::plan::Query;
use crate::selector::{Selector, Stale};

/// The removal of rules of Ferrule or the reference, whichever backend installed them.
///
/// Dropping it waits for an RCU grace period, 12 to 24 ms, as deleting a link does. Drop it after links were deleted,
/// so that the two waits overlap.
#[derive(Debug)]
pub struct Removal {
    /// Result of the wait for tools of killed plugins. Only afterwards all rules to remove exist.
    settled: Result<()>,
    /// None: the kernel has no nf_tables.
    nft: netlink::Result<Option<Nft>>,
    /// The container's addresses, if the caller knows them.
    known: Vec<IpAddr>,
}

impl Removal {
    /// Waits for tools of killed plugins, then opens nf_tables. On a host without nf_tables, only the legacy tables of
    /// iptables are read.
    pub fn start() -> Self {
        let settled = iptables::tools::settle();
        let nft = match Nft::open().map_err(|r| r.during("open", "nf_tables")) {
            Err(e) if Nft::is_missing(&e) => Ok(None),
            opened => opened.map(Some),
        };
        Self { settled, nft, known: Vec::new() }
    }

    /// Sets the addresses of the one container whose rules are removed, if the caller knows them. The reference's rules
    /// do not contain the destinations of UDP flows, and some contain only addresses.
    #[must_use]
    pub fn with_addresses(self, addresses: impl IntoIterator<Item = IpAddr>) -> Self {
        Self { known: addresses.into_iter().collect(), ..self }
    }

    /// Removes an attachment's rules of these kinds, and flushes their UDP flows.
    ///
    /// # Errors
    /// The errors. All other rules are removed. Without any rules, it succeeds.
    pub fn remove(&self, owner: &Owner, kinds: &[Kind]) -> Result<()> {
        self.remove_kinds(&Selector::Of(owner), kinds)
    }

    /// Removes rules of any kind that a repair has installed since [`Removal::remove`]. Call it after the attachment's
    /// link was deleted: from then on, no repair installs rules. It needs a few requests to the kernel, and does not
    /// look into legacy tables of iptables.
    ///
    /// # Errors
    /// The errors. All other rules are removed.
    pub fn remove_repaired(&self, owner: &Owner) -> Result<()> {
        let mut failures = Failures::new();
        if let Ok(Some(nft)) = &self.nft {
            for kind in Kind::ALL {
                if failures.note(nft.has(owner, kind)) == Some(true) {
                    // The sockets' view of the ruleset is outdated.
                    failures.note(Self::start().remove(owner, &[kind]));
                }
            }
        }
        failures.into_result()
    }

    /// Removes a network's stale rules of these kinds (GC).
    ///
    /// # Errors
    /// The errors. All other rules are removed.
    pub fn collect(&self, network: &NetworkName, kinds: &[Kind], scope: &Scope) -> Result<()> {
        let mut failures = Failures::new();
        for kind in kinds {
            failures.note(
                self.remove_kind(&Selector::Stale(Stale::new(network, scope, kind.properties.name)), *kind),
            );
        }
        failures.into_result()
    }

    /// Ends the removal. Another process waits for the grace period. For plugins that delete no links.
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
        let query = Query { selector, kind, addresses: &self.known };
        failures.note(self.settled.clone());
        if let Ok(Some(nft)) = &self.nft {
            failures.note(nft.remove(selector, kind, &flush));
            failures.note(nft.remove_foreign(query, &flush));
        }
        if let Some(way) = kind.properties.nftables.opens.filter(|_| !selector.is_dry()) {
            failures.note(iptables::forward::close(way, || self.has_any(kind)));
        }
        // There may be rules that cannot be seen.
        failures.note(self.nft.as_ref().map_err(|e| Error::new(Code::Internal, e.to_string())));
        failures.note(iptables::legacy::remove(query, &flush));
        failures.into_result()
    }

    /// Whether any attachment has rules of a kind by nftables.
    fn has_any(&self, kind: Kind) -> Result<bool> {
        let Ok(Some(nft)) = &self.nft else { return Ok(false) };
        Ok(nft.has_any(kind).map_err(|r| r.during("list", "the attachments' records"))?)
    }

    /// The container or its ports were deleted, and UDP flows to it are flushed. If they cannot be listed, the rules
    /// are removed nevertheless. Flows expire when the client stops sending.
    fn flush(&self, targets: &Targets) {
        // Only if rules existed: at a repeated DEL, another container may have the address.
        let known = self.known.iter().filter(|_| targets.are_unnamed);
        let addresses: Vec<&IpAddr> = targets.addresses.iter().chain(known).collect();
        if addresses.is_empty() {
            return;
        }
        let flush = |socket: &Socket| conntrack::flush_containers(socket, addresses.iter().copied());
        let attempt = || match &self.nft {
            Ok(Some(nft)) => flush(nft.socket()),
            _ => Socket::open(Protocol::Netfilter).and_then(|socket| flush(&socket)),
        };
        // A failure for lack of memory may succeed a moment later.
        if let Err(refusal) = attempt().or_else(|_| attempt()) {
            let whose = addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            let error = refusal.during("delete the UDP connection tracking entries of", whose);
            cni::warn(&format!(
                "{error}; UDP clients of its host ports may keep sending to the removed container for some minutes"
            ));
        }
    }
}
