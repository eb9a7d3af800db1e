//! A machine of its own for each test.

use std::cell::RefCell;
use std::fs::{self, File};
use std::io::Write;
use std::marker::PhantomData;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use std::{env, thread};

use nix::sched::{CloneFlags, setns, unshare};
use nix::unistd::{Uid, chroot, fchdir, gettid};
use runtime::Attach;
use serde_json::Value;

use crate::under_test::test_name;
use crate::{Call, Chain, Feature, Netns, PATH, Snapshot, Tool, mounts};

/// The calling thread's own machine, until it is dropped: everything that the test runs in between, commands,
/// sockets and file accesses alike, happens inside it.
#[derive(Debug)]
pub struct Lab {
    host: Netns,
    others: RefCell<Vec<Netns>>,
    outside: [(File, CloneFlags); 2],
    /// The root and the working directory outside: to enter a mount namespace changes both to its root, also in a chroot.
    directories: [File; 2],
    /// Namespaces belong to a thread: a lab must be dropped where it was made.
    _not_send: PhantomData<*const ()>,
}

/// A container as a plugin sees it: a namespace and an id.
#[derive(Clone, Debug)]
pub struct Container {
    pub id: String,
    pub netns: Netns,
}

impl Container {
    /// The container's attachment with an interface of this name.
    pub(crate) fn attach(&self, ifname: &str) -> Attach {
        Attach::new(&self.id, ifname).expect("names that the protocol takes").netns(self.netns.path())
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
        let outside = [(open("mnt"), CloneFlags::CLONE_NEWNS), (open("net"), CloneFlags::CLONE_NEWNET)];
        let directories = ["/", "."].map(|path| File::open(path).expect("open a directory"));
        unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS).expect("create the lab's namespaces");
        mounts::make_private();
        let host = Netns::bind_current("host");
        fs::create_dir_all(Self::plugin_dir()).expect("create the lab's directory");
        host.exec(&["ip", "link", "set", "lo", "up"]);
        Self { host, others: RefCell::default(), outside, directories, _not_send: PhantomData }
    }

    /// The namespace that plays the host: the one that plugins are run in.
    pub fn host(&self) -> &Netns {
        &self.host
    }

    /// A container's namespace, empty but for its loopback interface (which is down, as runtimes leave it).
    pub fn container(&self, id: &str) -> Container {
        Container { id: id.to_owned(), netns: self.namespace(id) }
    }

    /// Another machine on the host's uplink: the host is .1 and ::1, the machine .2 and ::2 of
    /// 198.51.100.0/24 and 2001:db8:51::/64, and its default routes lead to the host. No plugin gets there: snapshots
    /// leave it out.
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
        // The kernel sees a carrier a moment after it is there, and refuses IPv6 until then.
        for (netns, link) in [(&self.host, "uplink"), (&machine, "eth0")] {
            netns.wait_until("the uplink is up", |netns| {
                netns.link(link).is_some_and(|l| l["operstate"] == "UP")
            });
        }
        machine
    }

    /// The machine's initial namespace, where the kernel puts physical devices whose namespace has died. It is nobody's own: only
    /// devices that are there for tests may be taken from it.
    pub fn initial(&self) -> Netns {
        Netns::bind("initial", "/proc/1/ns/net")
    }

    /// The namespace that a process is in, such as a container's of a real runtime.
    pub fn namespace_of(&self, name: &str, pid: &str) -> Netns {
        Netns::bind(name, &format!("/proc/{pid}/ns/net"))
    }

    fn namespace(&self, name: &str) -> Netns {
        let netns = Netns::create(name);
        self.others.borrow_mut().push(netns.clone());
        netns
    }

    /// The lab's scratch directory.
    pub fn dir(&self) -> &'static Path {
        Path::new("/run/lab")
    }

    /// The second entry of CNI_PATH, for delegates of the test's own.
    pub fn plugin_dir() -> PathBuf {
        "/run/lab/plugins".into()
    }

    /// Puts a shell script where delegates are looked for.
    pub fn fake_plugin(&self, name: &str, script: &str) {
        write_program(&Self::plugin_dir().join(name), &format!("#!/bin/sh\n{script}\n"));
    }

    /// The start of a call to a plugin.
    pub fn plugin(&self, name: &str) -> Call {
        Call::new(name)
    }

    /// A list of plugins, run one after the other.
    pub fn chain(&self, conflist: Value) -> Chain {
        Chain::new(&conflist)
    }

    /// Puts an empty directory of the lab's own at a path of the machine, whether the machine has it or not. Its parent has to exist.
    pub fn private_dir(&self, path: &str) {
        let path = Path::new(path);
        let child = path.file_name().and_then(|name| name.to_str()).expect("a directory's name");
        mounts::private_child(path.parent().expect("a directory's parent"), child);
    }

    /// Puts a network into the directory of configurations.
    pub fn configure(&self, file: &str, conflist: &Value) {
        let dir = Path::new("/etc/cni/net.d");
        fs::create_dir_all(dir).expect("create the directory of configurations");
        fs::write(dir.join(file), format!("{conflist:#}")).expect("write a configuration");
    }

    /// The tool that drives plugins by hand.
    pub fn cnitool(&self) -> Tool {
        Tool::new()
    }

    /// The state of all of the lab's namespaces, and of what it has on disk.
    pub fn snapshot(&self) -> Snapshot {
        let others = self.others.borrow();
        Snapshot::take(std::iter::once(&self.host).chain(others.iter()))
    }

    /// A failed test's machine can be looked at: with FERRULE_HOLD set it stays until the test is interrupted.
    fn hold_if_asked(&self) {
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

/// Writes a program. This process does not open the file: a child that another thread starts at that moment would have it open for
/// writing, until it has come as far as to its own program, and so nobody could start what is written (ETXTBSY).
pub fn write_program(path: &Path, text: &str) {
    let mut install = Command::new("install");
    install.args(["-m", "755", "/dev/stdin"]).arg(path).env("PATH", PATH).stdin(Stdio::piped());
    let mut child = install.spawn().expect("start install");
    child.stdin.take().expect("a piped stdin").write_all(text.as_bytes()).expect("write a program");
    let ended = child.wait().expect("wait for install");
    assert!(ended.success(), "write {}: {ended}", path.display());
}

impl Drop for Lab {
    fn drop(&mut self) {
        if thread::panicking() {
            self.hold_if_asked();
        }
        // A thread that shares its root and working directory with others may not change its mount namespace.
        unshare(CloneFlags::CLONE_FS).expect("stop sharing the working directory");
        for (namespace, kind) in &self.outside {
            setns(namespace, *kind).expect("leave the lab");
        }
        let [root, working] = &self.directories;
        fchdir(root).and_then(|()| chroot(".")).expect("return to the root directory");
        fchdir(working).expect("return to the working directory");
    }
}
