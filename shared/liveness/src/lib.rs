//! Determines which containers are running, from the kernel's network namespaces and processes.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process;
use std::time::Duration;

use cni::{Code, Error, Result};
use netlink::{Address, Link, Mac, Netlink};
use netns::NetNs;

mod boot;
mod running;
mod unused;
mod within;

pub use boot::Boot;
pub use running::RunningPlugins;
pub use unused::Unused;
use within::within;

/// Longer than a scan of tens of thousands of processes takes.
const SCAN_TIMEOUT: Duration = Duration::from_secs(30);

/// Device and inode of a namespace.
type Id = (u64, u64);

/// The views of mounts that were visited: mount namespace, root directory, and whether the process is in another network namespace than the
/// host's.
type Views = BTreeSet<(Id, Option<Id>, bool)>;

/// A snapshot of the network namespaces of this machine, except the host's.
#[derive(Debug, Default)]
pub struct Namespaces {
    ids: BTreeSet<Id>,
    /// Addresses in each namespace.
    inside: BTreeMap<Id, BTreeSet<IpAddr>>,
    /// MAC addresses of the links in each namespace.
    macs: BTreeMap<Id, BTreeSet<Mac>>,
    /// Addresses in namespaces to which links of the host lead, by network namespace id (nsid, `ip netns list-id`).
    by_nsid: BTreeMap<i32, BTreeSet<IpAddr>>,
    /// Paths where namespaces are mounted, in any mount namespace.
    paths: BTreeSet<PathBuf>,
    /// Paths where namespaces are mounted, as processes of the host see them: those in the host's network namespace.
    paths_of_host: BTreeSet<PathBuf>,
    /// Mounts by namespace, each with a file that this process can open.
    mounts: BTreeMap<Id, (PathBuf, BTreeSet<PathBuf>)>,
    /// Namespaces that a process is in or has open.
    used: BTreeSet<Id>,
    unused: Vec<Unused>,
    /// Paths of unused namespaces that are treated as nonexistent ([`Namespaces::ignore_unused`]).
    orphaned: BTreeSet<PathBuf>,
    /// Names in cnitool's own mount namespace.
    names: BTreeSet<OsString>,
    /// Control groups of all processes: runtimes include the container's id in their names.
    cgroups: BTreeSet<String>,
    /// The same, only of processes in other network namespaces than the host's.
    cgroups_inside: BTreeSet<String>,
    links: Vec<Link>,
    /// Why addresses of a namespace could not be read.
    unsure: Option<String>,
    /// The host's own addresses.
    own: BTreeSet<IpAddr>,
    /// Inodes of namespaces that could not be examined, and their paths. The namespaces may have been deleted
    /// meanwhile.
    unexamined: BTreeMap<u64, String>,
    /// The same, only those that exist and whose addresses could not be read.
    unread: BTreeMap<u64, String>,
    /// Why a process or its files could not be examined.
    hidden_process: Option<String>,
}

impl Namespaces {
    /// Examines three kinds of namespaces: those to which links of the host lead, mounted ones, and those that a
    /// process is in or has open.
    ///
    /// # Errors
    /// If the kernel does not list the host's links.
    pub fn scan() -> Result<Self> {
        let host = Netlink::open()?;
        let mut this = Self { links: host.links()?, ..Self::default() };
        this.hidden_process = (!sees_all_processes()).then(|| {
            "/proc shows another PID namespace, or only the processes of a container's PID namespace"
                .to_owned()
        });
        this.own = host.addresses(None)?.iter().map(|address| address.net.ip()).collect();
        this.follow_links(&host);
        let own = id(Path::new("/proc/thread-self/ns/net")).ok();
        let mut views = BTreeSet::new();
        this.visit_mounts(Path::new("/"), Path::new("/proc/thread-self/mountinfo"), own, true);
        this.names = this.paths.iter().filter_map(|path| path.file_name().map(OsStr::to_owned)).collect();
        this.visit_processes(own, &mut views, processes);
        let examined: BTreeSet<u64> = this.ids.iter().map(|(_, number)| *number).collect();
        this.unexamined.retain(|inode, _| !examined.contains(inode));
        this.unread.retain(|inode, _| !examined.contains(inode));
        if let Some((number, place)) = this.unread.first_key_value() {
            this.unsure.get_or_insert_with(|| format!("net:[{number}] at {place} cannot be entered"));
        }
        this.find_unused(&host);
        Ok(this)
    }

    /// Like [`Namespaces::scan`], for callers that others wait for: a process whose root directory or open file is on a file system that does
    /// not answer (FUSE, NFS) delays this scan.
    ///
    /// # Errors
    /// Code 11 after 30 seconds. If the kernel does not list the host's links.
    pub fn scan_in_time() -> Result<Self> {
        within(SCAN_TIMEOUT, Self::scan).unwrap_or_else(|| {
            Err(Error::new(
                Code::TryAgainLater,
                format!("examine the processes of this host: not finished within {SCAN_TIMEOUT:?}"),
            )
            .detail("the root directory or a file of a process may be on a file system that does not answer, such as FUSE or NFS: ps -eo pid,stat,wchan,args shows who waits for it"))
        })
    }

    /// Whether every existing namespace was examined. Otherwise an address that was not found may be in use.
    pub fn is_complete(&self) -> bool {
        self.obstacle().is_none()
    }

    /// Why not every existing namespace was examined.
    pub fn obstacle(&self) -> Option<String> {
        let unexamined = || self.unexamined.iter().next();
        let reported = self.hidden_process.clone().or_else(|| self.unsure.clone());
        reported.or_else(|| {
            unexamined().map(|(number, place)| format!("net:[{number}] at {place} cannot be entered"))
        })
    }

    /// Whether a process or its files could not be examined: a container may have been missed.
    pub fn may_miss_processes(&self) -> bool {
        self.hidden_process.is_some()
    }

    /// Whether the host has an address.
    pub fn host_has(&self, address: IpAddr) -> bool {
        self.own.contains(&address)
    }

    /// Whether a namespace has an address.
    pub fn has(&self, address: IpAddr) -> bool {
        let mut all = self.inside.values().chain(self.by_nsid.values());
        all.any(|addresses| addresses.contains(&address))
    }

    /// Whether a namespace has, or may have, an address.
    pub fn may_have(&self, address: IpAddr) -> bool {
        self.may_miss_addresses() || self.has(address)
    }

    /// Whether a process is in a namespace with this address, or has it open.
    pub fn is_used(&self, address: IpAddr) -> bool {
        self.used.iter().any(|id| self.inside.get(id).is_some_and(|addresses| addresses.contains(&address)))
    }

    /// Whether a process is in a namespace, or has it open, that has a link with this MAC address, and one of the IP addresses if there are
    /// any.
    pub fn is_link_used(&self, mac: Mac, addresses: &[IpAddr]) -> bool {
        let has_address = |id: &Id| {
            let inside = self.inside.get(id);
            addresses.is_empty()
                || inside.is_some_and(|inside| addresses.iter().any(|ip| inside.contains(ip)))
        };
        self.used
            .iter()
            .any(|id| self.macs.get(id).is_some_and(|macs| macs.contains(&mac)) && has_address(id))
    }

    /// Whether the addresses of a namespace could not be read.
    pub fn may_miss_addresses(&self) -> bool {
        self.unsure.is_some()
    }

    /// Whether a link of the host leads to an existing namespace. `None` if the link does not exist, or its peer is
    /// in no other namespace.
    pub fn leads_to_namespace(&self, link: &str) -> Option<bool> {
        let peer = self.links.iter().find(|one| one.name == link)?.peer_netns_id?;
        Some(self.by_nsid.contains_key(&peer))
    }

    /// Whether a namespace is mounted at a path, or a process has it there, in any mount namespace.
    pub fn is_at(&self, path: &Path) -> bool {
        let paths: Vec<PathBuf> = spellings(path).collect();
        let are_in = |all: &BTreeSet<PathBuf>| paths.iter().any(|path| all.contains(path));
        are_in(&self.paths) || is_namespace(path) && !are_in(&self.orphaned)
    }

    /// Whether a process of the host sees a namespace mounted at a path, in any mount namespace.
    pub fn is_at_for_host(&self, path: &Path) -> bool {
        spellings(path).any(|path| self.paths_of_host.contains(&path))
    }

    /// Whether a namespace or control group is named after a container.
    pub fn has_container(&self, id: &str) -> bool {
        self.names.contains(OsStr::new(id)) || self.cgroups.iter().any(|text| has_word(text, id))
    }

    /// Whether a process that is not in the host's network namespace has a control group that is named after a container. A server that a
    /// plugin has started does not count: it is in the host's network namespace.
    pub fn has_process_of(&self, id: &str) -> bool {
        self.cgroups_inside.iter().any(|text| has_word(text, id))
    }

    /// Whether all namespaces are at these paths, so that no other container exists.
    pub fn are_all_at<'a>(&self, paths: impl Iterator<Item = &'a Path>) -> bool {
        let known: BTreeSet<Id> = paths.filter_map(|path| id(path).ok()).collect();
        self.unsure.is_none() && self.ids.is_subset(&known)
    }

    /// Records the namespaces, mounts and control groups of processes. `list` returns the processes that exist at the
    /// time of the call.
    ///
    /// A list of /proc lacks a process that was forked while the list was read, and the parent may exit before it is
    /// visited. So this visits all processes twice: one of the two lists contains the parent or the child.
    fn visit_processes(
        &mut self,
        own: Option<Id>,
        views: &mut Views,
        list: impl Fn() -> io::Result<Vec<PathBuf>>,
    ) {
        let ancestors = ancestors();
        for _ in 0..2 {
            for process in self.note(Path::new("/proc"), list()).unwrap_or_default() {
                let hidden_process = self.hidden_process.clone();
                let is_inside = self.visit_used(&process.join("ns/net"), own);
                self.visit_view(&process, views, own, is_inside);
                self.visit_threads(&process, views, own);
                self.visit_files(&process, own);
                let cgroup = read_lossy(&process.join("cgroup")).ok();
                self.cgroups_inside.extend(cgroup.clone().filter(|_| is_inside));
                self.cgroups.extend(cgroup);
                // A security module may hide init and the runtime. They are not containers.
                if ancestors.contains(&process) {
                    self.hidden_process = hidden_process;
                }
            }
        }
    }

    fn follow_links(&mut self, host: &Netlink) {
        let mut seen = BTreeSet::new();
        for link in self.links.clone() {
            let Some(peer) = link.peer_netns_id.filter(|peer| seen.insert(*peer)) else { continue };
            match host.addresses_beyond(peer) {
                Ok(Some(addresses)) => drop(self.by_nsid.insert(peer, ips(&addresses))),
                Ok(None) => {}
                Err(e) => {
                    self.by_nsid.insert(peer, BTreeSet::new());
                    self.unsure.get_or_insert_with(|| format!("{}: {e}", link.name));
                }
            }
        }
    }

    /// Records the namespaces that are mounted where a process or thread sees them, unless another one with the same
    /// view was visited.
    fn visit_view(&mut self, process: &Path, views: &mut Views, own: Option<Id>, is_inside: bool) {
        let (namespace, root) = (process.join("ns/mnt"), process.join("root"));
        let Some(namespace) = self.note(&namespace, id(&namespace)) else { return };
        // In a chroot, mountinfo lacks the mounts outside.
        if views.insert((namespace, id(&root).ok(), is_inside)) {
            self.visit_mounts(&root, &process.join("mountinfo"), own, !is_inside);
        }
    }

    /// Records the namespaces mounted in a mount namespace (proc_pid_mountinfo(5)).
    fn visit_mounts(&mut self, root: &Path, mountinfo: &Path, own: Option<Id>, is_of_host: bool) {
        let mounts = self.note(mountinfo, fs::read(mountinfo)).unwrap_or_default();
        for (number, path) in mounts.split(|&byte| byte == b'\n').filter_map(namespace_mount) {
            if own.is_none_or(|own| own.1 != number) {
                self.visit_mount(number, root, &path, own);
            }
            if is_of_host {
                self.paths_of_host.insert(path.clone());
            }
            self.paths.insert(path);
        }
    }

    /// Another mount may hide this one. For example, `mount --rbind /run/netns /run/netns` hides earlier mounts
    /// permanently. Then no process can enter the namespace by this path. If a process uses the namespace, it is
    /// found through the process.
    fn visit_mount(&mut self, number: u64, root: &Path, path: &Path, own: Option<Id>) {
        let file = root.join(path.strip_prefix("/").unwrap_or(path));
        let Some(found) = self.visit(&file, own).filter(|found| found.1 == number) else { return };
        if self.ids.contains(&found) {
            let mount = || (file, BTreeSet::new());
            self.mounts.entry(found).or_insert_with(mount).1.insert(path.to_owned());
        } else {
            self.unexamined.insert(number, file.display().to_string());
        }
    }

    /// Records the namespaces of threads, which may differ from the process's.
    fn visit_threads(&mut self, process: &Path, views: &mut Views, own: Option<Id>) {
        let task = process.join("task");
        let of_process = id(&process.join("ns/mnt")).ok();
        let threads = self.note(&task, fs::read_dir(&task)).into_iter().flatten().flatten();
        for thread in threads.filter(|thread| Some(&*thread.file_name()) != process.file_name()) {
            let thread = thread.path();
            let is_inside = self.visit_used(&thread.join("ns/net"), own);
            if id(&thread.join("ns/mnt")).ok() != of_process {
                self.visit_view(&thread, views, own, is_inside);
            }
        }
    }

    /// Records the namespaces that a process has open.
    fn visit_files(&mut self, process: &Path, own: Option<Id>) {
        let fd = process.join("fd");
        let files = self.note(&fd, fs::read_dir(&fd)).into_iter().flatten().flatten();
        for file in files.map(|file| file.path()) {
            let Ok(to) = fs::read_link(&file) else { continue };
            let is_shown = to.to_str().is_some_and(|to| number(to).is_some());
            // A namespace that was opened where it is mounted has the path of the mount.
            if is_shown || self.paths.contains(&to) || is_of_lost_mount(&file, &to) {
                self.visit_used(&file, own);
            }
        }
    }

    /// Returns whether the namespace is another one than the host's.
    fn visit_used(&mut self, path: &Path, own: Option<Id>) -> bool {
        let found = self.visit(path, own);
        self.used.extend(found);
        found.is_some()
    }

    fn visit(&mut self, path: &Path, own: Option<Id>) -> Option<Id> {
        let found = self.note(path, id(path)).filter(|found| Some(*found) != own)?;
        if self.ids.contains(&found) {
            return Some(found);
        }
        match addresses_at(path) {
            Some((addresses, links)) => {
                self.ids.insert(found);
                self.inside.insert(found, ips(&addresses));
                self.macs.insert(found, links.iter().filter_map(|link| link.mac).collect());
            }
            // The mount is of another kind of namespace, or the process has exited.
            None if is_namespace(path) && id(path).is_ok_and(|now| now == found) => {
                let to = fs::read_link(path).ok();
                let is_of_lost_mount = to.as_deref().is_some_and(|to| is_of_lost_mount(path, to));
                let number = to.and_then(|to| number(to.to_str()?)).or(is_of_lost_mount.then_some(found.1));
                let found = number.map(|number| (number, path.display().to_string()));
                self.unexamined.extend(found.clone());
                self.unread.extend(found);
            }
            None => {}
        }
        Some(found)
    }

    /// Ignores objects that no longer exist. Any other error may hide a namespace.
    fn note<T>(&mut self, path: &Path, outcome: io::Result<T>) -> Option<T> {
        // Mounts of an exiting process.
        const EINVAL: i32 = 22;
        outcome
            .inspect_err(|e| {
                let has_ended = [Some(ESRCH), Some(EINVAL)].contains(&e.raw_os_error());
                let is_missing = matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory);
                if !is_missing && !has_ended && !is_exiting(path) {
                    self.hidden_process.get_or_insert_with(|| format!("{}: {e}", path.display()));
                }
            })
            .ok()
    }
}

/// Whether a path in /proc is that of a process or thread that is exiting or has exited. The kernel then refuses to show its namespaces
/// (EACCES), although it is in none any more.
fn is_exiting(path: &Path) -> bool {
    const PF_EXITING: u32 = 4;
    let parts: Vec<_> = path.components().take(5).collect();
    let of_thread = parts.len() > 4 && parts[3].as_os_str() == "task";
    let process: PathBuf = parts.iter().take(if of_thread { 5 } else { 3 }).collect();
    if !process.starts_with("/proc") {
        return false;
    }
    match read_lossy(&process.join("stat")) {
        // proc_pid_stat(5): the state is the first field after the name in parentheses, and the flags are the seventh.
        Ok(stat) => stat.rsplit_once(") ").is_some_and(|(_, fields)| {
            let mut fields = fields.split(' ');
            let state = fields.next().unwrap_or_default();
            let flags = fields.nth(5).and_then(|flags| flags.parse::<u32>().ok()).unwrap_or_default();
            ["Z", "X"].contains(&state) || flags & PF_EXITING != 0
        }),
        Err(e) => e.kind() == ErrorKind::NotFound || e.raw_os_error() == Some(ESRCH),
    }
}

/// The error of reading a file of a process that has exited.
const ESRCH: i32 = 3;

/// Names in these files may contain any bytes.
fn read_lossy(path: &Path) -> io::Result<String> {
    fs::read(path).map(|text| String::from_utf8_lossy(&text).into_owned())
}

/// The number and the path of the network namespace in a line of mountinfo.
fn namespace_mount(line: &[u8]) -> Option<(u64, PathBuf)> {
    let mut fields = line.split(|&byte| byte == b' ').skip(3);
    let (inode, path) = (fields.next()?, fields.next()?);
    // A hyphen follows the optional fields.
    fields.find(|field| *field == b"-")?;
    let number = number(std::str::from_utf8(inode).ok()?)?;
    (fields.next()? == b"nsfs").then(|| (number, OsString::from_vec(unescaped(path)).into()))
}

/// The kernel writes spaces, line ends and backslashes as a backslash and three octal digits.
fn unescaped(path: &[u8]) -> Vec<u8> {
    let (mut bytes, mut rest) = (Vec::with_capacity(path.len()), path);
    while let Some((&first, after)) = rest.split_first() {
        let digits =
            after.get(..3).filter(|_| first == b'\\').and_then(|text| std::str::from_utf8(text).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => (bytes.push(byte), rest = &after[3..]),
            None => (bytes.push(first), rest = after),
        };
    }
    bytes
}

/// The paths that mountinfo may have for a path: those there contain no symbolic links. Many runtimes call a namespace `/var/run/netns/NAME`,
/// and the root directory of a container may lack the link `/var/run`.
fn spellings(path: &Path) -> impl Iterator<Item = PathBuf> {
    let below_run = path.strip_prefix("/var/run").ok().map(|rest| Path::new("/run").join(rest));
    let real = path.parent().and_then(|dir| Some(dir.canonicalize().ok()?.join(path.file_name()?)));
    [Some(path.to_owned()), below_run, real].into_iter().flatten()
}

fn ips(addresses: &[Address]) -> BTreeSet<IpAddr> {
    addresses.iter().map(|address| address.net.ip()).collect()
}

fn id(path: &Path) -> io::Result<Id> {
    path.metadata().map(|inode| (inode.dev(), inode.ino()))
}

/// Whether a path is a namespace of any kind.
fn is_namespace(path: &Path) -> bool {
    id(path).is_ok_and(|found| id(Path::new("/proc/thread-self/ns/net")).is_ok_and(|own| own.0 == found.0))
}

/// Number of a network namespace in the notation of links and mounts (namespaces(7)).
fn number(text: &str) -> Option<u64> {
    text.strip_prefix("net:[")?.strip_suffix(']')?.parse().ok()
}

/// Whether an open file, which /proc shows as `to`, is or may be a network namespace that is no longer mounted where it was opened: the kernel then
/// shows the root of the mount, `/`.
fn is_of_lost_mount(file: &Path, to: &Path) -> bool {
    to == Path::new("/") && is_namespace(file) && !matches!(NetNs::open_if_present(file), Ok(None))
}

/// Whether /proc shows the processes of all containers of this host. In a PID namespace of its own, such as that of a pod without hostPID, a
/// plugin sees none of them, and the paths `/proc/PID/ns/net` of the runtimes lead nowhere or to other processes.
fn sees_all_processes() -> bool {
    let own = process::id();
    let is_own = fs::read_link("/proc/self").is_ok_and(|link| link == Path::new(&own.to_string()));
    is_own && (is_in_host_pid_namespace() || own != 1 && is_in_pid_namespace_of_machine())
}

/// Whether the PID namespace is that of a whole machine, such as an LXC container or a node of kind: its first process is an init. The runtime
/// and its containers are then in this PID namespace, too.
fn is_in_pid_namespace_of_machine() -> bool {
    read_lossy(Path::new("/proc/1/comm")).is_ok_and(|name| ["init", "systemd"].contains(&name.trim_end()))
}

/// Whether this process is in the host's own PID namespace. In another one, /proc does not show all of the host's processes.
pub fn is_in_host_pid_namespace() -> bool {
    // PROC_PID_INIT_INO of the kernel's linux/proc_ns.h.
    fs::read_link("/proc/self/ns/pid").is_ok_and(|own| own == Path::new("pid:[4026531836]"))
}

/// Directories of this process's ancestors, up to the first process.
fn ancestors() -> BTreeSet<PathBuf> {
    let parent = |process: &PathBuf| {
        let stat = read_lossy(&process.join("stat")).ok()?;
        // proc_pid_stat(5): state and parent follow the name in parentheses.
        let parent: u32 = stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()?;
        Some(Path::new("/proc").join(parent.to_string()))
    };
    let own = Path::new("/proc").join(process::id().to_string());
    // The tree may change meanwhile, but the first process remains.
    std::iter::successors(parent(&own), parent).take(1000).chain([PathBuf::from("/proc/1")]).collect()
}

/// Whether a process is in the network namespace at a path.
pub fn has_process(netns: &Path) -> bool {
    let Ok(namespace) = id(netns) else { return false };
    // A process that cannot be seen may be in it.
    let is_in_it = |process: PathBuf| id(&process.join("ns/net")).is_ok_and(|found| found == namespace);
    processes().map_or(true, |all| all.into_iter().any(is_in_it))
}

/// The network namespace of a container's processes, by the names of their control groups. `None` if no process has such a name, or if
/// the container has the host's network namespace.
pub fn netns_of(container: &str) -> Option<PathBuf> {
    netns_among(container, processes().ok()?)
}

fn netns_among(container: &str, processes: Vec<PathBuf>) -> Option<PathBuf> {
    let own = id(Path::new("/proc/thread-self/ns/net")).ok()?;
    let is_its = |process: &PathBuf| {
        read_lossy(&process.join("cgroup")).is_ok_and(|cgroup| has_word(&cgroup, container))
    };
    let namespaces = processes.into_iter().filter(is_its).map(|process| process.join("ns/net"));
    namespaces.into_iter().find(|netns| id(netns).is_ok_and(|found| found != own))
}

/// Directories of the processes in /proc.
fn processes() -> io::Result<Vec<PathBuf>> {
    let is_number = |name: &OsStr| name.as_encoded_bytes().iter().all(u8::is_ascii_digit);
    let mut all = Vec::new();
    for entry in fs::read_dir("/proc")? {
        all.extend(Some(entry?).filter(|one| is_number(&one.file_name())).map(|one| one.path()));
    }
    Ok(all)
}

/// The addresses and links in the network namespace at a path. `None` if it cannot be entered.
fn addresses_at(path: &Path) -> Option<(Vec<Address>, Vec<Link>)> {
    let netns = NetNs::open_if_present(path).ok()??;
    let nl = netns.enter(Netlink::open).ok()?.ok()?;
    // The lists may keep changing while a container is started.
    (0..3).find_map(|_| Some((nl.addresses(None).ok()?, nl.links().ok()?)))
}

/// Whether a text has a container's id as a word. Runtimes add a prefix (`cri-containerd-`, `crio-`, `libpod-`) and `.scope`.
fn has_word(text: &str, id: &str) -> bool {
    let is_word = |c: char| c.is_ascii_alphanumeric();
    text.match_indices(id).any(|(at, _)| {
        let (before, after) = (&text[..at], &text[at + id.len()..]);
        !before.ends_with(is_word) && !after.starts_with(is_word)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process that is killed when this is dropped, also after a failed assertion.
    pub struct Killed(pub process::Child);

    impl Drop for Killed {
        fn drop(&mut self) {
            self.0.kill().and_then(|()| self.0.wait()).unwrap();
        }
    }

    /// The first list of processes does not contain the only process of a namespace yet.
    #[test]
    fn a_process_that_the_first_list_lacks_is_found() {
        let sleep = process::Command::new("unshare").args(["--net", "sleep", "60"]).spawn().unwrap();
        let sleep = Killed(sleep);
        let process = Path::new("/proc").join(sleep.0.id().to_string());
        let own = id(Path::new("/proc/thread-self/ns/net")).unwrap();
        while id(&process.join("ns/net")).unwrap() == own {
            std::thread::sleep(Duration::from_millis(10));
        }
        let lists = std::cell::Cell::new(vec![vec![process.clone()], vec![]]);
        let list = || {
            let mut rest = lists.take();
            let next = rest.pop();
            lists.set(rest);
            Ok(next.unwrap_or_default())
        };
        let mut namespaces = Namespaces::default();
        namespaces.visit_processes(Some(own), &mut BTreeSet::new(), list);
        let found = namespaces.used.contains(&id(&process.join("ns/net")).unwrap());
        assert!(found, "{namespaces:?}");
    }

    /// Mounts two namespaces, each with one of these addresses. The process is in the first.
    fn process_in_first_of_two(addresses: [&str; 2]) -> Killed {
        let script = "mount -t tmpfs none /run
            for name in with-process without-process; do
                ip netns add $name; ip -n $name addr add $1 dev lo; shift
            done
            exec nsenter --net=/run/netns/with-process sleep 600";
        let mut command = process::Command::new("unshare");
        let sleep = command.args(["--mount", "sh", "-ec", script, "sh"]).args(addresses).spawn();
        let sleep = Killed(sleep.unwrap());
        let inside = Path::new("/proc").join(sleep.0.id().to_string()).join("ns/net");
        let own = id(Path::new("/proc/thread-self/ns/net")).unwrap();
        while id(&inside).unwrap() == own {
            std::thread::sleep(Duration::from_millis(10));
        }
        sleep
    }

    #[test]
    fn a_mounted_namespace_is_unused_only_if_all_processes_were_examined_and_none_is_in_it() {
        let addresses = ["192.0.2.201", "192.0.2.202"];
        let _process = process_in_first_of_two(addresses);
        let [used, unused] = addresses.map(|address| address.parse::<IpAddr>().unwrap());
        let is_ignored = |hidden_process: Option<&str>| {
            let mut namespaces = Namespaces::scan().unwrap();
            // Other tests may have created and deleted namespaces meanwhile.
            (namespaces.unsure, namespaces.unexamined) = (None, BTreeMap::new());
            namespaces.hidden_process = hidden_process.map(str::to_owned);
            namespaces.unused.clear();
            namespaces.find_unused(&Netlink::open().unwrap());
            namespaces.ignore_unused(|_| true);
            assert!(namespaces.has(used), "a process is in the namespace: {namespaces:?}");
            !namespaces.has(unused)
        };
        // Other programs may have the namespace open for a moment.
        assert!((0..1000).any(|_| is_ignored(None)), "no process is in the namespace");
        assert!(!is_ignored(Some("/proc/1: Permission denied")), "the hidden one may be in it");
    }

    #[test]
    fn the_namespace_of_a_container_is_found_by_the_control_group_of_a_process() {
        let sleep = Killed(process::Command::new("unshare").args(["--net", "sleep", "60"]).spawn().unwrap());
        let inside = Path::new("/proc").join(sleep.0.id().to_string()).join("ns/net");
        let own = Path::new("/proc/thread-self/ns/net");
        while id(&inside).unwrap() == id(own).unwrap() {
            std::thread::sleep(Duration::from_millis(10));
        }
        let proc = tempfile::tempdir().unwrap();
        let process = |number: &str, group: &str, netns: &Path| {
            let dir = proc.path().join(number);
            fs::create_dir_all(dir.join("ns")).unwrap();
            fs::write(dir.join("cgroup"), format!("0::/kubepods.slice/{group}.scope\n")).unwrap();
            std::os::unix::fs::symlink(netns, dir.join("ns/net")).unwrap();
            dir
        };
        let all = vec![
            process("1", "cri-containerd-8f3c1", &inside),
            process("2", "cri-containerd-8f3c", own),
            process("3", "cri-containerd-8f3c", &inside),
        ];
        let found = netns_among("8f3c", all.clone());
        let none = [netns_among("8f3", all.clone()), netns_among("8f3c", all[..2].to_vec())];
        assert_eq!(found, Some(all[2].join("ns/net")));
        assert_eq!(none, [None, None]);
    }

    #[test]
    fn the_mount_of_a_network_namespace_is_found_by_its_real_path() {
        let of = |line: &str| {
            namespace_mount(line.as_bytes()).map(|(number, path)| (number, path.display().to_string()))
        };
        let line = r"401 29 0:4 net:[4026532281] /run/a\040b\134040 rw shared:1 - nsfs nsfs rw";
        assert_eq!(of(line), Some((4_026_532_281, r"/run/a b\040".to_owned())));
        assert_eq!(of(&line.replace("shared:1 ", "")).map(|(number, _)| number), Some(4_026_532_281));
        for other in ["", "x", &line.replace("nsfs nsfs", "tmpfs nsfs"), &line.replace("net:", "uts:")] {
            assert_eq!(of(other), None, "{other}");
        }
        let bytes = namespace_mount(b"1 2 0:4 net:[7] /run/\xff rw - nsfs nsfs rw").unwrap().1;
        assert_eq!(bytes.as_os_str().as_encoded_bytes(), b"/run/\xff");
    }

    #[test]
    fn a_process_that_has_exited_hides_nothing() {
        let mut zombie = process::Command::new("true").spawn().unwrap();
        let process = Path::new("/proc").join(zombie.id().to_string());
        while !is_exiting(&process.join("ns/net")) {
            std::thread::sleep(Duration::from_millis(10));
        }
        zombie.wait().unwrap();
        assert!(is_exiting(&process.join("ns/net")) && is_exiting(&process.join("task/1/ns/net")));
        for path in ["/proc/self/ns/net", "/proc/self/task", "/proc/thread-self/ns/net", "/run/netns/pod"] {
            assert!(!is_exiting(Path::new(path)), "{path}");
        }
    }
}
