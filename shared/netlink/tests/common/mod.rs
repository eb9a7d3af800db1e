//! Namespaces for tests, and missing kernel features.
#![allow(dead_code, reason = "each test binary uses its part")]
#![allow(clippy::expect_used, clippy::unwrap_used, clippy::print_stderr, reason = "tests")]

use std::fs::OpenOptions;
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd};
use std::process::Command;
use std::thread;

use netlink::{Link, LinkKind, Mac, Netlink, NewLink, Peer};
use netns::NetNs;
use nix::sched::{CloneFlags, unshare};

/// Two namespaces that are deleted after the test: the thread's, and another one.
pub struct Lab {
    pub host: Netlink,
    pub container: NetNs,
    pub inside: Netlink,
}

impl Lab {
    /// Moves a link into the container, as another program would.
    pub fn hand_over(&self, name: &str) -> Link {
        // By the open descriptor, because the path now names another namespace.
        let container = format!("/proc/{}/fd/{}", std::process::id(), self.container.as_fd().as_raw_fd());
        sh(&format!("ip link set dev {name} netns {container}"));
        self.inside.link(name).unwrap().unwrap()
    }
}

/// Runs a test in a thread with its own namespaces.
pub fn lab(test: impl FnOnce(&Lab) + Send + 'static) {
    let thread = thread::Builder::new().name(thread::current().name().unwrap_or("lab").to_owned());
    let thread = thread.spawn(|| {
        unshare(CloneFlags::CLONE_NEWNET).expect("these tests need root");
        let path = format!("/proc/{}/task/{}/ns/net", std::process::id(), nix::unistd::gettid());
        let container = NetNs::open(path.as_ref()).unwrap();
        let inside = Netlink::open().unwrap();
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        test(&Lab { host: Netlink::open().unwrap(), container, inside });
    });
    if let Err(panic) = thread.unwrap().join() {
        std::panic::resume_unwind(panic);
    }
}

/// Creates a bridge, up.
pub fn bridge(nl: &Netlink, name: &str, mac: Mac) -> Link {
    let kind = LinkKind::Bridge { vlan_filtering: false };
    nl.create_link(&NewLink { mac: Some(mac), up: true, ..NewLink::new(name, kind) }).unwrap()
}

/// Creates a veth pair in one namespace, with the first end up.
pub fn pair(nl: &Netlink, name: &str, peer: &str) -> (Link, Link) {
    let peer_end = Some(Peer { name: peer, mac: None, netns: None });
    let made =
        nl.create_link(&NewLink { up: true, peer: peer_end, ..NewLink::new(name, LinkKind::Veth) }).unwrap();
    (made, nl.link(peer).unwrap().unwrap())
}

/// Counts the running test as skipped. With `FERRULE_NO_SKIP` set, the test fails instead.
pub fn skip(reason: &str) {
    assert!(std::env::var_os("FERRULE_NO_SKIP").is_none(), "may not be skipped here: {reason}");
    let line = format!("SKIP {}: {reason}\n", thread::current().name().unwrap_or("?"));
    eprint!("{line}");
    if let Some(path) = std::env::var_os("SUITE_SKIPS") {
        let mut file = OpenOptions::new().append(true).create(true).open(path).unwrap();
        file.write_all(line.as_bytes()).unwrap();
    }
}

/// Runs a command such as `ip` in the thread's namespace and returns its output.
pub fn sh(command: &str) -> String {
    let mut words = command.split_whitespace();
    let output = Command::new(words.next().unwrap()).args(words).output().expect("iproute2 is installed");
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}
