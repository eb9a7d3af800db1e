//! Attachments of a network in the caches of this host's runtimes.

use std::cell::LazyCell;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use cni::{Attachments, ContainerId, json};
use liveness::{Boot, Namespaces};
use netlink::Mac;
use runtime::{Entry, Network, NetworkEntries, Result};
use serde_json::Value;
use system::file;

use super::PlanOptions;
use crate::settings::Settings;

/// The attachments of a network in all caches.
#[derive(Debug, Default)]
pub struct CachedAttachments {
    pub alive: Vec<Entry>,
    pub stale: Vec<Entry>,
    pub stale_elsewhere: Vec<Entry>,
    /// Attachments in cnitool's own cache, if `--detach-running` removes them.
    unwanted: Attachments,
    /// Attachments that look stale, but whose containers the host shows.
    shown: Attachments,
    /// Attachments in `unwanted` that are alive.
    pub unwanted_alive: Attachments,
    /// The cache files that cannot be read, each with the `CONTAINER-INTERFACE` in its name.
    unreadable: Vec<(PathBuf, String)>,
    /// Cache files from before the host was started that a power failure has truncated.
    pub truncated: Vec<PathBuf>,
}

impl CachedAttachments {
    /// Reads cnitool's own cache and those of all runtimes.
    ///
    /// # Errors
    /// If a cache cannot be read.
    pub fn of(network: &Network, options: &PlanOptions, settings: &Settings) -> Result<Self> {
        let caches = settings.runtime.results().with_others_of_host()?;
        let mut this = Self::default();
        let mut unwanted_alive = Vec::new();
        let (now, boot) = (SystemTime::now(), Boot::read());
        let namespaces = LazyCell::new(|| Namespaces::scan_in_time().ok());
        for (index, cache) in caches.iter().enumerate() {
            let is_own = index == 0;
            let NetworkEntries { entries, ambiguous, unreadable, .. } = cache.of_network(&network.name)?;
            for path in unreadable {
                // If the file is from before the host was started, its container is dead, whatever the file
                // contained.
                if boot.is_after_file(&path) {
                    this.truncated.extend(Some(path).filter(|path| is_truncated(path)));
                } else {
                    let name = attachment_of(&path, network);
                    this.unreadable.push((path, name));
                }
            }
            let entries = entries.into_iter().map(|entry| (entry, false));
            for (mut entry, is_ambiguous) in entries.chain(ambiguous.into_iter().map(|entry| (entry, true))) {
                let is_before = entry.added.is_some_and(|added| boot.is_after(added));
                let is_young = !is_before
                    && options.older_than.is_some_and(|least| {
                        let age = entry.added.and_then(|added| now.duration_since(added).ok());
                        age.is_some_and(|age| age < least)
                    });
                let mut is_alive = entry.is_alive();
                if is_alive && is_before && is_of_other_boot(&entry, || namespaces.as_ref()) {
                    is_alive = false;
                    // A path now leads to the namespace of another process, and DEL would remove an interface from it.
                    entry.attach.netns = None;
                }
                let is_unwanted = is_own && options.detach_running && !is_ambiguous;
                if is_alive && is_unwanted && !is_young {
                    unwanted_alive.push(entry.attach.attachment.clone());
                }
                match (is_alive && !is_unwanted, is_own) {
                    (true, _) => this.alive.push(entry),
                    // A young attachment is kept like a live one.
                    (false, _) if is_young => this.alive.push(entry),
                    // It may be an attachment of another network.
                    (false, _) if is_ambiguous => {}
                    (false, true) => this.stale.push(entry),
                    (false, false) => this.stale_elsewhere.push(entry),
                }
            }
        }
        let alive = std::mem::take(&mut this.alive);
        // If an attachment is alive in one cache, an entry with the same container and interface in another cache is
        // not stale.
        let is_alive = |entry: &Entry| {
            let at = &entry.attach.attachment;
            alive.iter().any(|other| other.attach.attachment == *at)
        };
        this.stale.retain(|entry| !is_alive(entry));
        this.stale_elsewhere.retain(|entry| !is_alive(entry));
        this.alive = alive;
        if options.detach_running {
            this.unwanted = this.stale.iter().map(|entry| entry.attach.attachment.clone()).collect();
            this.unwanted_alive = unwanted_alive.into_iter().collect();
        }
        Ok(this)
    }

    /// Looks for the containers of stale attachments on the host. If processes may be missed, an attachment whose namespace's path leads to a
    /// process counts as alive: for a GC that does not see the process, such a path is missing although the container runs.
    pub fn look_for_containers(&mut self, namespaces: &Namespaces, may_miss_processes: bool) {
        let Self { alive, stale, stale_elsewhere, unwanted, .. } = self;
        let is_unseen = |entry: &mut Entry| {
            let at = &entry.attach.attachment;
            let is_of_process = entry.attach.netns.as_deref().is_some_and(|path| path.starts_with("/proc"));
            may_miss_processes && is_of_process && !unwanted.contains(&at.container, &at.ifname)
        };
        alive.extend(stale.extract_if(.., is_unseen).chain(stale_elsewhere.extract_if(.., is_unseen)));
        let stale = stale.iter().chain(&*stale_elsewhere);
        let shown =
            stale.filter(|entry| is_shown(entry, namespaces)).map(|entry| entry.attach.attachment.clone());
        self.shown = shown.filter(|at| !unwanted.contains(&at.container, &at.ifname)).collect();
    }

    pub fn is_shown(&self, container: &str, ifname: &str) -> bool {
        self.shown.includes(container, ifname)
    }

    pub fn is_alive(&self, container: &str, ifname: &str) -> bool {
        self.alive.iter().any(|entry| is_of(entry, container, ifname))
    }

    pub fn is_stale(&self, container: &str, ifname: &str) -> bool {
        self.stale.iter().chain(&self.stale_elsewhere).any(|entry| is_of(entry, container, ifname))
    }

    pub fn is_unwanted(&self, container: &str, ifname: &str) -> bool {
        self.unwanted.includes(container, ifname)
    }

    /// A cache file that cannot be read.
    pub fn unreadable_file(&self) -> Option<&Path> {
        self.unreadable.first().map(|(path, _)| path.as_path())
    }

    pub fn is_unreadable(&self, container: &str, ifname: &str) -> bool {
        self.unreadable.iter().any(|(_, name)| match ifname {
            "" => name.strip_prefix(container).is_some_and(|rest| rest.starts_with('-')),
            ifname => *name == format!("{container}-{ifname}"),
        })
    }
}

fn is_of(entry: &Entry, container: &str, ifname: &str) -> bool {
    let at = &entry.attach.attachment;
    &*at.container == container && (ifname.is_empty() || &*at.ifname == ifname)
}

/// The container and interface in the name of a network's cache file, as `CONTAINER-INTERFACE`.
fn attachment_of(path: &Path, network: &Network) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.get(network.name.len() + 1..).unwrap_or_default().to_owned()
}

/// Whether a file is empty, or the beginning of a JSON document, perhaps with zeros after it. Files of other formats are
/// not removed, because other programs own them.
fn is_truncated(path: &Path) -> bool {
    file::read_own(path, json::MAX_BYTES).is_ok_and(|text| {
        let end = text.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        serde_json::from_slice::<Value>(&text[..end]).is_err_and(|e| e.is_eof())
    })
}

/// Removes a truncated file, unless an ADD has written it again meanwhile.
///
/// # Errors
/// Code 5 if the file cannot be removed.
pub fn remove_truncated(path: &Path) -> cni::Result<()> {
    if !Boot::read().is_after_file(path) {
        return Ok(());
    }
    match fs::remove_file(path) {
        // Another GC or a DEL has removed it already.
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed.map_err(|e| cni::Error::io(format!("remove {}", path.display()), &e)),
    }
}

/// Whether the host shows the container of an attachment whose path leads to no namespace: a mount namespace of the host has the path, a
/// process of the container is in a namespace, or a process is in the namespace with the attachment's interface.
fn is_shown(entry: &Entry, namespaces: &Namespaces) -> bool {
    entry.attach.netns.as_deref().is_some_and(|path| namespaces.is_at_for_host(path))
        || namespaces.has_process_of(&entry.attach.attachment.container)
        || has_used_link(entry, namespaces)
}

/// Whether a process is in a namespace with the interface of an attachment. Without the MAC address, another container may have the addresses
/// by now; without the addresses, another one may have the MAC address, which all ipvlans of a master share.
fn has_used_link(entry: &Entry, namespaces: &Namespaces) -> bool {
    let result = entry.result().unwrap_or_default();
    let interface = result.container_interface(&entry.attach.attachment.ifname);
    let mac = interface.and_then(|interface| interface.mac.as_deref()?.parse().ok());
    // All loopback interfaces have this one.
    let mac = mac.filter(|mac: &Mac| !mac.is_zero());
    let addresses: Vec<_> = result.addresses().map(|address| address.ip()).collect();
    mac.is_some_and(|mac| namespaces.is_link_used(mac, &addresses))
}

/// Whether an attachment from before the host was started has a namespace path `/proc/PID/ns/net` whose PID now
/// belongs to another process, or no path. The clock may have been set forward since, so this also requires that no
/// namespace of the host shows the container.
fn is_of_other_boot<'a>(entry: &Entry, namespaces: impl FnOnce() -> Option<&'a Namespaces>) -> bool {
    let may_be = entry.attach.netns.as_deref().is_none_or(|path| path.starts_with("/proc"));
    may_be
        && namespaces().is_some_and(|namespaces| {
            namespaces.is_complete() && !shows(namespaces, entry, &entry.attach.attachment.container)
        })
}

/// Whether the host shows, or may show, a container: an address of its result, or its name.
fn shows(namespaces: &Namespaces, entry: &Entry, container: &ContainerId) -> bool {
    let result = entry.result().unwrap_or_default();
    let mut addresses = result.addresses().peekable();
    addresses.peek().is_none()
        || addresses.any(|address| namespaces.may_have(address.ip()))
        || namespaces.has_container(container)
}
