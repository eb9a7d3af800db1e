//! GC: removes resources without a valid attachment (SPEC.md, section 3, "Garbage-collecting a network").

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use cni::{Attachment, Attachments, Code, Command};

use crate::error::Failures;
use crate::lock::Lock;
use crate::request::Extras;
use crate::{Cache, Entry, Network, Result, Runtime};

/// Which attachments of the network are valid.
#[derive(Clone, Copy, Debug)]
pub enum Valid<'a> {
    /// Attachments in the runtime's own cache or in one of these, if their namespaces exist.
    Alive(&'a [Cache]),
    /// Exactly these attachments.
    Only(&'a [Attachment]),
}

/// The plan of a GC.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct GcPlan {
    /// The attachments that are kept.
    pub valid: Attachments,
    /// The attachments in the runtime's own cache that get their DEL.
    pub stale: Vec<Entry>,
    /// Those of other caches whose namespaces are gone: what plugins made for them goes with their GC.
    pub stale_elsewhere: Vec<Entry>,
    /// A cache file that cannot be read. Its attachment may be alive, so no plugin runs GC.
    pub unsure: Option<PathBuf>,
}

impl Runtime {
    /// GC: DEL for every attachment in the cache that is not valid any more, then GC of every plugin (from version
    /// 1.1.0 on; not with [`Valid::Alive`] and a file in a cache that cannot be read). It goes on after failures. Waits
    /// for every ADD and DEL to end, and holds new ones up.
    ///
    /// # Errors
    /// The errors of all failed plugins, after all have run.
    pub fn gc(&self, network: &Network, valid: Valid<'_>) -> Result<()> {
        self.gc_telling(network, valid, |_, _, _| {})
    }

    /// The plan of [`Runtime::gc`].
    ///
    /// # Errors
    /// Code 5 if a cache cannot be read.
    pub fn plan_gc(&self, network: &Network, valid: Valid<'_>) -> Result<GcPlan> {
        let (known, unsure) = self.cache.of_network(&network.name)?;
        let unsure = unsure.into_iter().next();
        let others = match valid {
            Valid::Only(valid) => {
                let valid: Attachments = valid.iter().cloned().collect();
                let stale = known.into_iter().filter(|entry| !is_among(&valid, entry)).collect();
                return Ok(GcPlan { valid, stale, ..GcPlan::default() });
            }
            Valid::Alive(others) => others,
        };
        let (alive, stale): (Vec<_>, _) = known.into_iter().partition(Entry::is_alive);
        let mut plan = GcPlan { stale, unsure, ..GcPlan::default() };
        let mut valid: Vec<Attachment> = alive.into_iter().map(|entry| entry.attach.attachment).collect();
        for cache in others.iter().filter(|cache| cache.dir() != self.cache.dir()) {
            let (known, unsure) = cache.of_network(&network.name)?;
            let (alive, stale): (Vec<_>, _) = known.into_iter().partition(Entry::is_alive);
            valid.extend(alive.into_iter().map(|entry| entry.attach.attachment));
            plan.stale_elsewhere.extend(stale);
            plan.unsure = plan.unsure.or(unsure.into_iter().next());
        }
        // Another cache may have a live attachment with the same names: do not remove it.
        plan.valid = valid.into_iter().collect();
        plan.stale.retain(|entry| !is_among(&plan.valid, entry));
        Ok(plan)
    }

    /// GC with a progress report before each DEL: its number, the total, and the attachment.
    ///
    /// # Errors
    /// The errors of all failed plugins, after all have run.
    pub fn gc_telling(
        &self,
        network: &Network,
        valid: Valid<'_>,
        mut tell: impl FnMut(usize, usize, &Attachment),
    ) -> Result<()> {
        if network.disable_gc {
            return Ok(());
        }
        let _lock = Lock::exclusive(self.cache.dir())?;
        let GcPlan { valid, stale, unsure, .. } = self.plan_gc(network, valid)?;
        let mut failures = Failures::default();
        for (done, entry) in stale.iter().enumerate() {
            tell(done, stale.len(), &entry.attach.attachment);
            let Attachment { container, ifname } = &entry.attach.attachment;
            let outcome = self.del_unlocked(network, &entry.attach);
            failures.note(
                outcome.map_err(|e| e.context(format_args!("stale {ifname} of container {container}"))),
            );
        }
        // The attachment of an unreadable file may be alive, but the plugins would treat it as stale.
        if let Some(path) = unsure {
            let text = format!("{} cannot be read, and its container may be alive", path.display());
            let error = cni::Error::new(Code::Io, text);
            failures.note::<()>(Err(error.detail("remove the file, or DEL the attachment").into()));
        } else if network.version >= Command::Gc.since() {
            let extras = Extras { valid: Some(&valid), ..Extras::default() };
            for plugin in &network.plugins {
                failures.note(self.call(Command::Gc, network, plugin, &extras));
            }
        }
        failures.into_result()
    }
}

fn is_among(valid: &Attachments, entry: &Entry) -> bool {
    let Attachment { container, ifname } = &entry.attach.attachment;
    valid.contains(container, ifname)
}

impl Entry {
    /// Whether the attachment's namespace exists. True for an attachment without a namespace.
    pub fn is_alive(&self) -> bool {
        self.attach.netns.as_deref().is_none_or(is_namespace)
    }
}

/// Whether a namespace is at a path. After the namespace is deleted, a plain file may remain there.
pub fn is_namespace(path: &Path) -> bool {
    let device = |path: &Path| fs::metadata(path).ok().map(|metadata| metadata.dev());
    device(path).is_some_and(|dev| Some(dev) == device(Path::new("/proc/self/ns/net")))
}
