//! ADD that reverts its changes if it fails. An attachment of an earlier ADD is kept if it still exists.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use cni::{AddResult, Attachment, NetworkName};
use netns::NetNs;
use nix::errno::Errno;
use nix::net::if_::if_nametoindex;

use crate::error::Failures;
use crate::lock::Lock;
use crate::{AttachmentParameters, Cache, Error, Network, Result, Runtime};

/// A successful ADD.
#[derive(Clone, Debug)]
pub struct Added {
    /// The result.
    pub result: AddResult,
    /// The cache file of an earlier ADD, to any network, that had attached the same interface of the container: some plugins accept a second ADD,
    /// such as loopback. A DEL because the caller cannot use the result would detach a running container ([`not_rolled_back`]).
    pub earlier: Option<PathBuf>,
}

impl Runtime {
    /// ADD, and DEL if it fails. If the container already had this interface by an attachment to any network, no DEL is called, and the error
    /// says so: the DEL of another network's plugins could delete the interface, too. The same if the namespace had the interface for another
    /// reason and the first plugin failed: a plugin that fails undoes its own changes.
    ///
    /// # Errors
    /// Like [`Runtime::add`], followed by failures of the DEL.
    pub fn add_or_roll_back(&self, network: &Network, attach: &AttachmentParameters) -> Result<Added> {
        let (name, at) = (&network.name, &attach.attachment);
        network.require_plugins()?;
        self.cache.require_writable(name, at)?;
        let _own = self.lock_container(attach)?;
        // An ADD that was interrupted while it waited for the lock has nothing to roll back.
        let _lock = Lock::shared_unless(self.cache.dir(), &self.interrupted)?;
        let earlier = self.earlier(name, attach);
        let before = self.cache.version(name, at);
        let had_interface = earlier.is_none() && attach.has_interface();
        let mut has_begun = false;
        let added = self.add_plugins(network, attach, &mut has_begun).map_err(|failed| {
            // A failed ADD writes no result. If there is a new one, it is another runtime's.
            let is_new = self.cache.version(name, at).is_some_and(|now| Some(now) != before);
            let new = || is_new.then(|| self.cache.path(name, at));
            if let Some(file) = earlier.clone().or_else(new) {
                return not_rolled_back(failed, at, &file);
            }
            if had_interface && !has_begun {
                return of_others(failed, at);
            }
            match self.clone().uninterrupted().roll_back(network, attach) {
                Ok(()) => failed,
                Err(rollback) => failed.and(rollback.context("roll back")),
            }
        });
        added.map(|result| Added { result, earlier })
    }

    /// Whether the attachment exists, or may exist: it is in a cache of this host, and its namespace has the interface. After a reboot, or
    /// after its namespace was deleted without a DEL, it is only in the cache.
    pub fn is_attached(&self, network: &NetworkName, attach: &AttachmentParameters) -> bool {
        self.caches().iter().any(|cache| cache.has_live(network, attach))
    }

    /// The cache file of an attachment with the same container and interface, to any network, that exists or may exist. The file of this
    /// `network` may also be in a directory that cannot be listed.
    fn earlier(&self, network: &NetworkName, attach: &AttachmentParameters) -> Option<PathBuf> {
        let at = &attach.attachment;
        self.caches().iter().find_map(|cache| {
            let mut networks = cache.networks_of(at).unwrap_or_default();
            networks.push(network.clone());
            networks.iter().find(|network| cache.has_live(network, attach)).map(|it| cache.path(it, at))
        })
    }

    /// This cache and the others of the host. If they cannot be listed, only libcni's: an ADD must not fail because of another cache, which
    /// root of a user namespace may not read.
    fn caches(&self) -> Vec<Cache> {
        let others = self.cache.others_of_host().unwrap_or_else(|_| vec![Cache::default()]);
        std::iter::once(self.cache.clone()).chain(others).collect()
    }

    /// DEL of a failed ADD. The cache may contain an earlier attachment with another configuration.
    fn roll_back(&self, network: &Network, attach: &AttachmentParameters) -> Result<()> {
        let mut failures = Failures::default();
        let earlier = self.cache.load(&network.name, &attach.attachment).ok().flatten();
        if earlier.is_some_and(|entry| entry.network_at_add(network).is_some()) {
            failures.note(self.del_plugins(network, attach, None, || true));
        }
        failures.note(self.del_unlocked(network, attach));
        failures.into_result()
    }
}

/// The failure of an ADD that is not rolled back, because an earlier ADD has attached the container and written this cache file.
#[must_use]
pub fn not_rolled_back(failed: Error, at: &Attachment, file: &Path) -> Error {
    failed.detail(format!(
        "this ADD was not rolled back, because an earlier ADD has attached {} of container {} ({}); run DEL to detach it",
        at.ifname,
        at.container,
        file.display()
    ))
}

/// The failure of an ADD of an interface that existed before, although no cache contains it.
fn of_others(failed: Error, at: &Attachment) -> Error {
    failed.detail(format!(
        "this ADD was not rolled back, because {} existed before it in the namespace, and DEL could delete it; if this ADD or an \
         earlier one of container {} has left something, run DEL",
        at.ifname, at.container
    ))
}

impl AttachmentParameters {
    /// Whether the namespace has the interface. False if the namespace cannot be examined.
    fn has_interface(&self) -> bool {
        let has =
            |netns: &Path| has_interface(&NetNs::current().ok()?, netns, &self.attachment.ifname).ok()?;
        self.netns.as_deref().and_then(has) == Some(true)
    }
}

impl Cache {
    fn has_live(&self, network: &NetworkName, attach: &AttachmentParameters) -> bool {
        let at = &attach.attachment;
        let recorded = match self.load(network, at) {
            Ok(None) => return false,
            Ok(Some(entry)) => entry.attach.netns,
            // Only a regular file is a result of an ADD.
            Err(_) if is_irregular(&self.path(network, at)) => return false,
            Err(_) => None,
        };
        let netns = recorded.or_else(|| attach.netns.clone());
        let has = |netns: &Path| has_interface(&NetNs::current()?, netns, &at.ifname);
        netns.is_none_or(|netns| has(&netns).map_or(true, |has| has == Some(true)))
    }

    /// Inode and modification time of an attachment's file. `None` if it does not exist.
    fn version(&self, network: &NetworkName, at: &Attachment) -> Option<(u64, Option<SystemTime>)> {
        let file = fs::symlink_metadata(self.path(network, at)).ok()?;
        Some((file.ino(), file.modified().ok()))
    }
}

fn is_irregular(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|file| !file.is_file())
}

/// Whether the namespace at a path has an interface. `Ok(None)` if no namespace is at the path. The thread is in the namespace `here`.
pub(crate) fn has_interface(here: &NetNs, netns: &Path, name: &str) -> cni::Result<Option<bool>> {
    let Some(netns) = NetNs::open_if_present(netns)? else { return Ok(None) };
    match netns.enter_from(here, || if_nametoindex(name))? {
        Ok(_) => Ok(Some(true)),
        Err(Errno::ENODEV) => Ok(Some(false)),
        Err(e) => Err(e.into()),
    }
}
