//! The token bucket filter that a link sends through.

use std::cell::OnceCell;
use std::rc::Rc;

use cni::{Code, Error, Result, Undo, warn};
use iface::Namespace;
use netlink::{Link, Netlink};

use crate::kernel::{self, Part};
use crate::limit::Limit;

/// The number of our filters, by which DEL knows them: `tc` shows `c41:`. The reference's have 1.
pub const HANDLE: u32 = 0xc41_0000;

/// A link and what it is to keep to when it sends.
#[derive(Debug)]
pub struct Bucket<'a> {
    /// Where the link is.
    pub namespace: &'a Namespace,
    /// The link.
    pub link: &'a Link,
    /// The MTU of the packets that it sends.
    pub mtu: u32,
    /// What the configuration says.
    pub limit: Limit,
    /// How long a packet may wait, in milliseconds.
    pub latency_ms: u32,
}

impl Bucket<'_> {
    /// Has the link send through the filter, whatever it sent through before.
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

    /// The filter exists, with the right rate and burst.
    pub fn verify(&self) -> Result<()> {
        let found = self.namespace.nl.root_qdisc(self.link)?;
        let Some(found) = found.as_ref().and_then(netlink::tc::Qdisc::tbf) else {
            let kind = found.map_or_else(|| "none".to_owned(), |found| found.kind);
            let text = format!(
                "link {} in {} has no token bucket filter (tbf): its queueing discipline is {kind}",
                self.link.name, self.namespace
            );
            return Err(Error::new(Code::Internal, text).detail("run `cnitool repair` to restore it"));
        };
        self.limit.verify(self.link, self.mtu, self.latency_ms, &found)
    }
}

/// Removes the filter from a link, if it is ours: the link sends as before.
pub fn remove(nl: &Netlink, link: &Link) -> Result<()> {
    Ok(nl.delete_tbf(link, HANDLE)?)
}
