//! Which containers are alive, as the kernel tells: by their namespaces and processes.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use netlink::{Address, Link, Netlink};
use netns::NetNs;
use runtime::Result;

/// The device and inode of a namespace.
type Id = (u64, u64);

/// The network namespaces of this machine but the host's, looked at once.
#[derive(Debug, Default)]
pub struct Namespaces {
    ids: BTreeSet<Id>,
    addresses: BTreeSet<IpAddr>,
    /// Where they are mounted, in any mount namespace.
    paths: BTreeSet<PathBuf>,
    /// The names of those in cnitool's own mount namespace.
    names: BTreeSet<OsString>,
    /// The control groups of all processes: runtimes put the container's id into their names.
    cgroups: BTreeSet<String>,
    links: Vec<Link>,
    /// The ids by which the host's links lead to namespaces that exist.
    peers: BTreeSet<i32>,
    /// There is a namespace whose addresses could not be read.
    unsure: bool,
}

impl Namespaces {
    /// Looks where the host's links lead to, and into all namespaces that are mounted, that a process is in or has open.
    ///
    /// # Errors
    /// If the kernel does not list the host's links.
    pub fn look() -> Result<Self> {
        let host = Netlink::open().map_err(cni::Error::from)?;
        let mut this = Self { links: host.links().map_err(cni::Error::from)?, ..Self::default() };
        this.follow_links(&host);
        let own = id(Path::new("/proc/thread-self/ns/net"));
        let mut mounts = BTreeSet::new();
        this.visit_mounts(Path::new("/"), Path::new("/proc/thread-self/mountinfo"), own);
        this.names = this.paths.iter().filter_map(|path| path.file_name().map(OsStr::to_owned)).collect();
        for process in processes() {
            this.visit(&process.join("ns/net"), own);
            open_files(&process).for_each(|file| this.visit(&file, own));
            if id(&process.join("ns/mnt")).is_some_and(|mount| mounts.insert(mount)) {
                this.visit_mounts(&process.join("root"), &process.join("mountinfo"), own);
            }
            this.cgroups.extend(fs::read_to_string(process.join("cgroup")));
        }
        Ok(this)
    }

    /// Whether a namespace has an address, or may have it.
    pub fn may_have(&self, address: IpAddr) -> bool {
        self.unsure || self.addresses.contains(&address)
    }

    /// Whether a link of the host leads to a namespace that exists. None: there is no such link, or it leads nowhere.
    pub fn leads_on(&self, link: &str) -> Option<bool> {
        let peer = self.links.iter().find(|one| one.name == link)?.peer_netns_id?;
        Some(self.peers.contains(&peer))
    }

    /// Whether a namespace is mounted at a path, or a process has it there, in any mount namespace.
    pub fn is_at(&self, path: &Path) -> bool {
        self.paths.contains(path) || runtime::is_namespace(path)
    }

    /// Whether a namespace or the control group of a process is called after a container.
    pub fn has_container(&self, id: &str) -> bool {
        let is_word = |c: char| c.is_ascii_alphanumeric();
        // Runtimes put a prefix before the id (`cri-containerd-`, `crio-`, `libpod-`), and `.scope` after it.
        let has_it = |text: &String| {
            text.match_indices(id).any(|(at, _)| {
                let (before, after) = (&text[..at], &text[at + id.len()..]);
                !before.ends_with(is_word) && !after.starts_with(is_word)
            })
        };
        self.names.contains(OsStr::new(id)) || self.cgroups.iter().any(has_it)
    }

    /// Whether all namespaces are at these paths: then there is no container besides.
    pub fn are_all_at<'a>(&self, paths: impl Iterator<Item = &'a Path>) -> bool {
        let known: BTreeSet<Id> = paths.filter_map(id).collect();
        !self.unsure && self.ids.is_subset(&known)
    }

    fn follow_links(&mut self, host: &Netlink) {
        let mut seen = BTreeSet::new();
        for link in self.links.clone() {
            let Some(peer) = link.peer_netns_id.filter(|peer| seen.insert(*peer)) else { continue };
            match host.addresses_beyond(peer) {
                Ok(Some(addresses)) => {
                    self.peers.insert(peer);
                    self.take(&addresses);
                }
                Ok(None) => {}
                Err(_) => {
                    self.peers.insert(peer);
                    self.unsure = true;
                }
            }
        }
    }

    /// The namespaces that are mounted in a mount namespace (proc_pid_mountinfo(5)).
    fn visit_mounts(&mut self, root: &Path, mountinfo: &Path, own: Option<Id>) {
        let mounts = fs::read_to_string(mountinfo).unwrap_or_default();
        let path = |line: &str| {
            let (mount, source) = line.split_once(" - ")?;
            source.starts_with("nsfs ").then(|| mount.split(' ').nth(4).map(PathBuf::from))?
        };
        for path in mounts.lines().filter_map(path) {
            self.visit(&root.join(path.strip_prefix("/").unwrap_or(&path)), own);
            self.paths.insert(path);
        }
    }

    /// What another mount hides is seen by its veth or its processes, if it has any.
    fn visit(&mut self, path: &Path, own: Option<Id>) {
        let Some(id) = id(path).filter(|id| Some(*id) != own && !self.ids.contains(id)) else { return };
        let addresses = addresses_at(path);
        if addresses.is_some() {
            self.ids.insert(id);
        }
        self.take(&addresses.unwrap_or_default());
    }

    fn take(&mut self, addresses: &[Address]) {
        self.addresses.extend(addresses.iter().map(|address| address.net.ip()));
    }
}

fn id(path: &Path) -> Option<Id> {
    path.metadata().ok().map(|inode| (inode.dev(), inode.ino()))
}

/// The directories of the processes that are seen in /proc.
fn processes() -> impl Iterator<Item = PathBuf> {
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let is_number = |name: &OsStr| name.as_encoded_bytes().iter().all(u8::is_ascii_digit);
    all.filter(move |one| is_number(&one.file_name())).map(|one| one.path())
}

/// The namespaces that a process has open.
fn open_files(process: &Path) -> impl Iterator<Item = PathBuf> {
    let files = fs::read_dir(process.join("fd")).into_iter().flatten().flatten().map(|file| file.path());
    files.filter(|file| {
        fs::read_link(file).is_ok_and(|to| to.as_os_str().as_encoded_bytes().starts_with(b"net:["))
    })
}

/// None for what is no network namespace.
fn addresses_at(path: &Path) -> Option<Vec<Address>> {
    let netns = NetNs::open_if_present(path).ok()??;
    netns.enter(Netlink::open).ok()?.ok()?.addresses(None).ok()
}
