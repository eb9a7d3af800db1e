//! Filter on the host's end that redirects the container's traffic to the ifb.

use cni::{Code, Error, Failures, Result, Undo};
use iface::Namespace;
use netlink::Link;
use netlink::tc::{Filter, Redirect};

use crate::bucket;
use crate::ifb::{self, Ifb, InUse};
use crate::kernel::{self, Part};
use crate::limit::HANDLE;

/// First precedence to try, the default of `tc`. Other programs' filters usually come before, so their verdicts apply.
const PRECEDENCE: u16 = 49152;

/// Class that marks Ferrule's filters, even if their ifb was deleted: `tc` shows `c41:1`.
const CLASS: u32 = HANDLE | 1;

/// Sets an ifb up, and redirects traffic received by a link to it.
pub fn install(
    host: &Namespace,
    link: &Link,
    whose: Ifb<'_>,
    (ifb, in_use): (&Link, &InUse),
    undo: &mut Undo,
) -> Result<()> {
    undo.push({
        let (host, link, index, in_use) = (host.clone(), link.clone(), ifb.index, in_use.clone());
        move || {
            in_use.set(true);
            // By index, because the name may change.
            remove(&host, &link, host.nl.link_by_index(index)?.as_slice())?;
            in_use.set(false);
            Ok::<_, Error>(())
        }
    });
    // Before the filter: the alias tells DEL whether it may delete clsact.
    whose.finish(host, ifb, true)?;
    // A new clsact has no filters.
    let is_new = match host.nl.add_clsact(link) {
        Ok(()) => true,
        Err(e) if e.is_exists() => {
            if !ifb::made_clsact(ifb) {
                whose.finish(host, ifb, false)?;
            }
            false
        }
        Err(e) => return Err(kernel::explained(Part::Clsact, e)),
    };
    let list = |out| if is_new { Ok(Vec::new()) } else { host.nl.filters(link, out) };
    let filters = list(false)?;
    if !filters.iter().any(|filter| filter.redirects.contains(&ifb.index)) {
        // The kernel may list filters for sent packets with the same precedence, and DEL could not distinguish them.
        let out = list(true)?;
        let taken = |number: &u16| filters.iter().chain(&out).any(|filter| filter.precedence == *number);
        let precedence = (PRECEDENCE..u16::MAX).find(|precedence| !taken(precedence)).unwrap_or(u16::MAX);
        let redirect = Redirect { precedence, class: CLASS, to: ifb.index };
        host.nl.add_redirect(link, &redirect).map_err(|e| kernel::explained(Part::Redirect, e))?;
    }
    // Filters to a deleted ifb, which drop all packets.
    filters
        .iter()
        .filter(|filter| leads_nowhere(filter))
        .try_for_each(|filter| delete(host, &filters, filter))
}

/// Checks that traffic received by a link is redirected to an ifb.
pub fn verify(host: &Namespace, link: &Link, ifb: &Link) -> Result<()> {
    let filters = host.nl.filters(link, false)?;
    if filters.iter().any(|filter| filter.redirects.contains(&ifb.index)) {
        return Ok(());
    }
    let lost = if filters.iter().any(leads_nowhere) {
        "are redirected to a deleted link and lost, instead of to"
    } else {
        "are not redirected to"
    };
    let text = format!("packets that arrive at link {} {lost} {}", link.name, ifb.name);
    Err(Error::new(Code::Internal, text).detail("`cnitool repair --all` restores the filter"))
}

/// Deletes the filters of a link that lead to ifbs, and clsact if ADD created it and no other program uses it.
pub fn remove(host: &Namespace, link: &Link, ifbs: &[Link]) -> Result<()> {
    let leads_to_one = |filter: &Filter| ifbs.iter().any(|ifb| filter.redirects.contains(&ifb.index));
    let filters = host.nl.filters(link, false)?;
    for filter in filters.iter().filter(|filter| leads_to_one(filter) || leads_nowhere(filter)) {
        delete(host, &filters, filter)?;
    }
    let is_ours = ifbs.iter().any(ifb::made_clsact);
    if is_ours && host.nl.filters(link, false)?.is_empty() && host.nl.filters(link, true)?.is_empty() {
        host.nl.delete_clsact(link)?;
    }
    Ok(())
}

/// Like [`remove`], for all links: without the container's namespace, the link is unknown.
pub fn remove_everywhere(host: &Namespace, ifbs: &[Link]) -> Result<()> {
    let mut failures = Failures::new();
    for link in sources(host, ifbs)? {
        failures.note(remove(host, &link, ifbs));
        failures.note(bucket::remove(&host.nl, &link));
    }
    failures.into_result()
}

/// The links whose received traffic is redirected to one of the ifbs.
pub fn sources(host: &Namespace, ifbs: &[Link]) -> Result<Vec<Link>> {
    let mut found = Vec::new();
    if ifbs.is_empty() {
        return Ok(found);
    }
    for qdisc in host.nl.qdiscs(None)?.iter().filter(|qdisc| ["clsact", "ingress"].contains(&&*qdisc.kind)) {
        let Some(link) = host.nl.link_by_index(qdisc.link)? else { continue };
        let filters = host.nl.filters(&link, false)?;
        if ifbs.iter().any(|ifb| filters.iter().any(|filter| filter.redirects.contains(&ifb.index))) {
            found.push(link);
        }
    }
    Ok(found)
}

/// Deletes a filter, and its precedence if it has no other filter.
fn delete(host: &Namespace, all: &[Filter], filter: &Filter) -> Result<()> {
    let shares = |other: &Filter| other.precedence == filter.precedence && other.handle != filter.handle;
    let is_alone = !all.iter().any(|other| other.decides() && shares(other));
    let handle = if is_alone { 0 } else { filter.handle };
    Ok(host.nl.delete_filter(&Filter { handle, ..filter.clone() })?)
}

/// Whether a filter of Ferrule redirects to a deleted link.
fn leads_nowhere(filter: &Filter) -> bool {
    filter.class == Some(CLASS) && filter.redirects.contains(&0)
}
