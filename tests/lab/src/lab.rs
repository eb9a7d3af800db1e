//! A separate machine for each test.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::marker::PhantomData;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use std::{env, iter, thread};

use nix::sched::{CloneFlags, setns, unshare};
use nix::unistd::{Uid, chroot, fchdir, gettid};
use runtime::AttachmentParameters;
use serde_json::Value;

use crate::raw_state::{RawState, Sysctls};
use crate::snapshot::end_servers;
use crate::under_test::test_name;
use crate::{Call, Chain, Feature, Netns, Snapshot, Tool, mounts, names, start_by_path};

/// The calling thread's own machine, until it is dropped. All commands, sockets and file accesses of the test are
/// inside it.
#[derive(Debug)]
pub struct Lab {
    host: Netns,
    others: RefCell<Vec<Netns>>,
    outside: [(File, CloneFlags); 3],
    /// The root and the working directory outside. Entering a mount namespace changes both to its root, also in a
    /// chroot.
    directories: [File; 2],
    /// Namespaces belong to a thread, so a lab must be dropped where it was created.
    _not_send: PhantomData<*const ()>,
}

/// The state of a lab at one moment. [`Lab::changes_since`] takes a snapshot only of the namespaces whose raw state
/// differs, because snapshots take most of the time of a sweep's case.
#[derive(Debug)]
pub struct Baseline {
    snapshot: Snapshot,
    raw: RefCell<BTreeMap<String, Known>>,
}

/// The raw state of a lab at one moment.
#[derive(Debug)]
pub struct Moment {
    namespaces: Vec<(Known, Netns)>,
    others: Snapshot,
}

/// A namespace's state, whose snapshot is known.
#[derive(Debug)]
struct Known {
    sysctls: Sysctls,
    state: Option<RawState>,
}

impl Known {
    fn of(netns: &Netns) -> Self {
        let sysctls = Sysctls::open(netns);
        let state = RawState::of(netns, &sysctls);
        Self { sysctls, state }
    }

    fn is_still(&self, netns: &Netns) -> bool {
        RawState::of(netns, &self.sysctls) == self.state
    }
}

/// A container as plugins see it: a namespace and an id.
#[derive(Clone, Debug)]
pub struct Container {
    pub id: String,
    pub netns: Netns,
}

impl Container {
    /// The container's attachment with an interface of this name.
    pub(crate) fn attach(&self, ifname: &str) -> AttachmentParameters {
        AttachmentParameters::new(&self.id, ifname)
            .expect("names that the protocol takes")
            .netns(self.netns.path())
    }
}

impl Deref for Container {
    type Target = Netns;
    fn deref(&self) -> &Netns {
        &self.netns
    }
}

impl Default for Lab {
    fn default() -> Self {
        Self::new()
    }
}

impl Lab {
    pub fn new() -> Self {
        assert!(Uid::effective().is_root(), "the suite makes namespaces: run it as root");
        let open = |kind| File::open(format!("/proc/thread-self/ns/{kind}")).expect("open a namespace");
        let kinds = [
            ("mnt", CloneFlags::CLONE_NEWNS),
            ("net", CloneFlags::CLONE_NEWNET),
            // For tests of refused sysctls, such as kernel.hostname: if one is set, it is not the machine's.
            ("uts", CloneFlags::CLONE_NEWUTS),
        ];
        let outside = kinds.map(|(kind, flag)| (open(kind), flag));
        let directories = ["/", "."].map(|path| File::open(path).expect("open a directory"));
        unshare(kinds.map(|(_, flag)| flag).into_iter().collect()).expect("create the lab's namespaces");
        mounts::make_private();
        let host = Netns::bind_current("host");
        fs::create_dir_all(Self::plugin_dir()).expect("create the lab's directory");
        host.exec(&["ip", "link", "set", "lo", "up"]);
        Self { host, others: RefCell::default(), outside, directories, _not_send: PhantomData }
    }

    /// The host's namespace, in which plugins run.
    pub fn host(&self) -> &Netns {
        &self.host
    }

    /// A container's namespace, with only a loopback interface, which is down, as runtimes create it.
    pub fn container(&self, id: &str) -> Container {
        Container { id: id.to_owned(), netns: self.namespace(id) }
    }

    /// Another machine on the host's uplink. The host is .1 and ::1, the machine .2 and ::2 of 198.51.100.0/24 and
    /// 2001:db8:51::/64. Its default routes lead to the host. Plugins do not change it, so snapshots leave it out.
    pub fn machine(&self, name: &str) -> Netns {
        let machine = Netns::create(name);
        self.host.sh(&format!(
            "ip link add uplink type veth peer name eth0 netns {name}
             ip addr add 198.51.100.1/24 dev uplink; ip link set uplink up"
        ));
        machine.sh("ip link set lo up; ip link set eth0 up
             ip addr add 198.51.100.2/24 dev eth0; ip route add default via 198.51.100.1");
        if Feature::Ipv6.is_there() {
            self.host.sh("ip addr add 2001:db8:51::1/64 dev uplink nodad");
            machine
                .sh("ip addr add 2001:db8:51::2/64 dev eth0 nodad; ip route add default via 2001:db8:51::1");
        }
        // The kernel reports a carrier slightly before it accepts IPv6 packets.
        for (netns, link) in [(&self.host, "uplink"), (&machine, "eth0")] {
            netns.wait_until("the uplink is up", |netns| {
                netns.link(link).is_some_and(|l| l["operstate"] == "UP")
            });
        }
        machine
    }

    /// The machine's initial namespace, into which the kernel moves physical devices of deleted namespaces. Only
    /// devices for tests may be taken from it.
    pub fn initial(&self) -> Netns {
        Netns::bind("initial", "/proc/1/ns/net")
    }

    /// The namespace of a process, such as a real runtime's container.
    pub fn namespace_of(&self, name: &str, pid: &str) -> Netns {
        Netns::bind(name, &format!("/proc/{pid}/ns/net"))
    }

    /// Like [`Netns::vanish`], for the id of a container that never had a namespace. No other test of this process may use the id: see
    /// [`names`].
    pub fn claim_name(&self, id: &str) {
        names::claim(id, names::current_test().as_deref());
    }

    fn namespace(&self, name: &str) -> Netns {
        let netns = Netns::create(name);
        self.others.borrow_mut().push(netns.clone());
        netns
    }

    /// The lab's temporary directory.
    pub fn dir(&self) -> &'static Path {
        Path::new("/run/lab")
    }

    /// The second directory of CNI_PATH, for the test's own delegates.
    pub fn plugin_dir() -> PathBuf {
        "/run/lab/plugins".into()
    }

    /// Installs a shell script as a delegate.
    pub fn fake_plugin(&self, name: &str, script: &str) {
        write_program(&Self::plugin_dir().join(name), &format!("#!/bin/sh\n{script}\n"));
    }

    /// A call of a plugin, to be completed.
    pub fn plugin(&self, name: &str) -> Call {
        Call::new(name)
    }

    /// A chain of plugins.
    pub fn chain(&self, conflist: Value) -> Chain {
        Chain::new(&conflist)
    }

    /// Mounts an empty directory at a path of the machine, whether the path exists or not. Its parent must exist.
    pub fn private_dir(&self, path: &str) {
        let path = Path::new(path);
        let child = path.file_name().and_then(|name| name.to_str()).expect("a directory's name");
        mounts::private_child(path.parent().expect("a directory's parent"), child);
    }

    /// Writes a network's configuration.
    pub fn configure(&self, file: &str, conflist: &Value) {
        let dir = Path::new("/etc/cni/net.d");
        fs::create_dir_all(dir).expect("create the directory of configurations");
        fs::write(dir.join(file), format!("{conflist:#}")).expect("write a configuration");
    }

    /// cnitool.
    pub fn cnitool(&self) -> Tool {
        Tool::new()
    }

    /// The state of all of the lab's namespaces and files.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::take(self.namespaces().iter())
    }

    /// The present state, to look for changes quickly and often.
    pub fn baseline(&self) -> Baseline {
        let namespaces = self.namespaces().into_iter();
        let raw = namespaces.map(|netns| (netns.name().to_owned(), Known::of(&netns))).collect();
        Baseline { raw: RefCell::new(raw), snapshot: self.snapshot() }
    }

    /// The changes since then, as [`Snapshot::since`] describes them.
    pub fn changes_since(&self, then: &Baseline) -> String {
        let namespaces = self.namespaces();
        let mut raw = then.raw.borrow_mut();
        let is_same = |netns: &Netns| raw.get(netns.name()).is_some_and(|known| known.is_still(netns));
        let changed: Vec<_> = namespaces.iter().filter(|netns| !is_same(netns)).collect();
        let now = Snapshot::take(changed.iter().copied());
        let is_as_before =
            |now: &Snapshot, netns: &Netns| now.of(netns.name()).since(&then.snapshot).is_empty();
        for netns in changed.into_iter().filter(|netns| is_as_before(&now, netns)) {
            let known = Known::of(netns);
            // The first snapshot may be of an earlier state.
            if is_as_before(&Snapshot::take(iter::once(netns)), netns) && known.is_still(netns) {
                raw.insert(netns.name().to_owned(), known);
            }
        }
        now.since(&then.snapshot)
    }

    /// The present state, without texts of the namespaces.
    pub fn moment(&self) -> Moment {
        let namespaces = self.namespaces().into_iter().map(|netns| (Known::of(&netns), netns));
        Moment { namespaces: namespaces.collect(), others: Snapshot::without_namespaces() }
    }

    /// Whether everything is as it was. If not, a snapshot may still be the same: see [`Baseline`].
    pub fn is_as_at(&self, moment: &Moment) -> bool {
        moment.namespaces.iter().all(|(known, netns)| known.is_still(netns))
            && moment.others == Snapshot::without_namespaces()
    }

    fn namespaces(&self) -> Vec<Netns> {
        let others = self.others.borrow();
        iter::once(&self.host).chain(others.iter()).cloned().collect()
    }

    /// With FERRULE_HOLD, a failed test's machine stays until the test is interrupted.
    fn hold_if_requested(&self) {
        let (tid, test) = (gettid(), test_name());
        if env::var_os("FERRULE_HOLD").is_none() {
            eprintln!(
                "to keep this lab for a look: FERRULE_HOLD=1 cargo test -p suite {test} -- --nocapture"
            );
            return;
        }
        eprintln!("{test} failed; look at its host with\n  nsenter -t {tid} -m -n");
        eprintln!("and at a container with\n  nsenter -t {tid} -m -n ip netns exec NAME sh\nCtrl-C ends it.");
        thread::sleep(Duration::MAX);
    }
}

/// Writes an executable. This process does not open the file: a child that another thread starts at that moment would
/// have it open for writing until its execve(2), and starting the executable would fail (ETXTBSY).
pub fn write_program(path: &Path, text: &str) {
    let mut install = start_by_path("install");
    install.args(["-m", "755", "/dev/stdin"]).arg(path).stdin(Stdio::piped());
    let mut child = install.spawn().expect("start install");
    child.stdin.take().expect("a piped stdin").write_all(text.as_bytes()).expect("write a program");
    let ended = child.wait().expect("wait for install");
    assert!(ended.success(), "write {}: {ended}", path.display());
}

impl Drop for Lab {
    fn drop(&mut self) {
        if thread::panicking() {
            self.hold_if_requested();
        }
        end_servers();
        // A thread that shares its root and working directory with others must not change its mount namespace.
        unshare(CloneFlags::CLONE_FS).expect("stop sharing the working directory");
        for (namespace, kind) in &self.outside {
            setns(namespace, *kind).expect("leave the lab");
        }
        let [root, working] = &self.directories;
        fchdir(root).and_then(|()| chroot(".")).expect("return to the root directory");
        fchdir(working).expect("return to the working directory");
    }
}
