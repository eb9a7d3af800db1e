//! What belongs to attachments of a network that are not among the valid ones: a GC would remove it. Whether its
//! container is alive is asked of the kernel, since no cache may know.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use cni::Attachments;
use iface::{ownership, veth};
use netlink::{Address, Link, Netlink};
use netns::NetNs;
use runtime::{Network, Result};
use serde_json::{Value, json};
use system::file;

/// Where host-local keeps leases, unless `dataDir` says otherwise.
const LEASES: &str = "/var/lib/cni/networks";
/// More than a lease can have, in bytes.
const LONGEST_LEASE: u64 = 1024;

/// A link in the host, or a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stranger {
    /// `link` or `lease`.
    pub kind: &'static str,
    /// The link's name, or the leased address.
    pub name: String,
    /// As the link's alias or the lease says.
    pub container: String,
    /// Empty in a lease from before 2018.
    pub ifname: String,
    /// The container's namespace is there, or it cannot be told.
    pub alive: bool,
}

impl Stranger {
    pub fn json(&self) -> Value {
        let Self { kind, name, container, ifname, alive } = self;
        json!({"kind": kind, "name": name, "containerID": container, "ifname": ifname, "alive": alive})
    }

    /// Whether it is of one of these.
    pub fn is_among(&self, attachments: &Attachments) -> bool {
        match self.ifname.as_str() {
            "" => attachments.has_container(&self.container),
            ifname => attachments.contains(&self.container, ifname),
        }
    }

    /// In words.
    pub fn text(&self) -> String {
        let of = if self.container.is_empty() { "an unknown container" } else { &self.container };
        format!("{} {} of {of} {}", self.kind, self.name, self.ifname).trim_end().to_owned()
    }
}

/// All that is not of valid attachments.
///
/// # Errors
/// If the kernel does not tell the host's links.
pub fn of(network: &Network, valid: &Attachments) -> Result<Vec<Stranger>> {
    let host = Netlink::open().map_err(cni::Error::from)?;
    let links = host.links().map_err(cni::Error::from)?;
    let stale = veth::stale(&network.name, valid);
    let mut strangers: Vec<Stranger> = links
        .iter()
        .filter(|link| link.is("veth") && stale.contains(link))
        .map(|link| stranger(network, link, &host))
        .collect();
    let leases = leases(network, valid);
    if !leases.is_empty() {
        let elsewhere = Elsewhere::look(&host, &links);
        let told = |(ip, lease)| Stranger { alive: elsewhere.may_have(ip), ..lease };
        strangers.extend(leases.into_iter().map(told));
    }
    Ok(strangers)
}

fn stranger(network: &Network, link: &Link, host: &Netlink) -> Stranger {
    let (container, ifname) = ownership::owner(link, &network.name).unwrap_or_default();
    // A pair outlives its container's namespace for a moment.
    let gone = matches!(beyond(host, link), Some(Ok(None)));
    Stranger {
        kind: "link",
        name: link.name.clone(),
        container: container.to_owned(),
        ifname: ifname.to_owned(),
        alive: !gone,
    }
}

/// The addresses in the namespace that a veth leads to. None: it leads to this one.
fn beyond(host: &Netlink, link: &Link) -> Option<netlink::Result<Option<Vec<Address>>>> {
    link.is("veth").then_some(link.peer_netns_id?).map(|id| host.addresses_beyond(id))
}

/// The addresses in other namespaces than the host's.
#[derive(Debug, Default)]
struct Elsewhere {
    found: BTreeSet<IpAddr>,
    /// A namespace is there that could not be looked into.
    unsure: bool,
}

impl Elsewhere {
    /// Looks where the host's veths lead to, and into all namespaces that are mounted or have a process.
    fn look(host: &Netlink, links: &[Link]) -> Self {
        let mut this = Self::default();
        let mut seen = BTreeSet::new();
        for link in links.iter().filter(|link| link.peer_netns_id.is_some_and(|id| seen.insert(id))) {
            match beyond(host, link) {
                Some(Ok(addresses)) => this.take(&addresses.unwrap_or_default()),
                Some(Err(_)) => this.unsure = true,
                None => {}
            }
        }
        let mut seen = BTreeSet::new();
        for path in mounted().into_iter().chain(of_processes()) {
            let Ok(inode) = path.metadata() else { continue };
            if seen.insert((inode.dev(), inode.ino())) {
                // Another mount may hide it: then it is seen by its veth or its processes, if it has any.
                this.take(&addresses_at(&path).unwrap_or_default());
            }
        }
        this
    }

    fn take(&mut self, addresses: &[Address]) {
        self.found.extend(addresses.iter().map(|address| address.net.ip()));
    }

    fn may_have(&self, ip: IpAddr) -> bool {
        self.unsure || self.found.contains(&ip)
    }
}

/// The paths that namespaces are mounted at (proc_pid_mountinfo(5)).
fn mounted() -> Vec<PathBuf> {
    let mounts = fs::read_to_string("/proc/thread-self/mountinfo").unwrap_or_default();
    let path = |line: &str| {
        let (mount, source) = line.split_once(" - ")?;
        source.starts_with("nsfs ").then(|| mount.split(' ').nth(4).map(PathBuf::from))?
    };
    mounts.lines().filter_map(path).collect()
}

/// The namespaces of the processes that are seen in /proc.
fn of_processes() -> impl Iterator<Item = PathBuf> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let is_number = |name: &OsString| name.as_encoded_bytes().iter().all(u8::is_ascii_digit);
    processes.filter(move |one| is_number(&one.file_name())).map(|one| one.path().join("ns/net"))
}

/// None for what is no network namespace, or this process's own.
fn addresses_at(path: &Path) -> Option<Vec<Address>> {
    let netns = NetNs::open_if_present(path).ok()??;
    if netns.is_same_as(&NetNs::current().ok()?).ok()? {
        return None;
    }
    netns.enter(Netlink::open).ok()?.ok()?.addresses(None).ok()
}

/// The addresses of the network that host-local has leased.
pub fn leased(network: &Network) -> Vec<IpAddr> {
    leases(network, &Attachments::default()).into_iter().map(|(ip, _)| ip).collect()
}

/// The leases of the network that are not of valid attachments.
fn leases(network: &Network, valid: &Attachments) -> Vec<(IpAddr, Stranger)> {
    let mut found = Vec::new();
    for dir in data_dirs(network) {
        let files = fs::read_dir(dir.join(network.name.as_str())).into_iter().flatten().flatten();
        for path in files.map(|file| file.path()) {
            let ip = path.file_name().and_then(|name| name.to_str()?.parse::<IpAddr>().ok());
            let Some((ip, (container, ifname))) = ip.zip(lease(&path)) else { continue };
            let lease = Stranger { kind: "lease", name: ip.to_string(), container, ifname, alive: true };
            if !lease.is_among(valid) {
                found.push((ip, lease));
            }
        }
    }
    found.sort_by_key(|(ip, _)| *ip);
    found
}

/// The container and interface that a lease names. None for a torn one, which is nobody's.
fn lease(path: &Path) -> Option<(String, String)> {
    let text = file::read_all(file::open_own(File::options().read(true), path).ok()?, LONGEST_LEASE).ok()?;
    let text = String::from_utf8_lossy(&text);
    let mut lines = text.trim_matches(['\0', ' ', '\r', '\n']).lines().map(str::trim);
    let container = lines.next().filter(|container| !container.is_empty())?;
    Some((container.to_owned(), lines.next().unwrap_or_default().to_owned()))
}

/// The default, and whatever any part of the configuration calls `dataDir`.
fn data_dirs(network: &Network) -> BTreeSet<PathBuf> {
    let mut dirs = BTreeSet::from([PathBuf::from(LEASES)]);
    let mut parts = vec![serde_json::from_slice::<Value>(network.bytes()).unwrap_or_default()];
    while let Some(part) = parts.pop() {
        match part {
            Value::Object(members) => {
                let dir = members.iter().find(|(key, _)| key.eq_ignore_ascii_case("dataDir"));
                dirs.extend(dir.and_then(|(_, dir)| dir.as_str()).map(PathBuf::from));
                parts.extend(members.into_iter().map(|(_, value)| value));
            }
            Value::Array(values) => parts.extend(values),
            _ => {}
        }
    }
    dirs
}
