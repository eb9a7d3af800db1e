//! The removal of rules, whichever backend installed them.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::net::IpAddr;

use cni::{Attachment, Code, Error, Failures, NetworkName, Result};
use netlink::{Protocol, Refusal, Socket};

use crate::conntrack::{self, Direction};
use crate::iptables;
use crate::leftovers::Whose;
use crate::nft::Nft;
use crate::owner::Owner;
use crate::rules::Kind;

/// The removal of rules, whichever backend installed them: ours, or the reference's.
///
/// Dropping it waits for the kernel's grace period, 12 to 24 ms, as deleting a link does. Keep it until links
/// are deleted as well: then both wait at once.
#[derive(Debug)]
pub struct Sweep {
    /// Tools of plugins that were killed are waited for: only then all is there that is to be removed.
    settled: Result<()>,
    /// None: the kernel has no nf_tables.
    nft: netlink::Result<Option<Nft>>,
    known: Addresses,
}

/// Addresses of containers.
pub(crate) type Addresses = BTreeSet<IpAddr>;

/// Is told whose rules are just about to be removed.
pub(crate) type Forget<'a> = &'a dyn Fn(&Addresses);

impl Sweep {
    /// Begins, when the tools of plugins that were killed have ended. On a host without nf_tables there are only the legacy tables of iptables to look at.
    pub fn start() -> Self {
        let settled = iptables::settle();
        let nft = match Nft::open().map_err(|r| r.during("open", "nf_tables")) {
            Err(e) if Nft::is_missing(&e) => Ok(None),
            opened => opened.map(Some),
        };
        Self { settled, nft, known: Addresses::new() }
    }

    /// With the addresses of the one container whose rules are to be removed, as far as the caller knows them: the
    /// rules of iptables do not tell whose connections are to be forgotten.
    #[must_use]
    pub fn knowing(self, addresses: impl IntoIterator<Item = IpAddr>) -> Self {
        Self { known: addresses.into_iter().collect(), ..self }
    }

    /// Removes an attachment's rules of a kind, and forgets the connections that came by them.
    ///
    /// # Errors
    /// What was refused; the rest is removed. That there are none is fine.
    pub fn remove(&self, owner: &Owner, kind: Kind) -> Result<()> {
        self.sweep(&Whose::Of(owner), kind, |nft, forget| nft.remove(owner, kind, forget))
    }

    /// Removes what a repair has installed since [`Sweep::remove`], of whatever kind. To be asked when the attachment's link
    /// is gone: from then on no repair installs any. It costs some requests to the kernel; in legacy tables of iptables it
    /// does not look.
    ///
    /// # Errors
    /// As [`Sweep::remove`].
    pub fn remove_repaired(&self, owner: &Owner) -> Result<()> {
        let mut failures = Failures::new();
        if let Ok(Some(nft)) = &self.nft {
            for kind in [Kind::Masquerade, Kind::HostPorts, Kind::SpoofCheck] {
                if failures.note(nft.has(owner, kind)) == Some(true) {
                    failures.note(self.remove(owner, kind));
                }
            }
        }
        failures.into_result()
    }

    /// Removes the rules of a kind of all attachments of a network but the valid ones (GC).
    ///
    /// # Errors
    /// What was refused; the rest is removed.
    pub fn retain(&self, network: &NetworkName, kind: Kind, valid: &[Attachment]) -> Result<()> {
        let valid: Vec<Owner> = valid.iter().map(|at| Owner::new(network, at)).collect();
        let whose = Whose::Stale { network, valid: &valid };
        self.sweep(&whose, kind, |nft, forget| nft.retain(network, kind, &valid, forget))
    }

    fn sweep(
        &self,
        whose: &Whose<'_>,
        kind: Kind,
        own: impl FnOnce(&Nft, Forget<'_>) -> Result<Addresses>,
    ) -> Result<()> {
        let mut failures = Failures::new();
        let mut addresses = Addresses::new();
        // Packets that come before the rules go make new connections. Those to host ports would lead astray whoever sends
        // there; masqueraded ones harm nobody until they expire, and to look for them takes 10 ms a family.
        let again = Cell::new(kind == Kind::HostPorts);
        // Who is killed after the removal leaves nothing that tells whose connections are left.
        let forget = |addresses: &Addresses| again.set(self.forget(kind, addresses).is_err() || again.get());
        // Only with rules that were there: the address of a DEL that comes again may be somebody else's by now.
        let with_known = |found: &Addresses| found.union(&self.known).copied().collect::<Addresses>();
        let forget_known = |found: &Addresses| forget(&with_known(found));
        failures.note(self.settled.clone());
        let mut foreign = Vec::new();
        if let Ok(Some(nft)) = &self.nft {
            addresses.extend(failures.note(own(nft, &forget)).unwrap_or_default());
            foreign.push(nft.remove_foreign(whose, kind, &forget_known));
        }
        // There may be rules behind it.
        failures.note(self.nft.as_ref().map_err(|e| Error::new(Code::Internal, e.to_string())));
        foreign.push(iptables::remove_legacy(whose, kind, &forget_known));
        for removed in foreign {
            addresses.extend(failures.note(removed).flatten().iter().flat_map(with_known));
        }
        if again.get() {
            failures.note(self.forget(kind, &addresses));
        }
        failures.into_result()
    }

    /// The container is gone, or its ports are: connections go with them. Those that it began are forgotten with its
    /// masquerade, those that led to it with its host ports.
    fn forget(&self, kind: Kind, addresses: &Addresses) -> Result<()> {
        let direction = match kind {
            Kind::Masquerade => Direction::Original,
            Kind::HostPorts => Direction::Reply,
            Kind::SpoofCheck => return Ok(()),
        };
        if addresses.is_empty() {
            return Ok(());
        }
        let whose = addresses.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(", ");
        let failed = |r: Refusal| r.during("forget the connections of", &whose);
        let opened;
        let socket = match &self.nft {
            Ok(Some(nft)) => nft.socket(),
            _ => {
                opened = Socket::open(Protocol::Netfilter).map_err(failed)?;
                &opened
            }
        };
        Ok(conntrack::forget_containers(socket, addresses, direction).map_err(failed)?)
    }
}
