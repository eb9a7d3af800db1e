//! A host and a container for tests.
#![allow(dead_code, reason = "each test binary uses its part")]
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "tests")]

use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;
use std::process::Command;
use std::thread;

use cni::{
    Add, AddResult, Attachment, CniArgs, ContainerId, IfName, IpConfig, NetConf, NetworkName, Undo, Version,
};
use iface::child::{self, Spec};
use iface::parent::Parent;
use iface::{Namespace, veth};
use netlink::{Link, LinkKind, MacvlanMode, NewLink, Peer};
use nix::sched::{CloneFlags, unshare};

/// Two namespaces that are deleted after the test: the thread's, and a container's.
pub struct Lab {
    pub host: Namespace,
    pub sandbox: Namespace,
}

impl Lab {
    /// A path to the container's namespace.
    pub fn path(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", std::process::id(), self.sandbox.as_fd().as_raw_fd()).into()
    }

    /// Creates the attachment's veth pair.
    pub fn veth(&self, network: &NetworkName, at: &Attachment) -> veth::Veth {
        let mut undo = Undo::new();
        let spec = veth::Spec::default();
        let made = veth::create(&self.host, &self.sandbox, network, at, spec, &mut undo).unwrap();
        undo.commit();
        made
    }

    /// Creates a link on the host, up, that can be a parent.
    pub fn master(&self, name: &str) -> Link {
        let peer = Some(Peer { name: "far", mac: None, netns: None });
        self.host.nl.create_link(&NewLink { up: true, peer, ..NewLink::new(name, LinkKind::Veth) }).unwrap()
    }

    /// A link of the host as a parent.
    pub fn parent(&self, name: &str) -> Parent {
        Parent { link: self.host.link(name).unwrap(), namespace: self.host.clone(), in_container: false }
    }

    /// Creates the attachment's macvlan on a new parent.
    pub fn macvlan(&self, call: &Add<()>) -> Link {
        let mut undo = Undo::new();
        self.master("up");
        let parent = self.parent("up");
        let spec = Spec { kind: MACVLAN, parent: Some(&parent), mac: None, mtu: None };
        let made = child::create(&self.sandbox, call, &spec, &mut undo).unwrap();
        undo.commit();
        made
    }
}

/// The kind that `ip link add type macvlan mode bridge` creates.
pub const MACVLAN: LinkKind =
    LinkKind::Macvlan { tap: false, mode: MacvlanMode::Bridge, broadcast_queue: None };

/// Runs a test in a thread with its own namespaces.
pub fn lab(test: impl FnOnce(&Lab) + Send + 'static) {
    let thread = thread::spawn(|| {
        unshare(CloneFlags::CLONE_NEWNET).expect("these tests need root");
        let sandbox = Namespace::open(&own_path()).unwrap();
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        test(&Lab { host: Namespace::host().unwrap(), sandbox });
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

/// Creates another container's namespace.
pub fn another_sandbox() -> Namespace {
    let made = thread::spawn(|| {
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        netns::NetNs::open(&own_path()).unwrap()
    });
    let fd = made.join().unwrap();
    Namespace::open(format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd()).as_ref()).unwrap()
}

fn own_path() -> PathBuf {
    format!("/proc/{}/task/{}/ns/net", std::process::id(), nix::unistd::gettid()).into()
}

pub fn network(name: &str) -> NetworkName {
    NetworkName::parse(name).unwrap()
}

pub fn at(container: &str, ifname: &str) -> Attachment {
    Attachment { container: ContainerId::parse(container).unwrap(), ifname: IfName::parse(ifname).unwrap() }
}

/// A network without IPAM.
pub fn layer_2(name: &str) -> NetConf {
    let name = network(name);
    let (version, path) = (Version::LATEST, Vec::new());
    NetConf { name, version, dns: None, ipam: None, path }
}

/// An ADD of a network without IPAM.
pub fn add(network: &str, ifname: &str) -> Add<()> {
    let (attachment, net) = (at("c", ifname), layer_2(network));
    Add {
        attachment,
        netns: PathBuf::new(),
        args: CniArgs::default(),
        prev_result: AddResult::default(),
        net,
        conf: (),
    }
}

/// A leased address.
pub fn leased(address: &str, gateway: Option<&str>) -> IpConfig {
    let gateway = gateway.map(|gateway| gateway.parse().unwrap());
    IpConfig::new(address.parse().unwrap(), gateway)
}

/// Runs `ip` in the thread's namespace and returns its output.
pub fn sh(command: &str) -> String {
    let mut words = command.split_whitespace();
    let output = Command::new(words.next().unwrap()).args(words).output().expect("iproute2 is installed");
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}
