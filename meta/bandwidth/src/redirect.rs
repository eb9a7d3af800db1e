//! The filter on the host's end of a container's interface that has what the container sends go through an ifb.

use cni::{Code, Error, Failures, Result, Undo};
use iface::Namespace;
use netlink::Link;
use netlink::tc::{Filter, Redirect};

use crate::bucket;
use crate::ifb::{self, Ifb};
use crate::kernel::{self, Part};

/// Where in the order of filters to begin to look for a free place: what `tc` takes first. Those of others come before: what they
/// drop or let through is decided by then.
const PRECEDENCE: u16 = 49152;

/// The class id that marks our filters, also if their ifb has been deleted: `tc` shows `c41:1`.
const CLASS: u32 = bucket::HANDLE | 1;

/// Sets an ifb up, and has what comes in by a link go through it.
pub fn install(host: &Namespace, link: &Link, whose: Ifb<'_>, ifb: &Link, undo: &mut Undo) -> Result<()> {
    undo.push({
        let (host, link, index) = (host.clone(), link.clone(), ifb.index);
        // As it is named by then.
        move || remove(&host, &link, host.nl.link_by_index(index)?.as_slice())
    });
    // The alias comes first: whatever happens after this, DEL knows whether it may remove the place of filters.
    whose.finish(host, ifb, true)?;
    // A place that was not there until now has no filters.
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
        // Of filters of what goes out the kernel may list those of the same precedence among ours, and DEL could not tell them apart.
        let out = list(true)?;
        let taken = |number: &u16| filters.iter().chain(&out).any(|filter| filter.precedence == *number);
        let precedence = (PRECEDENCE..u16::MAX).find(|precedence| !taken(precedence)).unwrap_or(u16::MAX);
        let redirect = Redirect { precedence, class: CLASS, to: ifb.index };
        host.nl.add_redirect(link, &redirect).map_err(|e| kernel::explained(Part::Redirect, e))?;
    }
    // What came in was lost by these.
    filters
        .iter()
        .filter(|filter| leads_nowhere(filter))
        .try_for_each(|filter| delete(host, &filters, filter))
}

/// What comes in by a link goes through an ifb.
pub fn verify(host: &Namespace, link: &Link, ifb: &Link) -> Result<()> {
    let filters = host.nl.filters(link, false)?;
    if filters.iter().any(|filter| filter.redirects.contains(&ifb.index)) {
        return Ok(());
    }
    let lost = if filters.iter().any(leads_nowhere) {
        "are redirected to a deleted link, and lost"
    } else {
        "are not redirected"
    };
    let text = format!("packets that arrive at link {} {lost}: they must pass {}", link.name, ifb.name);
    Err(Error::new(Code::Internal, text).detail("run `cnitool repair` to restore the filter"))
}

/// Removes the filters of a link that lead to ifbs, and the place of filters if it was made for them and nobody else has put one there.
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

/// The same for whatever links lead to ifbs: who has no namespace of the container does not know which.
pub fn remove_everywhere(host: &Namespace, ifbs: &[Link]) -> Result<()> {
    let mut failures = Failures::new();
    for qdisc in host.nl.qdiscs(None)?.iter().filter(|qdisc| ["clsact", "ingress"].contains(&&*qdisc.kind)) {
        let Some(link) = host.nl.link_by_index(qdisc.link)? else { continue };
        let filters = host.nl.filters(&link, false)?;
        if ifbs.iter().any(|ifb| filters.iter().any(|filter| filter.redirects.contains(&ifb.index))) {
            failures.note(remove(host, &link, ifbs));
            failures.note(bucket::remove(&host.nl, &link));
        }
    }
    failures.into_result()
}

/// Deletes a filter, of those that a link has; and its precedence, if no other is in there.
fn delete(host: &Namespace, all: &[Filter], filter: &Filter) -> Result<()> {
    let shares = |other: &Filter| other.precedence == filter.precedence && other.handle != filter.handle;
    let is_alone = !all.iter().any(|other| other.decides() && shares(other));
    let handle = if is_alone { 0 } else { filter.handle };
    Ok(host.nl.delete_filter(&Filter { handle, ..filter.clone() })?)
}

/// Whether a filter of ours redirects to a deleted link.
fn leads_nowhere(filter: &Filter) -> bool {
    filter.class == Some(CLASS) && filter.redirects.contains(&0)
}
