//! Token bucket filter of a link.

use std::cell::OnceCell;
use std::ops::RangeInclusive;
use std::rc::Rc;

use cni::{Code, Error, Result, Undo, warn};
use iface::Namespace;
use netlink::{Link, Netlink};

use crate::kernel::{self, Part};
use crate::limit::{HANDLE, Limit};

/// A link and its limit.
#[derive(Debug)]
pub struct Bucket<'a> {
    /// Namespace of the link.
    pub namespace: &'a Namespace,
    /// The link.
    pub link: &'a Link,
    /// MTU of its packets.
    pub mtu: u32,
    /// MTUs of either end that ADD may have found.
    pub earlier_mtus: &'a [RangeInclusive<u32>],
    /// The configured limit.
    pub limit: Limit,
    /// Maximum time that a packet waits, in milliseconds.
    pub latency_ms: u32,
}

impl Bucket<'_> {
    /// Sets the filter as the root of the link, and replaces any other.
    pub fn set(&self, undo: &mut Undo) -> Result<()> {
        let limit = self.limit.of(self.mtu);
        if limit.burst != self.limit.burst {
            warn(&format!(
                "a burst of {} bits is too small for a packet of link {}, which has up to {} bytes; {} bits \
                 are used instead",
                u64::from(self.limit.burst) * 8,
                self.link.name,
                self.mtu,
                u64::from(limit.burst) * 8
            ));
        }
        let (nl, tbf) = (&self.namespace.nl, limit.tbf(self.latency_ms));
        let before = Rc::new(OnceCell::new());
        undo.push({
            let (nl, link, before) = (nl.clone(), self.link.clone(), Rc::clone(&before));
            move || match before.get() {
                Some(before) => nl.restore_qdisc(&link, before),
                None => nl.delete_tbf(&link, HANDLE),
            }
        });
        let set = match nl.add_tbf(self.link, HANDLE, &tbf) {
            Err(e) if e.is_exists() => {
                if let Some(found) = nl.root_qdisc(self.link)? {
                    if found.handle != HANDLE {
                        warn(&format!(
                            "link {} had another queueing discipline, of kind {}; it is replaced",
                            self.link.name, found.kind
                        ));
                    }
                    before.get_or_init(|| found);
                }
                nl.replace_tbf(self.link, HANDLE, &tbf)
            }
            other => other,
        };
        set.map_err(|e| kernel::explained(Part::Tbf, e))
    }

    /// Checks the filter and its parameters.
    pub fn verify(&self) -> Result<()> {
        let found = self.namespace.nl.root_qdisc(self.link)?;
        let Some(found) = found.as_ref().and_then(netlink::tc::Qdisc::tbf) else {
            let kind = found.map_or_else(|| "none".to_owned(), |found| found.kind);
            let text = format!(
                "link {} in {} has no token bucket filter (tbf): its queueing discipline is {kind}",
                self.link.name, self.namespace
            );
            return Err(Error::new(Code::Internal, text).detail("`cnitool repair --all` restores it"));
        };
        self.limit.verify(self.link, self.mtu, self.earlier_mtus, self.latency_ms, &found)
    }
}

/// Removes Ferrule's filter from a link.
pub fn remove(nl: &Netlink, link: &Link) -> Result<()> {
    Ok(nl.delete_tbf(link, HANDLE)?)
}
