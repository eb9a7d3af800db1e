//! Which leases are certainly of dead containers. docs/host-local.md says it for each runtime. In doubt, a lease stays.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use cni::{Attachment, ContainerId, IfName, NetworkName};
use liveness::{Boot, Calls, Namespaces};
use runtime::Cache;

use super::Request;
use crate::store::{Aged, Lease, Owner};

/// How often to look at the host again while namespaces appear and go.
const LOOKS: u32 = 3;

/// Why a container is taken for dead, unless the host shows otherwise.
#[derive(Debug)]
enum Reason {
    /// The runtime's files name these namespaces, and none of them exists.
    Deleted(Vec<PathBuf>),
    /// The lease is from before the host was started.
    Reboot,
}

/// The stale ones of some leases, each with the reason in words.
pub fn stale(leases: Vec<Aged>, network: &NetworkName, request: &Request) -> Vec<(Aged, String)> {
    let (now, caches) = (SystemTime::now(), Cache::of_host());
    let boot = request.reboot.then(Boot::look);
    let suspect = |aged: Aged| {
        let age = now.duration_since(aged.changed).ok()?;
        let is_old = age >= Duration::from_secs(request.age);
        let reason = if is_old { reason(&aged, network, &caches, boot)? } else { return None };
        Some((aged, reason))
    };
    let mut suspects: Vec<_> = leases.into_iter().filter_map(suspect).collect();
    if suspects.is_empty() {
        return Vec::new();
    }
    let namespaces = match look() {
        Ok(namespaces) => namespaces,
        Err(obstacle) => {
            cni::warn(&format!(
                "cannot examine all network namespaces of this host, so no lease is released as stale: {obstacle}"
            ));
            return Vec::new();
        }
    };
    let calls = Calls::look();
    suspects.retain(|(Aged { lease, .. }, reason)| {
        let container = &lease.owner.container;
        let is_called = *container != request.container && calls.may_be_for(container);
        !is_called && !shows(&namespaces, lease) && reason.holds(&namespaces)
    });
    suspects.into_iter().map(|(aged, reason)| (aged, reason.text())).collect()
}

/// All namespaces, or why that failed.
fn look() -> Result<Namespaces, String> {
    let look = || {
        let namespaces = Namespaces::look().map_err(|e| e.to_string())?;
        namespaces.obstacle().map_or(Ok(namespaces), Err)
    };
    (1..LOOKS).fold(look(), |outcome, _| outcome.or_else(|_| look()))
}

/// Whether anything of the container is seen: its address, or its name.
fn shows(namespaces: &Namespaces, lease: &Lease) -> bool {
    namespaces.may_have(lease.ip)
        || namespaces.host_has(lease.ip)
        || namespaces.has_container(&lease.owner.container)
}

fn reason(aged: &Aged, network: &NetworkName, caches: &[Cache], boot: Option<Boot>) -> Option<Reason> {
    let paths = namespaces_of(&aged.lease.owner, network, caches)?;
    let is_deleted = |path: &PathBuf| fs::metadata(path).is_err_and(|e| e.kind() == ErrorKind::NotFound);
    if !paths.iter().all(|path| is_deleted(path) || is_plain_file(path)) {
        return None;
    }
    let is_before = boot.is_some_and(|boot| boot.is_after(aged.changed));
    match paths.is_empty() {
        _ if is_before => Some(Reason::Reboot),
        true => None,
        false => Some(Reason::Deleted(paths)),
    }
}

/// The namespaces that runtimes have noted for a container. None: a file of theirs cannot be read, or names none.
fn namespaces_of(owner: &Owner, network: &NetworkName, caches: &[Cache]) -> Option<Vec<PathBuf>> {
    let container = ContainerId::parse(&owner.container).ok()?;
    // Old leases do not name the interface.
    let ifname = IfName::parse(owner.ifname.as_deref()?).ok()?;
    let at = Attachment { container, ifname };
    let mut paths = Vec::new();
    for cache in caches {
        if let Some(entry) = cache.load(network, &at).ok()? {
            paths.push(entry.attach.netns?);
        }
    }
    Some(paths)
}

/// What `umount` leaves where a namespace was.
fn is_plain_file(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|file| file.is_file() && file.len() == 0)
        && !runtime::is_namespace(path)
}

impl Reason {
    /// Whether no mount namespace of the host has the container's namespace either.
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
