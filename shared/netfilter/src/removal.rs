//! The removal of rules, whichever backend installed them.

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

/// The removal of rules, whichever backend installed them: ours, or the reference's.
///
/// Dropping it waits for the kernel's grace period, 12 to 24 ms, as deleting a link does. Keep it until links
/// are deleted as well: then both wait at once.
#[derive(Debug)]
pub struct Removal {
    /// Tools of plugins that were killed are waited for: only then all is there that is to be removed.
    settled: Result<()>,
    /// None: the kernel has no nf_tables.
    nft: netlink::Result<Option<Nft>>,
    /// The addresses of the container, as far as the caller knows them.
    known: Vec<IpAddr>,
}

impl Removal {
    /// Begins, when the tools of plugins that were killed have ended. On a host without nf_tables there are only the legacy tables of iptables to look at.
    pub fn start() -> Self {
        let settled = iptables::tools::settle();
        let nft = match Nft::open().map_err(|r| r.during("open", "nf_tables")) {
            Err(e) if Nft::is_missing(&e) => Ok(None),
            opened => opened.map(Some),
        };
        Self { settled, nft, known: Vec::new() }
    }

    /// With the addresses of the one container whose rules are to be removed, as far as the caller knows them: the
    /// rules of the reference do not tell whose UDP flows are to be flushed, and some of them name nothing but addresses.
    #[must_use]
    pub fn with_addresses(self, addresses: impl IntoIterator<Item = IpAddr>) -> Self {
        Self { known: addresses.into_iter().collect(), ..self }
    }

    /// Removes an attachment's rules of these kinds, and flushes the UDP flows that came by them.
    ///
    /// # Errors
    /// What was refused; the rest is removed. That there are none is fine.
    pub fn remove(&self, owner: &Owner, kinds: &[Kind]) -> Result<()> {
        self.remove_kinds(&Selector::Of(owner), kinds)
    }

    /// Removes what a repair has installed since [`Removal::remove`], of whatever kind. To be asked when the attachment's link
    /// is gone: from then on no repair installs any. It costs some requests to the kernel; in legacy tables of iptables it
    /// does not look.
    ///
    /// # Errors
    /// As [`Removal::remove`].
    pub fn remove_repaired(&self, owner: &Owner) -> Result<()> {
        let mut failures = Failures::new();
        if let Ok(Some(nft)) = &self.nft {
            for kind in Kind::ALL {
                if failures.note(nft.has(owner, kind)) == Some(true) {
                    // What this one has seen is no longer so.
                    failures.note(Self::start().remove(owner, &[kind]));
                }
            }
        }
        failures.into_result()
    }

    /// Removes the rules of these kinds that GC of a network takes.
    ///
    /// # Errors
    /// What was refused; the rest is removed.
    pub fn collect(&self, network: &NetworkName, kinds: &[Kind], scope: &Scope) -> Result<()> {
        let mut failures = Failures::new();
        for kind in kinds {
            failures.note(
                self.remove_kind(&Selector::Stale(Stale::new(network, scope, kind.properties.name)), *kind),
            );
        }
        failures.into_result()
    }

    /// Ends, and leaves the wait to a process that nobody waits for: for a plugin that deletes no links.
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
        // There may be rules behind it.
        failures.note(self.nft.as_ref().map_err(|e| Error::new(Code::Internal, e.to_string())));
        failures.note(iptables::legacy::remove(query, &flush));
        failures.into_result()
    }

    /// Whether any attachment has rules of a kind by nftables.
    fn has_any(&self, kind: Kind) -> Result<bool> {
        let Ok(Some(nft)) = &self.nft else { return Ok(false) };
        Ok(nft.has_any(kind).map_err(|r| r.during("list", "the attachments' records"))?)
    }

    /// The container is gone, or its ports are: UDP flows that led to it go with them. It is no reason to keep rules that they
    /// cannot be looked for: they end when nobody sends any more.
    fn flush(&self, targets: &Targets) {
        // Only with rules that were there: the address of a DEL that comes again may be somebody else's by now.
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
        // What fails for lack of memory may succeed a moment later.
        if let Err(refusal) = attempt().or_else(|_| attempt()) {
            let whose = addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            let error = refusal.during("delete the UDP connection tracking entries of", whose);
            cni::warn(&format!(
                "{error}; UDP clients of its host ports may keep sending to the removed container for some minutes"
            ));
        }
    }
}
