//! The complete state of a lab as text, to assert that nothing has changed and nothing is left.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::net::Ipv6Addr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use nix::dir::{Dir, Type};
use nix::fcntl::{OFlag, openat};
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::sys::uio::pread;
use nix::unistd::Pid;

use crate::{Feature, Netns, firewalld};

/// Section (`host: links`, `disk`, ...) → lines.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot(BTreeMap<String, Vec<String>>);

/// Keys below /proc/sys/net to leave out: counters of the kernel, keys without a readable value, and keys that no
/// plugin sets but every namespace gets when a module is loaded, perhaps for another test.
const NO_SETTINGS: [&str; 4] =
    ["netfilter/nf_conntrack_count", "ipv4/route/flush", "ipv6/route/flush", "vrf/strict_mode"];

/// Keys of IPv6 that even a reader gets the kernel's lock of links for. While another thread has this lock, the kernel
/// starts the read again and again without a pause, which took most of the time of a sweep. They are left out, too:
/// each link has the mode as an attribute (`addrgenmode`), and its first secret changes it. Not seen are the mode of
/// new links (`default`), and a second secret.
const WITH_LOCK: [&str; 2] = ["/addr_gen_mode", "/stable_secret"];

/// Directories of plugins. /run/netns and the lab's own directories are left out.
const DIRECTORIES: [&str; 2] = ["/var/lib/cni", "/run"];
const NOT_THEIRS: [&str; 8] = [
    "/run/netns",
    "/run/lab/plugins",
    "/run/lab/cache",
    "/run/lab/daemon.log",
    "/run/lab/server.log",
    "/run/lab/server.leases",
    "/run/lab/runtime",
    firewalld::DIRECTORY,
];

impl Snapshot {
    pub(crate) fn take<'a>(namespaces: impl Iterator<Item = &'a Netns>) -> Self {
        let mut sections = BTreeMap::new();
        for netns in namespaces {
            let there = netns.path().exists();
            sections
                .insert(netns.name().to_owned(), vec![if there { "is there" } else { "is gone" }.to_owned()]);
            if !there {
                continue;
            }
            let mut section =
                |title: &str, lines| sections.insert(format!("{}: {title}", netns.name()), lines);
            section("rtnetlink", rtnetlink(netns));
            section("bridge VLANs", lines(&netns.exec(&["bridge", "vlan", "show"])));
            if Feature::Nftables.is_there() {
                section("nftables", without_counts(&netns.exec(&["nft", "list", "ruleset"])));
            }
            section("iptables-legacy", legacy(netns));
            section("sysctls", sysctls(netns));
            section("traffic control", traffic_control(netns));
            section("connections", translated(netns));
        }
        let mut files = Vec::new();
        DIRECTORIES.iter().for_each(|directory| collect(Path::new(directory), &mut files));
        files.sort();
        sections.insert("disk".to_owned(), files);
        sections.insert("servers of names".to_owned(), servers());
        Self(sections)
    }

    /// Only files and servers.
    pub(crate) fn without_namespaces() -> Self {
        Self::take([].into_iter())
    }

    /// Only the sections of a namespace.
    pub(crate) fn of(&self, netns: &str) -> Self {
        let sections = self.0.iter().filter(|(title, _)| title.split(':').next() == Some(netns));
        Self(sections.map(|(title, lines)| (title.clone(), lines.clone())).collect())
    }

    /// Leaves out a namespace.
    #[must_use]
    pub fn without(mut self, netns: &str) -> Self {
        self.0.retain(|title, _| title.split(':').next() != Some(netns));
        self
    }

    /// The changes since `before`, as `-` and `+` lines under the section's title. Empty: none.
    pub fn since(&self, before: &Self) -> String {
        let mut text = String::new();
        for (title, new) in &self.0 {
            let old = before.0.get(title).map(Vec::as_slice).unwrap_or_default();
            let gone = more(old, new).into_iter().map(|line| format!("  - {line}\n"));
            let come = more(new, old).into_iter().map(|line| format!("  + {line}\n"));
            let changes: String = gone.chain(come).collect();
            if !changes.is_empty() {
                write!(text, "{title}\n{changes}").expect("write to a String");
            }
        }
        text
    }

    #[track_caller]
    pub fn assert_same(&self, before: &Self) {
        let changes = self.since(before);
        assert!(changes.is_empty(), "the lab's state changed:\n{changes}");
    }
}

/// The lines that occur more often in `these` than in `those`.
fn more<'a>(these: &'a [String], those: &[String]) -> Vec<&'a str> {
    let mut others: Vec<_> = those.iter().collect();
    let is_more = |line: &&String| match others.iter().position(|other| other == line) {
        Some(same) => {
            others.remove(same);
            false
        }
        None => true,
    };
    these.iter().filter(is_more).map(String::as_str).collect()
}

fn lines(text: &str) -> Vec<String> {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

/// Removes the counters of rules: `counter packets N bytes N`.
fn without_counts(ruleset: &str) -> Vec<String> {
    let line = |line: String| {
        let words = line.split(' ');
        let counted = |word: &&str| !["packets", "bytes"].contains(word) && word.parse::<u64>().is_err();
        if line.contains("counter packets") {
            words.filter(counted).collect::<Vec<_>>().join(" ")
        } else {
            line
        }
    };
    lines(ruleset).into_iter().map(line).collect()
}

/// Links, addresses, routes, rules and neighbours, without the kernel's own changes: only permanent neighbours are
/// included, because the kernel learns the others.
fn rtnetlink(netns: &Netns) -> Vec<String> {
    const ALL: &str = "link show\naddr show\nroute show table all\nrule show\nneigh show nud permanent\n";
    const V6: &str = "route show table all\nrule show\n";
    let mut all = lines(&netns.exec_with(ALL, &["ip", "-o", "-d", "-batch", "-"]));
    if Path::new("/proc/sys/net/ipv6").exists() {
        all.extend(lines(&netns.exec_with(V6, &["ip", "-o", "-6", "-batch", "-"])));
    }
    all.iter().map(|line| without_noise(line)).filter(|line| !is_noise(line)).collect()
}

/// Words whose values change with ports, the carrier or the clock. The daemon of dhcp sets lifetimes a moment after
/// ADD.
const IN_FLUX: [&str; 9] = [
    "gro_max_size",
    "gso_max_segs",
    "gso_max_size",
    "preferred_lft",
    "qdisc",
    "state",
    "tso_max_segs",
    "tso_max_size",
    "valid_lft",
];

/// Removes timers, carrier states and states of duplicate address detection, which change by themselves. A link that
/// has been up once keeps its default queueing discipline.
fn without_noise(line: &str) -> String {
    let mut kept = Vec::new();
    let mut words = line.split_whitespace();
    while let Some(word) = words.next() {
        if word.ends_with("_timer") || IN_FLUX.contains(&word) {
            words.next();
        } else if !["tentative", "linkdown", "dadfailed", "dynamic"].contains(&word) {
            kept.push(word.replace(",LOWER_UP", "").replace("NO-CARRIER,", ""));
        }
    }
    kept.join(" ")
}

/// Whether the kernel adds the line a moment after a link is set up, an address has passed duplicate address detection,
/// or a router has sent an advertisement. A link or an address that is left has other lines too.
fn is_noise(line: &str) -> bool {
    let words: Vec<_> = line.split(' ').collect();
    let of_the_kernel = line.contains(" proto kernel ") || line.contains(" proto ra ");
    // The destination, after the kind if `ip` prints that.
    let first = &words[..words.len().min(2)];
    let of_an_address =
        ["local", "anycast"].contains(&first[0]) && first.last().is_some_and(|ip| ip.contains(':'));
    let of_a_link = first.iter().any(|word| ["fe80::/64", "ff00::/8", "default"].contains(word));
    let signs = ["lo inet 127.0.0.1/8", "lo inet6 ::1/128"];
    of_the_kernel && (of_an_address || of_a_link)
        || is_link_local_of_the_kernel(&words)
        || signs.iter().any(|sign| line.contains(sign))
}

/// `2: eth0 inet6 fe80::.../64 scope link` with an address from the kernel: it derives all 64 bits of the interface
/// identifier from the MAC. People and plugins choose short ones.
fn is_link_local_of_the_kernel(words: &[&str]) -> bool {
    let address = words.iter().position(|word| *word == "inet6").and_then(|at| words.get(at + 1));
    let ip = address.and_then(|address| address.strip_suffix("/64")?.parse::<Ipv6Addr>().ok());
    ip.is_some_and(|ip| ip.is_unicast_link_local() && ip.to_bits() as u64 > u64::from(u32::MAX))
}

/// Queueing disciplines that were added. The kernel's own have the handle 0.
pub(crate) fn traffic_control(netns: &Netns) -> Vec<String> {
    let qdiscs = lines(&netns.exec(&["tc", "qdisc", "show"]));
    let set = qdiscs.iter().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let set: Vec<_> = set.filter(|words| words.get(2).is_some_and(|handle| *handle != "0:")).collect();
    let mut all = Vec::new();
    for words in set {
        let link = words[words.iter().position(|word| *word == "dev").expect("a link") + 1];
        all.push(without_number_after("refcnt", &words));
        if ["ingress", "clsact"].contains(&words[1]) {
            let filters = netns
                .sh(&format!("tc filter show dev {link} ingress; tc filter show dev {link} egress || :"));
            let filter =
                |line: String| without_number_after("index", &line.split_whitespace().collect::<Vec<_>>());
            all.extend(lines(&filters).into_iter().map(|line| format!("{link}: {}", filter(line))));
        }
    }
    all
}

fn without_number_after(word: &str, words: &[&str]) -> String {
    let is_one = |at: usize| words[at] == word || at > 0 && words[at - 1] == word;
    let kept = (0..words.len()).filter(|at| !is_one(*at)).map(|at| words[at]);
    kept.collect::<Vec<_>>().join(" ")
}

pub(crate) fn legacy(netns: &Netns) -> Vec<String> {
    let tables = |family| format!("/proc/thread-self/net/{family}_tables_names");
    let any = netns
        .run(|| ["ip", "ip6"].map(|family| fs::read_to_string(tables(family)).is_ok_and(|t| !t.is_empty())));
    let save = |(any, program): (bool, &str)| any.then(|| lines(&netns.exec(&[program])));
    let saved = any.into_iter().zip(["iptables-legacy-save", "ip6tables-legacy-save"]).filter_map(save);
    // Comments contain the time, and the heads of chains the counters.
    saved
        .flatten()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.split(" [").next().unwrap_or_default().to_owned())
        .collect()
}

/// Translated UDP flows. Other connections end with the container, and need not be flushed.
pub(crate) fn translated(netns: &Netns) -> Vec<String> {
    // Debian's kernel does not have this file.
    let table = netns.run(|| fs::read_to_string("/proc/thread-self/net/nf_conntrack")).unwrap_or_else(|_| {
        let list = |family| netns.exec(&["conntrack", "-L", "-f", family]);
        ["ipv4", "ipv6"].map(list).concat()
    });
    table.lines().filter_map(translation).collect()
}

/// `udp from 10.1.2.1 4000 to 198.51.100.1 5353, answers from 10.1.2.2 53 to 10.1.2.1 4000`
fn translation(line: &str) -> Option<String> {
    let protocol =
        line.split_whitespace().find(|word| word.parse::<u32>().is_err() && !word.starts_with("ipv"))?;
    let value =
        |key, n| line.split_whitespace().filter_map(|word| word.strip_prefix(key)).nth(n).unwrap_or_default();
    let tuple = |n| ["src=", "sport=", "dst=", "dport="].map(|key| value(key, n));
    let ([from, port, to, to_port], [source, source_port, target, target_port]) = (tuple(0), tuple(1));
    let is_led_elsewhere = protocol == "udp" && [source, source_port] != [to, to_port];
    is_led_elsewhere.then(|| {
        format!("{protocol} from {from} {port} to {to} {to_port}, answers from {source} {source_port} to {target} {target_port}")
    })
}

/// All settings of the namespace. For interfaces, only those that differ from a new interface's: an interface that is
/// left is among the links.
fn sysctls(netns: &Netns) -> Vec<String> {
    let mut all = BTreeMap::new();
    netns.run(|| {
        settings(|key, file| {
            let value = value_of(&file).unwrap_or_default();
            all.insert(key, String::from_utf8_lossy(&value).trim().to_owned());
        });
    });
    let usual = |key: &str| {
        let parts: Vec<_> = key.split('/').collect();
        let [family, kind, name, setting] = parts[..] else { return false };
        // Outside of the machine's initial namespace, neigh has no defaults.
        let other = match kind {
            "conf" if name != "all" => "default",
            "neigh" => "lo",
            _ => return false,
        };
        name != other && all.get(key) == all.get(&format!("{family}/{kind}/{other}/{setting}"))
    };
    let shown = all.iter().filter(|(key, _)| !usual(key));
    shown.map(|(key, value)| format!("{key} = {value}")).collect()
}

/// Opens each file relative to its directory, because looking up long paths takes most of the time.
fn each_setting(mut dir: Dir, prefix: &str, job: &mut impl FnMut(String, OwnedFd)) {
    let entries: Vec<_> = dir.iter().flatten().collect();
    for entry in entries.iter().filter(|entry| !entry.file_name().to_bytes().starts_with(b".")) {
        let key = format!("{prefix}{}", entry.file_name().to_string_lossy());
        let flags = OFlag::O_CLOEXEC;
        if entry.file_type() == Some(Type::Directory) {
            if let Ok(inner) = Dir::openat(&dir, entry.file_name(), flags, Mode::empty()) {
                each_setting(inner, &format!("{key}/"), job);
            }
        } else if let Ok(file) = openat(&dir, entry.file_name(), flags, Mode::empty()) {
            job(key, file);
        }
    }
}

/// A setting's value, at any time while its file is open. One read(2) returns all of it.
pub(crate) fn value_of(file: &OwnedFd) -> nix::Result<Vec<u8>> {
    let mut bytes = [0; 4096];
    let length = pread(file, &mut bytes, 0)?;
    Ok(bytes[..length].to_vec())
}

/// Calls `job` with each setting of the calling thread's namespace.
fn settings(mut job: impl FnMut(String, OwnedFd)) {
    let job = |key: String, file| {
        if !NO_SETTINGS.contains(&&*key) && !WITH_LOCK.iter().any(|end| key.ends_with(end)) {
            job(key, file)
        }
    };
    let directory = Dir::open("/proc/sys/net", OFlag::O_CLOEXEC, Mode::empty());
    each_setting(directory.expect("open the directory of settings"), "", &mut { job });
}

/// Opens every sysctl of the calling thread's namespace.
pub(crate) fn open_sysctls() -> Vec<OwnedFd> {
    let mut files = Vec::new();
    settings(|_, file| files.push(file));
    files
}

/// The command lines of dnsname's servers on the lab's host. dnsmasq's processes for TCP have the arguments of their parent.
fn servers() -> Vec<String> {
    let mut all: Vec<_> = server_processes().into_iter().map(|(_, line)| line).collect();
    all.sort();
    all
}

/// Ends dnsname's servers on the calling thread's host: they would outlive its lab.
pub(crate) fn end_servers() {
    if DNSNAME.iter().any(|directory| Path::new(directory).exists()) {
        for (pid, _) in server_processes() {
            kill(pid, Signal::SIGKILL).ok();
        }
    }
}

/// The processes of the servers, with their command lines.
fn server_processes() -> Vec<(Pid, String)> {
    let namespace = |process: &Path| fs::read_link(process.join("ns/net")).ok();
    let own = namespace(Path::new("/proc/thread-self"));
    let server = |process: &Path| {
        let arguments = fs::read(process.join("cmdline")).ok()?;
        let line = String::from_utf8_lossy(&arguments).replace('\0', " ").trim_end().to_owned();
        let pid = Pid::from_raw(process.file_name()?.to_str()?.parse().ok()?);
        let is_server =
            line.contains("/dnsname/") && name_of(process)? == DNSMASQ && namespace(process) == own;
        is_server.then_some((pid, line))
    };
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes.filter_map(|process| server(&process.path())).collect()
}

/// Where dnsname has its files.
const DNSNAME: [&str; 3] = ["/run/containers", "/run/ferrule-dnsname", "/var/lib/cni/run/ferrule-dnsname"];

const DNSMASQ: &str = "dnsmasq";

/// The name of a process. None: it has exited.
fn name_of(process: &Path) -> Option<String> {
    fs::read_to_string(process.join("comm")).ok().map(|name| name.trim_end().to_owned())
}

/// Whether the process runs that dnsname's file names: a server that was started again has another number.
fn named_server(text: &str) -> &'static str {
    let name = name_of(&Path::new("/proc").join(text.trim()));
    if name.as_deref() == Some(DNSMASQ) { "a server" } else { "no server" }
}

fn collect(path: &Path, files: &mut Vec<String>) {
    // Directories, host-local's hint, index and time of the last search for stale leases, locks, stored facts about the
    // kernel, the attachments that dnsname's DEL has removed, and the closer's socket and process id belong to the network or the host, not to an attachment.
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let lock = name == "lock" || name.ends_with(".lock") || name.ends_with(".boot");
    let of_dnsname = DNSNAME.iter().any(|at| path.starts_with(at));
    let of_the_network = name.starts_with("last_reserved_ip.")
        || [".index", ".looked"].contains(&&*name)
        || (of_dnsname && name == "deleted");
    let of_the_closer = name.starts_with("close-later.") && path.starts_with("/run/ferrule");
    if lock || of_the_network || of_the_closer || NOT_THEIRS.iter().any(|other| path == Path::new(other)) {
        return;
    }
    let shown = path.display();
    // Reading a FIFO would wait for a writer.
    if fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_fifo()) {
        return files.push(format!("{shown}: a pipe"));
    }
    let Ok(entries) = fs::read_dir(path) else {
        let text =
            fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
        if of_dnsname && name == "pidfile" {
            return files.push(format!("{shown}: {}", named_server(&text)));
        }
        // On a full disk, lines that are removed are overwritten by comments.
        let is_blanked = |line: &&str| line.starts_with("# ") && line[1..].trim().is_empty();
        let text = if of_dnsname && name == "addnhosts" {
            text.split_inclusive('\n').filter(|line| !is_blanked(line)).collect()
        } else {
            text
        };
        return files.push(format!("{shown}: {text:?}"));
    };
    entries.flatten().for_each(|entry| collect(&entry.path(), files));
}
