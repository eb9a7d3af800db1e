//! Repairs the rules of many attachments: finds missing ones, and installs them.

use cni::Result;
use netlink::{Family, RequestError};

use super::Nft;
use super::batch::Batch;
use super::install::{Installation, layout_of};
use super::retry::failure;
use super::view::View;
use crate::iptables;
use crate::kind::OwnedRules;
use crate::kind::{Kind, NftablesRules};
use crate::opening::Opening;
use crate::owner::Owner;
use crate::ruleset::{Layout, RECORDS_MAX};

/// The number of attachments in one transaction.
const TOGETHER: usize = 64;

/// An attachment's rules of a kind for nftables, built once for check and installation.
pub(crate) struct Prepared<'a> {
    owner: &'a Owner,
    kind: Kind,
    pub(crate) rules: NftablesRules,
}

/// Shared rules: those of the kind, those of some attachments, and those that open FORWARD.
#[derive(PartialEq, Eq)]
struct Shared<'a> {
    kind: Kind,
    layout: &'a Layout,
    openings: &'a [(Family, Opening)],
}

impl<'a> Prepared<'a> {
    pub(crate) fn all(all: &[OwnedRules<'a>]) -> Vec<Self> {
        let expected =
            |(owner, rules): &OwnedRules<'a>| Self { owner, kind: rules.kind(), rules: rules.nftables() };
        all.iter().map(expected).collect()
    }

    fn shared(&self) -> Shared<'_> {
        Shared { kind: self.kind, layout: &self.rules.layout, openings: &self.rules.openings }
    }
}

impl Nft {
    /// Checks whether the rules of attachments are as they were installed. Each set is listed once.
    ///
    /// # Errors
    /// If the kernel does not list the rules.
    pub(crate) fn are_installed(&self, all: &[Prepared<'_>]) -> Result<Vec<bool>> {
        let found = self.look_for(all);
        found.map_err(|r| failure("check", "the attachments", "read the ruleset", r))
    }

    fn look_for(&self, all: &[Prepared<'_>]) -> Result<Vec<bool>, RequestError> {
        let (mut views, mut known): (Vec<View<'_>>, Vec<(Shared<'_>, bool)>) = (Vec::new(), Vec::new());
        let mut installed = Vec::new();
        for one in all {
            if !views.iter().any(|view| view.kind == one.kind) {
                views.push(View::new(&self.socket, one.kind, all.len()));
            }
            let shared = one.shared();
            let is_shared_here = match known.iter().find(|(known, _)| *known == shared) {
                Some((_, is_here)) => *is_here,
                None => {
                    let layout = layout_of(one.kind, &one.rules);
                    let is_here = self.find_shared_drift(one.kind, &layout, shared.openings)?.is_none()
                        && iptables::forward::verify(shared.openings).is_ok();
                    known.push((shared, is_here));
                    is_here
                }
            };
            let view = views.iter().find(|view| is_shared_here && view.kind == one.kind);
            let drift = view.map(|view| self.find_own_drift(view, one.owner, &one.rules)).transpose()?;
            installed.push(drift.is_some_and(|drift| drift.is_ok()));
        }
        Ok(installed)
    }

    /// Installs the rules of attachments, oldest first. Many are installed in one transaction, if none of them has to
    /// replace anything. Returns a result for each, as [`Nft::install`] does. Those in one transaction are not compared with
    /// iptables.
    pub(crate) fn install_all(&self, all: &[Prepared<'_>]) -> Vec<Result<bool>> {
        let (mut outcomes, mut laid_out) = (Vec::new(), Vec::new());
        let one_by_one = |one: &Prepared<'_>| self.install(one.owner, one.kind, &one.rules);
        let mut rest = all;
        while let Some((first, others)) = rest.split_first() {
            let shared = first.shared();
            if !laid_out.contains(&shared) {
                outcomes.push(one_by_one(first));
                laid_out.push(shared);
                rest = others;
                continue;
            }
            let is_alike = |next: &&Prepared<'_>| {
                next.kind.table() == first.kind.table() && laid_out.contains(&next.shared())
            };
            let count = rest.iter().take(TOGETHER).take_while(is_alike).count();
            let (together, others) = rest.split_at(count);
            if self.add_all(together) {
                outcomes.extend(together.iter().map(|_| Ok(false)));
            } else {
                outcomes.extend(together.iter().map(one_by_one));
            }
            rest = others;
        }
        outcomes
    }

    /// Adds the elements of attachments in one transaction, unless one of them exists. Returns whether it did.
    fn add_all(&self, all: &[Prepared<'_>]) -> bool {
        let Some(first) = all.first() else { return true };
        // Adding is not bound to the generation: it fails if its basis does not exist.
        let mut batch = Batch::new(None);
        for Prepared { owner, kind, rules } in all {
            if rules.records.len() >= RECORDS_MAX {
                return false;
            }
            Installation::new(&self.socket, owner, *kind, rules).add_elements_and_rules(&mut batch);
        }
        batch.commit_on(&self.socket, &[first.kind.table().name]).is_ok()
    }
}
