//! Decides which leases are stale (docs/host-local.md#stale-leases). In doubt, a lease is kept.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use cni::{Attachment, ContainerId, IfName, NetworkName};
use liveness::{Boot, Namespaces, RunningPlugins};
use runtime::{AttachmentParameters, Cache, Entry};

use super::Request;
use crate::store::{DatedLease, Lease, Owner};

/// How many times to look at the host again while namespaces are created and deleted.
const LOOKS: u32 = 3;

/// Why a container is considered dead, unless the host shows otherwise.
#[derive(Debug)]
enum Reason {
    /// The runtime's files name these namespaces. None of them exists.
    Deleted(Vec<PathBuf>),
    /// The lease is from before the last boot.
    Reboot,
}

/// The stale leases, each with the reason in words.
pub fn stale(leases: Vec<DatedLease>, network: &NetworkName, request: &Request) -> Vec<(DatedLease, String)> {
    let now = SystemTime::now();
    let caches = match Cache::of_host() {
        Ok(caches) => caches,
        Err(obstacle) => {
            cni::warn(&format!(
                "cannot find all caches of runtimes, so no lease is released as stale: {obstacle}"
            ));
            return Vec::new();
        }
    };
    let boot = request.reboot.then(Boot::read);
    let suspect = |aged: DatedLease| {
        let age = now.duration_since(aged.changed).ok()?;
        let is_old = age >= Duration::from_secs(request.age);
        let reason = if is_old { reason(&aged, network, &caches, boot, request)? } else { return None };
        Some((aged, reason))
    };
    let mut suspects: Vec<_> = leases.into_iter().filter_map(suspect).collect();
    if suspects.is_empty() {
        return Vec::new();
    }
    let namespaces = match scan() {
        Ok(namespaces) => namespaces,
        Err(obstacle) => {
            cni::warn(&format!(
                "cannot examine all network namespaces of this host, so no lease is released as stale: {obstacle}"
            ));
            return Vec::new();
        }
    };
    let calls = RunningPlugins::scan();
    suspects.retain(|(DatedLease { lease, .. }, reason)| {
        let container = &lease.owner.container;
        let is_called = !request.is_of_container(container) && calls.may_be_for(container);
        !is_called && !shows(&namespaces, lease, request) && reason.holds(&namespaces)
    });
    suspects.into_iter().map(|(aged, reason)| (aged, reason.text())).collect()
}

/// All network namespaces of the host, or why they cannot be listed completely.
fn scan() -> Result<Namespaces, String> {
    let attempt = || {
        let namespaces = Namespaces::scan().map_err(|e| e.to_string())?;
        namespaces.obstacle().map_or(Ok(namespaces), Err)
    };
    (1..LOOKS).fold(attempt(), |outcome, _| outcome.or_else(|_| attempt()))
}

/// Whether a namespace has the lease's address, or a process has the container's id. The new process of the container that ADD attaches has
/// its id, too.
fn shows(namespaces: &Namespaces, lease: &Lease, request: &Request) -> bool {
    let container = &lease.owner.container;
    namespaces.may_have(lease.ip)
        || namespaces.host_has(lease.ip)
        || !request.is_of_container(container) && namespaces.has_container(container)
}

fn reason(
    aged: &DatedLease,
    network: &NetworkName,
    caches: &[Cache],
    boot: Option<Boot>,
    request: &Request,
) -> Option<Reason> {
    let owner = &aged.lease.owner;
    let paths = namespaces_of(owner, network, caches, boot)?;
    let is_before = boot.is_some_and(|boot| boot.is_after(aged.changed));
    // The runtime may have created the namespace of the running ADD at the same path as before the boot.
    let is_created_again = is_before && request.is_of(owner);
    let is_deleted = |path: &PathBuf| fs::metadata(path).is_err_and(|e| e.kind() == ErrorKind::NotFound);
    if !is_created_again && !paths.iter().all(|path| is_deleted(path) || is_plain_file(path)) {
        return None;
    }
    match paths.is_empty() {
        _ if is_before => Some(Reason::Reboot),
        true => None,
        false => Some(Reason::Deleted(paths)),
    }
}

/// The container's namespaces according to the runtimes' caches. None: a cache file cannot be read, or names no
/// namespace.
fn namespaces_of(
    owner: &Owner,
    network: &NetworkName,
    caches: &[Cache],
    boot: Option<Boot>,
) -> Option<Vec<PathBuf>> {
    let container = ContainerId::parse(&owner.container).ok()?;
    // Old lease files do not contain the interface.
    let ifname = IfName::parse(owner.ifname.as_deref()?).ok()?;
    let at = Attachment { container, ifname };
    let mut paths = Vec::new();
    for cache in caches {
        match cache.load(network, &at) {
            Ok(None) => {}
            Ok(Some(Entry { attach: AttachmentParameters { netns: Some(path), .. }, .. })) => {
                paths.push(path)
            }
            // A loss of power truncates files that libcni was writing. The container of such a file is dead.
            Ok(Some(_)) | Err(_)
                if boot.is_some_and(|boot| boot.is_after_file(&cache.path(network, &at))) => {}
            Ok(Some(_)) | Err(_) => return None,
        }
    }
    Some(paths)
}

/// After `umount`, an empty regular file remains where the namespace was mounted.
fn is_plain_file(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|file| file.is_file() && file.len() == 0)
        && !runtime::is_namespace(path)
}

impl Reason {
    /// Whether a mount namespace of the host still has the container's namespace.
    fn holds(&self, namespaces: &Namespaces) -> bool {
        match self {
            Self::Deleted(paths) => !paths.iter().any(|path| namespaces.is_at(path)),
            Self::Reboot => true,
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Deleted(paths) => {
                let paths: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
                format!("its network namespace {} is deleted", paths.join(", "))
            }
            Self::Reboot => "it is from before the last boot".to_owned(),
        }
    }
}
