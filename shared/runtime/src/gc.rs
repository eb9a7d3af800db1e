//! GC: deletes everything that belongs to no valid attachment (SPEC.md, section 3, "Garbage-collecting a network").

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use cni::{Attachment, Attachments, Code, Command, ContainerId};

use crate::error::Failures;
use crate::lock::{LONGEST_WAIT, Lock};
use crate::request::Extras;
use crate::{Cache, Entry, Error, Network, NetworkEntries, PluginConf, Result, Runtime};

/// The valid attachments.
#[derive(Clone, Copy, Debug)]
pub enum Valid<'a> {
    /// Attachments in the runtime's own cache or in these, if their namespaces exist.
    Alive(&'a [Cache]),
    /// Exactly these.
    Only(&'a [Attachment]),
    /// All attachments of these containers in the runtime's own cache, which GC reads after running ADDs have ended.
    Containers(&'a [ContainerId]),
}

/// Plan of a GC.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct GcPlan {
    /// Attachments to keep.
    pub valid: Attachments,
    /// Attachments in the runtime's own cache to detach with DEL.
    pub stale: Vec<Entry>,
    /// Attachments in other caches whose namespaces no longer exist; the plugins' GC deletes their resources.
    pub stale_elsewhere: Vec<Entry>,
    /// An unreadable cache file that may belong to a running container. In this case, no plugin is called with GC.
    pub unreadable: Option<PathBuf>,
}

impl Runtime {
    /// GC: sends DEL for each cached attachment that is not valid, then calls every plugin with GC. It does not call the plugins if the
    /// network's version is older than 1.1.0, or if a cache file is unreadable with [`Valid::Alive`]. Continues after failures. Waits for
    /// running ADDs and DELs, and blocks new ones.
    ///
    /// # Errors
    /// All failures.
    pub fn gc(&self, network: &Network, valid: Valid<'_>) -> Result<()> {
        self.gc_with_progress(network, valid, |_, _, _| {})
    }

    /// The plan of [`Runtime::gc`].
    ///
    /// # Errors
    /// Code 5 if a cache cannot be read.
    pub fn plan_gc(&self, network: &Network, valid: Valid<'_>) -> Result<GcPlan> {
        let NetworkEntries { entries, ambiguous, unreadable } = self.cache.of_network(&network.name)?;
        let others = match valid {
            Valid::Only(valid) => {
                return Ok(GcPlan::without_others(valid.iter().cloned().collect(), entries));
            }
            Valid::Containers(containers) => {
                let valid = self.cache.attachments_of(&network.name, containers)?;
                return Ok(GcPlan::without_others(valid, entries));
            }
            Valid::Alive(others) => others,
        };
        let (alive, stale): (Vec<_>, _) = entries.into_iter().partition(Entry::is_alive);
        let mut plan = GcPlan { stale, unreadable: unreadable.into_iter().next(), ..GcPlan::default() };
        let mut valid = [alive, ambiguous].concat();
        for cache in others.iter().filter(|cache| !cache.is_same_as(&self.cache)) {
            let NetworkEntries { entries, ambiguous, unreadable } = cache.of_network(&network.name)?;
            let (alive, stale): (Vec<_>, _) = entries.into_iter().partition(Entry::is_alive);
            valid.extend(alive.into_iter().chain(ambiguous));
            plan.stale_elsewhere.extend(stale);
            plan.unreadable = plan.unreadable.or(unreadable.into_iter().next());
        }
        let valid = valid.into_iter().filter(Entry::is_alive).map(|entry| entry.attach.attachment);
        // Running attachments with the same names in another cache are kept.
        plan.valid = valid.collect();
        plan.stale.retain(|entry| !is_among(&plan.valid, entry));
        Ok(plan)
    }

    /// Like [`Runtime::gc`]; calls `report` before each DEL with the number done, the total, and the attachment.
    ///
    /// # Errors
    /// All failures.
    pub fn gc_with_progress(
        &self,
        network: &Network,
        valid: Valid<'_>,
        mut report: impl FnMut(usize, usize, &Attachment),
    ) -> Result<()> {
        if network.disable_gc {
            return Ok(());
        }
        let _lock = Lock::exclusive(self.cache.dir(), LONGEST_WAIT)?;
        let GcPlan { valid, stale, unreadable, .. } = self.plan_gc(network, valid)?;
        let mut valid: BTreeSet<Attachment> = valid.iter().cloned().collect();
        let mut failures = Failures::default();
        for (done, entry) in stale.iter().enumerate() {
            // libcni may have created the attachment again: it does not take this lock.
            if !self.cache.is_unchanged(entry) {
                valid.insert(entry.attach.attachment.clone());
                continue;
            }
            report(done, stale.len(), &entry.attach.attachment);
            let Attachment { container, ifname } = &entry.attach.attachment;
            let outcome = self.del_unlocked(network, &entry.attach);
            failures.note(
                outcome.map_err(|e| e.context(format_args!("stale {ifname} of container {container}"))),
            );
        }
        if unreadable.is_some() || network.version >= Command::Gc.since() {
            let valid = valid.into_iter().collect();
            failures.note(self.call_gc(network, |_| true, &valid, unreadable.as_deref()));
        }
        failures.into_result()
    }

    /// GC of the specification for some of the network's plugins, or the failure because of an unreadable file.
    pub(crate) fn call_gc(
        &self,
        network: &Network,
        is_called: impl FnMut(&&PluginConf) -> bool,
        valid: &Attachments,
        unreadable: Option<&Path>,
    ) -> Result<()> {
        if let Some(path) = unreadable {
            return Err(not_called(path));
        }
        let extras = Extras { valid: Some(valid), ..Extras::default() };
        let mut failures = Failures::default();
        for plugin in network.plugins.iter().filter(is_called) {
            failures.note(self.call(Command::Gc, network, plugin, &extras));
        }
        failures.into_result()
    }
}

/// The failure of a GC that calls no plugin because of an unreadable file: its container may be running, and the plugins would treat it as
/// stale.
#[must_use]
pub fn not_called(unreadable: &Path) -> Error {
    let text = format!(
        "GC did not call the plugins: {} cannot be read, and its container may be alive",
        unreadable.display()
    );
    Error::from(cni::Error::new(Code::Io, text).detail("stop the container, and delete the file"))
}

impl GcPlan {
    /// The plan for valid attachments that do not depend on other caches.
    fn without_others(valid: Attachments, mut entries: Vec<Entry>) -> Self {
        entries.retain(|entry| !is_among(&valid, entry));
        Self { valid, stale: entries, ..Self::default() }
    }
}

fn is_among(valid: &Attachments, entry: &Entry) -> bool {
    let Attachment { container, ifname } = &entry.attach.attachment;
    valid.contains(container, ifname)
}

impl Entry {
    /// Whether the attachment's namespace exists, or may exist. Without a namespace, it is assumed to run.
    pub fn is_alive(&self) -> bool {
        self.exists().unwrap_or(true)
    }

    /// Whether the attachment's namespace exists. Without a namespace, it is assumed to run.
    ///
    /// # Errors
    /// Code 5 if the namespace's path cannot be examined.
    pub fn exists(&self) -> cni::Result<bool> {
        self.attach.netns.as_deref().map_or(Ok(true), is_at)
    }
}

/// Whether a namespace is, or may be, at a path. A path that this process may not examine counts as a namespace.
pub fn is_namespace(path: &Path) -> bool {
    is_at(path).unwrap_or(true)
}

/// Whether a namespace is at a path. All namespaces are on one file system. Unmounting can leave an empty file of another one.
fn is_at(path: &Path) -> cni::Result<bool> {
    let Some(found) = device(path)? else { return Ok(false) };
    Ok(device(Path::new("/proc/self/ns/net"))?.is_none_or(|own| own == found))
}

/// The device of the file at a path. `None` if it does not exist, or if its process has exited.
fn device(path: &Path) -> cni::Result<Option<u64>> {
    const ESRCH: i32 = 3;
    match fs::metadata(path) {
        Ok(metadata) => Ok(Some(metadata.dev())),
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        Err(e) if e.raw_os_error() == Some(ESRCH) => Ok(None),
        Err(e) => Err(cni::Error::io(format!("examine {}", path.display()), &e)),
    }
}
