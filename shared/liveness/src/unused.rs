//! Namespaces that only a mount keeps alive.

use std::collections::BTreeSet;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::SystemTime;

use netlink::Netlink;
use netns::NetNs;

use crate::{Id, Namespaces};

/// A mounted network namespace that no process is in or has open.
#[derive(Clone, Debug)]
pub struct Unused {
    id: Id,
    /// The number with which links of the host refer to the namespace.
    peer: Option<i32>,
    /// Paths where the namespace is mounted, in any mount namespace.
    pub paths: BTreeSet<PathBuf>,
    /// Creation time, which no program can set.
    pub since: SystemTime,
}

impl Namespaces {
    /// Finds unused namespaces. Finds none if an object could not be examined.
    pub(crate) fn find_unused(&mut self, host: &Netlink) {
        if !self.is_complete() {
            return;
        }
        let unused = self.mounts.iter().filter(|(id, _)| self.ids.contains(id) && !self.used.contains(id));
        let unused = unused.filter_map(|(id, (file, paths))| {
            let since = file.metadata().and_then(|file| file.modified()).ok()?;
            let netns = NetNs::open_if_present(file).ok()??;
            let peer = host.netns_id(netns.as_fd()).ok()?;
            Some(Unused { id: *id, peer, paths: paths.clone(), since })
        });
        self.unused = unused.collect();
    }

    /// Treats these unused namespaces as nonexistent.
    pub fn ignore_unused(&mut self, is_orphaned: impl Fn(&Unused) -> bool) {
        let (orphaned, unused) = std::mem::take(&mut self.unused).into_iter().partition(is_orphaned);
        self.unused = unused;
        let orphaned: Vec<Unused> = orphaned;
        for Unused { id, peer, paths, .. } in orphaned {
            self.ids.remove(&id);
            self.unexamined.remove(&id.1);
            self.inside.remove(&id);
            self.paths.retain(|path| !paths.contains(path));
            self.paths_of_host.retain(|path| !paths.contains(path));
            self.orphaned.extend(paths);
            if let Some(peer) = peer {
                self.by_nsid.remove(&peer);
            }
        }
    }
}
