//! Scenarios: the concurrent commands, and the directory at their start.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::traced::Traced;
use lab::PATH;
use lab::{Call, Lab, Outcome};

/// The data directory at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// It does not exist.
    Fresh,
    /// Leases of `stays` and `goes`, and three free addresses.
    Leases,
    /// The same leases, and no free address.
    Full,
    /// The same leases, and no free address. The runtime's cache has a namespace path of `goes` that does not exist.
    Stale,
    /// The same leases, and no free address. The file of `goes` in the runtime's cache is truncated.
    TornCache,
    /// The same leases, and one free address, whose lease file a power loss has truncated.
    TornLease,
    /// The same leases, from before a reboot that drops them.
    OldBoot,
    /// The same leases. The commands are the first ones with `resetOnReboot`, so there is no boot mark.
    NoBootMark,
}

/// The action of a process.
#[derive(Clone, Copy, Debug)]
pub enum Act {
    Add(&'static str),
    Del(&'static str),
    /// GC, with these valid containers.
    Gc(&'static [&'static str]),
    /// The search for stale leases, which an ADD starts if the range is full.
    ReleaseStale,
    /// An administrator's `rm -r` of the network's directory.
    RemoveDirectory,
    /// An administrator's `rm` of the lock files.
    RemoveLocks,
    /// An unprivileged process locks a file of the network's directory (`.`: the directory itself) that it can read,
    /// and then unlocks it.
    Hold(&'static str),
}

/// Concurrent actions.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub name: &'static str,
    pub start: Start,
    pub acts: Vec<Act>,
    /// The maximum number of preemptions and kills.
    pub bound: usize,
}

use Act::{Add, Del, Gc, Hold, ReleaseStale, RemoveDirectory, RemoveLocks};

impl Scenario {
    /// All scenarios.
    pub fn all() -> Vec<Self> {
        use Start::{Fresh, Full, Leases, NoBootMark, OldBoot, Stale, TornCache, TornLease};
        let starts = [Fresh, Leases, Full];
        let with_torn = [Fresh, Leases, Full, TornLease];
        let pairs: [(&str, &[Start], [Act; 2]); 10] = [
            ("ADD, ADD", &[Fresh, Leases, TornLease, OldBoot, NoBootMark], [Add("a"), Add("b")]),
            ("ADD, ADD of the same", &[Fresh, Leases], [Add("a"), Add("a")]),
            ("ADD, DEL", &with_torn, [Add("a"), Del("goes")]),
            ("ADD, DEL of the same", &[Fresh, Leases], [Add("a"), Del("a")]),
            ("ADD, GC", &with_torn, [Add("a"), Gc(&["stays", "a"])]),
            ("DEL, GC", &[Leases], [Del("goes"), Gc(&["stays"])]),
            ("DEL, DEL of the same", &[Leases], [Del("goes"), Del("goes")]),
            ("ADD, rm -r", &starts, [Add("a"), RemoveDirectory]),
            ("ADD, directory held", &[Fresh, Leases], [Add("a"), Hold(".")]),
            ("DEL, lock held", &[Leases], [Del("goes"), Hold("lock")]),
        ];
        let triples: [(&str, &[Start], [Act; 3], usize); 10] = [
            ("ADD, ADD, ADD", &[Fresh], [Add("a"), Add("b"), Add("c")], 1),
            ("ADD, DEL, GC", &[Full], [Add("a"), Del("goes"), Gc(&["stays", "a"])], 1),
            ("ADD, ADD, rm -r", &[Fresh, Leases], [Add("a"), Add("b"), RemoveDirectory], 1),
            ("ADD, DEL, rm -r", &[Leases], [Add("a"), Del("stays"), RemoveDirectory], 1),
            // Two preemptions: one process stops under an older lock, and another fails to take it.
            ("ADD, ADD of the same, locks removed", &[Leases], [Add("a"), Add("a"), RemoveLocks], 2),
            ("ADD, DEL, locks removed", &[Full], [Add("a"), Del("goes"), RemoveLocks], 1),
            ("ADD, ADD, directory held", &[Fresh, Leases], [Add("a"), Add("b"), Hold(".")], 1),
            ("ADD, DEL, directory held", &[Full], [Add("a"), Del("goes"), Hold(".")], 1),
            ("ADD, ADD, lock held", &[Leases], [Add("a"), Add("b"), Hold("lock")], 1),
            ("ADD, rm -r, directory held", &[Leases], [Add("a"), RemoveDirectory, Hold(".")], 1),
        ];
        let stale: [(&str, &[Start], &[Act], usize); 4] = [
            ("ADD, release", &[Stale, TornCache], &[Add("a"), ReleaseStale], 1),
            ("GC, release", &[Stale, TornCache], &[Gc(&["stays"]), ReleaseStale], 1),
            ("release, rm -r", &[Stale], &[ReleaseStale, RemoveDirectory], 1),
            // The search finds the lease of `goes`. When it is about to release it, `a` has the address. With a DEL in place of GC, the search would
            // release nothing: it sees the DEL's process, which has the container's id.
            ("GC, ADD, release", &[Stale], &[Gc(&["stays", "a"]), Add("a"), ReleaseStale], 1),
        ];
        let all = pairs.iter().map(|(name, starts, acts)| (*name, *starts, &acts[..], 2));
        let all =
            all.chain(triples.iter().map(|(name, starts, acts, bound)| (*name, *starts, &acts[..], *bound)));
        all.chain(stale)
            .flat_map(|(name, starts, acts, bound)| {
                starts.iter().map(move |&start| Self { name, start, acts: acts.to_vec(), bound })
            })
            .collect()
    }

    /// Whether an administrator removes the directory.
    pub fn removes_directory(&self) -> bool {
        self.acts.iter().any(|act| matches!(act, RemoveDirectory))
    }

    /// Whether the commands have `resetOnReboot`.
    fn drops_leases(&self) -> bool {
        matches!(self.start, Start::OldBoot | Start::NoBootMark)
    }

    /// The number of addresses.
    pub fn room(&self) -> usize {
        match self.start {
            Start::Full | Start::Stale | Start::TornCache => 2,
            Start::TornLease => 3,
            Start::Fresh | Start::Leases | Start::OldBoot | Start::NoBootMark => 5,
        }
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let start = match self.start {
            Start::Fresh => "nothing there",
            Start::Leases => "some leases",
            Start::Full => "no address free",
            Start::Stale => "no address free, one lease stale",
            Start::TornCache => "no address free, a truncated file in the cache",
            Start::TornLease => "one address free, with a truncated lease file",
            Start::OldBoot => "after a reboot",
            Start::NoBootMark => "some leases and no boot mark",
        };
        write!(f, "{}; {start}", self.name)
    }
}

/// A lab that runs a scenario repeatedly.
#[derive(Debug)]
pub struct Fixture<'a> {
    pub scenario: &'a Scenario,
    lab: Lab,
    /// Inode and change time of each file in the directory at the start.
    at_start: RefCell<BTreeMap<String, (u64, i64, i64)>>,
}

/// The runtime's cache file of `goes`.
const CACHE_FILE: &str = "/var/lib/cni/results/net-goes-eth0";
/// The address whose lease file is truncated at the start.
const TORN: &str = "10.1.0.4";
/// The boot mark of host-local.
const BOOT_MARK: &str = ".boot_id";
const EARLIER_BOOT: &str = "11111111-2222-3333-4444-555555555555";

/// When it may continue, it drops root's privileges, and locks the file if it can open it.
const HOLD: &str = r#"<STDIN>; $) = "65534 65534"; $( = 65534; ($<, $>) = (65534, 65534);
    open(FILE, "<", $ARGV[0]) or exit; flock(FILE, 2); close(FILE)"#;

/// Address → content of its lease file.
pub type Leases = BTreeMap<String, String>;

impl<'a> Fixture<'a> {
    pub fn new(scenario: &'a Scenario) -> Self {
        Self { scenario, lab: Lab::new(), at_start: RefCell::default() }
    }

    fn root(&self) -> PathBuf {
        self.lab.dir().join("data")
    }

    /// The network's directory.
    pub fn directory(&self) -> PathBuf {
        self.root().join("net")
    }

    pub fn call(&self, container: &str) -> Call {
        let last = format!("10.1.0.{}", 1 + self.scenario.room());
        let range = json!({"subnet": "10.1.0.0/24", "rangeStart": "10.1.0.2", "rangeEnd": last});
        let ipam = json!({"type": "host-local", "dataDir": self.root(), "ranges": [[range]],
            // That would start a process that is not traced. `Act::ReleaseStale` is that process.
            "reuseStaleLeases": false});
        let call = self.lab.plugin("host-local").version("1.1.0").config(json!({"ipam": ipam}));
        call.env("CNI_CONTAINERID", container).env("CNI_NETNS", "/run/netns/none")
    }

    pub fn gc(&self, valid: &[&str]) -> Outcome {
        let valid: Vec<_> = valid.iter().map(|&id| (id, "eth0")).collect();
        self.call("gc").without("CNI_CONTAINERID").without("CNI_NETNS").without("CNI_IFNAME").gc(&valid)
    }

    /// Prepares the directory, and starts the processes. Each stops before its first step.
    pub fn begin(&self) -> Vec<Traced> {
        let root = self.root();
        if root.exists() {
            fs::remove_dir_all(&root).expect("remove what the last run left");
        }
        if self.scenario.start != Start::Fresh {
            for container in ["stays", "goes"] {
                self.call(container).add().ok_result();
            }
        }
        if self.scenario.acts.iter().any(|act| matches!(act, Hold("lock"))) {
            let readable = fs::Permissions::from_mode(0o644);
            fs::set_permissions(self.directory().join("lock"), readable).expect("let others read the lock");
        }
        if matches!(self.scenario.start, Start::Stale | Start::TornCache) {
            let note = json!({"kind": "cniCacheV1", "networkName": "net", "containerId": "goes", "ifName": "eth0",
                "netns": "/run/netns/deleted", "config": "", "result": {}});
            fs::create_dir_all("/var/lib/cni/results").expect("make the runtime's directory");
            let text = if self.scenario.start == Start::Stale { note.to_string() } else { String::new() };
            fs::write(CACHE_FILE, text).expect("write the runtime's cache file");
        }
        if self.scenario.start == Start::TornLease {
            fs::write(self.directory().join(TORN), "").expect("truncate a lease");
        }
        if self.scenario.start == Start::OldBoot {
            fs::write(self.directory().join(BOOT_MARK), EARLIER_BOOT)
                .expect("write the mark of another boot");
        }
        self.at_start.replace(self.stamps());
        self.scenario.acts.iter().map(|act| self.start(*act, &root)).collect()
    }

    fn start(&self, act: Act, root: &Path) -> Traced {
        let (call, command) = match act {
            Add(container) => (self.call(container), "ADD"),
            Del(container) => (self.call(container), "DEL"),
            Gc(valid) => {
                let valid = valid.iter().map(|id| json!({"containerID": id, "ifname": "eth0"}));
                let key = json!({"cni.dev/valid-attachments": valid.collect::<Value>()});
                (self.call("gc").config(key), "GC")
            }
            ReleaseStale => {
                let request = json!({"data_dir": root, "network": "net", "age": 0, "reboot": true});
                let mut process = Command::new(self.call("none").process().get_program());
                process.arg("release-stale-leases").env_clear();
                return Traced::start(process, request.to_string().as_bytes(), root);
            }
            Hold(name) => {
                let mut perl = Command::new("perl");
                perl.args(["-e", HOLD]).arg(self.directory().join(name)).env("PATH", PATH);
                return Traced::start(perl, b"", root);
            }
            RemoveLocks => {
                let mut rm = Command::new("sh");
                rm.args(["-c", "read go; exec rm $0/.lock $0/lock"]).arg(self.directory()).env("PATH", PATH);
                return Traced::start(rm, b"go\n", root);
            }
            RemoveDirectory => {
                let mut rm = Command::new("rm");
                // -I prompts before it starts, so the process waits until it is traced.
                rm.arg("-rI").arg(self.directory()).env("PATH", PATH);
                return Traced::start(rm, b"y\n", root);
            }
        };
        let call = if self.scenario.drops_leases() { dropping_leases(call) } else { call };
        let call = call.env("CNI_COMMAND", command);
        Traced::start(call.process(), &call.input(), root)
    }

    fn stamps(&self) -> BTreeMap<String, (u64, i64, i64)> {
        let of = |name: String| {
            let file = self.directory().join(&name).symlink_metadata().expect("a file of the directory");
            (name, (file.ino(), file.ctime(), file.ctime_nsec()))
        };
        self.names().into_iter().map(of).collect()
    }

    /// Truncates all files that were written since the start, and the runtime's cache file, as a power loss may do.
    pub fn tear(&self) {
        let at_start = self.at_start.borrow();
        for (name, stamp) in self.stamps() {
            if at_start.get(&name) != Some(&stamp) {
                File::create(self.directory().join(name)).expect("truncate a file");
            }
        }
        if fs::exists(CACHE_FILE).expect("look for the cache file") {
            File::create(CACHE_FILE).expect("truncate the cache file");
        }
    }

    /// Changes the boot id: a boot mark in the directory is that of an earlier boot. Returns whether there is a mark.
    pub fn has_earlier_boot_mark(&self) -> bool {
        let file = self.directory().join(BOOT_MARK);
        let is_whole = fs::read(&file).is_ok_and(|mark| !mark.is_empty());
        if is_whole {
            fs::write(file, EARLIER_BOOT).expect("change the boot id");
        }
        is_whole
    }

    /// A call after a reboot.
    pub fn after_boot(&self, container: &str) -> Call {
        let call = self.call(container);
        if self.scenario.drops_leases() { dropping_leases(call) } else { call }
    }

    /// All lease files that are not truncated.
    pub fn whole_leases(&self) -> Leases {
        let mut leases = self.leases();
        leases.retain(|_, content| !content.is_empty());
        leases
    }

    /// All lease files, except the one that was truncated at the start.
    pub fn leases(&self) -> Leases {
        let of = |name: String| {
            let content = fs::read(self.directory().join(&name)).expect("read a lease");
            (name, String::from_utf8_lossy(&content).into_owned())
        };
        let mut leases: Leases =
            self.names().into_iter().filter(|name| name.starts_with("10.1.0.")).map(of).collect();
        if self.scenario.start == Start::TornLease {
            leases.retain(|name, content| name != TORN || !content.is_empty());
        }
        leases
    }

    /// The names of all files.
    pub fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.directory()).into_iter().flatten();
        entries
            .map(|entry| entry.expect("list the directory").file_name().to_string_lossy().into_owned())
            .collect()
    }
}

fn dropping_leases(call: Call) -> Call {
    let config: Value = serde_json::from_slice(&call.input()).expect("a configuration");
    let mut ipam = config["ipam"].clone();
    ipam["resetOnReboot"] = true.into();
    call.config(json!({"ipam": ipam}))
}
